"""Evidence as curves: nothing lost, nothing invented, nothing trusted."""

from __future__ import annotations

import numpy as np
from sample_run import NAN, episode, healthy, run_started, update

from learnproof.evidence import Evidence
from learnproof.show.curves import (
    Curve,
    curve,
    largest,
    mean,
    metric_of,
    module_names,
    of_episodes,
    of_module,
    of_updates,
    smoothed,
    thinned,
)


def test_a_list_has_a_mean_and_a_largest_unless_it_is_empty_or_spoilt() -> None:
    assert mean([1.0, 3.0]) == 2.0
    assert largest([1.0, 3.0, 2.0]) == 3.0
    assert mean([]) is None
    assert largest([]) is None
    assert np.isnan(mean([1.0, NAN]) or 0.0)
    assert np.isnan(largest([NAN, 5.0]) or 0.0)
    assert np.isnan(mean([1.0, "text"]) or 0.0)
    assert mean([1.7e308, 1.7e308]) == 1.7e308


def test_a_value_that_is_not_finite_leaves_its_place() -> None:
    made = curve([(1, 2.0), (2, NAN), (3, float("inf")), (4, 1e200), (5, 6.0)])
    assert made.finite.tolist() == [2.0, 6.0]
    assert made.spoilt.tolist() == [2.0, 3.0, 4.0]


def test_a_point_without_a_step_or_a_value_is_left_out() -> None:
    made = curve([("text", 1.0), (None, 1.0), (1e300, 1.0), (2, None), (3, 4.0)])
    assert made.x.tolist() == [3.0]
    assert not curve([]).drawable


def test_evidence_gives_one_point_for_each_event() -> None:
    evidence = healthy(metric="roas")
    assert of_updates(evidence, lambda one: one.weight_change).y[3] == 0.8 * 3
    assert len(of_episodes(evidence, lambda one: metric_of(one, "roas")).y) == 300
    assert module_names(evidence) == ["policy", "value"]
    assert of_module(evidence, "value", "grad_norm").y[1] == 0.5


def test_an_episode_without_the_metric_is_no_point() -> None:
    evidence = Evidence(run=run_started(metric="roas"))
    evidence.add(episode(0, 5.0))
    assert len(of_episodes(evidence, lambda one: metric_of(one, "roas")).y) == 0
    assert of_episodes(evidence, lambda one: metric_of(one, "return")).y.tolist() == [5.0]


def test_a_module_that_appears_late_has_points_from_then_on() -> None:
    evidence = healthy()
    evidence.add(update(30, modules={"critic": evidence.updates[0].modules["value"]}))
    assert of_module(evidence, "critic", "weight_change").x.tolist() == [512.0 * 31]


def test_smoothing_keeps_a_straight_line_and_calms_noise() -> None:
    x = np.arange(1_000.0)
    straight = smoothed(Curve(x, 2 * x))
    np.testing.assert_allclose(straight.y[50:-50], 2 * x[50:-50])
    noise = Curve(x, np.random.default_rng(0).standard_normal(1_000))
    assert smoothed(noise).y.std() < 0.3 * noise.y.std()


def test_smoothing_steps_over_a_gap_and_leaves_few_points_alone() -> None:
    y = np.ones(400)
    y[200] = np.nan
    assert np.isfinite(smoothed(Curve(np.arange(400.0), y)).y).all()
    few = Curve(np.arange(5.0), np.array([1.0, 9.0, 1.0, 9.0, 1.0]))
    assert smoothed(few) is few


def test_thinning_keeps_every_extreme_and_the_order() -> None:
    y = np.zeros(100_000)
    y[77_777], y[33_333], y[5] = 9.0, -9.0, np.nan
    thin = thinned(Curve(np.arange(100_000.0), y), 500)
    assert len(thin.y) <= 500
    assert (np.nanmax(thin.y), np.nanmin(thin.y)) == (9.0, -9.0)
    assert (np.diff(thin.x) > 0).all()
    assert (thin.x[0], thin.x[-1]) == (0.0, 99_999.0)
