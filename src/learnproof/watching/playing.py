"""After the script has ended: its greedy policy, played again with its first and with its last weights.

The returns of an epsilon-greedy learner rise when epsilon falls, whatever it learns, so that they prove nothing. What can be
compared is the same network acting greedily, untrained and trained, on the same fresh seeds, and random play beside them.

    while it runs   the network that acts is recognised: it answered exactly the observation that was acted on, with one number
                    per action, and the action was its largest. The weights are copied once, before the first optimizer step.
    at exit         if the script ended by itself: new environments of the same id, several at once (one that has no id, or is
                    wrapped by the script, is used as it is), the three policies by turns, at most SEEDS seeds and STEPS steps;
                    standard output and error are closed to it

Not played, and said so: environments with wrappers that write files, networks whose first weights or running
statistics are not known, scripts that ended with an error. `LEARNPROOF_WATCH_PLAY=0` switches it off.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import weakref
from collections.abc import Iterator
from typing import Any

from .cores import PLAIN_WRAPPERS
from .glances import held
from .homemade import parts_of
from .session import Session, reading, sense

SWITCH = "LEARNPROOF_WATCH_PLAY"
SEEDS = 24
AT_ONCE = 8
"""Environments that are played side by side, so that the network is asked once for all of them."""
FIRST_SEED = 1_000_003
"""Far from the small seeds that scripts use."""
STEPS = 40_000
SECONDS = 4.0
"""Past it no new seed is begun."""
NUMBERS_COPIED = 4_000_000
ACTS = 4
CERTAIN = 16
"""Acts after which a policy that is not greedy is let go."""
GREEDY = 0.9
WRITERS = ("Record", "Video", "Monitor", "Log", "Save")
"""Parts of the names of wrappers that may leave files behind."""
PLAIN_VECTORS = ("SyncVectorEnv", "AsyncVectorEnv", "DummyVecEnv", "SubprocVecEnv")


def attach(session: Session) -> None:
    session.senses["playing"] = Playing(session)


class Actor:
    """The network that acts. It is the one thing of the script that is kept when the script lets it go (a function that trains
    has returned, say), with its environment where that has no id to make it again: else nothing could be played at exit."""

    def __init__(self, modules: list[Any], environment: Any) -> None:
        self.modules = modules
        """One, or several of which each is given the output of the one before: of a duelling network put together by hand, the trunk
        and the head of advantages, whose largest is that of the values too."""
        self.environment = environment
        self.acts = 0
        self.greedy = 0
        self.places, self.of_numbers = 0, False
        """Where states are numbers: the width of the rows that stand for them, or whether they are given as they are."""
        self.choices = 0

    def ask(self, rows: Any) -> Any:
        if self.places:
            rows = (rows.long() == rows.new_tensor(range(self.places)).long()).to(rows.dtype)
        elif self.of_numbers:
            rows = rows.reshape(-1).long()
        if not self.of_numbers:
            rows = rows.to(next((t.dtype for t in self.state if t.is_floating_point()), rows.dtype))
        for module in self.modules:
            rows = module(rows)
        return rows

    @property
    def state(self) -> list[Any]:
        """Weights and running statistics."""
        return [tensor for module in self.modules for tensor in (*module.parameters(), *module.buffers())]


class Playing:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.actor: Actor | None = None
        self.explores = False
        """The network that acts was seen to do something else than its largest answer."""
        self.stream: Any = None
        self.first: dict[int, tuple[Any, Any]] = {}
        """id of a parameter -> (weak reference to it, its numbers before the first step)."""
        self.copied = 0

    def move_to(self, child: Session) -> None:
        self.session = child
        self.actor, self.first, self.copied = None, {}, 0
        child.senses["playing"] = self

    def stop(self) -> None:
        self.first = {}

    @reading("playing")
    def before_first_step(self, optimizer: Any) -> None:
        owned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        modules = list(self.session.names.outermost())
        buffers = [buffer for module in modules for buffer in module.buffers()]
        mine = {id(parameter) for parameter in owned}
        partly = [module for module in modules if any(id(parameter) in mine for parameter in module.parameters())]
        frozen = [parameter for module in partly for parameter in module.parameters()]
        for tensor in [*owned, *buffers, *frozen]:
            if id(tensor) in self.first or self.copied + tensor.numel() > NUMBERS_COPIED:
                continue
            self.copied += tensor.numel()
            self.first[id(tensor)] = (weakref.ref(tensor), tensor.detach().clone())

    @sense("playing")
    def acted(self, stream: Any, observations: Any, actions: Any) -> None:
        """In a window, after a step: was the action the largest answer to the observation?"""
        session, numpy = self.session, self.session.numpy
        calls = session.senses.get("calls")
        if self.explores or calls is None or actions is None or actions.shape[1] != 1:
            return
        for call in reversed(calls.silent[-8:]):
            if call.time != session.env_steps - 1:
                return
            output = call.output if call.output.ndim == 2 else call.output.reshape(1, -1)
            modules = [*(before() for before in call.chain), call.module()]
            rows = call.entry.rows(numpy)
            if None in modules or output.shape[1] < 2 or len(output) != len(observations):
                continue
            if not numpy.array_equal(rows, observations):
                continue
            if self.actor is None or [id(m) for m in self.actor.modules] != [id(m) for m in modules]:
                self.actor = Actor(modules, None if stream.own is None else stream.own())
                self.actor.places, self.actor.of_numbers = call.entry.places, call.entry.of_numbers
                self.actor.choices = output.shape[1]
            self.actor.acts += len(output)
            self.actor.greedy += int((output.argmax(axis=1) == actions[:, 0]).sum())
            self.stream = stream
            if self.actor.acts >= CERTAIN and self.actor.greedy < GREEDY * self.actor.acts:
                self.actor, self.explores = None, True  # it samples: its training returns speak for themselves
            return

    # ------------------------------------------------------------------ at exit

    @sense("playing")
    def play(self) -> None:
        if os.environ.get(SWITCH, "1") == "0" or getattr(sys, "last_type", None) is not None:
            return
        actor = self.actor
        if actor is None or actor.acts < ACTS or actor.greedy < GREEDY * actor.acts:
            return
        tensors = actor.state
        known = [self.first.get(id(tensor)) for tensor in tensors]
        if any(entry is None or entry[0]() is not tensor for entry, tensor in zip(known, tensors)):
            self.session.not_seen("greedy play", "the first state of the network that acts was not copied as a whole")
            return
        environments = self.session.senses["environments"]
        environments.local.inside = True  # what is played here is not the script's
        with quiet():
            played = self._environments()
            if played:
                self._compare(played, actor, [entry[1] for entry in known if entry is not None])

    def _environments(self) -> list[Any]:
        gymnasium = sys.modules.get("gymnasium")
        spec, changed = self.stream.spec, self.stream.changed
        if gymnasium is not None and spec is not None and changed is None:
            options = dict(spec.kwargs or {}, render_mode=None)
            return [gymnasium.make(spec.id, disable_env_checker=True, **options) for _ in range(AT_ONCE)]
        own = None if self.actor is None else self.actor.environment
        writes = None if own is None else what_writes(own)
        if own is None or writes is not None:
            why = f"the environment cannot be made again: {changed or 'it has no id'}"
            self.session.not_seen("greedy play", why + (f", and {writes} writes" if writes else ""))
            return []
        return [own]

    def _compare(self, environments: list[Any], actor: Actor, first: list[Any]) -> None:
        last = [tensor.detach().clone() for tensor in actor.state]
        training = [module.training for module in actor.modules]
        for module in actor.modules:
            module.eval()
        scores: dict[str, list[float]] = {"untrained": [], "trained": [], "random": []}
        began, steps = time.monotonic(), 0
        longest = max(self.stream.longest, 1)
        seeds: list[int] = []
        try:
            for start in range(FIRST_SEED, FIRST_SEED + SEEDS, len(environments)):
                if steps > STEPS or time.monotonic() - began > SECONDS:
                    break
                together = range(start, min(start + len(environments), FIRST_SEED + SEEDS))
                returns = {}
                for name, weights in (("untrained", first), ("trained", last), ("random", None)):
                    if weights is not None:
                        self._load(actor, weights)
                    asked = actor.ask if weights is not None else None
                    returns[name], taken = self._episodes(environments, asked, list(together), longest)
                    steps += taken
                seeds += together
                for name, found in returns.items():
                    scores[name] += found
        finally:
            self._load(actor, last)
            for module, before in zip(actor.modules, training):
                module.train(before)
            for environment in environments if not self.stream.home_made else ():
                environment.close()
        if seeds:
            self.session.say(
                "played", last=True, module=self.session.names.of_module(actor.modules[-1]), rule="greedy", steps=steps, seeds=seeds, **scores
            )  # fmt: skip

    def _load(self, actor: Actor, numbers: list[Any]) -> None:
        with self.session.torch.no_grad():
            for tensor, own in zip(actor.state, numbers):
                tensor.data.copy_(own)

    def _episodes(self, environments: list[Any], ask: Any, seeds: list[int], longest: int) -> tuple[list[float], int]:
        """One episode per seed, side by side: their returns, and the steps of all."""
        torch, numpy = self.session.torch, self.session.numpy
        playing = dict(enumerate(environments[: len(seeds)]))
        observations = {}
        home_made = self.stream.home_made
        for position, environment in playing.items():
            observations[position] = _begun(environment, seeds[position], home_made)
        chance = numpy.random.default_rng(seeds[0])
        totals, steps = [0.0] * len(seeds), 0
        for _ in range(2 * longest):
            if ask is None and home_made and self.actor is not None:
                actions = chance.integers(self.actor.choices, size=len(playing)).tolist()
            elif ask is None:
                actions = [environment.action_space.sample() for environment in playing.values()]
            else:
                rows = numpy.stack(
                    [numpy.asarray(observations[position], numpy.float32).reshape(-1) for position in playing]
                    if self.actor is not None and (self.actor.places or self.actor.of_numbers)
                    else [numpy.asarray(observations[position], numpy.float32) for position in playing]
                )
                with torch.no_grad():
                    actions = ask(torch.as_tensor(rows)).reshape(len(rows), -1).argmax(dim=1).tolist()
            for (position, environment), action in zip(list(playing.items()), actions):
                answer = environment.step(action)
                if home_made:
                    observations[position], reward, terminated, truncated, _ = parts_of(numpy, answer, vector=False)
                else:
                    observations[position], reward, terminated, truncated, _ = answer
                totals[position] += float(reward)
                steps += 1
                if terminated or truncated:
                    del playing[position]
            if not playing:
                break
        return totals, steps


def _begun(environment: Any, seed: int, home_made: bool) -> Any:
    """The first observation; a home-made environment draws its own chance as it goes."""
    if home_made:
        answer = environment.reset()
        return answer[0] if type(answer) is tuple and len(answer) == 2 and type(answer[1]) is dict else answer
    observation, _ = environment.reset(seed=seed)
    environment.action_space.seed(seed)
    return observation


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing that an environment says while it is played reaches the script's output."""
    import warnings

    streams = sys.stdout, sys.stderr
    nowhere = open(os.devnull, "w")  # noqa: SIM115 (closed below, after the descriptors are back)
    descriptors = []
    try:
        for number in (1, 2):
            with contextlib.suppress(OSError):
                descriptors.append((number, os.dup(number)))
                os.dup2(nowhere.fileno(), number)
        sys.stdout = sys.stderr = nowhere
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.stdout, sys.stderr = streams
        for number, kept in descriptors:
            os.dup2(kept, number)
            os.close(kept)
        nowhere.close()


def is_plain(environment: Any, single: Any) -> bool:
    """Whether it is one environment, or a vector that leaves its copies' observations as they are."""
    return environment is single or type(environment).__name__ in PLAIN_VECTORS


def what_writes(single: Any) -> str | None:
    """A wrapper that leaves files behind (videos, a monitor's lines): an environment that has one is not played after the script."""
    core = single
    for _ in range(32):
        name = type(core).__name__
        harmless = name == "RecordEpisodeStatistics" or (name == "Monitor" and held(core, "results_writer") is None)
        if any(word in name for word in WRITERS) and not harmless:
            return name
        core = held(core, "env")
        if core is None:
            return None
    return None


def what_changes(environment: Any, single: Any) -> str | None:
    """Why an environment could not be made again from its id, or None where it could."""
    if not is_plain(environment, single):
        return f"it is a {type(environment).__name__}"
    core = single
    for _ in range(32):
        inner = held(core, "env")
        if inner is None:
            return None
        if type(core).__name__ not in PLAIN_WRAPPERS:
            return f"it is wrapped in {type(core).__name__}"
        core = inner
    return "it has too many wrappers"
