"""Each test keeps its promise: closed forms where there are any, the rate of errors under the null by simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from learnproof.proof.statistics import (
    bca_interval,
    bets_needed,
    betting_p_value,
    block_means,
    effective_sample_size,
    holm_levels,
    policies_test,
    rise_test,
    sample_size_needed,
    sign_flip_test,
    skewness_corrected_test,
    smallest_sample_for,
    trend_test,
    welch_test,
)


def generator(*seed: int) -> np.random.Generator:
    return np.random.default_rng([11, *seed])


def within_four_errors(hits: int, trials: int, rate: float) -> bool:
    """Not above `rate` by more than four standard errors of the simulation."""
    return hits / trials <= rate + 4 * np.sqrt(rate * (1 - rate) / trials)


# Sign-flip test


def test_sign_flip_counts_every_pattern_exactly() -> None:
    differences = [0.5, -0.2, 1.0, 0.3]
    sums = [
        sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in itertools.product([1, -1], repeat=4)
    ]
    expected = np.mean([total >= sum(differences) - 1e-9 for total in sums])
    assert sign_flip_test(differences, generator()) == expected


@pytest.mark.parametrize(
    ("differences", "p_value"), [([2.0] * 5, 1 / 32), ([0.0] * 5, 1.0), ([], 1.0), ([-1.0] * 3, 1.0)]
)
def test_sign_flip_is_right_where_all_differences_are_the_same(differences: list[float], p_value: float) -> None:
    assert sign_flip_test(differences, generator()) == p_value


def test_sign_flip_drawn_agrees_with_sign_flip_enumerated() -> None:
    differences = generator(1).normal(0.3, 1, 14)
    exact = sign_flip_test(differences, generator())
    drawn = sign_flip_test(np.concatenate([differences, [1e-12]]), generator(), draws=40_000)
    assert drawn == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("count", [8, 25])
def test_sign_flip_errs_no_more_than_it_says(count: int) -> None:
    source = generator(2, count)
    trials = 800
    hits = sum(sign_flip_test(source.standard_t(3, count), source, draws=499) <= 0.05 for _ in range(trials))
    assert within_four_errors(hits, trials, 0.05)


def test_sign_flip_sees_a_real_difference() -> None:
    source = generator(3)
    assert sum(sign_flip_test(source.normal(1, 1, 20), source, draws=499) <= 0.05 for _ in range(100)) > 95


def test_the_smallest_sample_reaches_its_level_and_one_less_does_not() -> None:
    count = smallest_sample_for(0.01)
    assert sign_flip_test([1.0] * count, generator()) <= 0.01
    assert sign_flip_test([1.0] * (count - 1), generator()) > 0.01


# Skewness-corrected test


def test_without_skewness_the_corrected_test_is_student_s() -> None:
    values = np.array([-1.0, 0.0, 1.0, 2.0, 3.0])
    assert skewness_corrected_test(values) == pytest.approx(ttest_1samp(values, 0, alternative="greater").pvalue)


@pytest.mark.parametrize(("values", "p_value"), [([2.0] * 5, 0.0), ([0.0] * 5, 1.0), ([-2.0] * 5, 1.0), ([1.0], 1.0)])
def test_the_corrected_test_is_right_where_all_differences_are_the_same(values: list[float], p_value: float) -> None:
    assert skewness_corrected_test(values) == p_value


def test_a_lead_on_nearly_every_seed_stays_clear_however_skewed() -> None:
    assert skewness_corrected_test([1.0] * 39 + [0.0]) < 1e-6


def test_rare_large_losses_are_not_taken_for_an_effect() -> None:
    source = generator(13)
    trials = 1_000
    losses = [np.exp(0.5) - source.lognormal(0, 1, 100) for _ in range(trials)]
    corrected = sum(skewness_corrected_test(sample) <= 0.05 for sample in losses)
    plain = sum(sign_flip_test(sample, source, draws=499) <= 0.05 for sample in losses)
    assert corrected / trials < 0.09
    assert plain > 1.3 * corrected


# Bootstrap interval


def test_interval_of_equal_numbers_is_that_number() -> None:
    assert bca_interval([3.0] * 20, 0.9, generator()) == (3.0, 3.0)


def test_interval_stays_finite_where_nearly_all_numbers_are_equal() -> None:
    low, high = bca_interval([1.0] * 39 + [0.0], 0.9, generator())
    assert 0.85 < low < 0.975 <= high <= 1.0


def test_interval_covers_the_mean_of_skewed_numbers_nearly_as_often_as_it_says() -> None:
    source = generator(4)
    trials = 400
    covered = 0
    for _ in range(trials):
        low, high = bca_interval(source.exponential(1.0, 60), 0.9, source, draws=999)
        covered += low <= 1.0 <= high
    assert 0.84 < covered / trials < 0.95


def test_a_plain_case_equals_the_normal_interval() -> None:
    sample = generator(5).normal(2, 1, 400)
    low, high = bca_interval(sample, 0.9, generator())
    half = 1.645 * sample.std(ddof=1) / 20
    assert low == pytest.approx(sample.mean() - half, abs=0.01)
    assert high == pytest.approx(sample.mean() + half, abs=0.01)


# Betting


def test_betting_reaches_a_level_after_exactly_so_many_wrong_ones() -> None:
    count = bets_needed(0.0005)
    assert count == 12
    assert betting_p_value([-1.0] * count) <= 0.0005
    assert betting_p_value([-1.0] * (count - 1)) > 0.0005


def test_betting_wins_nothing_on_right_ones_or_on_zeros() -> None:
    assert betting_p_value([1.0] * 100) == 1.0
    assert betting_p_value([0.0] * 100) == 1.0
    assert betting_p_value([]) == 1.0


def test_a_weak_right_one_costs_less_than_a_clear_one() -> None:
    wrong = [-1.0] * 10
    assert betting_p_value([*wrong, 0.01, -1.0, -1.0]) < betting_p_value([*wrong, 1.0, -1.0, -1.0])


def test_looking_after_every_number_does_not_raise_the_rate_of_false_accusations() -> None:
    source = generator(6)
    trials = 2_000
    ever = sum(betting_p_value(source.standard_t(2, 60)) <= 0.05 for _ in range(trials))
    assert within_four_errors(ever, trials, 0.05)
    assert ever > 0  # a test that never fires would pass the line above


# Holm


def test_holm_gives_each_its_step_down_level() -> None:
    levels = holm_levels([0.04, 0.001, 0.02], 0.05)
    assert levels == pytest.approx([0.05, 0.05 / 3, 0.025])


def test_holm_stops_at_the_first_that_is_not_rejected() -> None:
    assert holm_levels([0.03, 0.9, 0.04], 0.05) == pytest.approx([0.05 / 3] * 3)


def test_holm_keeps_the_family_rate() -> None:
    source = generator(7)
    trials = 4_000
    wrong = 0
    for _ in range(trials):
        p_values = list(source.random(4))
        wrong += any(p <= level for p, level in zip(p_values, holm_levels(p_values, 0.05), strict=True))
    assert within_four_errors(wrong, trials, 0.05)
    assert wrong > 0.02 * trials


# Trend


def autocorrelated(source: np.random.Generator, count: int, memory: float) -> np.ndarray:
    noise = source.normal(size=count)
    for i in range(1, count):
        noise[i] += memory * noise[i - 1]
    return noise


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("count", [30, 300])
def test_trend_test_is_not_fooled_by_neighbours_that_resemble_each_other(count: int, memory: float) -> None:
    source = generator(8, count, int(10 * memory))
    trials = 400
    hits = sum(trend_test(autocorrelated(source, count, memory)).p_value <= 0.05 for _ in range(trials))
    assert within_four_errors(hits, trials, 0.05)


@pytest.mark.parametrize("middle", [0.2, 0.4, 0.6])
@pytest.mark.parametrize(("count", "height"), [(80, 4.0), (300, 2.0), (2_000, 2.0)])
def test_rise_test_sees_a_curve_that_bends(middle: float, count: int, height: float) -> None:
    source = np.random.default_rng(13)
    curve = height / (1 + np.exp(-(np.arange(count) / count - middle) / 0.1))
    assert all(rise_test(source.normal(size=count) + curve).p_value <= 0.01 for _ in range(10))
    assert rise_test(source.normal(size=count) - curve).p_value > 0.5


@pytest.mark.parametrize(("count", "memory"), [(30, 0.0), (30, 0.4), (100, 0.5), (100, 0.8), (300, 0.9), (1_000, 0.9)])
def test_rise_test_is_not_fooled_by_neighbours_that_resemble_each_other(count: int, memory: float) -> None:
    source = np.random.default_rng(11)
    trials = 200
    hits = sum(rise_test(autocorrelated(source, count, memory)).p_value <= 0.05 for _ in range(trials))
    assert hits <= 0.05 * trials + 3 * (0.05 * 0.95 * trials) ** 0.5


@pytest.mark.parametrize(("count", "place"), [(33, 0.3), (60, 0.2), (400, 0.1), (4_000, 0.08)])
def test_rise_test_sees_a_jump_that_the_trend_test_misses(count: int, place: float) -> None:
    source = np.random.default_rng(12)
    jump = 4.0 * (np.arange(count) > place * count)
    seen = [rise_test(source.normal(size=count) + jump).p_value <= 0.05 for _ in range(20)]
    assert sum(seen) >= 19
    assert rise_test(source.normal(size=count) - jump).p_value > 0.5


def test_trend_test_sees_a_rise_and_refuses_a_fall() -> None:
    noise = autocorrelated(generator(9), 200, 0.5)
    slope = 4 / 200
    rising = trend_test(noise + slope * np.arange(200))
    assert rising.p_value < 0.01
    assert rising.slope == pytest.approx(slope, rel=0.4)
    assert trend_test(noise - slope * np.arange(200)).p_value > 0.99


def test_effective_size_is_the_whole_for_independent_points_and_small_for_sticky_ones() -> None:
    source = generator(10)
    assert effective_sample_size(source.normal(size=2_000)) > 1_700
    sticky = effective_sample_size(autocorrelated(source, 2_000, 0.9))
    assert sticky == pytest.approx(2_000 * 0.1 / 1.9, rel=0.4)


def test_block_means_average_neighbours() -> None:
    assert block_means([1, 3, 5, 7, 9, 11], 3) == pytest.approx([2, 6, 10])
    assert block_means([1, 2], 3) == pytest.approx([1, 2])


# Power


def test_the_promised_number_of_pairs_finds_the_difference_four_times_in_five() -> None:
    source = generator(12)
    needed = sample_size_needed(source.normal(0.5, 1, 4_000), 0.05)
    assert needed is not None
    found = sum(sign_flip_test(source.normal(0.5, 1, needed), source, draws=499) <= 0.05 for _ in range(400))
    assert 0.72 < found / 400 < 0.88


def test_no_number_of_pairs_is_promised_where_there_is_no_lead() -> None:
    assert sample_size_needed([-1.0, 0.5], 0.05) is None
    assert sample_size_needed([0.0, 0.0], 0.05) is None


def test_the_welch_test_errs_as_often_as_it_says():
    rng = np.random.default_rng(4)
    p_values = [welch_test(rng.normal(0, 1, 8), rng.normal(0, 3, 8)) for _ in range(4_000)]
    assert 0.035 < np.mean(np.array(p_values) <= 0.05) < 0.065


def test_the_welch_test_sees_a_lead_and_copes_with_no_spread():
    assert welch_test([0, 1, 0, 1], [5, 6, 5, 6]) < 1e-3
    assert welch_test([1, 1, 1], [2, 2, 2]) == 0.0
    assert welch_test([2, 2, 2], [2, 2, 2]) == 1.0
    assert welch_test([2], [3]) == 1.0


def test_policies_test_sees_a_rise_at_the_beginning_and_errs_as_often_as_it_says() -> None:
    source = np.random.default_rng(0)
    policies = np.repeat(np.arange(20), 3)
    curve = np.repeat(np.minimum(1.0, np.arange(20) / 4), 3)
    assert all(policies_test(source.normal(size=60) * 0.2 + curve, policies) < 1e-3 for _ in range(20))
    hits = sum(policies_test(source.normal(size=60), policies) <= 0.05 for _ in range(2_000))
    assert hits <= 0.05 * 2_000 + 3 * np.sqrt(2_000 * 0.05 * 0.95)


def test_policies_test_says_nothing_where_each_point_has_a_policy_of_its_own() -> None:
    series = np.arange(60.0)
    assert policies_test(series, np.arange(60)) is None
    assert rise_test(series, list(range(60))).p_value == rise_test(series).p_value
    assert rise_test(series, [None] * 60).p_value == rise_test(series).p_value


def test_policies_test_of_points_without_noise() -> None:
    policies = np.repeat(np.arange(20), 3)
    assert policies_test(policies.astype(float), policies) == 0.0
    assert policies_test(-policies.astype(float), policies) == 1.0


@pytest.mark.parametrize("count", [40, 60, 200])
def test_a_rise_that_bends_early_is_seen(count: int) -> None:
    """Most of what is learnt is learnt early: the bend is no resemblance of neighbours."""
    generator = np.random.default_rng(count)
    time = np.arange(count) / count
    seen = [
        trend_test(10 + 25 * (1 - np.exp(-time / 0.15)) + generator.normal(0, 6, count)).p_value < 0.025
        for _ in range(60)
    ]
    assert np.mean(seen) > 0.85


def test_a_line_without_noise_is_a_trend() -> None:
    assert trend_test(np.arange(40.0)).p_value < 1e-6
    assert trend_test(1e6 + 0.1 * np.arange(200)).p_value < 1e-6
    assert trend_test(np.full(40, 3.7)).p_value >= 0.5
