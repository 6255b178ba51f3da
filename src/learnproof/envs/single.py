"""The Gymnasium form of a batch environment: one instance, a view of the vector form with N = 1, so that both follow the same kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import gymnasium as gym
import numpy as np

from .vector import Array, BatchEnv

Batch = TypeVar("Batch", bound=BatchEnv)


class SingleEnv(gym.Env[Array, Any], Generic[Batch]):
    """`batch` holds one instance and resets nothing by itself."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it as an instance variable

    def __init__(self, batch: Batch, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self._batch = batch
        self.observation_space = batch.single_observation_space
        self.action_space = batch.single_action_space
        self.metric = batch.metric
        self.action_heads = batch.action_heads

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        observation, _ = self._batch.reset(seed=[seed])
        return observation[0], {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, infos = self._batch.step(np.asarray(action)[None])
        info = {name: float(value[0]) for name, value in infos.items() if not name.startswith("_")}
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def snapshot(self) -> dict[str, Array]:
        return self._batch.snapshot()

    def restore(self, snapshot: Mapping[str, Array]) -> Array:
        observation: Array = self._batch.restore(snapshot)[0]
        return observation
