"""Steps of environments on their way into the transitions (transitions.py).

A step waits until somebody wants it or many have gathered: rows are named together, which costs little more than naming one.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, NamedTuple

from .aliases import WIDEST
from .identity import identities
from .session import Session
from .streams import Stream
from .transitions import Transitions

WAITING_STEPS = 256
WAITING_NUMBERS = 262_144
"""Steps, and numbers of their observations, that wait at most (1 MB)."""


class Step(NamedTuple):
    """A step that is not yet among the transitions."""

    stream: Stream
    time: int
    before: Any
    after: Any
    final: Any
    reward: Any
    terminated: Any
    truncated: Any
    resets: Any
    action: Any

    def form(self) -> tuple[Any, ...]:
        """Steps of one form can be written down together."""
        return self.stream, self.before.shape, self.after.shape, self.action.shape


class Journal:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.transitions: Transitions | None = None
        self.waiting: list[Step] = []
        self.waiting_numbers = 0

    def append(self, step: Step) -> None:
        self.waiting.append(step)
        self.waiting_numbers += step.after.size
        if self.waiting_numbers > WAITING_NUMBERS or len(self.waiting) >= WAITING_STEPS:
            self.enter_waiting()

    def remembered(self) -> Transitions | None:
        """All transitions that are kept, those that waited too."""
        self.enter_waiting()
        return self.transitions

    def enter_waiting(self) -> None:
        if not self.waiting:
            return
        waiting, self.waiting, self.waiting_numbers = self.waiting, [], 0
        if self.transitions is None:
            self.transitions = Transitions(self.session.numpy)
        for (stream, *_), steps in groupby(waiting, key=Step.form):
            self._enter_steps(stream, list(steps))

    def _enter_steps(self, stream: Stream, steps: list[Step]) -> None:
        numpy, rows = self.session.numpy, stream.copies
        assert self.transitions is not None
        now = numpy.concatenate([step.after for step in steps])
        names = identities(numpy, now).reshape(len(steps), rows)
        before = []
        for step, after in zip(steps, names):
            before.append(stream.names_of(numpy, step.before))
            stream.named, stream.names = step.after, after
        stream.names_before = before[-1]

        def column(values: Any, kind: Any) -> Any:
            with numpy.errstate(all="ignore"):  # a number too large for float32 is still a number
                return numpy.asarray(values, kind).reshape(len(steps) * rows)

        self.transitions.add(
            raw=self._raw(numpy, steps, before),
            time=numpy.repeat([step.time for step in steps], rows),
            stream=numpy.full(len(steps) * rows, stream.index),
            copy=numpy.tile(numpy.arange(rows), len(steps)),
            observation=numpy.concatenate(before),
            next_observation=names.reshape(-1),
            final_observation=numpy.concatenate(
                [numpy.zeros(rows, numpy.uint64) if step.final is None else step.final for step in steps]
            ),
            reward=column([step.reward for step in steps], numpy.float32),
            terminated=column([step.terminated for step in steps], bool),
            truncated=column([step.truncated for step in steps], bool),
            resets=column([[False] * rows if step.resets is None else step.resets for step in steps], bool),
            action=numpy.concatenate([step.action for step in steps]),
        )

    def _raw(self, numpy: Any, steps: list[Step], names: list[Any]) -> Any:
        """The observations, to be kept until it is known whether the script rescales them; from then on they are named or let go."""
        aliases, transitions = self.session.aliases, self.transitions
        if transitions is None or steps[0].before.shape[1] > WIDEST:
            return None
        if aliases.done and transitions.raw is not None:
            if aliases.known:
                aliases.add(numpy, *transitions.kept_raw())
            transitions.raw = None
        if aliases.done and not aliases.known:
            return None
        flat = numpy.concatenate([step.before for step in steps])
        if not aliases.done:
            return flat
        aliases.add(numpy, flat, numpy.concatenate(names))
        return None
