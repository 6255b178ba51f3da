"""Environments as they are reset and stepped: Gymnasium's, single and vector, SB3's, and home-made ones of the same form.

Only the outermost environment counts, for that is what the script sees. Which one that is shows at `reset`: every class's
`reset` is replaced (they are rare), and the class whose reset was called from outside gets its `step` replaced too, so
that the wrappers beneath it run untouched.

Always: returns, lengths and ends of episodes, by environment and copy.
In a window, and all the time where batches are drawn from a memory (short cycles): transitions, as identities of
observations, actions, rewards, ends. They go to disk with the window, or with the batches that are made of them.

    environment   met: class, id, copies, spaces, autoreset mode
    episode       finished: return, length, terminated or truncated
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from .aliases import WIDEST
from .forms import in_the_form_of
from .glances import asked, is_a
from .identity import flat_rows, identities
from .patches import Patches, leave_no_trace, with_subclasses
from .playing import is_plain, what_changes
from .session import Session, reading, sense
from .streams import Stream, array_of, autoreset_of, parts_of
from .transitions import ACTION_WIDTH, TRANSITIONS_KEPT, Transitions

EPISODES_TOLD = 20_000
"""Episodes written one by one; past it every second, fourth, ... one, with the count of those left out."""
AROUND = """
if our_watcher is None:
    return our_original({passed})
our_turn = our_watcher.enter_WHAT({given})
try:
    our_answer = our_original({passed})
except BaseException as our_error:
    our_watcher.leave_no_trace(our_error)
    raise
finally:
    if our_turn:
        our_watcher.local.inside = False
if our_turn:
    our_watcher.leave_WHAT({given}, {named}, our_answer)
