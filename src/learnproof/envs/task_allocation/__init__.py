"""Task allocation: a team of agents with different skills shares a stream of tasks.

    gymnasium.make("learnproof/TaskAllocation-v1", n_agents=3)                 one team
    gymnasium.make_vec("learnproof/TaskAllocation-v1", num_envs=64)            many teams, one kernel
    TaskAllocationAgentsV1(64, n_agents=3)                                     the same, a row for each agent
    parallel_env("v1", reward="individual", n_agents=3)                        PettingZoo, one policy per agent

rules.py holds every number, kernels_v0.py and kernels_v1.py what happens in a step, metrics.py what an episode was worth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .agents import TaskAllocationAgentsV0, TaskAllocationAgentsV1
from .batch import TaskAllocationVectorV0, TaskAllocationVectorV1
from .rules import AllocationRules, RulesV0, RulesV1
from .single import TaskAllocationV0, TaskAllocationV1

if TYPE_CHECKING:
    from .parallel import TaskAllocationParallel

__all__ = [
    "AllocationRules",
    "RulesV0",
    "RulesV1",
    "TaskAllocationAgentsV0",
    "TaskAllocationAgentsV1",
    "TaskAllocationV0",
    "TaskAllocationV1",
    "TaskAllocationVectorV0",
    "TaskAllocationVectorV1",
    "parallel_env",
]


def parallel_env(
    version: Literal["v0", "v1"] = "v1",
    reward: Literal["shared", "individual"] = "shared",
    view: Literal["whole", "compact"] = "whole",
    **arguments: Any,
) -> TaskAllocationParallel:
    """The PettingZoo form; imports pettingzoo here, so that nothing else needs it."""
    from .parallel import TaskAllocationParallel

    return TaskAllocationParallel(version, reward, view, **arguments)
