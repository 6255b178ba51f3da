"""Schedules: usual ones pass, those that are spent too early are named."""

from types import SimpleNamespace

import numpy as np
import pytest

from learnproof.proof.watched.rates import LearningRateAlive

STEPS = 1_000


def finding(rate):
    """`rate` is a function of the share of the run that is over."""
    measured = sorted({*range(64), *np.linspace(0, STEPS - 1, 96).astype(int).tolist()})
    steps = [SimpleNamespace(optimizer=0, step=at, learning_rates=[float(rate(at / STEPS))]) for at in measured]
    return LearningRateAlive().look(
        SimpleNamespace(steps=steps, optimizer_totals={0: SimpleNamespace(steps=STEPS)}, optimizers={})
    )


@pytest.mark.parametrize(
    "rate",
    [
        lambda x: 1e-3,
        lambda x: 1e-3 * (1 - x),
        lambda x: 5e-4 * (1 + np.cos(np.pi * x)),
        lambda x: 1e-3 * min(1.0, 10 * x),
        lambda x: 1e-3 * 0.01**x,
        lambda x: 1e-3 if x < 0.5 else 1e-4,
    ],
    ids=["constant", "linear", "cosine", "warm-up", "exponential", "step"],
)
def test_usual_schedules_pass(rate):
    assert finding(rate).status == "pass"


@pytest.mark.parametrize(
    ("rate", "says"),
    [
        (lambda x: max(0.0, 1e-3 * (1 - 4 * x)), "reached 0"),
        (lambda x: 1e-3 * 0.001 ** (2 * x), "below 1%"),
        (lambda x: 1e-3 * (1 - 1.2 * x), "below 0"),
        (lambda x: 0.0, "is 0 on all"),
    ],
    ids=["linear in other units", "per update", "past its end", "none"],
)
def test_those_that_are_spent_too_early_are_named(rate, says):
    found = finding(rate)
    assert found.status == "fail"
    assert says in found.summary
