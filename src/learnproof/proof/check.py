"""What a check is, what it finds, and who decides whether it can be asked at all.

A `Check` asks one question of the evidence and answers with one `Finding`: pass, fail or undecided. The runner alone says
`not_applicable` (what the question needs was not recorded), says what was missing, and answers "not enough yet" where
there is too little of it. It also shares out the accusation rate: the chance of calling a healthy run broken, over all
checks together. Checks that accuse by exact comparison spend none of it (a number either follows from its
definition or does not); those that accuse by statistics share it by Holm's rule.

In: `Evidence`, the checks, the accusation rate. Out: one Finding per check, in the order of the checks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ..evidence import Evidence, Inspection
from ..evidence.events import plain, revive
from ..evidence.watched import OptimizerStep
from .statistics import holm_levels

Status = Literal["pass", "fail", "undecided", "not_applicable"]
Family = Literal[
    "mechanism-direction", "mechanism-target", "mechanism-identity", "mechanism-health", "performance", "advice"
]
Accuses = Literal["never", "by comparison", "by statistics"]


@dataclass(frozen=True)
class Finding:
    """One answered question, complete enough to be read aloud to somebody who has never seen the tool."""

    check: str
    status: Status
    question: str
    summary: str
    """What was seen, in one or two sentences with the numbers."""
    figures: dict[str, Any] = field(default_factory=dict)
    where: str = ""
    """The parameter, the update, the row: where to look."""
    cause: str = ""
    """The likeliest cause."""
    advice: str = ""
    """What to do next."""
    p_value: float | None = None
    """Of the accusation (mechanism checks) or of the proof (performance); None where nothing is left to chance."""

    def to_json(self) -> dict[str, Any]:
        figures = dict(self.figures) if self.p_value is None else {**self.figures, "p_value": self.p_value}
        return {
            "check": self.check,
            "status": self.status,
            "question": self.question,
            "summary": self.summary,
            "figures": plain(figures),
            "where": self.where,
            "cause": self.cause,
            "advice": self.advice,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Finding:
        figures = dict(revive(dict(body["figures"])))
        p_value = figures.pop("p_value", None)
        return cls(**{**body, "figures": figures, "p_value": p_value})


@dataclass(frozen=True)
class Needs:
    """What must have been recorded for a question to make sense."""

    events: tuple[str, ...] = ()
    """Kinds of event: "update", "episode", "gradient_step" (an Inspection of that kind, batch kept or not), and
    "measured_step": an update of our own, or a measured optimizer step of a watched loop."""
    samples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Kinds of kept batch, with the roles that each must carry."""
    constants: tuple[str, ...] = ()
    """Names in RunStarted.constants."""


class Check(ABC):
    """One small question. A subclass states the class variables and writes `judge`."""

    name: ClassVar[str]
    question: ClassVar[str]
    family: ClassVar[Family]
    accuses: ClassVar[Accuses] = "never"
    needs: ClassVar[Needs] = Needs()
    min_samples: ClassVar[int] = 1
    """How many of each needed event and batch there must be before an answer is given."""

    def absent(self, evidence: Evidence) -> list[str]:
        """What the question needs and the evidence lacks, as words; empty where it can be asked."""
        return _absent(self.needs, evidence)

    def available(self, evidence: Evidence) -> int:
        """How much there is of the scarcest thing that the question needs."""
        return _available(self.needs, evidence)

    @abstractmethod
    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        """Answer the question. `alpha` is this check's share of the accusation rate (0 unless by statistics)."""

    def finding(
        self,
        status: Status,
        summary: str,
        figures: Mapping[str, Any] | None = None,
        *,
        where: str = "",
        cause: str = "",
        advice: str = "",
        p_value: float | None = None,
    ) -> Finding:
        return Finding(
            check=self.name,
            status=status,
            question=self.question,
            summary=summary,
            figures=dict(figures or {}),
            where=where,
            cause=cause,
            advice=advice,
            p_value=p_value,
        )


def run_checks(evidence: Evidence, checks: Sequence[Check], accusation_rate: float) -> list[Finding]:
    """Ask every check that can be asked; the others are `not_applicable`, with the reason."""
    findings: dict[str, Finding] = {}
    askable: list[Check] = []
    for check in checks:
        absent = _absent_for(check, evidence)
        available = check.available(evidence)
        if absent:
            findings[check.name] = _not_applicable(check, absent, evidence)
        elif available < check.min_samples:
            findings[check.name] = _not_enough_yet(check, available, evidence)
        else:
            askable.append(check)
    for check in askable:
        if check.accuses != "by statistics":
            findings[check.name] = _judged(check, evidence)
    statistical = [check for check in askable if check.accuses == "by statistics"]
    findings.update(_judge_by_holm(evidence, statistical, accusation_rate))
    return [findings[check.name] for check in checks]


