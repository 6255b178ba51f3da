"""verdict.json as typed fields, ready to be shown: `read_verdict(verdict)` takes the plain dict and judges nothing.

The dict may come from a file, of another version or a stranger's, so every text in it is made harmless here, once, and
whatever is missing or of the wrong type becomes None or an empty list: a report about half a verdict is still a report.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .phrasing import figure, number, printable

CHECKLIST = {
    "weights_changing": "Do the weights move away from where they started?",
    "gradients_flowing": "Are gradients above zero and below 100 in norm?",
    "entropy_decreasing": "Does the policy grow more decided over time?",
    "loss_improving": "Is the loss lower at the end than at the start?",
    "performance_improving": "Do episodes score higher at the end than at the start?",
}
"""The five classic checks and what each asks."""

MAX_FIGURE_CHARACTERS = 300
STATUS_ORDER = ("fail", "waived", "undecided", "pass", "not_applicable")
STATUS_WORDS = {
    "fail": "failed",
    "waived": "failed, waived",
    "undecided": "undecided",
    "pass": "passed",
    "not_applicable": "did not apply",
}


@dataclass(frozen=True)
class Comparison:
    """The trained policy against one other, on the same seeds."""

    against: str
    """initial or random."""
    score: float | None
    lead: float | None
    """How much better the trained policy is; where only the difference is told, trained minus other."""
    low: float | None
    high: float | None
    p_value: float | None


@dataclass(frozen=True)
class Performance:
    metric: str
    mode: str | None
    """deterministic or sampled."""
    lower_is_better: bool
    trained: float | None
    comparisons: tuple[Comparison, ...]
    """Against the run's own untrained policy first, then against random play."""
    episodes: float | None
    confidence: float | None
    """Of the intervals."""


@dataclass(frozen=True)
class Finding:
    check: str
    status: str
    """fail, waived, undecided, pass or not_applicable."""
    question: str
    summary: str
    figures: tuple[tuple[str, str], ...]
    where: str
    cause: str
    advice: str
    waiver: str
    """The user's reason, where the finding is waived."""


@dataclass(frozen=True)
class Mechanism:
    passed: tuple[str, ...]
    updates_inspected: float | None
    updates: float | None
    gradient_steps_inspected: float | None


@dataclass(frozen=True)
class VerdictView:
    verdict: str
    """proven, broken, unproven, or whatever else the file says."""
    error_rate: float | None
    accusation_rate: float | None
    performance: Performance | None
    findings: tuple[Finding, ...]
    """Failing ones first."""
    mechanism: Mechanism
    missing: tuple[str, ...]
    waived: tuple[tuple[str, str], ...]
    controls: tuple[tuple[str, str], ...]
    checklist: tuple[tuple[str, bool | None], ...]
    issues: tuple[str, ...]
    final_status: str
    digests: tuple[tuple[str, str], ...]

    def with_status(self, *wanted: str) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.status in wanted)

    @property
    def by_comparison(self) -> bool:
        """Whether the verdict rests on a comparison of policies: in the profile `classic`, and where the policies of a watched
        script could not be played again, it does not."""
        return self.performance is not None and self._judges_performance

    @property
    def _judges_performance(self) -> bool:
        return any(finding.check == "performance" for finding in self.findings)

    @property
    def by_returns(self) -> bool:
        """Whether it rests on the returns of training alone."""
        return self.performance is None and self._judges_performance

    @property
    def why(self) -> str:
        """The verdict in a sentence or two, from what it rests on."""
        match self.verdict:
            case "proven" if self.by_comparison:
                return (
                    "The trained policy is better than the untrained one it started from and than random play, "
                    "and the updates that made it better were seen to work."
                )
            case "proven" if self.by_returns:
                return (
                    "The returns of training rose beyond chance, and the updates behind them were seen to work. The policies "
                    "were not played again."
                )
            case "proven":
                return "Every rule of the chosen profile holds."
            case "broken":
                failed = self.with_status("fail")
                if not failed:
                    return "A check found a defect in the training."
                first = _sentence(f"The check {failed[0].check} found a defect. {failed[0].summary}".strip())
                return first if len(failed) == 1 else f"{first} Checks that failed besides: {len(failed) - 1}."
            case "unproven":
                passed = {finding.check for finding in self.with_status("pass")}
                if self.mechanism.updates == 0 and passed <= {"nothing_refused"}:
                    return "No training was seen, so that nothing can be said of it: no optimizer took a step and no episode ended."
                clean = "No defect was found" + (" but the waived ones" if self.waived else "")
                better = any(finding.check == "performance" for finding in self.with_status("pass"))
                if self.final_status.startswith("unproven: without learning"):
                    return f"{clean}, but the same run with learning made impossible did as well."
                if self.by_returns and not better:
                    return f"{clean}, but a rise of the returns beyond chance is not shown."
                if self.by_comparison and not better:
                    return (
                        f"{clean}, but the trained policy is not shown to be better than both the untrained "
                        "one it started from and random play."
                    )
                if better:
                    better_what = "The returns of training rose" if self.by_returns else "The trained policy is better"
                    return f"{better_what}, but too little was seen of the updates that made it so."
                return f"{clean}, but learning is not established."
        return "This verdict is of a kind that is not known here."


