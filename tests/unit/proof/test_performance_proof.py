"""The performance proof: better than the start and than random on paired seeds, at a stated rate of errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learnproof.errors import EvidenceError
from learnproof.proof.check import Finding
from learnproof.proof.performance import PairedScores, Performance, against, judge_performance


def scores(trained: Any, initial: Any, random: Any, seeds: list[int] | None = None) -> PairedScores:
    columns = [[float(x) for x in column] for column in (initial, trained, random)]
    return PairedScores("return", seeds or list(range(len(columns[0]))), *columns, mode="deterministic")


def ask(
    paired: PairedScores, *, higher_is_better: bool = True, error_rate: float = 0.05, seed: int = 0
) -> tuple[Performance, Finding]:
    generator = np.random.default_rng(seed)
    return judge_performance(paired, higher_is_better=higher_is_better, error_rate=error_rate, generator=generator)


def drawn(seed: int, lead_over_initial: float, lead_over_random: float, count: int = 40) -> PairedScores:
    source = np.random.default_rng([9, seed])
    base = source.normal(10, 5, count)
    trained = base + source.normal(0, 1, count)
    return scores(
        trained,
        base + source.normal(0, 1, count) - lead_over_initial,
        base + source.normal(0, 1, count) - lead_over_random,
    )


def test_a_clear_improvement_passes_with_its_figures() -> None:
    performance, finding = ask(drawn(0, 3.0, 2.0))
    assert finding.status == "pass"
    assert performance.p_value <= 0.001
    assert performance.interval[0] > 0
    assert performance.interval[0] < performance.difference < performance.interval[1]
    assert performance.difference == pytest.approx(performance.trained - performance.random)  # the harder opponent
    assert performance.episodes == 40
    assert set(performance.to_json()) == set(
        "metric initial trained random difference interval p_value episodes seeds".split()  # noqa: SIM905
    )
    assert Performance.from_json(performance.to_json()) == performance


@pytest.mark.parametrize(("over_initial", "over_random"), [(3.0, 0.0), (0.0, 3.0), (0.0, 0.0), (3.0, -3.0)])
def test_both_opponents_must_be_beaten(over_initial: float, over_random: float) -> None:
    passed = sum(ask(drawn(seed, over_initial, over_random))[1].status == "pass" for seed in range(40))
    assert passed <= 7  # 0.05 of 40 is 2; 7 or fewer has probability 0.998


def test_performance_never_accuses() -> None:
    performance, finding = ask(drawn(0, -5.0, -5.0))
    assert finding.status == "undecided"
    assert performance.difference < 0
    assert "more episodes would not help" in finding.advice


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["equal", "rare losses", "rare wins"])
def test_a_policy_that_is_not_better_is_called_better_no_more_often_than_stated(shape: str) -> None:
    source = np.random.default_rng([3, len(shape)])
    trials, hits = 300, 0
    for _ in range(trials):
        if shape == "equal":
            leads = source.exponential(1, 50) - source.exponential(1, 50)
        else:  # mean difference 0, skewed
            leads = source.exponential(1, 50) - 1
            leads = -leads if shape == "rare losses" else leads
        hits += against("initial", leads, 0.05, source).better
    assert hits / trials <= 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / trials)


def test_equal_differences_are_handled_rightly() -> None:
    better = ask(scores([2.0] * 20, [1.0] * 20, [0.0] * 20))
    assert better[1].status == "pass"
    assert better[0].interval == (1.0, 1.0)
    same = ask(scores([1.0] * 20, [1.0] * 20, [0.0] * 20))
    assert same[1].status == "undecided"
    assert same[0].p_value == 1.0
    assert same[0].difference == 0.0


def test_lower_is_better_where_the_metric_says_so() -> None:
    paired = drawn(1, -3.0, -3.0)
    performance, finding = ask(paired, higher_is_better=False)
    assert finding.status == "pass"
    assert performance.difference < 0
    assert performance.interval[1] < 0
    assert ask(paired)[1].status == "undecided"


def test_a_stricter_rate_asks_for_more() -> None:
    paired = drawn(4, 0.5, 3.0)
    assert ask(paired, error_rate=0.05)[1].status == "pass"
    assert ask(paired, error_rate=0.0001)[1].status == "undecided"


def test_it_says_how_many_more_episodes_it_would_take() -> None:
    paired = drawn(2, 0.15, 3.0)
    _, finding = ask(paired)
    assert finding.status == "undecided"
    needed = finding.figures["against_initial"]["pairs_needed"]
    assert needed > 40
    assert f"about {needed - 40} more episodes (proof.episodes = {needed})" in finding.advice


def test_fewer_than_ten_seeds_prove_nothing() -> None:
    assert ask(scores([5.0] * 9, [0.0] * 9, [0.0] * 9))[1].status == "undecided"
    assert ask(scores([5.0] * 10, [0.0] * 10, [0.0] * 10))[1].status == "pass"


def test_a_seed_counts_once() -> None:
    performance, finding = ask(scores([5.0] * 20, [0.0] * 20, [0.0] * 20, seeds=[7] * 20))
    assert performance.episodes == 1
    assert performance.seeds == (7,)
    assert finding.status == "undecided"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([1.0, 2.0], [1.0], [1.0, 2.0]), "one score per seed"),
        (([1.0, float("nan")], [1.0, 2.0], [1.0, 2.0]), "score of the initial policy is NaN"),
        (([], [], []), "empty"),
    ],
)
def test_scores_that_cannot_be_compared_are_refused(columns: tuple[list[float], ...], message: str) -> None:
    with pytest.raises(EvidenceError, match=message):
        PairedScores("return", list(range(len(columns[0]))), *columns, mode="sampled")


def test_the_same_scores_always_get_the_same_answer() -> None:
    assert ask(drawn(5, 0.3, 1.0)) == ask(drawn(5, 0.3, 1.0))
