"""Advantages are recomputed by definition, compared with those used, and a wrong definition is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from synthetic import train

from learnproof.errors import EvidenceError
from learnproof.evidence import Evidence, Inspection
from learnproof.evidence.reader import Sample
from learnproof.proof.check import Finding, run_checks
from learnproof.proof.oracle import Rollout, fit_trace, recomputed_advantages
from learnproof.proof.targets import EXPLANATIONS, AdvantagesRecomputed


def ask(evidence: Evidence) -> Finding:
    return run_checks(evidence, [AdvantagesRecomputed()], 0.001)[0]


def rollout(**changes: Any) -> Rollout:
    """Four steps of one environment, gamma and lambda 0.5: small enough for paper."""
    column = {
        "reward": [1.0, 2.0, 4.0, 8.0],
        "value": [10.0, 20.0, 30.0, 40.0],
        "final_value": [0.0, 0.0, 0.0, 0.0],
        "terminated": [False, False, False, False],
        "truncated": [False, False, False, False],
        "valid": [True, True, True, True],
        "advantage": [0.0] * 4,
        "target": [0.0] * 4,
    } | changes
    arrays = {role: np.array(values).reshape(4, 1) for role, values in column.items() if role != "last_value"}
    arrays["last_value"] = np.array(column.get("last_value", [50.0]))
    event = Inspection(kind="rollout", update=0, optimizer_step=0, file=None, roles=sorted(arrays))
    return Rollout.of(Sample(event, arrays))


def by_hand(roll: Rollout) -> list[float]:
    return recomputed_advantages(roll, 0.5, 0.5)[:, 0].tolist()


class TestDefinition:
    def test_inside_an_episode(self) -> None:
        # deltas: 1+10-10=1, 2+15-20=-3, 4+20-30=-6, 8+25-40=-7; trace 0.25
        assert by_hand(rollout()) == [1 + 0.25 * (-3 + 0.25 * (-6 + 0.25 * -7)), -3 + 0.25 * (-6 - 1.75), -6 - 1.75, -7]

    def test_termination_bootstraps_with_nothing_and_ends_the_sum(self) -> None:
        roll = rollout(terminated=[False, True, False, False])
        assert by_hand(roll)[:2] == [1 + 0.25 * (2 - 20), 2 - 20]

    def test_a_time_limit_bootstraps_with_the_value_of_the_last_observation_and_ends_the_sum(self) -> None:
        roll = rollout(truncated=[False, True, False, False], final_value=[0.0, 6.0, 0.0, 0.0])
        assert by_hand(roll)[:2] == [1 + 0.25 * (2 + 3 - 20), 2 + 3 - 20]

    def test_the_empty_step_after_an_end_belongs_to_nothing(self) -> None:
        ended = rollout(terminated=[False, True, False, False], valid=[True, True, False, True])
        assert by_hand(ended)[2] == 0.0
        assert by_hand(ended)[:2] == by_hand(rollout(terminated=[False, True, False, False]))[:2]

    def test_the_discount_that_was_really_used_is_found(self) -> None:
        source = np.random.default_rng(3)
        arrays = {
            "reward": source.normal(size=(40, 3)),
            "value": source.normal(size=(40, 3)),
            "final_value": np.zeros((40, 3)),
            "last_value": source.normal(size=3),
            "terminated": source.random((40, 3)) < 0.1,
            "truncated": np.zeros((40, 3), bool),
            "advantage": np.zeros((40, 3)),
            "target": np.zeros((40, 3)),
        }
        event = Inspection(kind="rollout", update=0, optimizer_step=0, file=None, roles=sorted(arrays))
        plain = Rollout.of(Sample(event, arrays))
        fitted = fit_trace([replace(plain, advantage=recomputed_advantages(plain, 0.9, 0.7))])
        assert fitted is not None
        assert (fitted.gamma, fitted.gae_lambda, fitted.reward_scale) == pytest.approx((0.9, 0.7, 1.0))


@pytest.mark.parametrize("next_step_autoreset", [True, False])
@pytest.mark.parametrize("normalize_advantage", [True, False])
def test_healthy_advantages_pass(next_step_autoreset: bool, normalize_advantage: bool) -> None:
    run = train(next_step_autoreset=next_step_autoreset, normalize_advantage=normalize_advantage)
    finding = ask(run.evidence)
    assert finding.status == "pass", finding.summary
    assert finding.figures["rollouts"] == 16
    assert finding.figures["gradient_steps"] == 64
    assert finding.figures["time_limits_seen"] > 0


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("time limit as terminal", "time limit as terminal"),
        ("crossing episodes", "returns crossing episodes"),
        ("ends shifted", "episode ends shifted by one step"),
        ("last value zero", "last value zero"),
        ("advantage sign", "sign reversed"),
        ("shuffled rollout", "shuffled among samples"),
        ("shuffled minibatch", "shuffled among samples"),
        ("empty steps", "empty step trained on"),
    ],
)
def test_a_wrong_definition_is_refused_and_named(fault: str, name: str) -> None:
    finding = ask(train(fault=fault).evidence)
    assert finding.status == "fail"
    assert finding.figures["explained_by"] == [name]
    assert finding.cause.lower().startswith(EXPLANATIONS[name][0][:20].lower())
    assert finding.advice
    assert finding.where.startswith("update ")


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("other gamma", "The discount is 0.8 where the settings say 0.97."),
        ("other lambda", "Lambda is 1 where the settings say 0.9."),
    ],
)
def test_another_discount_or_trace_is_refused_with_its_value(fault: str, sentence: str) -> None:
    finding = ask(train(fault=fault).evidence)
    assert finding.status == "fail"
    assert finding.cause == sentence


def test_advantages_normalised_over_the_whole_rollout_are_healthy() -> None:
    evidence = train(normalize_advantage=False).evidence
    scale = {}
    for position, event in enumerate(evidence.inspections):
        arrays = evidence.held[position]
        if event.kind == "rollout":
            scale[event.update] = (arrays["advantage"].mean(), arrays["advantage"].std())
        if "advantage" in arrays:
            mean, spread = scale[event.update]
            arrays["advantage"] = (arrays["advantage"] - mean) / spread
    assert ask(evidence).status == "pass"


def test_a_critic_that_learns_the_plain_return_is_healthy() -> None:
    evidence = train().evidence
    targets = {}
    for position, event in enumerate(evidence.inspections):
        arrays = evidence.held[position]
        if event.kind == "rollout":
            roll = Rollout.of(Sample(event, arrays))
            arrays["target"] = recomputed_advantages(roll, 0.97, 1.0) + roll.value
            targets[event.update] = arrays["target"].ravel()
        elif event.kind == "gradient_step":
            arrays["target"] = targets[event.update][arrays["row"]]
    assert ask(evidence).status == "pass"


@pytest.mark.parametrize("rows", [0, 1, 3, 12])
def test_a_minibatch_of_which_only_some_rows_were_kept_is_not_accused(rows: int) -> None:
    evidence = train().evidence
    for position, event in enumerate(evidence.inspections):
        if event.kind == "gradient_step":
            evidence.held[position] = {role: values[:rows] for role, values in evidence.held[position].items()}
    assert ask(evidence).status == ("pass" if rows == 12 else "undecided")


def test_value_targets_of_another_step_are_refused() -> None:
    evidence = train().evidence
    for position, event in enumerate(evidence.inspections):
        if event.kind == "gradient_step":
            evidence.held[position]["target"] = evidence.held[position]["target"][::-1]
    finding = ask(evidence)
    assert finding.status == "fail"


def test_what_no_definition_explains_is_refused_without_a_name() -> None:
    evidence = train().evidence
    source = np.random.default_rng(0)
    for position, event in enumerate(evidence.inspections):
        if event.kind == "rollout":
            evidence.held[position]["advantage"] += source.normal(size=(32, 8)).astype(np.float32)
    finding = ask(evidence)
    assert finding.status == "fail"
    assert finding.figures["explained_by"] == []
    assert "None of the known wrong definitions fits" in finding.cause


def test_one_odd_rollout_is_not_enough_to_accuse() -> None:
    evidence = train().evidence
    position = next(p for p, event in enumerate(evidence.inspections) if event.kind == "rollout")
    evidence.held[position]["advantage"] += np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
    assert ask(evidence).status == "undecided"


def test_a_time_limit_that_never_came_is_not_yet_observable() -> None:
    finding = ask(train(time_limit=10_000, n_steps=16).evidence)
    assert finding.status == "pass"
    assert "time limit as terminal" in finding.figures["not_yet_observable"]
    assert "not yet observable" in finding.summary
    assert "time limit as terminal" not in ask(train().evidence).figures["not_yet_observable"]


def test_too_few_rollouts_are_not_judged() -> None:
    finding = ask(train(iterations=2).evidence)
    assert finding.status == "undecided"


def test_a_rollout_of_the_wrong_shape_is_an_error_that_teaches() -> None:
    evidence = train().evidence
    evidence.held[0]["value"] = evidence.held[0]["value"][:-1]
    with pytest.raises(EvidenceError, match=r"value has shape \(31, 8\), expected \(32, 8\)"):
        ask(evidence)


def test_rows_that_the_rollout_does_not_have_are_an_error_that_teaches() -> None:
    evidence = train().evidence
    evidence.held[1]["row"] = evidence.held[1]["row"] + 1_000
    with pytest.raises(EvidenceError, match="points to rows"):
        ask(evidence)
