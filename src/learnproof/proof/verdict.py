"""From evidence and paired scores to a verdict.

    proven     the policy is better than its start and than a random one (performance.py), AND the mechanism works:
               a quorum of questions about the updates passed (quorum.py), on at least MIN_INSPECTED_STEPS gradient steps,
               AND no check found a defect. A question that could not be asked counts for nothing.
    broken     a check that may accuse found a defect, however good the return looks, and nobody waived it with a reason.
    unproven   neither; `missing` says what it would take.

In the profile `classic` the five fixed rules decide alone: all five hold = proven; one of the first four fails = broken.

In: Evidence, PairedScores or None, the rates, the waivers. Out: a frozen Verdict that goes to verdict.json and back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import EvidenceError, SettingsError, did_you_mean
from ..evidence import Evidence
from ..evidence.events import plain, revive
from ..seeding import generator
from . import classic
from .advice import ADVICE_CHECKS
from .check import Check, Finding, run_checks
from .classic import Checklist
from .direction import PolicyDirection, ValueDirection
from .finiteness import Finiteness, NothingRefused
from .given import judge_given_episodes
from .identity import RatioIsOne
from .movement import GradientsFlowing, WeightsChanging
from .performance import QUESTION as PERFORMANCE_QUESTION
from .performance import PairedScores, Performance, judge_performance
from .quorum import gradient_steps, gradient_steps_inspected, lacks, missing_quorum
from .targets import AdvantagesRecomputed
from .temporal import SOFT_CHECKS, TEMPORAL_CHECKS
from .watched import WATCHED_CHECKS
from .watched.answers import unless_any_answer_earns_it
from .watched.performance import judge_training_returns, played_again, unless_paid_otherwise

Outcome = Literal["proven", "broken", "unproven"]

HEALTH_CHECKS: tuple[Check, ...] = (Finiteness(), NothingRefused(), WeightsChanging(), GradientsFlowing())
DECLARED_CHECKS: tuple[Check, ...] = (
    *HEALTH_CHECKS,
    RatioIsOne(),
    AdvantagesRecomputed(),
    PolicyDirection(),
    ValueDirection(),
)
"""Of a run whose learner said itself what its batches are, and learns from rollouts."""
MEMORY_CHECKS: dict[str, tuple[Check, ...]] = {
    "dqn": (*HEALTH_CHECKS, *TEMPORAL_CHECKS),
    "sac": (*HEALTH_CHECKS, *SOFT_CHECKS),
}
"""The same, where it learns from a memory."""
SEEN_CHECKS: tuple[Check, ...] = (Finiteness(), NothingRefused(), WeightsChanging(), *WATCHED_CHECKS)
"""Of a loop that was watched."""
_ALL = (*DECLARED_CHECKS, *SEEN_CHECKS, *(check for checks in MEMORY_CHECKS.values() for check in checks))
MECHANISM_NAMES = frozenset(check.name for check in _ALL if check.family != "advice") | set(classic.RULES)
ADVICE_NAMES = frozenset(check.name for check in (*_ALL, *ADVICE_CHECKS) if check.family == "advice")
WAIVABLE = tuple(sorted({check.name for check in _ALL if check.accuses != "never"} | set(classic.RULES)))


def checks_for(evidence: Evidence) -> tuple[Check, ...]:
    if evidence.of_watcher:
        return (*SEEN_CHECKS, *ADVICE_CHECKS)
    return (*MEMORY_CHECKS.get(evidence.run.algorithm, DECLARED_CHECKS), *ADVICE_CHECKS)


@dataclass(frozen=True)
class Mechanism:
    """Which mechanism checks passed, on how much."""

    passed: tuple[str, ...]
    updates_inspected: int
    updates: int
    gradient_steps_inspected: int
    gradient_steps: int
    missing: tuple[str, ...]
    """What the quorum lacks, as sentences; empty where it is met."""

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "passed": list(self.passed), "missing": list(self.missing)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Mechanism:
        return cls(**{**body, "passed": tuple(body["passed"]), "missing": tuple(body["missing"])})


@dataclass(frozen=True)
class Waiver:
    """A finding that the user means, with the reason given for it."""

    check: str
    reason: str
    summary: str
    """What was found there."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    verdict: Outcome
    error_rate: float
    accusation_rate: float
    performance: Performance | None
    findings: tuple[Finding, ...]
    mechanism: Mechanism
    waived: tuple[Waiver, ...]
    checklist: Checklist
    issues_found: tuple[str, ...]
    final_status: str
    controls: tuple[dict[str, Any], ...] = ()
    """Filled in by whoever ran them (dataclasses.replace)."""
    fixes_applied: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    """Name and sha256 of what was judged (the evidence, the policies), filled in by whoever read them."""

    def __bool__(self) -> bool:
        return self.verdict == "proven"

    @property
    def exit_code(self) -> int:
        return {"proven": 0, "broken": 1, "unproven": 3}[self.verdict]

    @property
    def missing(self) -> list[str]:
        """What a proof still lacks, as sentences."""
        if self.verdict == "proven":
            return []
        performance = [
            f"{f.summary} {f.advice}" for f in self.findings if f.check == "performance" and f.status != "pass"
        ]
        return [*performance, *self.mechanism.missing]

    def to_json(self) -> dict[str, Any]:
        """Exactly the form of verdict.json."""
        body = {
            "verdict": self.verdict,
            "error_rate": self.error_rate,
            "performance": None if self.performance is None else self.performance.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
            "mechanism": self.mechanism.to_json(),
            "controls": list(self.controls),
            "waived": [vars(waiver) for waiver in self.waived],
            "accusation_rate": self.accusation_rate,
            "checklist": self.checklist.to_json(),
            "learning_verification": self.checklist.learning_verification(),
            "issues_found": list(self.issues_found),
            "fixes_applied": list(self.fixes_applied),
            "final_status": self.final_status,
            "missing": self.missing,
            "digests": dict(self.digests),
        }
        return {key: plain(value) for key, value in body.items()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Verdict:
        try:
            performance = body["performance"]
            return cls(
                verdict=body["verdict"],
                error_rate=float(body["error_rate"]),
                accusation_rate=float(body["accusation_rate"]),
                performance=None if performance is None else Performance.from_json(revive(dict(performance))),
                findings=tuple(Finding.from_json(finding) for finding in body["findings"]),
                mechanism=Mechanism.from_json(body["mechanism"]),
                waived=tuple(Waiver(**waiver) for waiver in body["waived"]),
                checklist=Checklist(**body["checklist"]),
                issues_found=tuple(body["issues_found"]),
                final_status=str(body["final_status"]),
                controls=tuple(body["controls"]),
                fixes_applied=tuple(body["fixes_applied"]),
                digests=dict(body["digests"]),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise EvidenceError(
                f"This is not a verdict of the known form ({type(error).__name__}: {error}). It was written by another version or "
                "changed by hand; judge the run again with `learnproof verify`."
            ) from None


def judge(
    evidence: Evidence,
    scores: PairedScores | None,
    *,
    profile: Literal["default", "classic"] = "default",
    error_rate: float = 0.05,
    accusation_rate: float = 0.001,
    waive: Mapping[str, str] | None = None,
) -> Verdict:
    """Judge a run. `scores` are None where the policies could not be run again; such a run cannot be proven, unless it was watched
    or trained from given episodes and the returns of its own policy rose."""
    waive = dict(waive or {})
    check_waivers(waive)
    try:
        return _judge(evidence, scores, profile, error_rate, accusation_rate, waive)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if not evidence.of_watcher:
            raise
        raise EvidenceError(
            f"What was seen does not fit together ({type(error).__name__}: {str(error)[:200]}). A batch has another shape than its "
            "event says: the evidence was damaged or changed by hand. Watch the script again, or judge an intact copy."
        ) from error


def _judge(
    evidence: Evidence,
    scores: PairedScores | None,
    profile: Literal["default", "classic"],
    error_rate: float,
    accusation_rate: float,
    waive: Mapping[str, str],
) -> Verdict:
    performance, performance_finding = _performance(evidence, scores, error_rate)
    if profile == "classic":
        findings = classic.findings(evidence)
        mechanism = _mechanism(evidence, findings, _missing_classic(findings))
        established = all(finding.status == "pass" for finding in findings)
    else:
        mechanical = run_checks(evidence, checks_for(evidence), accusation_rate)
        mechanism = _mechanism(evidence, mechanical, missing_quorum(evidence, mechanical, waive))
        established = performance_finding.status == "pass" and not mechanism.missing
        findings = [performance_finding, *mechanical]
    failed = [finding for finding in findings if finding.status == "fail" and finding.check not in waive]
    outcome: Outcome = "broken" if failed else "proven" if established else "unproven"
    return Verdict(
        verdict=outcome,
        error_rate=error_rate,
        accusation_rate=accusation_rate,
        performance=performance,
        findings=tuple(findings),
        mechanism=mechanism,
        waived=tuple(
            Waiver(f.check, waive[f.check], f.summary) for f in findings if f.check in waive and f.status == "fail"
        ),
        checklist=classic.look(evidence),
        issues_found=tuple(_issues(findings, failed)),
        final_status=_final_status(outcome, failed),
    )


def _performance(
    evidence: Evidence, scores: PairedScores | None, error_rate: float
) -> tuple[Performance | None, Finding]:
    if scores is None and evidence.of_watcher:
        scores = played_again(evidence)
        if scores is None:
            judged = unless_paid_otherwise(evidence, judge_training_returns(evidence, error_rate), error_rate)
            return None, unless_any_answer_earns_it(evidence, judged)
    if scores is None and evidence.of_engine:
        return None, judge_given_episodes(evidence, error_rate)
    if scores is None:
        return None, Finding(
            "performance",
            "not_applicable",
            PERFORMANCE_QUESTION,
            "The policies could not be run again, so they were not compared on fresh seeds.",
            advice="Keep the initial and the best policy, and run `learnproof verify` on the run.",
        )
    performance, finding = judge_performance(
        scores,
        higher_is_better=evidence.run.higher_is_better,
        error_rate=error_rate,
        generator=generator(evidence.run.seed, "proof", "performance"),
    )
    return performance, unless_paid_otherwise(evidence, finding, error_rate) if evidence.of_watcher else finding


def _mechanism(evidence: Evidence, findings: Sequence[Finding], missing: Sequence[str]) -> Mechanism:
    inspected = gradient_steps_inspected(evidence)
    return Mechanism(
        passed=tuple(f.check for f in findings if f.status == "pass" and f.check in MECHANISM_NAMES),
        updates_inspected=len(inspected),
        updates=len(evidence.updates) or gradient_steps(evidence),
        gradient_steps_inspected=sum(inspected.values()),
        gradient_steps=gradient_steps(evidence),
        missing=tuple(missing),
    )


def _missing_classic(findings: Sequence[Finding]) -> list[str]:
    return [lacks(finding) for finding in findings if finding.status != "pass"]


def _issues(findings: Sequence[Finding], failed: Sequence[Finding]) -> list[str]:
    """Defects first, then the warning signs, each with what to do."""
    advice = ADVICE_NAMES | {"performance_improving"}
    warnings = [f for f in findings if f.check in advice and f.status == "undecided" and f.advice]
    return [f"{f.check}: {f.summary} {f.advice}".rstrip() for f in (*failed, *warnings)]


def _final_status(outcome: Outcome, failed: Sequence[Finding]) -> str:
    if outcome == "broken":
        return f"broken: a defect was found by {', '.join(finding.check for finding in failed)}"
    if outcome == "proven":
        return "proven: the policy became better, and the updates that made it so work as they should"
    return "unproven: no defect was found, and learning was not established"


def check_waivers(waive: Mapping[str, str]) -> None:
    """Refuse a waiver of a check that does not exist, or one without a reason."""
    for name, reason in waive.items():
        if name not in WAIVABLE:
            raise SettingsError(
                f"There is no check {name!r} to waive.{did_you_mean(name, WAIVABLE)} These can be waived: {', '.join(WAIVABLE)}."
            )
        if not reason.strip():
            raise SettingsError(
                f"The waiver of {name!r} has no reason. The verdict prints it: say why the finding is meant, "
                f'e.g. --waive {name}="time limits end the task on purpose", or under [proof.waive] of a settings file.'
            )
