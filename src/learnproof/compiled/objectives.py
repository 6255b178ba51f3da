"""What a loss pulls at, row by row: d loss / d log-probability and d loss / d value, and the loss itself for people.

    PPO         -w min(A ratio, A clip(ratio)) + value_coefficient (V - target)² - entropy_coefficient H
    REINFORCE   -w A log pi                    + value_coefficient (V - target)² - entropy_coefficient H

each a mean over rows (algorithms/surrogate.py and reinforce.py have them for torch). d loss / d H is the same for every row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .kernel import kernel

Array = np.ndarray[Any, Any]


class Goal(NamedTuple):
    """What the settings make of the loss."""

    clipped: bool
    """PPO's; else REINFORCE's."""
    clip_range: float
    clip_range_value: float
    """inf = the value is not clipped."""
    value_coefficient: float
    entropy_coefficient: float


@kernel
def pull_log_prob(goal: Goal, ratio: float, advantage: float, weight: float) -> float:
    """d loss / d log-probability of one row, before the mean. Where the clipped term is the smaller one, nothing flows."""
    if not goal.clipped:
        return -weight * advantage
    free = ratio * advantage
    held = min(max(ratio, 1.0 - goal.clip_range), 1.0 + goal.clip_range) * advantage
    return 0.0 if free > held else -weight * free


@kernel
def held_value(goal: Goal, value: float, old_value: float) -> float:
    """Not further from what it was than it may go."""
    moved = min(max(value - old_value, -goal.clip_range_value), goal.clip_range_value)
    return old_value + moved if abs(value - old_value) > goal.clip_range_value else value


@kernel
def pull_value(goal: Goal, value: float, old_value: float, target: float) -> float:
    """d loss / d value of one row, before the mean."""
    if abs(value - old_value) > goal.clip_range_value:
        return 0.0
    return 2.0 * goal.value_coefficient * (value - target)


POLICY_LOSS, VALUE_LOSS, ENTROPY, APPROX_KL, CLIPPED = range(5)
"""Places of the sums that `add_figures` makes."""


@kernel
def add_figures(
    goal: Goal,
    log_prob: float,
    entropy: float,
    value: float,
    log_ratio: float,
    ratio: float,
    advantage: float,
    old_value: float,
    target: float,
    weight: float,
    sums: Array,
) -> None:
    held = min(max(ratio, 1.0 - goal.clip_range), 1.0 + goal.clip_range)
    gained = min(advantage * ratio, advantage * held) if goal.clipped else advantage * log_prob
    error = held_value(goal, value, old_value) - target
    sums[POLICY_LOSS] -= weight * gained
    sums[VALUE_LOSS] += error * error
    sums[ENTROPY] += entropy
    sums[APPROX_KL] += ratio - 1.0 - log_ratio
    sums[CLIPPED] += 1.0 if goal.clipped and held != ratio else 0.0
