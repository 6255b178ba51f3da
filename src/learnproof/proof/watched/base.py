"""What the checks of a watched loop have in common: they ask `Seen`, and say themselves what they lack."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from ...evidence import Evidence
from ..check import Accuses, Check, Finding
from ..seen import Seen, seen

ENOUGH = 5
"""Inspected updates that must agree before anybody is accused."""


class SeenCheck(Check):
    accuses: ClassVar[Accuses] = "by comparison"

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
        return self.look(seen(evidence))

    @abstractmethod
    def look(self, seen: Seen) -> Finding: ...


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
