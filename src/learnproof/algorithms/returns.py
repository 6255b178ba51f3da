"""Returns and advantages: pure arithmetic on arrays [T, N] = steps x environments.

An episode can end in two ways. Where it *terminated*, nothing comes after: the value of what follows is 0. Where it was
*truncated* (a time limit), the task would have gone on: what follows is worth `final_value`, the value of the true last
observation, not that of the observation after the reset. Neither lets credit flow back from the next episode.

Where another policy acted, what happened after an action counts as much as the learning policy would have gone on like that:
each action's importance, pi / mu, truncated at 1. It lets credit pass to the steps before (`gae`), weighs what the value learns
(`value_targets`), and weighs the action itself in the policy's loss (surrogate.py). Together they are V-trace (Espeholt et al. 2018)
with both of its limits at 1 and its traces shortened by lambda.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def truncated_importance(log_prob: Array, behaviour_log_prob: Array) -> Array:
    """min(1, pi / mu) of each action. Above 1 it would let one lucky action speak for many that were not taken."""
    log_ratio = log_prob.astype(np.float64) - behaviour_log_prob
    weight: Array = np.exp(np.minimum(log_ratio, 0.0))
    return weight


def next_values(value: Array, last_value: Array, terminated: Array, truncated: Array, final_value: Array) -> Array:
    """What the state after each step is worth, [T, N]."""
    following = np.concatenate([value[1:], last_value[None]])
    return np.where(terminated, 0.0, np.where(truncated, final_value, following))


def gae(
    reward: Array,
    value: Array,
    last_value: Array,
    terminated: Array,
    truncated: Array,
    final_value: Array,
    gamma: float,
    lam: float,
    importance: Array | None = None,
) -> Array:
    """Generalised advantage estimation: A_t = sum over k of (gamma lam)^k delta_{t+k}, within the episode.

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t). lam = 0 is the one-step TD error, lam = 1 the discounted return minus V.
    Where another policy acted: A_t = delta_t + gamma lam importance_{t+1} A_{t+1}. Computed in float64; all arrays [T, N] but
    last_value [N].
    """
    others = () if importance is None else (importance,)
    _check_shapes(reward, value, last_value, terminated, truncated, final_value, *others)
    following = next_values(value, last_value, terminated, truncated, final_value)
    delta = reward.astype(np.float64) + gamma * following - value
    decay = np.where(terminated | truncated, 0.0, gamma * lam)
    if importance is not None:
        decay[:-1] *= importance[1:]
    advantage = np.empty_like(delta)
    carried = np.zeros(delta.shape[1])
    for t in range(len(delta) - 1, -1, -1):
        carried = delta[t] + decay[t] * carried
        advantage[t] = carried
    return advantage


def lambda_returns(
    reward: Array,
    value: Array,
    last_value: Array,
    terminated: Array,
    truncated: Array,
    final_value: Array,
    gamma: float,
    lam: float,
    importance: Array | None = None,
) -> Array:
    """The target that fits those advantages. lam = 1 is the Monte Carlo return."""
    advantage = gae(reward, value, last_value, terminated, truncated, final_value, gamma, lam, importance)
    return value_targets(advantage, value, importance)


def value_targets(advantage: Array, value: Array, importance: Array | None) -> Array:
    """G_t = V(s_t) + A_t, or V(s_t) + importance_t A_t where another policy acted."""
    return value + advantage if importance is None else value + importance * advantage


def explained_variance(prediction: Array, target: Array) -> float:
    """1 - Var(target - prediction) / Var(target): 1 is perfect, 0 no better than a constant, below 0 worse.

    nan where the target does not vary: there is nothing to explain.
    """
    spread = float(np.var(target))
    return float("nan") if spread == 0 else float(1 - np.var(target - prediction) / spread)


def _check_shapes(reward: Array, value: Array, last_value: Array, *others: Array) -> None:
    shapes = {a.shape for a in (reward, value, *others)}
    if len(shapes) != 1 or reward.ndim != 2 or last_value.shape != reward.shape[1:]:
        raise ValueError(
            "gae wants reward, value, terminated, truncated, final_value of one shape [T, N] and last_value [N]; got "
            f"reward {reward.shape}, value {value.shape}, others {[o.shape for o in others]}, last {last_value.shape}."
        )
