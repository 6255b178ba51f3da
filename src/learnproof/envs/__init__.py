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
    agents_entry_point: str | None = None
    """A row for each agent (envs/agents.py): env.per_agent."""
    reward_threshold: float | None = None
    """The mean return at which Gymnasium calls its own environment of this name solved."""


_TASK_ALLOCATION = tuple(
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
_CLASSIC_CONTROL = tuple(
    ShippedEnvironment(
        id=f"learnproof/{name}-v{version}",
        summary=f"{summary}; as Gymnasium's {name}-v{version}, in a batch, and can be saved",
        entry_point=f"learnproof.envs.classic_control:{name}",
        vector_entry_point=f"learnproof.envs.classic_control:{name}Vector",
        reward_threshold=threshold,
    )
    for name, version, threshold, summary in (
        ("CartPole", 1, 475.0, "a pole is kept upright on a cart"),
        ("Acrobot", 1, -100.0, "two links are swung up"),
        ("Pendulum", 1, None, "a pendulum is swung up and held, by a continuous torque"),
        ("MountainCar", 0, -110.0, "a car gathers speed for a hill, without a hint before it is up"),
    )
)
_REFERENCE = ShippedEnvironment(
    id="learnproof/Compass-v0",
    summary="a walker reaches a mark by steps in eight directions; the discrete reference task (metric: return)",
    entry_point="learnproof.envs.compass:Compass",
    vector_entry_point="learnproof.envs.compass:CompassVector",
)
_SHIPPED = (*_TASK_ALLOCATION, *_CLASSIC_CONTROL, _REFERENCE)


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
                reward_threshold=environment.reward_threshold,
            )


register_environments()
