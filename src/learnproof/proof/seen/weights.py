"""How the weights of log-probabilities follow from rewards, where they are no regression's target (REINFORCE).

They obey the line of the lambda family (returns.py) without V, up to an affine change (baseline, normalisation):

    w[t] = alpha r[t] + gamma w[t+1] + beta (1 - gamma), and w = alpha r + beta at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .fitting import least_squares
from .losses import Array, Loss
from .returns import MIN_ROWS, inside_episodes, spread_of
from .rollouts import Rollout

FEWEST_STEPS = 8
MOSTLY = 0.8
FEW_OF_EACH_SIGN = 2
DIFFERENT = 0.01
"""Spread of the targets over their size, from which the steps of a batch have returns of their own."""


def one_weight_for_all(losses: Sequence[Loss]) -> list[Loss]:
    """Losses in which all steps have one weight, though the same loss draws a value to returns that differ from step to step. None where
    the weight never changes its sign: actions that are copied, and an entropy, have one weight too."""
    asked = [
        loss
        for loss in losses
        if loss.policies and len(loss.policies[0].weight) >= FEWEST_STEPS and _returns_differ(loss)
    ]
    found = [loss for loss in asked if loss.policies[0].even]
    signs = Counter(float(np.sign(loss.policies[0].weight.mean())) for loss in found)
    both = min(signs[1.0], signs[-1.0]) >= FEW_OF_EACH_SIGN
    return found if both and len(found) >= MOSTLY * len(asked) else []


def _returns_differ(loss: Loss) -> bool:
    rows = len(loss.policies[0].weight)
    return any(
        each.target.size == rows and np.ptp(each.target) > DIFFERENT * max(float(np.abs(each.target).max()), 1e-12)
        for each in loss.regressions
    )


@dataclass
class WeightFit:
    """How a policy's weights follow from rewards, up to an affine change."""

    form: str
    """reward to go, whole return, against time, unknown."""
    gamma: float
    alpha: float
    """Sign: above 0 where more reward means more weight. nan where rewards do not tell."""
    error: float
    rows: int

    @property
    def matched(self) -> bool:
        return self.error <= 2e-3 and self.form != "unknown"


def fit_weights(rollout: Rollout, weight: Array) -> WeightFit | None:
    """The best explanation of one loss's weights, by row of the rollout (nan where the loss had none)."""
    rows = inside_episodes(rollout, weight)
    first = np.flatnonzero(np.isfinite(weight) & (rollout.preceding >= 0))
    first = first[rollout.ended[rollout.preceding[first]] & ~rollout.ended[first] & (rollout.following[first] >= 0)]
    first = first[np.isfinite(weight[rollout.following[first]])]
    rows = np.union1d(rows, first)
    if len(rows) < MIN_ROWS:
        return None
    spread = spread_of(weight)
    if spread <= 1e-5 * float(np.nanmax(np.abs(weight))):
        return WeightFit("constant", 1.0, float("nan"), 0.0, len(rows))
    following = weight[rollout.following[rows]]
    if float(np.max(np.abs(following - weight[rows]))) <= 1e-4 * spread:
        return WeightFit("whole return", 1.0, float("nan"), 0.0, len(rows))
    forward = _affine(rollout.reward[rows], weight[rows], following, spread)
    if forward is not None:
        forward.alpha = _alpha(rollout, weight, forward) if np.isnan(forward.alpha) else forward.alpha
        if forward.matched:
            return forward
    backward = _affine(rollout.reward[rollout.following[rows]], following, weight[rows], spread)
    if backward is not None and backward.matched and 0.2 < backward.gamma <= 1.001:
        backward.form = "against time"
        return backward
    return forward


def _affine(reward: Array, weight: Array, following: Array, spread: float) -> WeightFit | None:
    constant = float(np.ptp(reward)) <= 1e-9 * max(1.0, float(np.abs(reward).max()))
    ones = np.ones(len(reward))
    columns = np.stack([following, ones], axis=1) if constant else np.stack([following, ones, reward], axis=1)
    answer = least_squares(columns, weight)
    if answer is None:
        return None
    error = float(np.quantile(np.abs(columns @ answer - weight), 0.95)) / spread
    alpha = float("nan") if constant else float(answer[2])
    return WeightFit("reward to go", float(answer[0]), alpha, error, len(weight))


def _alpha(rollout: Rollout, weight: Array, fit: WeightFit) -> float:
    """Where all rewards are alike: from the level inside episodes and the weight at their end."""
    rows = np.flatnonzero(rollout.terminated & np.isfinite(weight) & ~rollout.resets)
    inner = inside_episodes(rollout, weight)
    if len(rows) == 0 or len(inner) == 0:
        return float("nan")
    at_end = float(np.median(weight[rows]))
    level = float(np.median(weight[inner] - fit.gamma * weight[rollout.following[inner]]))
    # level = alpha r + beta (1 - gamma), at_end = alpha r + beta
    beta = (at_end - level) / fit.gamma if abs(fit.gamma) > 1e-3 else 0.0
    reward = float(np.median(rollout.reward[rows]))
    return (at_end - beta) / reward if abs(reward) > 1e-9 else float("nan")
