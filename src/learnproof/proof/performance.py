"""Is the trained policy better than the run's own start, and than a random policy, on the same fresh seeds?

Two comparisons, both of which must succeed: trained against initial, and trained against random. Because both are
required, each may be tested at the full error rate (an intersection-union test): a policy that is not better than one of
the two is called better than that one with probability at most error_rate, whatever the other comparison says.

Each comparison is paired by seed. Its p-value is the larger of two: the sign-flip test is exact for two equal policies
however few the seeds, and the skewness-corrected one holds where many small wins are balanced by a few large losses.
The bootstrap interval of the mean difference must agree: its lower end is above 0. Performance never accuses: a
policy that does not improve may need more training, or have been optimal from the start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import EvidenceError
from .check import Finding
from .statistics import bca_interval, sample_size_needed, sign_flip_test, skewness_corrected_test

Array = np.ndarray[Any, Any]

QUESTION = "Is the trained policy better than the one it started from, and than a random one?"
MIN_SEEDS = 10
"""Pairs below which no claim is made, however clear they look."""


@dataclass(frozen=True)
class PairedScores:
    """Scores of three policies on the same seeds, in the metric of the run."""

    metric: str
    seeds: Sequence[int]
    initial: Sequence[float]
    trained: Sequence[float]
    random: Sequence[float]
    mode: Literal["deterministic", "sampled"]
    """How the trained and the initial policy chose their actions."""

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in ("seeds", "initial", "trained", "random")}
        if len(set(lengths.values())) != 1:
            raise EvidenceError(f"Paired scores need one score per seed for each policy, but there are {lengths}.")
        if not lengths["seeds"]:
            raise EvidenceError("Paired scores are empty: run the three policies on at least 10 fresh seeds.")
        for name in ("initial", "trained", "random"):
            if not all(math.isfinite(score) for score in getattr(self, name)):
                raise EvidenceError(
                    f"A score of the {name} policy is NaN or infinite, so the policies cannot be compared. Check the "
                    f"metric {self.metric!r} of the environment on the seeds of the proof."
                )


@dataclass(frozen=True)
class Comparison:
    """Trained against one opponent, in the direction in which larger is better."""

    opponent: Literal["initial", "random"]
    difference: float
    interval: tuple[float, float]
    p_value: float
    better: bool
    pairs: int
    pairs_needed: int | None
    """Seeds at which such a difference would be found four times in five; None where there is no lead to find."""


@dataclass(frozen=True)
class Performance:
    """The result, as in verdict.json. Difference, interval and p-value belong to the harder of the two comparisons."""

    metric: str
    initial: float
    trained: float
    random: float
    difference: float
    interval: tuple[float, float]
    p_value: float
    episodes: int
    seeds: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "interval": list(self.interval), "seeds": list(self.seeds)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Performance:
        return cls(**{**body, "interval": tuple(body["interval"]), "seeds": tuple(body["seeds"])})


def against(
    opponent: Literal["initial", "random"], leads: Array, error_rate: float, generator: np.random.Generator
) -> Comparison:
    """`leads` = by how much the trained policy was better, seed by seed."""
    p_value = max(sign_flip_test(leads, generator), skewness_corrected_test(leads))
    low, high = bca_interval(leads, 1 - 2 * error_rate, generator)
    return Comparison(
        opponent=opponent,
        difference=float(leads.mean()),
        interval=(low, high),
        p_value=p_value,
        better=leads.size >= MIN_SEEDS and p_value <= error_rate and low > 0,
        pairs=leads.size,
        pairs_needed=sample_size_needed(leads, error_rate, smallest=MIN_SEEDS),
    )


def judge_performance(
    scores: PairedScores, *, higher_is_better: bool, error_rate: float, generator: np.random.Generator
) -> tuple[Performance, Finding]:
    seeds, first = np.unique(np.asarray(scores.seeds, dtype=np.int64), return_index=True)
    order = np.sort(first)  # a seed that was drawn twice is one piece of evidence, not two
    initial, trained, random = (
        np.asarray(column, dtype=np.float64)[order] for column in (scores.initial, scores.trained, scores.random)
    )
    sign = 1.0 if higher_is_better else -1.0
    comparisons = [
        against("initial", sign * (trained - initial), error_rate, generator),
        against("random", sign * (trained - random), error_rate, generator),
    ]
    harder = max(comparisons, key=lambda c: (c.p_value, -c.difference))
    ends = sorted((sign * harder.interval[0], sign * harder.interval[1]))
    performance = Performance(
        metric=scores.metric,
        initial=float(initial.mean()),
        trained=float(trained.mean()),
        random=float(random.mean()),
        difference=sign * harder.difference,
        interval=(ends[0], ends[1]),
        p_value=harder.p_value,
        episodes=int(seeds.size),
        seeds=tuple(int(scores.seeds[i]) for i in order),
    )
    return performance, _finding(scores, performance, comparisons, harder, error_rate, higher_is_better)


def _finding(
    scores: PairedScores,
    performance: Performance,
    comparisons: Sequence[Comparison],
    harder: Comparison,
    error_rate: float,
    higher_is_better: bool,
) -> Finding:
    better = all(comparison.better for comparison in comparisons)
    figures: dict[str, Any] = {
        "metric": scores.metric,
        "mode": scores.mode,
        "higher_is_better": higher_is_better,
        "episodes": performance.episodes,
        "error_rate": error_rate,
        "interval_confidence": 1 - 2 * error_rate,
    }
    for comparison in comparisons:
        figures[f"against_{comparison.opponent}"] = {
            "lead": comparison.difference,
            "interval": list(comparison.interval),
            "p_value": comparison.p_value,
            "better": comparison.better,
            "pairs_needed": comparison.pairs_needed,
        }
    numbers = (
        f"On {performance.episodes} fresh seeds the trained policy's mean {scores.metric} is {performance.trained:.4g}, the initial "
        f"one's {performance.initial:.4g}, a random one's {performance.random:.4g}"
    )
    if better:
        summary = (
            f"{numbers}. Its smaller lead, over the {harder.opponent} policy, is {abs(harder.difference):.4g} "
            f"(p = {harder.p_value:.2g})."
        )
        return Finding("performance", "pass", QUESTION, summary, figures, p_value=harder.p_value)
    missed = [c for c in comparisons if not c.better]
    names = " and ".join(f"the {c.opponent}" for c in missed)
    summary = f"{numbers}. It is not shown to be better than {names} policy (p = {harder.p_value:.2g})."
    return Finding(
        "performance",
        "undecided",
        QUESTION,
        summary,
        figures,
        advice=_what_it_would_take(missed),
        p_value=harder.p_value,
    )


def _what_it_would_take(missed: Sequence[Comparison]) -> str:
    behind = [c for c in missed if c.pairs_needed is None]
    if behind:
        names = " and ".join(f"the {c.opponent}" for c in behind)
        return (
            f"The trained policy does not lead {names} policy on these seeds, so more episodes would not help: train "
            "longer, or look at what the advice says. A policy that was optimal from the start cannot be proven to learn."
        )
    needed = max(c.pairs_needed or 0 for c in missed)
    more = max(1, needed - missed[0].pairs)
    return (
        f"If the lead is real, about {more} more episodes (proof.episodes = {missed[0].pairs + more}) would show it four times "
        "in five; more training would widen it."
    )
