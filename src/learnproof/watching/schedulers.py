"""Schedules of learning rates: made for which optimizer, and what one that waits for a plateau is told.

scheduler       made: class and optimizer
plateau_told    in the end: the numbers that a ReduceLROnPlateau was given, thinned, and whether it waits for them to fall or to rise
"""

from __future__ import annotations

import weakref
from typing import Any

from .patches import Patches, leave_no_trace
from .session import Session, sense

MOST_TOLD = 512
"""Numbers kept of one; when there are twice as many, every other one is dropped."""


def attach(session: Session) -> None:
    session.senses["schedulers"] = Schedulers(session)


class Told:
    """What one was given, with the optimizer steps before it."""

    def __init__(self, optimizer: int, mode: str) -> None:
        self.optimizer = optimizer
        self.mode = mode
        self.updates: list[int] = []
        self.numbers: list[float] = []
        self.every = 1
        self.calls = 0

    def add(self, update: int, number: float) -> None:
        self.calls += 1
        if self.calls % self.every:
            return
        self.updates.append(update)
        self.numbers.append(number)
        if len(self.numbers) >= 2 * MOST_TOLD:
            self.updates, self.numbers, self.every = self.updates[1::2], self.numbers[1::2], 2 * self.every


class Schedulers:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.told: weakref.WeakKeyDictionary[Any, Told] = weakref.WeakKeyDictionary()
        self.ever: list[Told] = []
        self.patches = Patches()
        schedulers = session.torch.optim.lr_scheduler
        found = [getattr(schedulers, name, None) for name in ("LRScheduler", "_LRScheduler", "ReduceLROnPlateau")]
        for kind in {id(kind): kind for kind in found if kind is not None}.values():
            self.patches.replace(kind, "__init__", self._making)
        if found[-1] is not None:
            self.patches.replace(found[-1], "step", self._stepping)

    def move_to(self, child: Session) -> None:
        self.session = child
        self.told = weakref.WeakKeyDictionary()
        self.ever = []
        child.senses["schedulers"] = self

    def stop(self) -> None:
        self.patches.undo()

    def _making(self, original: Any) -> Any:
        def __init__(scheduler: Any, optimizer: Any, *arguments: Any, **options: Any) -> None:
            try:
                original(scheduler, optimizer, *arguments, **options)
            except BaseException as error:
                leave_no_trace(error)
                raise
            self.met(scheduler, optimizer)

        return __init__

    def _stepping(self, original: Any) -> Any:
        def step(scheduler: Any, metrics: Any, *arguments: Any, **options: Any) -> Any:
            self.hear(scheduler, metrics)
            try:
                return original(scheduler, metrics, *arguments, **options)
            except BaseException as error:
                leave_no_trace(error)
                raise

        return step

    @sense("schedulers")
    def met(self, scheduler: Any, optimizer: Any) -> None:
        optimizers = self.session.senses.get("optimizers")
        known = None if optimizers is None else optimizers.known.get(id(optimizer)) or optimizers.met(optimizer)
        if known is None:
            return
        kind = type(scheduler).__name__
        self.session.say("scheduler", kind=kind, optimizer=known.index)
        if kind == "ReduceLROnPlateau":
            told = self.told[scheduler] = Told(known.index, str(scheduler.mode))
            self.ever.append(told)

    @sense("schedulers")
    def hear(self, scheduler: Any, metrics: Any) -> None:
        told = self.told.get(scheduler)
        if told is not None:
            told.add(self.session.updates, float(metrics))

    def last_words(self) -> None:
        for told in self.ever:
            if told.numbers:
                self.session.say(
                    "plateau_told", last=True, optimizer=told.optimizer, mode=told.mode, calls=told.calls,
                    updates=told.updates, numbers=[round(number, 9) for number in told.numbers],
                )  # fmt: skip
