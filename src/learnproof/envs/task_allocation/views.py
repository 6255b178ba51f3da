"""What one agent of a team sees, and what a critic sees of the team, in as many numbers for 50 agents as for 3.

Both are made of the joint observation (layout.py):

    own     the agent's features; the task before it and those that will stand before it in the next steps; how well the help of
            others arrives with it and its help with others (means of its row and its column of the matrix); the means over the team of
            the agents' features and of the slots'
    state   mean and deviation over the team of the agents' features, of the slots' and of the matrix's entries

The joint observation grows with the square of the team: at 50 agents it has 3,550 numbers, and a rollout holds the state once for each
agent. Computed team by team, never over the batch, so that a team's numbers do not depend on how many others there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import kernel
from .rules import AllocationRules

Array = np.ndarray[Any, Any]
STEPS_AHEAD = 4
"""Tasks that an agent sees: the one before it, and those of the next three steps."""


class AgentViews:
    """The two views of a batch of joint observations [N, D], under one set of rules."""

    def __init__(self, rules: AllocationRules) -> None:
        self.rules = rules
        self._slots_ahead = np.array(
            [[rules.slot_ahead(agent, steps) for steps in range(STEPS_AHEAD)] for agent in range(rules.n_agents)],
            np.int64,
        )
        features, slots = rules.agent_features, rules.slot_features
        self.own_size = 2 * features + (STEPS_AHEAD + 1) * slots + 2
        self.state_size = 2 * (features + slots + 1)

    def of(self, joint: Array) -> tuple[Array, Array]:
        """own [N, n_agents, own_size] and state [N, state_size], float32."""
        rules = self.rules
        own = np.zeros((len(joint), rules.n_agents, self.own_size), np.float32)
        state = np.zeros((len(joint), self.state_size), np.float32)
        see_teams(joint, rules.agent_features, rules.slot_features, rules.max_tasks, self._slots_ahead, own, state)
        return own, state

    def bounds(self) -> tuple[Array, Array]:
        """The largest value that each number of the two can take; the least is 0."""
        own, _ = self.of(self.rules.observation_bounds()[None])
        largest = own[0].max(axis=0)
        features, slots = self.rules.agent_features, self.rules.slot_features
        team, waiting = largest[-features - slots : -slots], largest[-slots:]
        matrix = self.rules.observation_bounds()[-1:]
        return largest, np.concatenate([team, team, waiting, waiting, matrix, matrix])


@kernel
def see_teams(
    joint: Array, features: int, slot_features: int, n_slots: int, ahead: Array, own: Array, state: Array
) -> None:
    n_agents = ahead.shape[0]
    slots_start = n_agents * features
    matrix_start = slots_start + n_slots * slot_features
    for team in range(joint.shape[0]):
        agents = joint[team, :slots_start].copy().reshape(n_agents, features)
        slots = joint[team, slots_start:matrix_start].copy().reshape(n_slots, slot_features)
        matrix = joint[team, matrix_start:].copy().reshape(n_agents, n_agents)
        at = mean_and_deviation(agents, state[team], 0)
        at = mean_and_deviation(slots, state[team], at)
        mean_and_deviation(matrix.reshape(n_agents * n_agents, 1), state[team], at)
        for agent in range(n_agents):
            see_agent(agent, agents, slots, matrix, ahead[agent], state[team], own[team, agent])


@kernel
def see_agent(agent: int, agents: Array, slots: Array, matrix: Array, ahead: Array, state: Array, own: Array) -> None:
    n_agents, features, slot_features = agents.shape[0], agents.shape[1], slots.shape[1]
    own[:features] = agents[agent]
    at = features
    for step in range(ahead.shape[0]):
        if ahead[step] >= 0:
            own[at : at + slot_features] = slots[ahead[step]]
        at += slot_features
    helped, helps = 0.0, 0.0
    for other in range(n_agents):
        if other != agent:
            helped += matrix[agent, other]
            helps += matrix[other, agent]
    own[at] = helped / max(1, n_agents - 1)
    own[at + 1] = helps / max(1, n_agents - 1)
    at += 2
    own[at : at + features] = state[:features]
    at += features
    own[at : at + slot_features] = state[2 * features : 2 * features + slot_features]


@kernel
def mean_and_deviation(rows: Array, out: Array, at: int) -> int:
    """Of each column, all means and then all deviations; gives the position after them."""
    n_rows: int = rows.shape[0]
    n_columns: int = rows.shape[1]
    for column in range(n_columns):
        total = 0.0
        for row in range(n_rows):
            total += rows[row, column]
        mean = total / n_rows
        squares = 0.0
        for row in range(n_rows):
            squares += (rows[row, column] - mean) ** 2
        out[at + column] = mean
        out[at + n_columns + column] = np.sqrt(squares / n_rows)
    return at + 2 * n_columns
