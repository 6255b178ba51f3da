"""Stored and recomputed log-probabilities agree before the first step, or the check says since when they do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic import train

from learnproof.evidence import Evidence
from learnproof.proof.check import Finding, run_checks
from learnproof.proof.identity import DIFFERENT, EQUAL, RatioIsOne


def ask(evidence: Evidence) -> Finding:
    return run_checks(evidence, [RatioIsOne()], 0.001)[0]


def displaced(by: float, share: float = 1.0, iterations: int = 16) -> Evidence:
    """A healthy run whose stored log-probs are off by so much, in this share of the rows of the first iterations."""
    evidence = train().evidence
    for position, event in enumerate(evidence.inspections):
        if event.kind == "gradient_step" and event.update < iterations:
            stored = evidence.held[position]["log_prob_before"].astype(np.float64)
            stored[: int(share * stored.size)] += by
            evidence.held[position]["old_log_prob"] = stored
    return evidence


def test_a_healthy_run_passes() -> None:
    finding = ask(train().evidence)
    assert finding.status == "pass"
    assert finding.figures["iterations"] == 16


def test_stale_log_probs_are_refused() -> None:
    finding = ask(train(fault="stale log-probs").evidence)
    assert finding.status == "fail"
    assert finding.where.endswith("epoch 0, minibatch 0")
    assert "older weights" in finding.cause


@pytest.mark.parametrize(
    ("by", "status"),
    [(0.9 * EQUAL, "pass"), (1.5 * EQUAL, "undecided"), (0.5 * DIFFERENT, "undecided"), (3 * DIFFERENT, "fail")],
)
def test_the_two_bounds(by: float, status: str) -> None:
    assert ask(displaced(by)).status == status


def test_a_few_saturated_samples_do_not_decide() -> None:
    assert ask(displaced(1.0, share=0.08)).status == "pass"
    assert ask(displaced(1.0, share=0.3)).status == "fail"


def test_a_single_iteration_that_differs_does_not_accuse() -> None:
    assert ask(displaced(1.0, iterations=1)).status == "undecided"
    assert ask(displaced(1.0, iterations=2)).status == "undecided"


def test_two_iterations_are_not_judged() -> None:
    assert ask(train(iterations=2).evidence).status == "undecided"


def test_only_the_first_minibatch_of_the_first_epoch_counts() -> None:
    evidence = train().evidence
    evidence.inspections = [
        replace(event, epoch=1) if event.kind == "gradient_step" else event for event in evidence.inspections
    ]
    finding = ask(evidence)
    assert finding.status == "undecided"
    assert finding.figures["iterations"] == 0
