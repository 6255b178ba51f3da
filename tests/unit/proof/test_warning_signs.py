"""Warning signs become advice: each is seen where it is, not where it is not, and none of them ever accuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from synthetic import train

from learnproof.evidence import Episode, Evidence
from learnproof.proof.advice import ADVICE_CHECKS
from learnproof.proof.check import Finding, run_checks


def ask(evidence: Evidence) -> dict[str, Finding]:
    return {finding.check: finding for finding in run_checks(evidence, ADVICE_CHECKS, 0.001)}


def updates(**fields: Callable[[int], Any]) -> Evidence:
    """A healthy run in which these fields of each update are functions of its index."""
    evidence = train(iterations=20).evidence
    evidence.updates = [
        replace(update, **{name: make(update.index) for name, make in fields.items()}) for update in evidence.updates
    ]
    return evidence


def returns(curve: Callable[[Any], Any], noise: float = 1.0) -> Evidence:
    """A run whose episodes have these returns over the share of the training done."""
    evidence = train(iterations=20).evidence
    values = curve(np.linspace(0, 1, 400)) + noise * np.random.default_rng(1).normal(size=400)
    evidence.episodes = [
        Episode(step=i, env=0, return_=float(value), length=5, terminated=True) for i, value in enumerate(values)
    ]
    return evidence


def test_a_healthy_run_gets_no_advice() -> None:
    found = ask(train(iterations=20).evidence)
    assert {finding.status for finding in found.values()} == {"pass"}


WARNINGS = [
    ("entropy_collapse", updates(entropy=lambda i: [0.01 if i > 1 else 1.0] * 4), "entropy coefficient"),
    ("entropy_moving", updates(entropy=lambda i: [1.0] * 4), "learning rate"),
    ("explained_variance", updates(explained_variance=lambda i: -0.2), "critic"),
    ("update_size", updates(approx_kl=lambda i: [0.3] * 4), "Lower the learning rate"),
    (
        "update_size",
        updates(approx_kl=lambda i: [1e-7] * 4, clip_fraction=lambda i: [0.0] * 4),
        "Raise the learning rate",
    ),
    ("sudden_drop", returns(lambda x: np.where(x < 0.8, 20 * x, 2.0)), "Lower the learning rate"),
    ("flat_curve", returns(lambda x: 0 * x), "raise the entropy coefficient"),
    ("high_variance", returns(lambda x: 10 * np.sign(np.sin(60 * x))), "Lower the clip range"),
    ("exploding_gradients", updates(grad_norm_max=lambda i: [200.0 if i == 3 else 1.0] * 4), "Clip gradients"),
    ("vanishing_gradients", updates(grad_norm=lambda i: [1e-9] * 4), "Look at the architecture"),
]


@pytest.mark.parametrize(("check", "evidence", "advice"), WARNINGS, ids=[f"{w[0]}: {w[2]}" for w in WARNINGS])
def test_a_warning_sign_is_seen_and_answered_with_advice(check: str, evidence: Evidence, advice: str) -> None:
    found = ask(evidence)
    assert found[check].status == "undecided"
    assert advice in found[check].advice
    assert all(finding.status != "fail" for finding in found.values())


@pytest.mark.parametrize(
    ("check", "curve"),
    [
        ("sudden_drop", lambda x: 10 * x),
        ("sudden_drop", lambda x: 0 * x),
        ("flat_curve", lambda x: 10 * x),
        ("high_variance", lambda x: 10 * x),
        ("high_variance", lambda x: 0 * x),
    ],
)
def test_a_steady_curve_gets_no_advice(check: str, curve: Callable[[Any], Any]) -> None:
    assert ask(returns(curve))[check].status == "pass"


def test_a_curve_that_falls_where_lower_is_better_is_a_rise() -> None:
    evidence = returns(lambda x: -10 * x)
    assert ask(evidence)["flat_curve"].status == "undecided"
    evidence.run = replace(evidence.run, higher_is_better=False)
    assert ask(evidence)["flat_curve"].status == "pass"


def test_episodes_without_the_metric_of_the_run_get_none() -> None:
    evidence = returns(lambda x: 10 * x)
    evidence.run = replace(evidence.run, metric="completion")
    found = ask(evidence)
    for check in ("sudden_drop", "flat_curve", "high_variance"):
        assert found[check].status == "undecided"
        assert "carry the metric 'completion'" in found[check].summary


def test_returns_that_are_all_equal_leave_nothing_to_explain() -> None:
    assert ask(updates(explained_variance=lambda i: float("nan")))["explained_variance"].status == "undecided"


def test_the_share_of_an_unknown_largest_entropy_is_not_guessed() -> None:
    evidence = train(iterations=20).evidence
    evidence.run = replace(evidence.run, max_entropy=None)
    found = ask(evidence)
    assert found["entropy_collapse"].status == "undecided"
    assert found["entropy_moving"].status == "pass"


def test_a_short_run_gets_none() -> None:
    found = ask(train(iterations=2).evidence)
    assert found["sudden_drop"].figures["needed"] == 100
    assert found["entropy_collapse"].figures["needed"] == 10
