"""Recorded numbers against recomputed ones: equal within rounding, a line apart, or different.

In: a recorded rollout, or the batch of one gradient step with its rows. Out: a small comparison that says whether they
agree with the definition in oracle.py, which wrong definitions would explain them, and where they differ most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..evidence.reader import Sample
from .oracle import Oracle, Rollout, column, recomputed_advantages, wrong_advantages

Array = np.ndarray[Any, Any]
Match = Literal["equal", "scaled", "reversed", "none"]

MIN_ROWS_FOR_SCALING = 8
"""A line fits two points always; eight leave six to contradict it."""
NORMALISATION_EPSILON = 1e-8
"""Added to the deviation of a minibatch when its advantages are normalised."""
WEIGHT_ROUNDING = 1e-5
"""Of importance weights, which are at most 1: float32 keeps 4e-6 of a log-probability of 64."""


def compare(found: Array, expected: Array, tolerance: float) -> Match:
    """equal: within rounding. scaled, reversed: a line with positive or negative slope maps one on the other."""
    if float(np.max(np.abs(found - expected), initial=0.0)) <= tolerance:
        return "equal"
    spread = float(expected.std())
    if found.size < MIN_ROWS_FOR_SCALING or spread <= 10 * tolerance:
        return "none"
    centred = expected - expected.mean()
    slope = float(centred @ (found - found.mean()) / (centred @ centred))
    residual = found - found.mean() - slope * centred
    allowed = 2 * abs(slope) * tolerance + 1e-6 * float(np.max(np.abs(found)))
    if slope == 0 or float(np.max(np.abs(residual))) > allowed:
        return "none"
    return "scaled" if slope > 0 else "reversed"


@dataclass(frozen=True)
class RolloutComparison:
    """What one rollout says, small enough to keep for all of them."""

    update: int
    advantage: Match
    target: Match
    shuffled: bool
    difference: float
    """Largest, over the steps that belong to an episode."""
    tolerance: float
    place: str
    fitting: frozenset[str]
    """Wrong definitions that give the recorded advantages too."""
    visible: frozenset[str]
    """Wrong definitions that would have given other advantages here."""
    terminations: int
    truncations: int
    corrected: bool
    """Another policy acted."""
    oracle: Oracle

    @property
    def right(self) -> bool:
        return self.advantage in ("equal", "scaled") and self.target == "equal"


@dataclass(frozen=True)
class StepComparison:
    """What one gradient step was given, against the recomputed advantages of its rows."""

    update: int
    place: str
    advantage: Match
    target: Match
    relation: float
    """Correlation of the advantages used with the recomputed ones."""
    rows: int
    empty_rows: int
    weight: Match = "equal"
    """Of the importance weights, where another policy acted."""

    @property
    def right(self) -> bool:
        right = self.advantage in ("equal", "scaled") and self.target in ("equal", "scaled")
        return right and self.weight == "equal" and self.empty_rows == 0


def compare_rollout(rollout: Rollout, gamma: float, gae_lambda: float) -> RolloutComparison:
    tolerance = rollout.tolerance(gamma, gae_lambda)
    expected = recomputed_advantages(rollout, gamma, gae_lambda)
    mask = rollout.valid
    found = rollout.advantage[mask]
    match = compare(found, expected[mask], tolerance)
    fitting, visible = set(), set()
    for name, advantage in wrong_advantages(rollout, gamma, gae_lambda):
        if compare(found, advantage[mask], tolerance) in ("equal", "scaled"):
            fitting.add(name)
        if np.max(np.abs(advantage - expected)[mask], initial=0.0) > 10 * tolerance:
            visible.add(name)
    target = compare(rollout.target[mask], (rollout.value + rollout.importance * expected)[mask], 2 * tolerance)
    if target != "equal":
        # The plain return (lambda = 1) is a usual target for the critic beside any lambda for the actor.
        returns = rollout.value + rollout.importance * recomputed_advantages(rollout, gamma, 1.0)
        target = compare(rollout.target[mask], returns[mask], 2 * rollout.tolerance(gamma, 1.0))
    wrong = np.where(mask, np.abs(rollout.advantage - expected), 0.0)
    step, environment = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    return RolloutComparison(
        update=rollout.update,
        advantage=match,
        target=target,
        shuffled=match == "none" and compare(np.sort(found), np.sort(expected[mask]), tolerance) == "equal",
        difference=float(wrong[step, environment]),
        tolerance=tolerance,
        place=f"update {rollout.update}, step {step} of environment {environment}",
        fitting=frozenset(fitting),
        visible=frozenset(visible),
        terminations=int(np.sum(rollout.terminated & mask)),
        truncations=int(np.sum(rollout.truncated & ~rollout.terminated & mask)),
        corrected=rollout.log_ratio is not None,
        oracle=Oracle.of(rollout, expected, rollout.target),
    )


def compare_step(sample: Sample, oracle: Oracle, tolerance: float, normalised: bool) -> StepComparison | None:
    """None where the rows are too few or too alike to tell anything apart."""
    rows = oracle.rows(sample)
    empty = int(np.sum(~oracle.valid[rows]))
    expected = oracle.advantage[rows]
    found = column(sample, "advantage")
    if not np.all(np.isfinite(found)):
        return None
    spread = float(expected.std(ddof=1)) if expected.size > 1 else 0.0
    if spread <= 10 * tolerance:
        return None
    match: Match = "none"
    if normalised:
        exact = (expected - expected.mean()) / (spread + NORMALISATION_EPSILON)
        match = compare(found, exact, 4 * tolerance / spread + 1e-5)
    if match != "equal":
        match = compare(found, expected, tolerance)
    if match == "none" and found.size < MIN_ROWS_FOR_SCALING:
        return None  # only part of the minibatch was kept, so its normalisation cannot be repeated
    target: Match = "equal"
    if "target" in sample:
        target = compare(column(sample, "target"), oracle.target[rows], tolerance)
    weight: Match = "equal"
    if oracle.importance is not None:
        used = column(sample, "weight") if "weight" in sample else np.ones_like(found)
        weight = compare(used, oracle.importance[rows], WEIGHT_ROUNDING)
    event = sample.event
    return StepComparison(
        update=event.update,
        place=f"update {event.update}, epoch {event.epoch}, minibatch {event.minibatch}",
        advantage=match,
        target=target,
        relation=float(np.corrcoef(found, expected)[0, 1]) if found.std() > 0 else 0.0,
        rows=rows.size,
        empty_rows=empty,
        weight=weight,
    )
