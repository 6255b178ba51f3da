"""Ends of the task: does the script hear of them as the environment itself tells them?

    ends_told   what the innermost environment calls an end is not called a time limit by the wrappers around it

A time limit that a wrapper calls an end is no matter here: the targets say what the script makes of it (returns.py, bootstrap.py).
"""

from __future__ import annotations

from ..check import Finding
from ..seen import Seen
from .base import FEW_ROWS, SeenCheck

NEARLY_ALL = 0.9
"""A task may end with the very step at which its time is over."""


class EndsTold(SeenCheck):
    name = "ends_told"
    question = "Does the script hear of the ends of its task?"
    family = "mechanism-target"

    def lacks(self, seen: Seen) -> str:
        inside = sum(totals.ends_inside for totals in seen.environment_totals.values())
        return "" if inside else "no environment was seen to end inside of wrappers"

    def look(self, seen: Seen) -> Finding:
        by_most = sorted(seen.environment_totals.values(), key=lambda totals: totals.hidden_ends)
        worst = by_most[-1]
        figures = {"ends": worst.ends_inside, "told_as_time_limits": worst.hidden_ends}
        if worst.hidden_ends >= FEW_ROWS and worst.hidden_ends >= NEARLY_ALL * worst.ends_inside:
            return self.finding(
                "fail",
                f"{worst.hidden_ends} episodes ended by themselves, and a wrapper told the script that time was over: values go on beyond "
                "the end.",
                figures,
                where="the environment's wrappers",
                cause="A wrapper returns terminated=False and puts the end into truncated.",
                advice="Hand terminated on as it is; set truncated only where the wrapper itself cuts. Waive this check if the task is meant to "
                "have no end.",
            )
        return self.finding("pass", f"{worst.ends_inside} ends were handed on as ends.", figures)
