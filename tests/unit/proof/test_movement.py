"""Weights that stand still and parameters without gradient are named; odd but healthy schedules are not accused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import train

from learnproof.evidence import Evidence
from learnproof.proof.check import Finding, run_checks
from learnproof.proof.movement import GradientsFlowing, WeightsChanging


def weights(evidence: Evidence) -> Finding:
    return run_checks(evidence, [WeightsChanging()], 0.001)[0]


def gradients(evidence: Evidence) -> Finding:
    return run_checks(evidence, [GradientsFlowing()], 0.001)[0]


def with_parameters(evidence: Evidence, name: str, position: int, number: float) -> Evidence:
    """The same evidence in which one of [gradient, weight, step] of a parameter is another number everywhere."""
    for i, event in enumerate(evidence.inspections):
        if event.parameters:
            changed = list(event.parameters[name])
            changed[position] = number
            evidence.inspections[i] = replace(event, parameters={**event.parameters, name: changed})
    return evidence


@pytest.mark.parametrize("schedule", ["constant", "warm-up", "to zero"])
def test_healthy_weights_pass_under_any_schedule(schedule: str) -> None:
    assert weights(train(schedule=schedule).evidence).status == "pass"


def test_a_learning_rate_of_0_is_named() -> None:
    finding = weights(train(fault="learning rate 0").evidence)
    assert finding.status == "fail"
    assert "learning rate is 0 in all 16 updates" in finding.summary


def test_a_missing_step_is_named() -> None:
    finding = weights(train(fault="no step").evidence)
    assert finding.status == "fail"
    assert "step is never called" in finding.cause


def test_a_module_in_no_optimizer_is_named() -> None:
    finding = weights(train(fault="policy in no optimizer").evidence)
    assert finding.status == "fail"
    assert finding.where == "policy"


def test_a_single_parameter_that_stands_still_is_named() -> None:
    finding = weights(with_parameters(train().evidence, "policy.table", 2, 0.0))
    assert finding.status == "fail"
    assert finding.where == "policy.table"


def test_steps_too_small_for_float32_are_not_accused() -> None:
    evidence = with_parameters(train().evidence, "policy.table", 2, 0.0)
    evidence = with_parameters(evidence, "policy.table", 0, 1e-9)
    assert weights(evidence).status == "pass"


def test_a_step_that_is_skipped_now_and_then_is_healthy() -> None:
    evidence = train().evidence
    for i, event in enumerate(evidence.inspections[: len(evidence.inspections) // 2]):
        if event.parameters:
            still = {name: [g, w, 0.0] for name, (g, w, _) in event.parameters.items()}
            evidence.inspections[i] = replace(event, parameters=still)
    assert weights(evidence).status == "pass"


def test_a_schedule_spent_long_before_the_end_is_refused_and_one_spent_at_the_end_is_not() -> None:
    early = weights(train(fault="schedule spent early").evidence)
    assert early.status == "fail"
    assert "The learning rate has been 0 for the last 11 of 16 updates" in early.summary
    assert weights(train(schedule="to zero").evidence).status == "pass"


def test_two_updates_are_not_judged() -> None:
    assert weights(train(iterations=2, fault="learning rate 0").evidence).status == "undecided"


def test_every_parameter_with_gradient_passes() -> None:
    finding = gradients(train().evidence)
    assert finding.status == "pass"
    assert finding.figures["parameters"] == 2


def test_a_parameter_without_gradient_is_named() -> None:
    finding = gradients(train(fault="value without gradient").evidence)
    assert finding.status == "fail"
    assert finding.where == "value.table"


def test_a_parameter_that_no_inspected_step_mentions_is_named() -> None:
    evidence = train().evidence
    evidence.run = replace(evidence.run, parameters={**evidence.run.parameters, "value.bias": 1})
    assert gradients(evidence).where == "value.bias"


def test_a_critic_that_is_switched_off_is_not_accused() -> None:
    evidence = train(value_coefficient=0.0).evidence
    assert gradients(evidence).status == "undecided"
    assert weights(evidence).status == "pass"


def test_a_few_steps_without_gradient_are_not_enough_to_accuse() -> None:
    evidence = train(fault="value without gradient", inspected_steps=1, iterations=5).evidence
    assert gradients(evidence).status == "undecided"


def test_large_gradients_are_said_and_never_accused() -> None:
    some, everywhere = train().evidence, train().evidence
    some.updates[3] = replace(some.updates[3], grad_norm=[250.0] * 6)
    everywhere.updates = [replace(update, grad_norm=[250.0] * 6) for update in everywhere.updates]
    assert gradients(some).status == "pass"
    assert "6 of 96 gradient norms were 100 or more" in gradients(some).summary
    assert gradients(everywhere).status == "undecided"
