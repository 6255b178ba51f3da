"""Where the state of N instances lives: five arrays, and the names of their columns.

    agents   float64 [N, n_agents, AGENT_COLUMNS + 2 x types]   an agent's figures, its expertises, what it has taken by type
    queue    float64 [N, max_tasks, TASK_COLUMNS]                tasks that wait
    active   float64 [N, active_slots, TASK_COLUMNS]             tasks at work
    matrix   float64 [N, n_agents, n_agents]                     the collaboration matrix
    counts   int64   [N, COUNTS]                                 the clock, the two lengths, and tallies for the metrics

In version 0 queue and active are lists: the first QUEUED and the first ACTIVE rows are real. In version 1 they are places,
one for each slot and one for each agent: a row with DEADLINE 0 is empty.

Few arrays with named columns, because a kernel pays for each array that it is handed. Whole numbers in the float
columns (types, steps, owners) stay exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .rules import AllocationRules

Array = np.ndarray[Any, Any]

# agents: columns; expertise in type k is EXPERTISE + k, tasks of type k taken so far are expertise's column + types
CAPACITY, LOAD, COMPLETED, SUCCESS_RATE, COLLABORATION_SCORE, WORK_DONE, LOAD_SUM = range(7)
EXPERTISE = 7

# queue and active: columns; SHARE (the allocation it was taken with) is version 0's, REMAINING (work) version 1's
TYPE, COMPLEXITY, PRIORITY, DEADLINE, ARRIVAL, OWNER, SHARE, REMAINING = range(8)
TASK_COLUMNS = 8

# counts: columns
STEP, QUEUED, ACTIVE, ARRIVED, IN_TIME, PAIRS, QUEUE_SUM, LEFT_QUEUE, WAITING_SUM = range(9)
COUNTS = 9


@dataclass(frozen=True)
class AllocationState:
    agents: Array
    queue: Array
    active: Array
    matrix: Array
    counts: Array

    @classmethod
    def empty(cls, num_envs: int, rules: AllocationRules) -> AllocationState:
        n_agents = rules.n_agents
        return cls(
            agents=np.zeros((num_envs, n_agents, EXPERTISE + 2 * rules.task_types)),
            queue=np.zeros((num_envs, rules.max_tasks, TASK_COLUMNS)),
            active=np.zeros((num_envs, rules.active_slots, TASK_COLUMNS)),
            matrix=np.zeros((num_envs, n_agents, n_agents)),
            counts=np.zeros((num_envs, COUNTS), np.int64),
        )

    def arrays(self) -> dict[str, Array]:
        return {
            "agents": self.agents,
            "queue": self.queue,
            "active": self.active,
            "matrix": self.matrix,
            "counts": self.counts,
        }


def faults(state: Mapping[str, Array], rules: AllocationRules) -> str:
    """What cannot be in a state of these rules, or an empty text.

    Kernels index by lengths, types and owners without looking: a value out of range would write outside the arrays.
    """
    counts, queue, active = state["counts"], state["queue"], state["active"]
    limits = {
        "a step": (counts[:, STEP], rules.episode_steps),
        "a queue's length": (counts[:, QUEUED], rules.max_tasks),
        "a number of active tasks": (counts[:, ACTIVE], rules.active_slots),
        "a queued task's type": (queue[:, :, TYPE], rules.task_types - 1),
        "an active task's type": (active[:, :, TYPE], rules.task_types - 1),
        "an active task's owner": (active[:, :, OWNER], rules.n_agents - 1),
    }
    for what, (values, largest) in limits.items():
        wrong = ~((values >= 0) & (values <= largest))
        if wrong.any():
            return f"{what} is {values[wrong][0]:g}, outside 0..{largest}"
    for name, values in state.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            return f"{name} holds a number that is not finite"
    return ""
