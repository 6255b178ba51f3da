"""How a flat observation is laid out: agents, then slots, then the collaboration matrix. Pure views, no copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .rules import AllocationRules

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ObservationParts:
    """A batch of observations [N, D], seen in its three parts."""

    agents: Array
    """[N, n_agents, agent_features]"""
    slots: Array
    """[N, max_tasks, slot_features]"""
    matrix: Array
    """[N, n_agents, n_agents]"""


def observation_parts(observation: Array, rules: AllocationRules) -> ObservationParts:
    n_rows, n_agents = observation.shape[0], rules.n_agents
    agents_end = n_agents * rules.agent_features
    slots_end = agents_end + rules.max_tasks * rules.slot_features
    return ObservationParts(
        agents=observation[:, :agents_end].reshape(n_rows, n_agents, rules.agent_features),
        slots=observation[:, agents_end:slots_end].reshape(n_rows, rules.max_tasks, rules.slot_features),
        matrix=observation[:, slots_end:].reshape(n_rows, n_agents, n_agents),
    )
