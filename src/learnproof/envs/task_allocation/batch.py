"""The vector form: N teams stepped by one kernel. The single and the PettingZoo form are views of it with N = 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from ..rules import make_rules
from ..vector import Array, BatchEnv
from . import kernels_v0, kernels_v1
from .metrics import episode_metrics
from .rules import AllocationRules, RulesV0, RulesV1
from .state import AllocationState, faults


class TaskAllocationVector(BatchEnv):
    """What both versions share; the arguments are the fields of their rules."""

    rules_type: ClassVar[type[AllocationRules]]
    begin_kernel: ClassVar[Callable[..., None]]
    step_kernel: ClassVar[Callable[..., int]]

    def __init__(
        self, num_envs: int = 1, autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP, **arguments: Any
    ) -> None:
        self.rules: AllocationRules = make_rules(self.rules_type, arguments)
        bounds = self.rules.observation_bounds()
        super().__init__(
            num_envs,
            Box(np.zeros_like(bounds), bounds, dtype=np.float32),
            Box(0.0, 1.0, (self.rules.action_size,), np.float32),
            autoreset_mode,
        )
        self.action_heads = self.rules.action_heads
        self._record = self.rules.as_record()
        self._teams = AllocationState.empty(num_envs, self.rules)
        self._arrays = (*self._teams.arrays().values(), self._streams, self._observation)
        self._agent_rewards = np.zeros((num_envs, self.rules.n_agents))

    @property
    def agent_rewards(self) -> Array:
        """Each agent's own part of the last step's reward, [N, n_agents]; they sum to the reward."""
        return self._agent_rewards.copy()

    def _begin(self, rows: Array) -> None:
        type(self).begin_kernel(self._record, rows, *self._arrays)

    def _advance(self, rows: Array, actions: Array) -> int:
        return type(self).step_kernel(
            self._record, rows, actions, *self._arrays, self._agent_rewards, self._reward, self._truncated
        )

    def _state(self) -> dict[str, Array]:
        return self._teams.arrays()

    def _settings(self) -> dict[str, float]:
        return self.rules.as_numbers()

    def _faults(self, state: Mapping[str, Array]) -> str:
        return faults(state, self.rules)

    def _metrics(self, rows: Array) -> dict[str, Array]:
        return episode_metrics(self._teams, rows)


class TaskAllocationVectorV0(TaskAllocationVector):
    """learnproof/TaskAllocation-v0, many at once."""

    metric = "return"
    rules_type = RulesV0
    begin_kernel = staticmethod(kernels_v0.begin_rows)
    step_kernel = staticmethod(kernels_v0.step_rows)


class TaskAllocationVectorV1(TaskAllocationVector):
    """learnproof/TaskAllocation-v1, many at once."""

    metric = "completion_rate"
    rules_type = RulesV1
    begin_kernel = staticmethod(kernels_v1.begin_rows)
    step_kernel = staticmethod(kernels_v1.step_rows)