def read_verdict(verdict: Mapping[str, Any]) -> VerdictView:
    waived = _waived(verdict.get("waived"))
    findings = [_finding(item, dict(waived)) for item in _list(verdict.get("findings"))]
    findings.sort(key=lambda finding: STATUS_ORDER.index(finding.status))
    checklist = _mapping(verdict.get("checklist"))
    mechanism = _mapping(verdict.get("mechanism"))
    return VerdictView(
        verdict=_text(verdict.get("verdict")) or "unknown",
        error_rate=number(verdict.get("error_rate")),
        accusation_rate=number(verdict.get("accusation_rate")),
        performance=_performance(_mapping(verdict.get("performance")), _performance_figures(verdict)),
        findings=tuple(findings),
        mechanism=Mechanism(
            passed=_texts(mechanism.get("passed")),
            updates_inspected=number(mechanism.get("updates_inspected")),
            updates=number(mechanism.get("updates")),
            gradient_steps_inspected=number(mechanism.get("gradient_steps_inspected")),
        ),
        missing=_missing(verdict, mechanism),
        waived=waived,
        controls=tuple(_control(item) for item in _list(verdict.get("controls"))),
        checklist=tuple((name, _truth(checklist.get(name))) for name in CHECKLIST),
        issues=_texts(verdict.get("issues_found")),
        final_status=_text(verdict.get("final_status")),
        digests=tuple((_text(k), _text(v)) for k, v in _mapping(verdict.get("digests")).items()),
    )


def shown(value: Any) -> str:
    """Any JSON value as short text."""
    if isinstance(value, str):
        return printable(value)
    return printable(json.dumps(value, ensure_ascii=False, default=str))


def _missing(verdict: Mapping[str, Any], mechanism: Mapping[str, Any]) -> tuple[str, ...]:
    """As the verdict says it; where it does not, what its findings on performance and mechanism lack."""
    if "missing" in verdict or verdict.get("verdict") == "proven":
        return _texts(verdict.get("missing"))
    found = [_mapping(item) for item in _list(verdict.get("findings"))]
    lacking = [item for item in found if item.get("check") == "performance" and item.get("status") != "pass"]
    sentences = [f"{_text(item.get('summary'))} {_text(item.get('advice'))}".strip() for item in lacking]
    return (*sentences, *_texts(mechanism.get("missing")))


def _performance_figures(verdict: Mapping[str, Any]) -> Mapping[str, Any]:
    """The finding on performance tells both comparisons; verdict["performance"] only the harder of the two."""
    for finding in map(_mapping, _list(verdict.get("findings"))):
        if finding.get("check") == "performance":
            return _mapping(finding.get("figures"))
    return {}


def _performance(body: Mapping[str, Any], figures: Mapping[str, Any]) -> Performance | None:
    if not body:
        return None
    return Performance(
        metric=_text(body.get("metric")) or "return",
        mode=_text(figures.get("mode")) or None,
        lower_is_better=figures.get("higher_is_better") is False,
        trained=number(body.get("trained")),
        comparisons=tuple(
            _comparison(body, _mapping(figures.get(f"against_{other}")), other) for other in ("initial", "random")
        ),
        episodes=number(body.get("episodes")),
        confidence=number(figures.get("interval_confidence")),
    )


def _comparison(body: Mapping[str, Any], told: Mapping[str, Any], other: str) -> Comparison:
    score = number(body.get(other))
    if not told:
        trained, difference = number(body.get("trained")), number(body.get("difference"))
        if trained is None or score is None or difference is None:
            return Comparison(other, score, None, None, None, None)
        if not math.isclose(trained - score, difference, rel_tol=1e-6, abs_tol=1e-9):
            return Comparison(other, score, trained - score, None, None, None)
        told = {**body, "lead": difference}
    bounds = _list(told.get("interval"))
    low, high = (number(bounds[0]), number(bounds[1])) if len(bounds) == 2 else (None, None)
    if low is None or high is None:
        low = high = None
    return Comparison(other, score, number(told.get("lead")), low, high, number(told.get("p_value")))


def _finding(item: Any, waived: Mapping[str, str]) -> Finding:
    body = _mapping(item)
    check = _text(body.get("check")) or "unnamed check"
    status = _text(body.get("status"))
    if status not in STATUS_ORDER:
        status = "undecided"
    if status == "fail" and check in waived:
        status = "waived"
    return Finding(
        check=check,
        status=status,
        question=_text(body.get("question")),
        summary=_text(body.get("summary")),
        figures=tuple(_figures(_mapping(body.get("figures")))),
        where=_text(body.get("where")),
        cause=_text(body.get("cause")),
        advice=_text(body.get("advice")),
        waiver=waived.get(check, "") if status == "waived" else "",
    )


def _figures(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in body.items():
        if isinstance(value, Mapping):
            yield from ((f"{_text(name)}.{_text(inner)}", _figure(its)) for inner, its in value.items())
        else:
            yield _text(name), _figure(value)


def _figure(value: Any) -> str:
    """Numbers with few digits, alone or in a list; anything else as it is."""
    if isinstance(value, (list, tuple)) and value and all(number(item) is not None for item in value):
        return printable("[" + ", ".join(figure(item) for item in value) + "]", MAX_FIGURE_CHARACTERS)
    return figure(value) if number(value) is not None else printable(shown(value), MAX_FIGURE_CHARACTERS)


def _waived(value: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(value, Mapping):
        return tuple((_text(check), _text(reason)) for check, reason in value.items())
    items = [_mapping(item) for item in _list(value)]
    return tuple((_text(item.get("check")), _text(item.get("reason"))) for item in items)


def _control(item: Any) -> tuple[str, str]:
    body = _mapping(item)
    name = _text(body.get("name") or body.get("control")) or "control"
    rest = {k: v for k, v in body.items() if k not in ("name", "control", "summary")}
    return name, _text(body.get("summary")) or shown(rest or item)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: Any) -> str:
    return "" if value is None else shown(value)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_text(item) for item in _list(value))


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
