"""Schedules: a factor between 0 and 1 on the learning rate, from the share of the budget that is spent.

`make_schedule(settings)` gives the type that the setting names. Progress is counted in environment steps over the step
budget, in the same unit where a schedule is sized and where it is read, so that it cannot run out early.

    constant   1                        linear, cosine   from 1 down to `final_fraction` at the end of the budget
    plateau    1, cut by `plateau_factor` whenever `plateau_patience` evaluations bring no new best
    warm-up    before any of these: rises over the first `warmup_fraction` of the budget

Only plateau has a memory; a checkpoint holds it, so that a resumed run cuts at the same evaluation.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from ..config import ScheduleSettings

WARM_UP_BEGINS = 0.1
"""Not at 0: the rate holds for a whole iteration, and the first rollout, often a tenth of the run, would teach nothing."""


class Schedule(Protocol):
    def factor(self, progress: float) -> float:
        """The multiple of the starting learning rate at this share (0..1) of the budget."""
        ...

    def observe(self, score: float) -> None:
        """Hear of an evaluation score (higher is better)."""
        ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: dict[str, Any]) -> None: ...


class ConstantSchedule:
    def factor(self, progress: float) -> float:
        return 1.0

    def observe(self, score: float) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None:
        pass


class LinearSchedule(ConstantSchedule):
    """1 at the start, `final` at the end, a straight line between."""

    def __init__(self, final: float) -> None:
        self.final = final

    def factor(self, progress: float) -> float:
        return 1.0 + (self.final - 1.0) * min(max(progress, 0.0), 1.0)


class CosineSchedule(ConstantSchedule):
    """Half a cosine from 1 to `final`."""

    def __init__(self, final: float) -> None:
        self.final = final

    def factor(self, progress: float) -> float:
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * min(max(progress, 0.0), 1.0)))


class PlateauSchedule:
    """Cut by `cut` after `patience` evaluations without a new best, never below `final`."""

    def __init__(self, patience: int, cut: float, final: float) -> None:
        self.patience = patience
        self.cut = cut
        self.final = final
        self.current = 1.0
        self.best = -math.inf
        self.waited = 0

    def factor(self, progress: float) -> float:
        return self.current

    def observe(self, score: float) -> None:
        if score > self.best:
            self.best, self.waited = score, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            self.current, self.waited = max(self.final, self.current * self.cut), 0

    def state(self) -> dict[str, Any]:
        best = None if self.best == -math.inf else self.best
        return {"current": self.current, "best": best, "waited": self.waited}

    def load(self, state: dict[str, Any]) -> None:
        self.current = float(state["current"])
        self.best = -math.inf if state["best"] is None else float(state["best"])
        self.waited = int(state["waited"])


class WarmUp:
    """Rises in a straight line over the first `share` of the budget, then hands over to another schedule.

    The other one begins where this one ends: its budget is what is left.
    """

    def __init__(self, share: float, after: Schedule) -> None:
        self.share = share
        self.after = after

    def factor(self, progress: float) -> float:
        if progress < self.share:
            return WARM_UP_BEGINS + (1 - WARM_UP_BEGINS) * progress / self.share
        return self.after.factor((progress - self.share) / (1 - self.share))

    def observe(self, score: float) -> None:
        self.after.observe(score)

    def state(self) -> dict[str, Any]:
        return self.after.state()

    def load(self, state: dict[str, Any]) -> None:
        self.after.load(state)


def make_schedule(settings: ScheduleSettings) -> Schedule:
    schedule: Schedule
    match settings.kind:
        case "constant":
            schedule = ConstantSchedule()
        case "linear":
            schedule = LinearSchedule(settings.final_fraction)
        case "cosine":
            schedule = CosineSchedule(settings.final_fraction)
        case "plateau":
            schedule = PlateauSchedule(settings.plateau_patience, settings.plateau_factor, settings.final_fraction)
    return WarmUp(settings.warmup_fraction, schedule) if settings.warmup_fraction else schedule
