"""What the checks of a watched loop have in common: they ask `Seen`, and say themselves what they lack."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, Literal

from ...evidence import Evidence
from ..check import Accuses, Check, Finding
from ..seen import Seen, seen

ENOUGH = 5
"""Inspected updates that must agree before anybody is accused."""
FEW_ROWS = 3
"""Special rows (ends of episodes, say) that must agree on a wrong treatment."""
Fail = Callable[[str, str, str], Finding]
"""From what was seen, its cause, and what to do."""


class SeenCheck(Check):
    accuses: ClassVar[Accuses] = "by comparison"
    concerns: ClassVar[Literal["losses", "policies", "values", "optimizers"]] = "losses"
    """Whose lines of the script a defect is in, or is seen at."""

    def absent(self, evidence: Evidence) -> list[str]:
        if not evidence.of_watcher:
            return ["the run was not watched"]
        lacking = self.lacks(seen(evidence))
        return [lacking] if lacking else []

    def available(self, evidence: Evidence) -> int:
        return 1

    @abstractmethod
    def lacks(self, seen: Seen) -> str:
        """Why the question cannot be asked; "" where it can."""

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        view = seen(evidence)
        finding = self.look(view)
        if finding.status != "fail":
            return finding
        lines = some(_lines(view, self.concerns), 3)
        made = "made" if self.concerns == "optimizers" else "backward"
        return dataclasses.replace(finding, where=f"{finding.where} ({made} at {lines})") if lines else finding

    @abstractmethod
    def look(self, seen: Seen) -> Finding: ...


def _lines(view: Seen, concerns: str) -> set[str]:
    if concerns == "optimizers":
        return {optimizer.place for optimizer in view.optimizers.values() if optimizer.place}
    concerned = [
        loss
        for loss in view.training_losses
        if concerns == "losses" or (loss.policies if concerns == "policies" else loss.regressions)
    ]
    return {loss.event.place for loss in concerned or view.training_losses if loss.event.place}


def some(names: Iterable[str], most: int = 4) -> str:
    """A list that can be read aloud."""
    listed = sorted(names)
    if len(listed) <= most:
        return ", ".join(listed)
    return f"{', '.join(listed[:most])} and {len(listed) - most} more"


def common_module(names: Iterable[str]) -> str:
    """`agent.actor` for agent.actor.0.weight and agent.actor.2.bias; the names where they share nothing."""
    listed = sorted(names)
    if not listed:
        return ""
    parts = [name.split(".") for name in listed]
    shared = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return ".".join(shared) or some(listed)
