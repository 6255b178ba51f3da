"""What happens to tasks in both versions: they leave the queue, lists close up, outcomes move a success rate.

Kernels see one instance: agents [n, columns], queue [slots, columns], active [places, columns], counts [COUNTS].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import kernel
from .state import (
    ACTIVE,
    ARRIVAL,
    EXPERTISE,
    LEFT_QUEUE,
    OWNER,
    QUEUED,
    SHARE,
    STEP,
    SUCCESS_RATE,
    TASK_COLUMNS,
    TYPE,
    WAITING_SUM,
)

Array = np.ndarray[Any, Any]


@kernel
def give(agent: int, position: int, share: float, agents: Array, queue: Array, active: Array, counts: Array) -> None:
    """The queued task at this position becomes active; the queue keeps its gap until `close_queue`."""
    place = counts[ACTIVE]
    for column in range(TASK_COLUMNS):
        active[place, column] = queue[position, column]
    active[place, OWNER] = agent
    active[place, SHARE] = share
    counts[ACTIVE] += 1
    note_taking(agent, position, agents, queue)
    note_leaving(position, queue, counts)


@kernel
def note_taking(agent: int, position: int, agents: Array, queue: Array) -> None:
    """An agent takes this task: tally its type."""
    n_types = (agents.shape[1] - EXPERTISE) // 2
    agents[agent, EXPERTISE + n_types + int(queue[position, TYPE])] += 1.0


@kernel
def note_leaving(position: int, queue: Array, counts: Array) -> None:
    """A task leaves the queue in this step: tally how long it waited."""
    counts[LEFT_QUEUE] += 1
    counts[WAITING_SUM] += counts[STEP] - int(queue[position, ARRIVAL])


@kernel
def close_queue(taken: int, queue: Array, counts: Array) -> None:
    """Move the queue up by the tasks that were taken from its head."""
    if taken == 0:
        return
    left = counts[QUEUED] - taken
    for position in range(left):
        for column in range(TASK_COLUMNS):
            queue[position, column] = queue[position + taken, column]
    counts[QUEUED] = left


@kernel
def keep(place: int, kept: int, tasks: Array) -> None:
    """Move the task at `place` down to `kept`: the list closes up while it is read."""
    if place != kept:
        for column in range(TASK_COLUMNS):
            tasks[kept, column] = tasks[place, column]


@kernel
def note_outcome(agent: int, outcome: float, step: float, agents: Array) -> None:
    """Exponential average of outcomes: 1 in time, 0 not."""
    agents[agent, SUCCESS_RATE] += step * (outcome - agents[agent, SUCCESS_RATE])
