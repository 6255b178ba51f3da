"""The runner alone says not_applicable, asks for enough, and shares out the accusation rate."""

from __future__ import annotations

import json

import pytest
from synthetic import train

from learnproof.evidence import Evidence, NotSeen
from learnproof.proof import Check, Finding, Needs, run_checks
from learnproof.proof.check import kept


class Asked(Check):
    """Notes the level at which it is asked, and accuses if its p-value reaches it."""

    question = "Is this a test?"
    family = "mechanism-health"
    accuses = "by statistics"

    def __init__(self, name: str, p_value: float) -> None:
        self.name = name  # type: ignore[misc]
        self.p_value = p_value
        self.levels: list[float] = []

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        self.levels.append(alpha)
        return self.finding("fail" if self.p_value <= alpha else "undecided", "", p_value=self.p_value)


class Exact(Asked):
    accuses = "by comparison"


class NeedsBatches(Exact):
    needs = Needs(samples={"gradient_step": ("row", "entropy_gradient")})


class NeedsConstant(Exact):
    needs = Needs(constants=("temperature",))


class NeedsMany(Exact):
    needs = Needs(events=("update",), samples={"rollout": ("reward",)})
    min_samples = 17


def test_the_accusation_rate_is_shared_by_the_checks_that_use_statistics() -> None:
    checks = [Asked("a", 0.9), Exact("b", 0.9), Asked("c", 0.9)]
    run_checks(train().evidence, checks, 0.001)
    assert checks[0].levels == checks[2].levels == [0.0005]
    assert checks[1].levels == [0.0]


def test_once_one_is_accused_the_next_is_judged_at_the_larger_share() -> None:
    checks = [Asked("a", 0.0001), Asked("b", 0.0008)]
    findings = run_checks(train().evidence, checks, 0.001)
    assert [finding.status for finding in findings] == ["fail", "fail"]
    alone = run_checks(train().evidence, [Asked("a", 0.5), Asked("b", 0.0008)], 0.001)
    assert [finding.status for finding in alone] == ["undecided", "undecided"]


def test_a_check_that_cannot_be_asked_spends_none_of_the_rate() -> None:
    class Absent(Asked):
        needs = Needs(constants=("temperature",))

    asked = Asked("a", 0.9)
    run_checks(train().evidence, [asked, Absent("b", 0.9)], 0.001)
    assert asked.levels == [0.001]


def test_what_is_missing_is_said_with_the_recorder_s_own_reason() -> None:
    evidence = train().evidence
    evidence.not_seen.append(NotSeen(what="entropy gradient", reason="the loss is compiled"))
    check = NeedsBatches("a", 0.0)
    finding = run_checks(evidence, [check], 0.001)[0]
    assert finding.status == "not_applicable"
    assert "the gradient_step batches lack entropy_gradient" in finding.summary
    assert "the loss is compiled" in finding.summary
    assert check.levels == []


def test_a_missing_constant_is_said() -> None:
    finding = run_checks(train().evidence, [NeedsConstant("a", 0.0)], 0.001)[0]
    assert finding.status == "not_applicable"
    assert "the constant temperature is not known" in finding.summary


def test_batches_that_were_not_kept_do_not_count() -> None:
    evidence = train().evidence
    evidence.held.clear()
    finding = run_checks(evidence, [NeedsMany("a", 0.0)], 0.001)[0]
    assert finding.status == "not_applicable"
    assert "no rollout batch was kept" in finding.summary
    assert kept(evidence, "rollout") == []


def test_too_little_is_undecided_and_enough_is_asked() -> None:
    finding = run_checks(train().evidence, [NeedsMany("a", 0.9)], 0.001)[0]
    assert finding.status == "undecided"
    assert finding.figures == {"records": 16, "needed": 17}
    check = NeedsMany("a", 0.9)
    run_checks(train(iterations=17).evidence, [check], 0.001)
    assert check.levels == [0.0]


@pytest.mark.parametrize("p_value", [None, 0.25])
def test_a_finding_survives_json(p_value: float | None) -> None:
    figures = {"count": 3, "worst": float("nan") if p_value is None else 1.5, "names": ["a"]}
    finding = Finding("a", "fail", "Is it?", "No.", figures, "here", "because", "do that", p_value)
    body = json.loads(json.dumps(finding.to_json(), allow_nan=False))
    assert list(body) == ["check", "status", "question", "summary", "figures", "where", "cause", "advice"]
    assert repr(Finding.from_json(body)) == repr(finding)
