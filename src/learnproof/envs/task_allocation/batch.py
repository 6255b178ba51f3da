"""The vector form: N teams stepped by one kernel. The single and the PettingZoo form are views of it with N = 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from ..native import Batch, NativeEnv
from ..rules import make_rules
from ..vector import Array
from . import kernels_v0, kernels_v1
from .metrics import METRICS, measure_rows
from .rules import AllocationRules, RulesV0, RulesV1
from .state import AllocationState, faults


class TaskAllocationVector(NativeEnv):
    """What both versions share; the arguments are the fields of their rules."""

    rules_type: ClassVar[type[AllocationRules]]
    metrics = METRICS
    measure_kernel = staticmethod(measure_rows)

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
        self._teams = AllocationState.empty(num_envs, self.rules)
        self._agent_rewards = np.zeros((num_envs, self.rules.n_agents))
        begin = (*self._teams.arrays().values(), self._streams, self._observation)
        self.batch = Batch(
            settings=self.rules.as_record(),
            begin=begin,
            step=(*begin, self._agent_rewards, self._reward, self._truncated),
            tallies=(self._teams.agents, self._teams.counts),
            observation=self._observation,
            reward=self._reward,
            terminated=self._terminated,
            truncated=self._truncated,
        )

    @property
    def agent_rewards(self) -> Array:
        """Each agent's own part of the last step's reward, [N, n_agents]; they sum to the reward."""
        return self._agent_rewards.copy()

    def _state(self) -> dict[str, Array]:
        return self._teams.arrays()

    def _settings(self) -> dict[str, float]:
        return self.rules.as_numbers()

    def _faults(self, state: Mapping[str, Array]) -> str:
        return faults(state, self.rules)


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
