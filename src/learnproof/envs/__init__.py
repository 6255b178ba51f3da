"""What there is to learn: environments that ship, and the making of any other."""

import gymnasium as gym


def register_environments() -> None:
    for version in ("0", "1"):
        if f"learnproof/TaskAllocation-v{version}" not in gym.registry:
            gym.register(
                f"learnproof/TaskAllocation-v{version}",
                entry_point=f"learnproof.envs.task_allocation:TaskAllocationV{version}",
                vector_entry_point=f"learnproof.envs.task_allocation.batch:TaskAllocationVectorV{version}",
            )
