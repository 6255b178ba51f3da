"""Schedules: usual ones pass, those that are spent too early are named."""

from types import SimpleNamespace

import numpy as np
import pytest

from learnproof.evidence.watched import PlateauTold
from learnproof.proof.watched.rates import LearningRateAlive

STEPS = 1_000


def finding(rate, *schedulers: str, made_with: float = 1e-3, told=(), returns=(), per_cycle: int = 10):
    """`rate` is a function of the share of the run that is over; each cycle has `per_cycle` steps."""
    met = [SimpleNamespace(kind=kind, optimizer=0) for kind in schedulers]
    episodes = [
        SimpleNamespace(process=0, update=STEPS * at // len(returns), return_=float(each))
        for at, each in enumerate(returns)
    ]
    measured = sorted({*range(64), *np.linspace(0, STEPS - 1, 96).astype(int).tolist()})
    steps = [
        SimpleNamespace(optimizer=0, step=at, cycle=at // per_cycle, learning_rates=[float(rate(at / STEPS))])
        for at in measured
    ]
    return LearningRateAlive().look(
        SimpleNamespace(
            steps=steps,
            optimizer_totals={0: SimpleNamespace(steps=STEPS)},
            optimizers={0: SimpleNamespace(kind="Adam", groups=[{"initial_lr": made_with}])},
            process=0,
            evidence=SimpleNamespace(of=lambda kind: told if kind is PlateauTold else met, episodes=episodes),
        )
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


def test_a_rate_where_a_factor_is_wanted_is_named():
    found = finding(lambda x: 1e-3 * 1e-3 * (1 - 0.9 * x))
    assert found.status == "fail"
    assert "LambdaLR" in found.cause
    assert finding(lambda x: 1e-6 * (1 - 0.9 * x), made_with=1e-6).status == "pass"  # a small rate that is meant
    assert finding(lambda x: 1e-3 * 0.005 * x).status == "pass"  # a warm-up that is still rising


def waves(x):
    return 1e-4 + 5e-4 * (1 + np.cos(4 * np.pi * x))


def test_a_cosine_that_goes_on_past_its_end_is_named_and_waves_that_are_meant_are_not():
    found = finding(waves, "CosineAnnealingLR")
    assert found.status == "fail"
    assert "rose again" in found.summary
    assert finding(waves, "CosineAnnealingWarmRestarts").status == "pass"
    assert finding(waves).status == "pass"
    assert finding(lambda x: 1e-4 + 5e-4 * (1 + np.cos(np.pi * x)), "CosineAnnealingLR").status == "pass"


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


def test_a_schedule_read_backwards_is_named_and_a_critic_that_begins_alone_is_not():
    found = finding(lambda x: max(0.0, x - 0.7) * 1e-3)
    assert found.status == "fail"
    assert "0 until step" in found.summary
    assert finding(lambda x: 0.0 if x < 0.1 else 1e-3).status == "pass"


def test_a_warm_up_that_begins_anew_is_named_and_warm_restarts_are_not():
    def climbing(x):
        return 1e-3 * min(1.0, (round(x * STEPS) % 16 + 1) / 16)

    def restarts(x):
        return 5e-4 * (1 + np.cos(np.pi * (round(x * STEPS) % 16) / 16))

    found = finding(climbing)
    assert found.status == "fail"
    assert "begins anew" in found.summary
    assert finding(restarts).status == "pass"
    assert finding(lambda x: 1e-3 * 0.25 ** min(3, round(x * STEPS) // 15)).status == "pass"  # cut in steps


def plateau(mode, numbers):
    updates = np.linspace(0, STEPS - 1, len(numbers)).astype(int).tolist()
    return [PlateauTold(optimizer=0, mode=mode, calls=len(numbers), updates=updates, numbers=list(numbers))]


def test_a_rate_that_is_cut_because_returns_rise_is_named_and_one_cut_on_a_plateau_is_not():
    rng = np.random.default_rng(0)
    rising = 20 + 180 * np.minimum(1, 2 * np.linspace(0, 1, 400)) + rng.normal(0, 5, 400)
    means = np.array([rising[max(0, at - 20) : at + 1].mean() for at in range(0, 400, 4)])

    def cut(x):
        return 1e-3 * 0.3 ** (10 * x)

    found = finding(cut, "ReduceLROnPlateau", told=plateau("min", means), returns=rising)
    assert found.status == "fail"
    assert "mode='min'" in found.cause
    assert finding(cut, "ReduceLROnPlateau", told=plateau("max", means), returns=rising).status == "pass"
    losses = 5 * np.exp(-np.linspace(0, 3, 100)) + rng.normal(0, 0.1, 100)
    assert finding(cut, "ReduceLROnPlateau", told=plateau("min", losses), returns=rising).status == "pass"
    assert finding(lambda x: 1e-3, "ReduceLROnPlateau", told=plateau("min", means), returns=rising).status == "pass"
    assert finding(cut, "ExponentialLR", returns=rising).status == "fail"  # the same rates, without a plateau


@pytest.mark.parametrize(("per_cycle", "accused"), [(10, True), (400, False)])
def test_a_rate_of_0_in_the_first_rollout_alone_is_a_warm_up(per_cycle, accused):
    """Its later rollouts may have few steps, where an early stop ends them."""
    found = finding(lambda x: 0.0 if x < 0.35 else 1e-3, per_cycle=per_cycle)
    assert (found.status == "fail") is accused
