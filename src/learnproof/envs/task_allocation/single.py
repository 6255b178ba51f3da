"""The Gymnasium form: one team, a view of the vector form with N = 1, so that both follow the same kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from ..vector import Array
from .batch import TaskAllocationVector, TaskAllocationVectorV0, TaskAllocationVectorV1
from .rules import AllocationRules


class TaskAllocation(gym.Env[Array, Array]):
    """What both versions share; the arguments are the fields of their rules."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it as an instance variable
    batch_type: ClassVar[type[TaskAllocationVector]]

    def __init__(self, render_mode: None = None, **arguments: Any) -> None:
        self.render_mode = render_mode
        self._batch = self.batch_type(1, AutoresetMode.DISABLED, **arguments)
        self.observation_space = self._batch.single_observation_space
        self.action_space = self._batch.single_action_space
        self.metric = self._batch.metric
        self.action_heads = self._batch.action_heads

    @property
    def rules(self) -> AllocationRules:
        return self._batch.rules

    @property
    def agent_rewards(self) -> Array:
        """Each agent's own part of the last step's reward, [n_agents]."""
        agent_rewards: Array = self._batch.agent_rewards[0]
        return agent_rewards

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        observation, _ = self._batch.reset(seed=[seed])
        return observation[0], {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, infos = self._batch.step(np.asarray(action)[None])
        info = {name: float(value[0]) for name, value in infos.items() if not name.startswith("_")}
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def snapshot(self) -> dict[str, Array]:
        return self._batch.snapshot()

    def restore(self, snapshot: Mapping[str, Array]) -> Array:
        observation: Array = self._batch.restore(snapshot)[0]
        return observation


class TaskAllocationV0(TaskAllocation):
    """learnproof/TaskAllocation-v0."""

    batch_type = TaskAllocationVectorV0


class TaskAllocationV1(TaskAllocation):
    """learnproof/TaskAllocation-v1."""

    batch_type = TaskAllocationVectorV1
