"""Running normalisation of observations and rewards, saved with the policy.

Observations: (x - mean) / deviation, clipped at 10. Rewards: divided by the deviation of the discounted return, never
shifted (a shift would change which policy is best where episodes differ in length).
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
CLIP = 10.0
EPSILON = 1e-8


class RunningMoments:
    """Mean and variance of all rows seen, merged batch by batch (Chan's parallel formula), in float64."""

    def __init__(self, size: int) -> None:
        self.mean = np.zeros(size)
        self.variance = np.ones(size)
        self.count = np.full(1, 1e-4)

    def add(self, rows: Array) -> None:
        number = len(rows)
        if number == 0:
            return
        mean = rows.mean(axis=0, dtype=np.float64)
        variance = rows.var(axis=0, dtype=np.float64)
        total = self.count + number
        shift = mean - self.mean
        self.mean += shift * (number / total)
        both = self.variance * self.count + variance * number + shift**2 * (self.count * number / total)
        self.variance = both / total
        self.count = total

    def state(self) -> dict[str, Array]:
        return {"mean": self.mean, "variance": self.variance, "count": self.count}

    def load(self, arrays: dict[str, Array]) -> None:
        self.mean = arrays["mean"].copy()
        self.variance = arrays["variance"].copy()
        self.count = arrays["count"].copy()


class ObservationNormalizer:
    def __init__(self, size: int) -> None:
        self.moments = RunningMoments(size)

    def add(self, rows: Array) -> None:
        self.moments.add(rows)

    def apply(self, rows: Array) -> Array:
        scaled = (rows - self.moments.mean) / np.sqrt(self.moments.variance + EPSILON)
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)


class RewardScaler:
    """`scale_for(rewards, ended)` reads a rollout [T, N] and returns the factor that its rewards are multiplied by."""

    def __init__(self, n_envs: int, gamma: float) -> None:
        self.moments = RunningMoments(1)
        self.gamma = gamma
        self.running = np.zeros(n_envs)

    def scale_for(self, rewards: Array, ended: Array, counted: Array | None = None) -> float:
        """`counted` [T, N] leaves out steps that belong to no episode."""
        returns = np.empty(rewards.shape)
        for t in range(len(rewards)):
            self.running = self.running * self.gamma + rewards[t]
            returns[t] = self.running
            self.running = np.where(ended[t], 0.0, self.running)
        self.moments.add((returns if counted is None else returns[counted]).reshape(-1, 1))
        return float(1.0 / np.sqrt(self.moments.variance[0] + EPSILON))

    def state(self) -> dict[str, Array]:
        return {**self.moments.state(), "running": self.running}

    def load(self, arrays: dict[str, Array]) -> None:
        self.moments.load(arrays)
        self.running = arrays["running"].copy()
