"""Environments as they are reset and stepped: Gymnasium's, single and vector, SB3's, and home-made ones of the same form.

Only the outermost environment counts, for that is what the script sees. Which classes are listened to is decided in classes.py.

Always: returns, lengths and ends of episodes, by environment and copy.
In a window, and all the time where batches are drawn from a memory (short cycles): transitions, as identities of
observations, actions, rewards, ends. They go to disk with the window, or with the batches that are made of them.

    environment   met: class, id, copies, spaces, autoreset mode
    episode       finished: return, length, terminated or truncated
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Container
from typing import Any

from . import homemade
from .classes import Classes
from .cores import Cores, cores_of
from .glances import asked, held, is_a
from .homemade import HOME_MADE, LIMITS_TOLD
from .identity import flat_rows, identities
from .journal import Journal, Step
from .patches import leave_no_trace
from .playing import is_plain, what_changes
from .session import Session, reading, sense
from .streams import Stream, array_of, autoreset_of, cuts_inside, parts_of, success_of, time_limit_of
from .transitions import ACTION_WIDTH, TRANSITIONS_KEPT

CHOICES_KEPT = 1_024
EPISODES_TOLD = 20_000
"""Episodes written one by one; past it every second, fourth, ... one, with the count of those left out."""


def watcher_of(session: Session) -> Environments:
    known: Any = session.senses.get("environments")
    if known is None:
        known = session.senses["environments"] = Environments(session)
    return known  # type: ignore[no-any-return]


def attach(session: Session, library: Any) -> None:
    classes = watcher_of(session).classes
    classes.watch(library.Env)
    vector = getattr(library, "vector", None)
    if vector is not None and hasattr(vector, "VectorEnv"):
        classes.watch(vector.VectorEnv)


def attach_vec_env(session: Session, vec_env: Any) -> None:
    watcher_of(session).classes.watch(vec_env)


class Environments:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.classes = Classes(session, self)
        self.local = threading.local()
        self.streams: dict[int, tuple[Any, Stream]] = {}
        self.met_so_far = 0
        self.episodes = 0
        self.journal = Journal(session)
        self.current: Any = None
        """What an environment returned last, as rows; None where that is not needed."""
        self.window_start = 0
        self.only: Any = None
        """Which copies of a vector the reset under way is for; None = all."""
        self.choices: dict[int, Any] = {}
        """Actions that are whole numbers, as rows."""
        self.cores = Cores()
        self.insides: dict[int, tuple[Any, Stream]] = {}
        """id of an environment of a library inside of a home-made one -> reference to it, and the outer one's stream."""

    def move_to(self, child: Session) -> None:
        self.session = self.classes.session = child
        self.cores = Cores()
        self.streams, self.insides, self.journal = {}, {}, Journal(child)
        child.senses["environments"] = self
        child.window_doors.append(self)

    def stop(self) -> None:
        self.classes.undo()

    def __reduce__(self) -> Any:
        """A class from the script's main file may be sent to another process by value, our wrapper with it. There the
        wrapper finds None in our place, and is nothing but the original."""
        return type(None), ()

    leave_no_trace = staticmethod(leave_no_trace)

    def _enter(self, given: tuple[Any, ...]) -> bool:
        """Whether this call comes from outside of all environments; the wrappers beneath it are then inside."""
        if getattr(self.local, "inside", False) or not given or type(given[0]) in self.classes.others:
            return False
        self.local.inside = True
        return True

    def enter_reset(self, given: tuple[Any, ...], named: dict[str, Any]) -> bool:
        outermost = self._enter(given)
        if outermost:
            options: Any = named.get("options")
            self.only = options.get("reset_mask") if is_a(options, dict) else None  # Gymnasium takes it out
            self.classes.watch_steps(type(given[0]))
            if self.session.cycle_updates:
                self.session.cycle_begins()
        return outermost

    def leave_reset(self, given: tuple[Any, ...], named: dict[str, Any], answer: Any) -> None:
        if not self._unmet(given[0]):
            self.was_reset(given[0], answer, self.only)

    def _unmet(self, environment: Any) -> bool:
        """A home-made one of which nothing is known before its first step."""
        return type(environment) in self.classes.home_made and id(environment) not in self.streams

    def _holds(self, environment: Any) -> bool:
        """Whether what it returned last is kept already, as it is from step to step of short cycles."""
        known = self.streams.get(id(environment))
        return known is not None and known[1].held is not None and known[0]() is environment

    def enter_step(self, given: tuple[Any, ...], named: dict[str, Any]) -> bool | None:
        """None for a step inside of another one's, whose reward is wanted."""
        outermost = self._enter(given)
        if outermost and (self.session.cycle_updates or self.session.window):
            if self.session.cycle_updates:
                self.session.cycle_begins()
            if not self._holds(given[0]) and not self._unmet(given[0]):
                self.begin_keeping(given[0])  # of several that are stepped in turn, each has its own first step
        wanted = bool(given) and (id(given[0]) in self.cores.known or id(given[0]) in self.insides)
        return outermost or (None if wanted else False)

    def leave_step(self, given: tuple[Any, ...], named: dict[str, Any], answer: Any) -> None:
        if not self.classes.is_a_step(type(given[0]), answer):
            return
        self.stepped(given[0], given[1] if len(given) > 1 else named.get("action"), answer)

    @sense("cores")
    def left_inside(self, given: tuple[Any, ...], answer: Any) -> None:
        self.cores.stepped(given[0], answer)
        inside, stream = self.insides.get(id(given[0]), (None, None))
        if inside is not None and stream is not None and inside() is given[0] and len(answer) == 5:
            stream.cut_inside = bool(answer[3]) and not bool(answer[2])

    # ------------------------------------------------------------------ what happened

    @reading("environments")
    def was_reset(self, environment: Any, answer: Any, only: Any = None) -> None:
        """`only`: which copies of a vector begin anew, where not all do."""
        stream = self._stream(environment)
        if not stream.vector and stream.steps > stream.begun[0]:  # the script itself has cut the episode
            self._episode(stream, 0, False, True, None)
        anew = range(stream.copies) if only is None else self.session.numpy.flatnonzero(only).tolist()
        for copy in anew:
            stream.returns[copy], stream.begun[copy] = 0.0, stream.steps
            if stream.cores:
                self.cores.taken(stream.cores[copy])
        if stream.vector:
            stream.ended, stream.any_ended = self.session.numpy.zeros(stream.copies, bool), False
        stream.last_observation = answer[0] if is_a(answer, tuple) and len(answer) == 2 else answer
        stream.held = self._rows(stream.last_observation, stream) if self._keeping() else None

    @sense("environments")
    def stepped(self, environment: Any, action: Any, answer: Any) -> None:
        session = self.session
        stream = self._stream(environment, answer)
        if stream.home_made:
            observation, reward, terminated, truncated, info = homemade.parts_of(session.numpy, answer, stream.vector)
            if stream.cut_inside is not None and (terminated or truncated):
                terminated, truncated = not stream.cut_inside, stream.cut_inside
        else:
            observation, reward, terminated, truncated, info = parts_of(answer, stream.form)
        if hasattr(type(reward), "detach"):
            reward, terminated, truncated = self._arrays(reward, terminated, truncated)
        if stream.form == "sb3" and terminated.any():
            hidden = terminated & cuts_inside(session.numpy, environment, stream.copies)
            stream.hidden_limits += int(hidden.sum())
            terminated, truncated = terminated & ~hidden, truncated | hidden
        session.env_steps += 1
        session.cycle_steps += 1
        stream.steps += 1
        if stream.vector:
            resets = stream.ended if stream.next_step_autoreset else None
            terminated, truncated = self._count_vector(stream, reward, terminated, truncated, info)
        else:
            resets = None
            stream.returns[0] += float(reward)
            if terminated or truncated:
                terminated = self._episode(stream, 0, bool(terminated), bool(truncated), info)
                truncated = truncated or not terminated
        stream.last_observation = observation
        if self._keeping():
            numpy = session.numpy
            plain = type(observation) is numpy.ndarray and type(action) in (int, numpy.ndarray, numpy.int64)
            keep = self._keep_plain if plain else self._keep
            keep(stream, observation, action, reward, terminated, truncated, info, resets)
        else:
            stream.held = self.current = None

    @reading("environments")
    def _arrays(self, *values: Any) -> list[Any]:
        return [array_of(value) for value in values]

    def _count_vector(self, stream: Stream, reward: Any, terminated: Any, truncated: Any, info: Any) -> tuple[Any, Any]:
        """Both flags as they are, but where a wrapper hid a time limit."""
        stream.returns += reward
        ends = self.session.numpy.asarray(terminated, bool) | truncated
        if stream.any_ended:
            skipped = stream.ended  # for these, the step only brought the first observation of a new episode
            stream.returns[skipped] = 0.0
            for copy in skipped.nonzero()[0].tolist():
                stream.begun[copy] = stream.steps
            ends &= ~skipped
        stream.any_ended = False
        if b"\1" in ends.tobytes():  # a quarter of what any() takes, at every step of a small vector
            for copy in ends.nonzero()[0].tolist():
                ended = self._episode(stream, copy, bool(terminated[copy]), bool(truncated[copy]), info)
                if terminated[copy] and not ended:
                    terminated, truncated = self.session.numpy.array([terminated, truncated], bool)
                    terminated[copy], truncated[copy] = False, True
            stream.any_ended = stream.next_step_autoreset
        stream.ended = ends
        return terminated, truncated

    def _episode(self, stream: Stream, copy: int, terminated: bool, truncated: bool, info: Any) -> bool:
        """Whether the task ended: a wrapper may call a time limit an end. TimeLimit itself never hides that it cut, and an
        episode that ends by itself with its last allowed step is rare where others end earlier."""
        stream.episodes += 1
        length = stream.steps - stream.begun[copy]
        stream.longest = max(stream.longest, length)
        stream.any_shorter |= stream.limit is not None and length < stream.limit
        if terminated and not truncated and length == stream.limit and stream.any_shorter:
            terminated = False
            stream.hidden_limits += 1
        if stream.form == HOME_MADE and terminated:
            stream.lengths[length] = stream.lengths.get(length, 0) + 1
            terminated = length < stream.longest or stream.lengths[length] < homemade.AT_THE_LIMIT
        self.episodes += 1
        inside = None
        if stream.cores:
            if self.cores.ended.get(stream.cores[copy]):
                stream.ends_inside += 1
                stream.hidden_ends += not terminated
            inside = self.cores.taken(stream.cores[copy])
        if self.episodes <= EPISODES_TOLD or self.episodes % (1 << (self.episodes // EPISODES_TOLD).bit_length()) == 0:
            body: dict[str, Any] = {
                "return": float(stream.returns[copy]),
                "length": length,
                "terminated": terminated,
            }
            success = success_of(info, copy if stream.vector else None)
            if success is not None:
                body["metrics"] = {"success": float(success)}
            if inside is not None:
                body.setdefault("metrics", {})["inside"] = inside
            self.session.say(
                "episode",
                step=self.session.env_steps,
                env=copy,
                stream=stream.index,
                update=self.session.updates,
                **body,
            )
        stream.returns[copy], stream.begun[copy] = 0.0, stream.steps
        return terminated

    # ------------------------------------------------------------------ transitions

    def _keeping(self) -> bool:
        return self.session.numpy is not None and (self.session.window or not self.session.long_lately)

    @reading("transitions")
    def begin_keeping(self, environment: Any) -> None:
        """Before the first step of a window: copy what the script holds, while it is still there."""
        stream = self._stream(environment)
        if stream.held is None and stream.last_observation is not None and self._keeping():
            stream.held = self._rows(stream.last_observation, stream)

    def shown(self, count: int) -> Any:
        """The rows that `count` environments have returned last: a vector's, or those of as many single ones that are stepped in turn."""
        if self.current is None or len(self.current) == count:
            return self.current
        there = [stream for known, stream in self.streams.values() if not stream.vector and known() is not None]
        rows = [stream.held for stream in there if stream.held is not None]
        if len(rows) != count or len({each.shape for each in rows}) != 1:
            return None
        return self.session.numpy.concatenate(rows)

    def acted_on(self) -> Container[int]:
        """Identities of the observations that steps were taken from."""
        kept = self.journal.remembered()
        return () if kept is None else kept.places

    def _rows(self, observation: Any, stream: Stream) -> Any:
        rows = flat_rows(self.session.numpy, observation, stream.copies if stream.vector else None)
        self.current = None if rows is None else rows.copy()
        return self.current

    def _kept(
        self,
        stream: Stream,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        info: Any,
        resets: Any,
    ) -> None:
        numpy = self.session.numpy
        before, stream.held = stream.held, self._rows(observation, stream)
        if before is None or stream.held is None:
            return
        if not self.session.widths[0]:
            self.session.widths = _widths(numpy, observation, action, stream.copies if stream.vector else None)
        done = self._done(stream, action)
        if stream.vector:
            reward, terminated, truncated = (numpy.array(value) for value in (reward, terminated, truncated))
        final = self._final(numpy, info, stream) if stream.vector else None
        self.journal.append(
            Step(
                stream, self.session.env_steps, before, stream.held, final, reward, terminated, truncated, resets, done
            )
        )
        playing = self.session.senses.get("playing")
        if self.session.window and playing is not None and not playing.explores:
            self.journal.enter_waiting()
            playing.acted(stream, stream.names_before, done)
        elif self.session.window and self.session.aliases.known:
            self.journal.enter_waiting()  # the next call of a network asks for the names of its rows

    _keep_plain = sense("transitions")(_kept)
    _keep = reading("transitions")(_kept)
    """Where tensors may be among what is read."""

    def _done(self, stream: Stream, action: Any) -> Any:
        """The action as rows; those that are whole numbers come again and again, and are made once."""
        numpy = self.session.numpy
        whole = not stream.vector and type(action) in (int, numpy.int64)
        known = self.choices.get(action) if whole else None
        if known is not None:
            return known
        rows = flat_rows(numpy, action, stream.copies if stream.vector else None)
        done = numpy.zeros((stream.copies, 1), numpy.float32) if rows is None else rows[:, :ACTION_WIDTH].copy()
        if whole and len(self.choices) < CHOICES_KEPT:
            self.choices[action] = done
        return done

    def _final(self, numpy: Any, info: Any, stream: Stream) -> Any:
        """Identities of the true last observations that an autoreset hid, 0 where there is none."""
        final = numpy.zeros(stream.copies, numpy.uint64)
        if stream.form == "sb3":
            hidden: Any = [entry.get("terminal_observation") for entry in info]
        elif stream.vector and is_a(info, dict):
            hidden = info.get("final_obs", info.get("final_observation"))
        else:
            return final
        if hidden is None:
            return final
        for copy, observation in enumerate(hidden):
            if observation is not None:
                rows = flat_rows(numpy, observation, None)
                if rows is not None:
                    final[copy] = identities(numpy, rows)[0]
        return final

    def open_window(self) -> None:
        self._begin_window()

    @sense("transitions")
    def _begin_window(self) -> None:
        kept = self.journal.remembered()
        self.window_start = 0 if kept is None else kept.count

    def close_window(self) -> None:
        self._write_window()

    @sense("transitions")
    def _write_window(self) -> None:
        """A long cycle's transitions go to disk whole; those of short ones with the batches that are made of them."""
        session, kept = self.session, self.journal.remembered()
        if kept is None or not session.long:
            return
        start = max(self.window_start, kept.count - TRANSITIONS_KEPT)
        if start == kept.count:
            return
        arrays = kept.taken(session.numpy.arange(start, kept.count))
        file, digest = session.writer.sample("transitions", session.cycle, session.updates, arrays)
        session.say(
            "inspection", kind="transitions", update=session.cycle, optimizer_step=session.updates, file=file,
            sha256=digest, roles=sorted(arrays), marked="inferred",
        )  # fmt: skip

    # ------------------------------------------------------------------ who is who

    def _stream(self, environment: Any, answer: Any = None) -> Stream:
        known = self.streams.get(id(environment))
        if known is not None and known[0]() is environment:
            return known[1]
        return self._meet(environment, answer)

    def _meet(self, environment: Any, answer: Any) -> Stream:
        """`answer` is that of a step, or None."""
        home_made = answer is not None and type(environment) in self.classes.home_made
        if home_made:
            copies = homemade.copies_of(answer[1])
        else:
            copies = asked(environment, "num_envs", even_if_computed=True)  # without it, no vector could be counted
        vector = copies is not None
        sb3 = any(
            kind.__module__.startswith("stable_baselines3.") and kind.__name__ == "VecEnv"
            for kind in type(environment).__mro__
        )
        inside = self.inside_of(environment) if home_made and not vector else None
        told = inside is not None or (home_made and homemade.has_two_flags(answer))
        form = (LIMITS_TOLD if told else HOME_MADE) if home_made else "sb3" if sb3 else "gymnasium"
        stream = Stream(self.met_so_far, int(copies) if copies is not None else 1, vector, form, self.session.numpy)
        self.met_so_far += 1
        if inside is not None:
            self.insides[id(inside)] = (weakref.ref(inside), stream)
            stream.cut_inside = False
            self.classes.watch_steps(type(inside))
        mode = autoreset_of(environment, sb3) if vector else None
        stream.next_step_autoreset = mode == "next_step"
        self.streams[id(environment)] = (weakref.ref(environment, stream.let_go), stream)
        single = next(iter(asked(environment, "envs") or ()), None) or environment
        spec = asked(environment, "spec") or asked(single, "spec")
        stream.spec = spec
        stream.limit = time_limit_of(environment)
        stream.changed = what_changes(environment, single)
        as_it_is = spec is None or stream.changed is not None
        stream.own = weakref.ref(single) if as_it_is and is_plain(environment, single) else None
        self._watch_inside(stream, environment)
        self.session.say(
            "environment",
            index=stream.index,
            kind=type(environment).__name__,
            id=None if spec is None else str(getattr(spec, "id", "")),
            copies=stream.copies,
            vector=vector,
            form=stream.form,
            autoreset=mode,
            observation_space=str(asked(environment, "observation_space"))[:300],
            action_space=str(asked(environment, "action_space"))[:300],
        )
        return stream

    def is_stepped(self, environment: Any) -> bool:
        known = self.streams.get(id(environment))
        return environment is not None and known is not None and known[0]() is environment

    def inside_of(self, environment: Any) -> Any:
        """The environment of a library that a home-made one holds."""
        for name in homemade.INSIDE:
            inner = held(environment, name)
            if self.classes.of_a_library(type(inner)):
                return inner
        return None

    @sense("cores")
    def _watch_inside(self, stream: Stream, environment: Any) -> None:
        for core in cores_of(environment, stream.copies, stream.vector):
            self.cores.watch(core)
            self.classes.watch_steps(type(core))
            stream.cores.append(id(core))

    def last_words(self) -> None:
        for _, stream in self.streams.values():
            self.session.say(
                "environment_totals",
                last=True,
                index=stream.index,
                steps=stream.steps,
                episodes=stream.episodes,
                hidden_limits=stream.hidden_limits,
                ends_inside=stream.ends_inside,
                hidden_ends=stream.hidden_ends,
            )


def _widths(numpy: Any, observation: Any, action: Any, rows: int | None) -> tuple[int, int]:
    seen, done = flat_rows(numpy, observation, rows), flat_rows(numpy, action, rows)
    if seen is None or done is None:
        return 1, 0
    continuous = numpy.asarray(action).dtype.kind == "f"
    return int(seen.shape[1]), int(done.shape[1]) if continuous else 0
