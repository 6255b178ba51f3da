"""The direction of updates: the right way passes, the wrong way fails, neither way says nothing."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import train

from learnproof.evidence import Evidence
from learnproof.proof.check import Finding, run_checks
from learnproof.proof.direction import PASS_LEVEL, PolicyDirection, ValueDirection


def ask(evidence: Evidence) -> tuple[Finding, Finding]:
    policy, value = run_checks(evidence, [PolicyDirection(), ValueDirection()], 0.001)
    return policy, value


def without(evidence: Evidence, kind: str) -> Evidence:
    for position, event in enumerate(evidence.inspections):
        if event.kind == kind:
            evidence.held.pop(position)
    return evidence


def test_a_healthy_run_goes_the_right_way() -> None:
    policy, value = ask(train().evidence)
    assert policy.status == value.status == "pass"
    assert policy.figures["iterations"] == 16
    assert policy.figures["p_value_of_the_right_direction"] <= PASS_LEVEL
    assert policy.figures["mean_agreement"] > 0.1


def test_gradient_steps_alone_are_enough() -> None:
    policy, _ = ask(without(train().evidence, "iteration"))
    assert policy.status == "pass"


def test_a_reversed_policy_loss_is_refused() -> None:
    policy, value = ask(train(fault="policy sign", iterations=24).evidence)
    assert policy.status == "fail"
    assert "sign" in policy.cause
    assert policy.p_value is not None
    assert policy.p_value <= 0.001
    assert value.status != "fail"


def test_a_reversed_value_loss_is_refused() -> None:
    policy, value = ask(train(fault="value sign", iterations=24).evidence)
    assert value.status == "fail"
    assert policy.status != "fail"


@pytest.mark.parametrize("fault", ["no step", "learning rate 0"])
def test_networks_that_do_not_move_at_all_are_refused(fault: str) -> None:
    policy, value = ask(train(fault=fault).evidence)
    assert policy.status == value.status == "fail"
    assert "did not move at all" in policy.summary


@pytest.mark.parametrize("fault", ["shuffled rollout", "shuffled minibatch"])
def test_shuffled_advantages_do_not_pass(fault: str) -> None:
    passed = sum(ask(train(fault=fault, seed=seed, n_steps=24).evidence)[0].status == "pass" for seed in range(6))
    assert passed <= 1


def test_iterations_that_share_a_momentum_count_as_one_stretch() -> None:
    """Four gradient steps an iteration: the optimizer's momentum makes ten neighbours agree whatever they do."""
    short = {"n_steps": 20, "epochs": 2, "minibatch_size": 64}
    policy, _ = ask(train(iterations=16, **short).evidence)
    assert policy.figures["iterations"] == 16
    assert policy.figures["stretches"] == 2
    assert policy.status == "undecided"


def test_without_rollouts_nothing_passes_because_the_advantages_cannot_be_recomputed() -> None:
    evidence = without(train(fault="shuffled rollout").evidence, "rollout")
    policy, _ = ask(evidence)
    assert policy.status == "undecided"
    assert "could not be recomputed" in policy.summary


def test_iterations_whose_rollout_was_not_kept_are_left_out() -> None:
    evidence = train().evidence
    for position, event in enumerate(evidence.inspections):
        if event.kind == "rollout" and event.update >= 10:
            evidence.held.pop(position)
    policy, _ = ask(evidence)
    assert policy.status == "pass"
    assert policy.figures["iterations"] == 10


def test_the_first_iterations_of_a_warm_up_may_stand_still() -> None:
    policy, value = ask(train(fault="learning rate 0", iterations=2).evidence)
    assert policy.status == value.status == "undecided"


def test_without_rollouts_a_reversed_loss_is_still_refused() -> None:
    policy, _ = ask(without(train(fault="policy sign", iterations=24).evidence, "rollout"))
    assert policy.status == "fail"


def test_few_stretches_are_not_judged_and_it_is_said_how_many_it_takes() -> None:
    policy, _ = ask(train(iterations=4).evidence)
    assert policy.status == "undecided"
    assert "3 more inspected stretches" in policy.advice


def test_a_strong_entropy_bonus_is_not_mistaken_for_a_reversed_sign() -> None:
    """From a decided policy the bonus rightly lowers the best actions: against the advantage, with the objective."""
    run = train(
        entropy_coefficient=1.0,
        learning_rate=0.0003,
        start="optimal",
        normalize_advantage=False,
        iterations=24,
        n_envs=24,
    )
    policy, _ = ask(run.evidence)
    assert policy.figures["mean_agreement"] < -0.1
    assert policy.status == "undecided"


def test_a_saturated_policy_that_cannot_move_is_not_accused() -> None:
    evidence = train().evidence
    for arrays in evidence.held.values():
        for role in ("old_log_prob", "log_prob_before", "log_prob_after"):
            if role in arrays:
                arrays[role] = np.zeros_like(arrays[role])
    assert ask(evidence)[0].status == "undecided"


def test_a_critic_that_is_switched_off_is_not_accused() -> None:
    evidence = train(value_coefficient=0.0).evidence
    assert ask(evidence)[1].status == "undecided"


def test_a_step_that_is_too_long_is_not_called_a_reversed_sign() -> None:
    evidence = train(iterations=24).evidence
    for arrays in evidence.held.values():
        if "value_before" in arrays and "target" in arrays:
            arrays["value_after"] = arrays["value_before"] + 3 * (arrays["target"] - arrays["value_before"])
    value = ask(without(evidence, "iteration"))[1]
    assert value.status == "undecided"
    assert value.figures["stretches_the_right_way"] == 0
