"""The Gymnasium form: one team."""

from __future__ import annotations

from typing import Any, ClassVar

from gymnasium.vector import AutoresetMode

from ..single import SingleEnv
from ..vector import Array
from .batch import TaskAllocationVector, TaskAllocationVectorV0, TaskAllocationVectorV1
from .rules import AllocationRules


class TaskAllocation(SingleEnv[TaskAllocationVector]):
    """What both versions share; the arguments are the fields of their rules."""

    batch_type: ClassVar[type[TaskAllocationVector]]

    def __init__(self, render_mode: None = None, **arguments: Any) -> None:
        super().__init__(self.batch_type(1, AutoresetMode.DISABLED, **arguments), render_mode)

    @property
    def rules(self) -> AllocationRules:
        return self._batch.rules

    @property
    def agent_rewards(self) -> Array:
        """Each agent's own part of the last step's reward, [n_agents]."""
        agent_rewards: Array = self._batch.agent_rewards[0]
        return agent_rewards


class TaskAllocationV0(TaskAllocation):
    """learnproof/TaskAllocation-v0."""

    batch_type = TaskAllocationVectorV0


class TaskAllocationV1(TaskAllocation):
    """learnproof/TaskAllocation-v1."""

    batch_type = TaskAllocationVectorV1
