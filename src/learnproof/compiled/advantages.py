"""Generalised advantage estimation (algorithms/returns.py says what it is) as one loop backwards through time."""

from __future__ import annotations

from typing import Any

import numpy as np

from .kernel import kernel

Array = np.ndarray[Any, Any]


@kernel
def gae(
    reward: Array,
    scale: float,
    value: Array,
    last_value: Array,
    terminated: Array,
    truncated: Array,
    final_value: Array,
    importance: Array,
    gamma: float,
    lam: float,
) -> Array:
    """[T, N] float64. `importance` has no rows where the learning policy acted itself."""
    steps, envs = reward.shape
    advantage = np.empty((steps, envs))
    carried = np.zeros(envs)
    for t in range(steps - 1, -1, -1):
        for n in range(envs):
            decay = gamma * lam
            following = (value[t + 1, n] if t + 1 < steps else last_value[n]) + 0.0
            if terminated[t, n]:
                following, decay = 0.0, 0.0
            elif truncated[t, n]:
                following, decay = final_value[t, n] + 0.0, 0.0
            elif importance.shape[0] and t + 1 < steps:
                decay *= importance[t + 1, n]
            carried[n] = reward[t, n] * scale + gamma * following - value[t, n] + decay * carried[n]
            advantage[t, n] = carried[n]
    return advantage