return our_answer
"""
"""What surrounds a `reset` or a `step`; as text, because it takes the parameters of the original (forms.py)."""


def attach(session: Session, library: Any) -> None:
    watcher = session.senses.get("environments") or Environments(session)
    session.senses["environments"] = watcher
    watcher.watch_classes(library.Env)
    vector = getattr(library, "vector", None)
    if vector is not None and hasattr(vector, "VectorEnv"):
        watcher.watch_classes(vector.VectorEnv)


def attach_vec_env(session: Session, vec_env: Any) -> None:
    watcher = session.senses.get("environments") or Environments(session)
    session.senses["environments"] = watcher
    watcher.watch_classes(vec_env)


class Environments:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.patches = Patches()
        self.local = threading.local()
        self.streams: dict[int, tuple[Any, Stream]] = {}
        self.met_so_far = 0
        self.episodes = 0
        self.transitions: Transitions | None = None
        self.current: Any = None
        """What an environment returned last, as rows; None where that is not needed."""
        self.window_start = 0
        self.stepped_classes: dict[type, bool] = {}
        self.future: list[tuple[Any, Any]] = []

    def move_to(self, child: Session) -> None:
        self.session = child
        self.streams, self.transitions = {}, None
        child.senses["environments"] = self
        child.window_doors.append(self)

    def stop(self) -> None:
        self.patches.undo()
        for base, own in self.future:
            if own is None:
                del base.__init_subclass__
            else:
                base.__init_subclass__ = own
        self.future.clear()

    # ------------------------------------------------------------------ which classes

    def watch_classes(self, base: Any) -> None:
        """Replace `reset` of a base class and of all its subclasses, those of the future included."""
        for kind in with_subclasses(base):
            self.patches.replace(kind, "reset", self._resetting)
            if self.session.joined:  # environments may be running already, and their reset is behind us
                self.patches.replace(kind, "step", self._stepping)
        if self not in self.session.window_doors:
            self.session.window_doors.append(self)
        self._watch_future_classes(base)

    def _watch_future_classes(self, base: Any) -> None:
        own = vars(base).get("__init_subclass__")
        watcher = self

        def __init_subclass__(kind: Any, /, **options: Any) -> None:
            try:
                if own is not None:
                    own.__func__(kind, **options)
                else:
                    super(base, kind).__init_subclass__(**options)
            except BaseException as error:
                leave_no_trace(error)
                raise
            watcher.patches.replace(kind, "reset", watcher._resetting)

        base.__init_subclass__ = classmethod(__init_subclass__)
        self.future.append((base, own))

    def __reduce__(self) -> Any:
        """A class from the script's main file may be sent to another process by value, our wrapper with it. There the
        wrapper finds None in our place, and is nothing but the original."""
        return type(None), ()

    def _resetting(self, original: Any) -> Any:
        return in_the_form_of(original, AROUND.replace("WHAT", "reset"), our_watcher=self, our_original=original)

    def _stepping(self, original: Any) -> Any:
        return in_the_form_of(original, AROUND.replace("WHAT", "step"), our_watcher=self, our_original=original)

    leave_no_trace = staticmethod(leave_no_trace)

    def _enter(self, given: tuple[Any, ...]) -> bool:
        """Whether this call comes from outside of all environments; the wrappers beneath it are then inside."""
        if getattr(self.local, "inside", False) or not given:
            return False
        self.local.inside = True
        return True

    def enter_reset(self, given: tuple[Any, ...]) -> bool:
        outermost = self._enter(given)
        if outermost:
            self.watch_steps(type(given[0]))
            if self.session.cycle_updates:
                self.session.cycle_begins()
        return outermost

    def leave_reset(self, given: tuple[Any, ...], named: dict[str, Any], answer: Any) -> None:
        self.was_reset(given[0], answer)

    def enter_step(self, given: tuple[Any, ...]) -> bool:
        outermost = self._enter(given)
        if outermost and self.session.cycle_updates:
            self.session.cycle_begins()
            self.begin_keeping(given[0])
        return outermost

    def leave_step(self, given: tuple[Any, ...], named: dict[str, Any], answer: Any) -> None:
        self.stepped(given[0], given[1] if len(given) > 1 else named.get("action"), answer)

    @sense("environments")
    def watch_steps(self, kind: Any) -> None:
        if kind in self.stepped_classes:
            return
        self.stepped_classes[kind] = True
        for owner in kind.__mro__:
            if "step" in vars(owner):
                self.patches.replace(owner, "step", self._stepping)
                return

    # ------------------------------------------------------------------ what happened

    @reading("environments")
    def was_reset(self, environment: Any, answer: Any) -> None:
        stream = self._stream(environment)
        for copy in range(stream.copies):
            stream.returns[copy], stream.lengths[copy], stream.ended[copy] = 0.0, 0, False
        stream.last_observation = answer[0] if is_a(answer, tuple) and len(answer) == 2 else answer
        stream.last_rows = self._rows(stream.last_observation, stream) if self._keeping() else None
        stream.last_flat = self.current if stream.last_rows is not None else None

    @sense("environments")
    def stepped(self, environment: Any, action: Any, answer: Any) -> None:
        session = self.session
        stream = self._stream(environment)
        observation, reward, terminated, truncated, info = parts_of(answer, stream.form)
        if hasattr(type(reward), "detach"):
            reward, terminated, truncated = self._arrays(reward, terminated, truncated)
        session.env_steps += 1
        session.cycle_steps += 1
        stream.steps += 1
        if stream.vector:
            resets = list(stream.ended) if stream.next_step_autoreset else None
            self._count_vector(stream, reward, terminated, truncated)
        else:
            resets = None
            stream.returns[0] += float(reward)
            stream.lengths[0] += 1
            if terminated or truncated:
                self._episode(stream, 0, bool(terminated))
        stream.last_observation = observation
        if self._keeping():
            self._keep(stream, observation, action, reward, terminated, truncated, info, resets)
        else:
            stream.last_rows = stream.last_flat = self.current = None

    @reading("environments")
    def _arrays(self, *values: Any) -> list[Any]:
        return [array_of(value) for value in values]

    def _count_vector(self, stream: Stream, reward: Any, terminated: Any, truncated: Any) -> None:
        rewards, returns, lengths = reward.tolist(), stream.returns, stream.lengths
        ends = [a or b for a, b in zip(terminated.tolist(), truncated.tolist())]
        skipped = stream.ended if stream.next_step_autoreset else None
        for copy in range(stream.copies):
            if skipped is not None and skipped[copy]:
                continue  # this step only brought the first observation of a new episode
            returns[copy] += rewards[copy]
            lengths[copy] += 1
            if ends[copy]:
                self._episode(stream, copy, bool(terminated[copy]))
        if skipped is not None:
            stream.ended = [end and not skip for end, skip in zip(ends, skipped)]

    def _episode(self, stream: Stream, copy: int, terminated: bool) -> None:
        stream.episodes += 1
        stream.longest = max(stream.longest, stream.lengths[copy])
        self.episodes += 1
        if self.episodes <= EPISODES_TOLD or self.episodes % (1 << (self.episodes // EPISODES_TOLD).bit_length()) == 0:
            body: dict[str, Any] = {
                "return": stream.returns[copy],
                "length": stream.lengths[copy],
                "terminated": terminated,
            }
            self.session.say(
                "episode",
                step=self.session.env_steps,
                env=copy,
                stream=stream.index,
                update=self.session.updates,
                **body,
            )
        stream.returns[copy], stream.lengths[copy] = 0.0, 0

    # ------------------------------------------------------------------ transitions

    def _keeping(self) -> bool:
        return self.session.numpy is not None and (self.session.window or not self.session.long_lately)

    @reading("transitions")
    def begin_keeping(self, environment: Any) -> None:
        """Before the first step of a window: identify what the script holds, while it is still there."""
        stream = self._stream(environment)
        if stream.last_rows is None and stream.last_observation is not None and self._keeping():
            stream.last_rows = self._rows(stream.last_observation, stream)
            stream.last_flat = self.current

    def _rows(self, observation: Any, stream: Stream) -> Any:
        rows = flat_rows(self.session.numpy, observation, stream.copies if stream.vector else None)
        wanted = (
            rows is not None
            and rows.shape[1] <= WIDEST
            and (not self.session.aliases.done or self.session.aliases.known)
        )
        self.current = rows.copy() if wanted else None
        return None if rows is None else identities(self.session.numpy, rows)

    @reading("transitions")
    def _keep(
        self,
        stream: Stream,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        info: Any,
        resets: list[bool] | None,
    ) -> None:
        numpy = self.session.numpy
        acted_on = stream.last_flat
        now = self._rows(observation, stream)
        before, stream.last_rows, stream.last_flat = stream.last_rows, now, self.current
        if before is None or now is None:
            return
        if self.transitions is None:
            self.transitions = Transitions(numpy)
        self._alias(numpy, acted_on, before)
        rows = stream.copies
        width = flat_rows(numpy, action, rows if stream.vector else None)
        if not self.session.widths[0]:
            self.session.widths = _widths(numpy, observation, action, rows if stream.vector else None)
        self.transitions.add(
            rows,
            time=self.session.env_steps,
            stream=stream.index,
            copy=numpy.arange(rows),
            observation=before,
            next_observation=now,
            final_observation=self._final(numpy, info, stream),
            reward=flat_rows(numpy, reward, None).reshape(rows),
            terminated=numpy.asarray(terminated, bool).reshape(rows),
            truncated=numpy.asarray(truncated, bool).reshape(rows),
            resets=False if resets is None else numpy.asarray(resets, bool),
            action=numpy.zeros((rows, 1), numpy.float32) if width is None else width[:, :ACTION_WIDTH],
        )
        if self.session.window and "playing" in self.session.senses:
            self.session.senses["playing"].acted(stream, before, width)

    def _alias(self, numpy: Any, flat: Any, names: Any) -> None:
        """Observations are kept until it is known whether the script rescales them; from then on they are named or let go."""
        aliases, transitions = self.session.aliases, self.transitions
        if flat is None or transitions is None or flat.shape[1] > WIDEST:
            return
        if not aliases.done:
            transitions.keep_raw(numpy, flat)
            return
        if transitions.raw is not None:
            if aliases.known:
                aliases.add(numpy, *transitions.kept_raw())
            transitions.raw = None
        if aliases.known:
            aliases.add(numpy, flat, names)

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
        self.window_start = 0 if self.transitions is None else self.transitions.count

    def close_window(self) -> None:
        self._write_window()

    @sense("transitions")
    def _write_window(self) -> None:
        """A long cycle's transitions go to disk whole; those of short ones with the batches that are made of them."""
        session, kept = self.session, self.transitions
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

    def _stream(self, environment: Any) -> Stream:
        known = self.streams.get(id(environment))
        if known is not None and known[0]() is environment:
            return known[1]
        return self._meet(environment)

    def _meet(self, environment: Any) -> Stream:
        copies = asked(environment, "num_envs", even_if_computed=True)  # without it, no vector could be counted
        vector = copies is not None
        sb3 = any(
            kind.__module__.startswith("stable_baselines3.") and kind.__name__ == "VecEnv"
            for kind in type(environment).__mro__
        )
        stream = Stream(self.met_so_far, int(copies) if vector else 1, vector, "sb3" if sb3 else "gymnasium")
        self.met_so_far += 1
        mode = autoreset_of(environment, sb3) if vector else None
        stream.next_step_autoreset = mode == "next_step"
        self.streams[id(environment)] = (weakref.ref(environment, stream.let_go), stream)
        single = next(iter(asked(environment, "envs") or ()), None) or environment
        spec = asked(environment, "spec") or asked(single, "spec")
        stream.spec = spec
        stream.changed = what_changes(environment, single)
        stream.own = weakref.ref(single) if spec is None and is_plain(environment, single) else None
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

    def last_words(self) -> None:
        for _, stream in self.streams.values():
            self.session.say(
                "environment_totals", last=True, index=stream.index, steps=stream.steps, episodes=stream.episodes
            )


def _widths(numpy: Any, observation: Any, action: Any, rows: int | None) -> tuple[int, int]:
    seen, done = flat_rows(numpy, observation, rows), flat_rows(numpy, action, rows)
    if seen is None or done is None:
        return 1, 0
    continuous = numpy.asarray(action).dtype.kind == "f"
    return int(seen.shape[1]), int(done.shape[1]) if continuous else 0
