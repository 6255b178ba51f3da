"""The five classic rules to the letter, at their exact bounds, on plain sequences and on evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import train

from learnproof.evidence import Episode, RunStarted
from learnproof.proof.classic import (
    Checklist,
    entropy_decreasing,
    findings,
    gradients_flowing,
    look,
    loss_improving,
    performance_improving,
    performance_of,
    records_of,
    weights_changing,
)


@pytest.mark.parametrize(
    ("records", "holds"),
    [
        ([1.0] * 10, False),
        ([1.0] * 11, True),
        ([0.001] * 11, False),
        ([0.0] * 10 + [0.0011], True),
        ([1.0] + [0.0] * 10, False),
        ([0.0] + [1.0] + [0.0] * 9, True),
        ([], False),
    ],
)
def test_weights_changing(records: list[float], holds: bool) -> None:
    assert weights_changing(records) is holds


@pytest.mark.parametrize(
    ("records", "holds"),
    [
        ([1.0] * 10, False),
        ([1.0] * 11, True),
        ([1.0] * 10 + [0.0], False),
        ([1.0] * 10 + [100.0], False),
        ([1.0] * 10 + [99.999], True),
        ([0.0] + [1.0] * 10, True),
        ([500.0] + [1.0] * 10, True),
        ([1.0] * 10 + [float("nan")], False),
    ],
)
def test_gradients_flowing(records: list[float], holds: bool) -> None:
    assert gradients_flowing(records) is holds


@pytest.mark.parametrize(
    ("records", "holds"),
    [
        ([2.0] * 50 + [1.0] * 50, False),
        ([2.0] * 50 + [1.0] * 51, True),
        ([10.0] * 51 + [9.0] * 50, False),
        ([10.0] * 51 + [8.99] * 50, True),
        ([2.0] * 50 + [0.0] + [2.0] * 50, False),
    ],
)
def test_entropy_decreasing(records: list[float], holds: bool) -> None:
    assert entropy_decreasing(records) is holds


@pytest.mark.parametrize(
    ("records", "holds"),
    [
        ([2.0] * 50 + [1.0] * 50, False),
        ([2.0] * 50 + [1.0] * 51, True),
        ([2.0] * 101, False),
        ([2.0] * 51 + [1.999] * 50, True),
        ([-2.0] * 51 + [-1.0] * 50, False),
    ],
)
def test_loss_improving(records: list[float], holds: bool) -> None:
    assert loss_improving(records) is holds


@pytest.mark.parametrize(
    ("records", "holds"),
    [
        ([1.0] * 10 + [2.0] * 10, False),
        ([1.0] * 11 + [2.0] * 10, True),
        ([1.0] * 21, False),
        ([1.0] * 11 + [1.001] * 10, True),
        ([2.0] * 11 + [1.0] * 10, False),
    ],
)
def test_performance_improving(records: list[float], holds: bool) -> None:
    assert performance_improving(records) is holds


def test_records_come_per_update_per_epoch_and_per_episode() -> None:
    evidence = train().evidence
    records = records_of(evidence)
    assert len(records["weights_changing"]) == 16
    assert (
        len(records["gradients_flowing"]) == len(records["loss_improving"]) == len(records["entropy_decreasing"]) == 96
    )
    assert len(records["performance_improving"]) == len(evidence.episodes)


def test_a_look_at_a_healthy_long_run_holds_where_it_should() -> None:
    checklist = look(train(iterations=30).evidence)
    assert checklist == Checklist(
        weights_changing=True,
        gradients_flowing=True,
        entropy_decreasing=True,
        loss_improving=checklist.loss_improving,  # a PPO loss hovers round zero: either is healthy
        performance_improving=True,
    )
    assert set(checklist.learning_verification()) == {
        "weights_updating",
        "entropy_tracking",
        "gradient_flow",
        "loss_tracking",
        "performance_metrics",
    }


def test_a_look_at_a_run_without_learning_rate_refuses() -> None:
    checklist = look(train(fault="learning rate 0", iterations=30).evidence)
    assert not checklist.weights_changing
    assert not checklist.entropy_decreasing


def test_a_look_at_a_run_that_has_just_begun_is_all_false() -> None:
    assert not any(look(train(iterations=1).evidence).to_json().values())


def episode(metrics: dict[str, float]) -> Episode:
    return Episode(step=1, env=0, return_=5.0, length=3, terminated=True, metrics=metrics)


def run_with(metric: str, higher_is_better: bool = True) -> RunStarted:
    return replace(train().evidence.run, metric=metric, higher_is_better=higher_is_better)


def test_performance_is_roas_where_there_is_one_else_the_metric_of_the_run() -> None:
    assert performance_of(episode({"ROAS": 2.5, "cost": 1.0}), run_with("cost")) == [2.5]
    assert performance_of(episode({"cost": 1.0}), run_with("cost")) == [1.0]
    assert performance_of(episode({"cost": 1.0}), run_with("cost", higher_is_better=False)) == [-1.0]
    assert performance_of(episode({}), run_with("return")) == [5.0]
    assert performance_of(episode({}), run_with("cost")) == []


def test_the_first_four_rules_fail_and_performance_only_warns() -> None:
    evidence = train(fault="learning rate 0", iterations=30, start="optimal").evidence
    status = {finding.check: finding.status for finding in findings(evidence)}
    assert status["weights_changing"] == "fail"
    assert status["entropy_decreasing"] == "fail"
    worse = train(iterations=30).evidence
    worse.episodes.reverse()
    assert {f.check: f.status for f in findings(worse)}["performance_improving"] == "undecided"


def test_too_few_records_do_not_accuse() -> None:
    assert {finding.status for finding in findings(train(iterations=2).evidence)} <= {"undecided", "pass"}