def _absent_for(check: Check, evidence: Evidence) -> list[str]:
    if not evidence.of_watcher:
        return check.absent(evidence)
    try:
        return check.absent(evidence)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        return [f"the check could not cope with what was seen ({type(error).__name__}: {str(error)[:200]})"]


def _judged(check: Check, evidence: Evidence) -> Finding:
    """Of a stranger's loop anything may have been written down: a check that cannot cope says so, and the others go on."""
    if not evidence.of_watcher:
        return check.judge(evidence, 0.0)
    try:
        return check.judge(evidence, 0.0)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        return check.finding(
            "undecided",
            f"This check could not cope with what was seen ({type(error).__name__}: {str(error)[:200]}).",
            {"error": type(error).__name__},
            advice="Please report it together with the run's folder.",
        )


def _judge_by_holm(evidence: Evidence, checks: Sequence[Check], rate: float) -> dict[str, Finding]:
    """Each check is judged at its share; those that Holm's rule then allows a larger share are judged again at it."""
    if not checks:
        return {}
    share = rate / len(checks)
    first = [check.judge(evidence, share) for check in checks]
    levels = holm_levels([1.0 if f.p_value is None else f.p_value for f in first], rate)
    return {
        check.name: check.judge(evidence, level) if level > share else finding
        for check, finding, level in zip(checks, first, levels, strict=True)
    }


def kept(evidence: Evidence, kind: str, roles: Sequence[str] = ()) -> list[Inspection]:
    """Inspections of a kind whose batch was kept with all these roles."""
    return [
        event
        for position, event in enumerate(evidence.inspections)
        if event.kind == kind
        and (position in evidence.held or (event.file is not None and evidence.folder is not None))
        and set(roles) <= set(event.roles)
    ]


def _events(evidence: Evidence, kind: str) -> int:
    if kind in ("rollout", "gradient_step", "iteration"):
        return sum(event.kind == kind for event in evidence.inspections)
    updates = len(evidence.updates)
    measured = updates or len(evidence.of(OptimizerStep))
    return {"update": updates, "measured_step": measured, "episode": len(evidence.episodes)}[kind]


def _available(needs: Needs, evidence: Evidence) -> int:
    """The scarcest of the things needed; a check that needs nothing can always be asked."""
    counts = [_events(evidence, kind) for kind in needs.events]
    counts += [len(kept(evidence, kind, roles)) for kind, roles in needs.samples.items()]
    return min(counts, default=1_000_000)


def _absent(needs: Needs, evidence: Evidence) -> list[str]:
    absent = [f"no {kind} was recorded" for kind in needs.events if _events(evidence, kind) == 0]
    for kind, roles in needs.samples.items():
        if not kept(evidence, kind, roles):
            seen = {role for event in kept(evidence, kind) for role in event.roles}
            lacking = [role for role in roles if role not in seen]
            if seen and lacking:
                absent.append(f"the {kind} batches lack {', '.join(lacking)}")
            else:
                absent.append(f"no {kind} batch was kept")
    absent += [f"the constant {name} is not known" for name in needs.constants if name not in evidence.run.constants]
    return absent


def _not_applicable(check: Check, absent: Sequence[str], evidence: Evidence) -> Finding:
    reasons = [f"{event.what} was not seen ({event.reason})" for event in evidence.not_seen[:3]]
    summary = "This could not be asked: " + "; ".join(absent) + "."
    if reasons:
        summary += " The recorder says: " + "; ".join(reasons) + "."
    return check.finding(
        "not_applicable",
        summary,
        {"absent": list(absent)},
        advice=""
        if evidence.run.producer == "watch"
        else "Record the evidence with its batches (evidence.enabled = true, evidence.keep = 'samples').",
    )


def _not_enough_yet(check: Check, available: int, evidence: Evidence) -> Finding:
    return check.finding(
        "undecided",
        f"There is not enough to answer yet: {available} of the {check.min_samples} records that this question needs.",
        {"records": available, "needed": check.min_samples},
        advice="Train longer."
        if evidence.of_watcher
        else "Train longer, or inspect more updates (evidence.max_inspections).",
    )
