"""When to stop: the step budget, a plateau, a target that is reached, a decline.

`Stopping.observe(score)` hears of each evaluation (higher is better) and answers with a `Stop` or None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..config import StoppingSettings


@dataclass(frozen=True)
class Stop:
    rule: str
    """budget, plateau, target or decline; pruned, where whoever started the run gave it up."""
    reason: str


class Stopping:
    def __init__(self, settings: StoppingSettings) -> None:
        self.settings = settings
        self.first: float | None = None
        self.best: float | None = None
        self.without_improvement = 0
        self.declining = 0

    def observe(self, score: float, *, waiting: bool = False) -> Stop | None:
        """`waiting`: a curriculum has not reached the full task yet, so that no progress on it means nothing."""
        s = self.settings
        if self.first is None or self.best is None:
            self.first = self.best = score
        elif score > self.best + s.plateau_min_improvement:
            self.best = score
            self.without_improvement = 0
        else:
            self.without_improvement += 1
        gain = self.best - self.first
        lost = self.best - score
        self.declining = self.declining + 1 if gain > 0 and lost >= s.decline_fraction * gain else 0

        if waiting:
            self.without_improvement = self.declining = 0

        if s.target is not None and score >= s.target:
            return Stop("target", f"the evaluation reached {score:.6g}, the target is {s.target:.6g}")
        if s.decline_patience and self.declining >= s.decline_patience:
            return Stop(
                "decline",
                f"{self.declining} evaluations in a row lost at least {s.decline_fraction:.0%} of what was gained "
                f"(best {self.best:.6g}, now {score:.6g})",
            )
        if s.plateau_patience and self.without_improvement >= s.plateau_patience:
            return Stop(
                "plateau",
                f"{self.without_improvement} evaluations without an improvement of {s.plateau_min_improvement:g} "
                f"(best {self.best:.6g})",
            )
        return None

    def state(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "best": self.best,
            "without_improvement": self.without_improvement,
            "declining": self.declining,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.first = state["first"]
        self.best = state["best"]
        self.without_improvement = int(state["without_improvement"])
        self.declining = int(state["declining"])
