"""Interquartile means with intervals, and how often a run of one group beats a run of another.

A run's score is its mean return over the last part of its steps. What varies is the run (its seed), so intervals resample
runs, never episodes: a single run has no interval. The interquartile mean leaves out the best and the worst quarter of the
runs; it is steadier than the mean under a few failed runs and wastes less than the median.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ..errors import UsageError
from .sources import Group, RunCurve

Array = np.ndarray[Any, Any]
DRAWS = 10_000
CONFIDENCE = 0.95
FEW = 5
"""Below this many runs a bootstrap interval is narrower than it should be, and we say so."""


@dataclass(frozen=True)
class Standing:
    """One group at one measure."""

    group: str
    runs: int
    iqm: float
    low: float | None
    high: float | None
    median: float
    scores: tuple[float, ...]


@dataclass(frozen=True)
class Duel:
    """How often a run of `first` scores higher than a run of `second`; ties count half."""

    first: str
    second: str
    probability: float
    low: float | None
    high: float | None

    @property
    def decided(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0.5 or self.high < 0.5)


@dataclass(frozen=True)
class Comparison:
    environment: str
    last: float
    final: tuple[Standing, ...]
    """By the last part of training, best first."""
    whole: tuple[Standing, ...]
    """By the mean over all steps: how soon it learnt."""
    duels: tuple[Duel, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(groups: Sequence[Group], *, last: float = 0.1, seed: int = 0) -> list[Comparison]:
    """One comparison per environment. Runs that do not say their environment go with those of the only one named, if it is."""
    if not 0 < last <= 1:
        raise UsageError(f"last = {last}: the share of the steps that counts lies between 0 and 1.")
    named = {run.environment for group in groups for run in group.runs if run.environment}
    if len(named) > 1 and any(not run.environment for group in groups for run in group.runs):
        raise UsageError(
            f"The runs are of several environments ({', '.join(sorted(named))}), and some do not say which. Compare them "
            "one environment at a time."
        )
    environments = sorted(named) or [""]
    return [_compare(groups, environment, last, np.random.default_rng(seed)) for environment in environments]


def _compare(groups: Sequence[Group], environment: str, last: float, generator: np.random.Generator) -> Comparison:
    members = {group.name: [run for run in group.runs if run.environment in ("", environment)] for group in groups}
    members = {name: runs for name, runs in members.items() if runs}
    final = {name: np.array([late_score(run, last) for run in runs]) for name, runs in members.items()}
    whole = {name: np.array([whole_score(run) for run in runs]) for name, runs in members.items()}
    duels = [_duel(first, second, final, generator) for first, second in combinations(members, 2)]
    return Comparison(
        environment,
        last,
        _standings(final, generator),
        _standings(whole, generator),
        tuple(duels),
        tuple(_notes(members)),
    )


def late_score(run: RunCurve, last: float) -> float:
    """Mean return over the last share of the steps; of at least one episode."""
    late = run.steps >= run.steps[0] + (1 - last) * (run.steps[-1] - run.steps[0])
    return float(run.returns[late].mean())


def whole_score(run: RunCurve) -> float:
    """Mean return over all steps, each episode's return holding until the next one's end."""
    if len(run.steps) < 2 or run.steps[-1] == run.steps[0]:
        return float(run.returns.mean())
    return float(np.average(run.returns[1:], weights=np.diff(run.steps)))


def interquartile_mean(scores: Array) -> Array:
    """Along the last axis; where a quarter is no whole number of runs, runs count in part."""
    ordered = np.sort(scores, axis=-1)
    size = ordered.shape[-1]
    edges = np.arange(size + 1) / size
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    answer: Array = ordered @ (weights / weights.sum())
    return answer


def probability_of_improvement(first: Array, second: Array) -> float:
    higher = (first[:, None] > second[None, :]).mean()
    equal = (first[:, None] == second[None, :]).mean()
    return float(higher + 0.5 * equal)


def _standings(scores: dict[str, Array], generator: np.random.Generator) -> tuple[Standing, ...]:
    found = []
    for name, own in scores.items():
        low = high = None
        if len(own) > 1:
            resampled = interquartile_mean(own[generator.integers(0, len(own), (DRAWS, len(own)))])
            low, high = (float(end) for end in np.quantile(resampled, _tails()))
        found.append(
            Standing(
                name,
                len(own),
                float(interquartile_mean(own)),
                low,
                high,
                float(np.median(own)),
                tuple(float(score) for score in own),
            )
        )
    return tuple(sorted(found, key=lambda standing: -standing.iqm))


def _duel(first: str, second: str, scores: dict[str, Array], generator: np.random.Generator) -> Duel:
    one, other = scores[first], scores[second]
    low = high = None
    if len(one) > 1 and len(other) > 1:
        drawn = [
            probability_of_improvement(
                one[generator.integers(0, len(one), len(one))], other[generator.integers(0, len(other), len(other))]
            )
            for _ in range(DRAWS // 5)
        ]
        low, high = (float(end) for end in np.quantile(drawn, _tails()))
    return Duel(first, second, probability_of_improvement(one, other), low, high)


def _tails() -> list[float]:
    return [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]


def _notes(members: dict[str, list[RunCurve]]) -> list[str]:
    notes = []
    alone = [name for name, runs in members.items() if len(runs) == 1]
    few = [name for name, runs in members.items() if 1 < len(runs) < FEW]
    if alone:
        notes.append(
            f"{', '.join(alone)}: one run only, so there is no interval. Another seed may come out otherwise; put several "
            "runs of a method into one folder and give the folder."
        )
    if few:
        notes.append(f"{', '.join(few)}: fewer than {FEW} runs, so the interval is narrower than it should be.")
    lengths = {name: max(float(run.steps[-1]) for run in runs) for name, runs in members.items()}
    if lengths and min(lengths.values()) < 0.8 * max(lengths.values()):
        told = ", ".join(f"{name} {steps:,.0f}" for name, steps in lengths.items())
        notes.append(f"They were not trained for equally many steps: {told}.")
    kinds = {run.kind for runs in members.values() for run in runs}
    if len(kinds) > 1:
        notes.append(
            f"Returns come from different records ({', '.join(sorted(kinds))}): a logged mean is smoother than single episodes."
        )
    return notes
