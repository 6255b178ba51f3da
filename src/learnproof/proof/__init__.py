"""What the evidence proves: small checks with one question each, statistics, and the verdict.

    verdict = judge(evidence, scores, profile="default", error_rate=0.05, accusation_rate=0.001, waive={})
    if verdict: ...                       # proven

check.py says what a check is; verdict.py how findings become a verdict. To add a check, write a subclass of `Check` in the
file of its family and list it in verdict.py.
"""

from .check import Check, Finding, Needs, run_checks
from .classic import Checklist, look
from .monitor import ChecklistMonitor, MonitorLook
from .performance import PairedScores, Performance
from .verdict import Mechanism, Verdict, Waiver, judge

__all__ = [
    "Check",
    "Checklist",
    "ChecklistMonitor",
    "Finding",
    "Mechanism",
    "MonitorLook",
    "Needs",
    "PairedScores",
    "Performance",
    "Verdict",
    "Waiver",
    "judge",
    "look",
    "run_checks",
]
