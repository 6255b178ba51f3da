"""What there is to learn: environments that ship, and the making of any other.

Importing this package makes the shipped environments known to Gymnasium; they themselves (and numba) are imported when
one is made.
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym

__all__ = ["ShippedEnvironment", "register_environments", "shipped_environments"]


@dataclass(frozen=True)
class ShippedEnvironment:
    id: str
    summary: str
    entry_point: str
    vector_entry_point: str
    agents_entry_point: str
    """A row for each agent (envs/agents.py): env.per_agent."""


_SHIPPED = tuple(
    ShippedEnvironment(
        id=f"learnproof/TaskAllocation-v{version}",
        summary=summary,
        entry_point=f"learnproof.envs.task_allocation:TaskAllocationV{version}",
        vector_entry_point=f"learnproof.envs.task_allocation:TaskAllocationVectorV{version}",
        agents_entry_point=f"learnproof.envs.task_allocation:TaskAllocationAgentsV{version}",
    )
    for version, summary in (
        (0, "agents share a queue of tasks; the original rules, to the letter (metric: return)"),
        (1, "specialists share a stream of tasks with deadlines; the repaired rules (metric: completion_rate)"),
    )
)


def shipped_environments() -> tuple[ShippedEnvironment, ...]:
    return _SHIPPED


def register_environments() -> None:
    """Make the shipped environments known to Gymnasium; a second call changes nothing."""
    for environment in _SHIPPED:
        if environment.id not in gym.registry:
            gym.register(
                environment.id,
                entry_point=environment.entry_point,
                vector_entry_point=environment.vector_entry_point,
            )


register_environments()
