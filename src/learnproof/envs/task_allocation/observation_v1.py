"""What version 1 shows: agents, then the belt's places in the order in which they stand before them, then the matrix.

    agent  capacity, load, completed / max(1, step), success rate, collaboration score, expertise by type,
           type of the task it holds (one-hot), its remaining work, steps to its deadline / slack_max,
           expertise in the type of the task before it
    place  complexity, priority, steps to the deadline / slack_max, exists, type (one-hot)

Zeros where there is no task.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import kernel
from .state import (
    CAPACITY,
    COLLABORATION_SCORE,
    COMPLETED,
    COMPLEXITY,
    DEADLINE,
    EXPERTISE,
    LOAD,
    PRIORITY,
    REMAINING,
    STEP,
    SUCCESS_RATE,
    TYPE,
)

Array = np.ndarray[Any, Any]


@kernel
def place_before(agent: int, step: int, n_places: int) -> int:
    """The place that stands before an agent after so many steps."""
    return (agent - step) % n_places


@kernel
def observe_agent(
    rules: Any, agent: int, agents: Array, queue: Array, active: Array, counts: Array, observation: Array
) -> None:
    """observation: the part that belongs to this agent."""
    n_types = rules.task_types
    observation[:] = 0.0
    observation[0] = agents[agent, CAPACITY]
    observation[1] = agents[agent, LOAD]
    observation[2] = agents[agent, COMPLETED] / max(1, counts[STEP])
    observation[3] = agents[agent, SUCCESS_RATE]
    observation[4] = agents[agent, COLLABORATION_SCORE]
    for kind in range(n_types):
        observation[5 + kind] = agents[agent, EXPERTISE + kind]
    if active[agent, DEADLINE] != 0.0:
        observation[5 + n_types + int(active[agent, TYPE])] = 1.0
        observation[5 + 2 * n_types] = active[agent, REMAINING]
        observation[6 + 2 * n_types] = (active[agent, DEADLINE] - counts[STEP]) / rules.slack_max
    place = place_before(agent, counts[STEP], queue.shape[0])
    if queue[place, DEADLINE] != 0.0:
        observation[7 + 2 * n_types] = agents[agent, EXPERTISE + int(queue[place, TYPE])]


@kernel
def observe(
    rules: Any, agents: Array, queue: Array, active: Array, matrix: Array, counts: Array, observation: Array
) -> None:
    """Agents, then places in the order in which they stand before them, then the matrix."""
    n_agents, n_places, at = agents.shape[0], queue.shape[0], 0
    agent_features, slot_features = 8 + 2 * rules.task_types, 4 + rules.task_types
    for agent in range(n_agents):
        observe_agent(rules, agent, agents, queue, active, counts, observation[at : at + agent_features])
        at += agent_features
    for position in range(n_places):
        observation[at : at + slot_features] = 0.0
        place = place_before(position, counts[STEP], n_places)
        if queue[place, DEADLINE] != 0.0:
            observation[at] = queue[place, COMPLEXITY]
            observation[at + 1] = queue[place, PRIORITY]
            observation[at + 2] = (queue[place, DEADLINE] - counts[STEP]) / rules.slack_max
            observation[at + 3] = 1.0
            observation[at + 4 + int(queue[place, TYPE])] = 1.0
        at += slot_features
    for first in range(n_agents):
        for second in range(n_agents):
            observation[at] = matrix[first, second]
            at += 1
