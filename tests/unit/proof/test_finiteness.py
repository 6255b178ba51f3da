"""Anything that is not finite is refused, with its place; an explained variance of nothing is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic import train

from learnproof.evidence import Evidence, Fault
from learnproof.proof.check import Finding, run_checks
from learnproof.proof.finiteness import Finiteness, NothingRefused

NAN, INF = float("nan"), float("inf")


def ask(evidence: Evidence) -> Finding:
    return run_checks(evidence, [Finiteness()], 0.001)[0]


def test_healthy_numbers_pass() -> None:
    assert ask(train().evidence).status == "pass"


def test_a_run_that_met_nan_is_refused_and_the_parameter_named() -> None:
    finding = ask(train(fault="nan").evidence)
    assert finding.status == "fail"
    assert finding.where.startswith("policy.table")


@pytest.mark.parametrize(
    ("field", "value"),
    [("loss", [0.1, NAN, 0.1, 0.1]), ("grad_norm", [INF] * 4), ("advantage_std", NAN), ("weight_change", INF)],
)
def test_a_field_of_an_update_is_named(field: str, value: object) -> None:
    evidence = train().evidence
    evidence.updates[4] = replace(evidence.updates[4], **{field: value})
    finding = ask(evidence)
    assert finding.status == "fail"
    assert finding.where == f"update 4: {field}"


def test_a_module_is_named() -> None:
    evidence = train().evidence
    update = evidence.updates[2]
    broken = {**update.modules, "value": replace(update.modules["value"], grad_norm=NAN)}
    evidence.updates[2] = replace(update, modules=broken)
    assert ask(evidence).where == "update 2: value.grad_norm"


def test_a_parameter_is_named() -> None:
    evidence = train().evidence
    position = next(i for i, event in enumerate(evidence.inspections) if event.parameters)
    event = evidence.inspections[position]
    evidence.inspections[position] = replace(event, parameters={**event.parameters, "policy.table": [NAN, 1.0, 0.1]})
    assert ask(evidence).where == "update 0, gradient step 0: gradient of policy.table"


def test_a_role_of_a_batch_is_named() -> None:
    evidence = train().evidence
    evidence.held[0]["value"][3, 2] = np.inf
    assert ask(evidence).where == "update 0, rollout: value"


def test_an_episode_is_named() -> None:
    evidence = train().evidence
    evidence.episodes[7] = replace(evidence.episodes[7], return_=NAN)
    assert ask(evidence).where.endswith(": return")


def test_the_explained_variance_of_equal_returns_may_be_nan() -> None:
    evidence = train().evidence
    evidence.updates[0] = replace(evidence.updates[0], explained_variance=NAN)
    assert ask(evidence).status == "pass"


def test_a_fault_before_the_first_update_is_refused_too() -> None:
    evidence = train().evidence
    evidence.updates.clear()
    evidence.inspections.clear()
    assert ask(evidence).status == "undecided"
    evidence.faults.append(Fault(step=3, kind="not_finite", where="policy.0.weight", summary="the gradient is NaN"))
    assert ask(evidence).status == "fail"


def test_an_environment_out_of_contract_is_refused_and_a_run_without_faults_is_not() -> None:
    evidence = train().evidence
    assert run_checks(evidence, [NothingRefused()], 0.001)[0].status == "pass"
    evidence.faults.append(Fault(step=9, kind="environment", where="environment 2", summary="it raised ValueError."))
    finding = run_checks(evidence, [NothingRefused()], 0.001)[0]
    assert finding.status == "fail"
    assert finding.where == "environment 2"
    assert "it raised ValueError." in finding.summary
