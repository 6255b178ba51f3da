"""Version 1, one step of one instance in small kernels, and the two that run over the batch.

    begin_rows   draws a team of specialists and the first tasks                    (rules, rows, state..., observation)
    step_rows    assign -> collaborate -> work -> expire -> arrive -> observe        (rules, rows, actions, state..., results)

The present step is counted from 1. The only reward is for tasks completed in time; where several agents worked on one in
the step that completed it, it is divided by their effort. `rules` is the record that RulesV1.as_record makes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ..random_streams import uniform, uniform_between, whole_number
from .queue_kernels import close_queue, give, keep, note_leaving, note_outcome
from .state import (
    ACTIVE,
    ARRIVAL,
    ARRIVED,
    CAPACITY,
    COLLABORATION_SCORE,
    COMPLETED,
    COMPLEXITY,
    DEADLINE,
    EXPERTISE,
    HELD,
    IN_TIME,
    LOAD,
    LOAD_SUM,
    OWNER,
    PAIRS,
    PRIORITY,
    QUEUE_SUM,
    QUEUED,
    SHARE,
    STEP,
    SUCCESS_RATE,
    TYPE,
    WORK_DONE,
)

Array = np.ndarray[Any, Any]

ROUNDING = 1e-9
"""Five shares of 0.2 may sum to a hair more than 1."""


@njit(cache=True)
def draw_team(rules: Any, agents: Array, matrix: Array, stream: Array) -> None:
    """Each agent has one speciality; dealing them from shuffled types covers the types as evenly as possible."""
    deck = np.arange(rules.task_types)
    for last in range(rules.task_types - 1, 0 if rules.shuffle > 0 else rules.task_types, -1):
        other = whole_number(stream, 0, last)
        deck[last], deck[other] = deck[other], deck[last]
    for agent in range(agents.shape[0]):
        figures = agents[agent]
        figures[:] = 0.0
        figures[CAPACITY] = uniform_between(stream, rules.capacity_min, rules.capacity_max)
        figures[SUCCESS_RATE] = 1.0
        score = uniform_between(stream, rules.collaboration_score_min, rules.collaboration_score_max)
        figures[COLLABORATION_SCORE] = score
        for kind in range(rules.task_types):
            figures[EXPERTISE + kind] = uniform_between(stream, rules.expertise_min, rules.expertise_max)
        speciality = deck[agent % rules.task_types]
        figures[EXPERTISE + speciality] = uniform_between(stream, rules.speciality_min, rules.speciality_max)
        matrix[:, agent] = score
        matrix[agent, agent] = 1.0


@njit(cache=True)
def task_arrives(rules: Any, queue: Array, counts: Array, stream: Array) -> None:
    """A new task joins the queue's end, or is turned away where it is full; either way it has arrived."""
    counts[ARRIVED] += 1
    position = 0
    if counts[QUEUED] == queue.shape[0]:
        for other in range(1, queue.shape[0]):
            if queue[other, ARRIVAL] < queue[position, ARRIVAL]:
                position = other
        note_leaving(position, queue, counts)
        counts[QUEUED] -= 1
    else:
        while queue[position, DEADLINE] > 0:
            position += 1
    priority = uniform(stream)
    slack = rules.slack_max - priority * (rules.slack_max - rules.slack_min)
    queue[position, TYPE] = whole_number(stream, 0, rules.task_types - 1)
    queue[position, COMPLEXITY] = uniform_between(stream, rules.complexity_min, rules.complexity_max)
    queue[position, PRIORITY] = priority
    queue[position, DEADLINE] = counts[STEP] + np.rint(slack)
    queue[position, ARRIVAL] = counts[STEP]
    counts[QUEUED] += 1


@njit(cache=True)
def assign(rules: Any, action: Array, agents: Array, queue: Array, active: Array, counts: Array) -> None:
    m = queue.shape[0]
    for agent in range(agents.shape[0]):
        if agent >= m:
            break
        slot = (agent - (counts[STEP] - 1)) % m
        free = 1.0 - agents[agent, LOAD]
        if queue[slot, DEADLINE] > 0 and action[3 * agent] > rules.accept_threshold and free >= rules.least_share - ROUNDING:
            share = min(free, max(rules.least_share, float(action[3 * agent + 1])))
            give(agent, slot, share, agents, queue, active, counts)
            queue[slot, DEADLINE] = 0.0
            counts[QUEUED] -= 1


@njit(cache=True)
def update_loads(agents: Array, active: Array, counts: Array) -> None:
    """Load: the shares that are reserved. Held: how many tasks they are."""
    agents[:, LOAD] = 0.0
    agents[:, HELD] = 0.0
    for place in range(counts[ACTIVE]):
        agent = int(active[place, OWNER])
        agents[agent, LOAD] += active[place, SHARE]
        agents[agent, HELD] += 1.0
    for agent in range(agents.shape[0]):
        agents[agent, LOAD] = min(1.0, agents[agent, LOAD])


@njit(cache=True)
def collaborate(rules: Any, action: Array, agents: Array, matrix: Array, counts: Array, help_share: Array) -> int:
    """Collaborators get used to each other, and each divides its free capacity among the others' tasks.

    help_share [n]: what a collaborator gives to each of those tasks, -1 for who does not collaborate. Gives how many do.
    """
    n_agents, partners, held = agents.shape[0], 0, 0.0
    for agent in range(n_agents):
        help_share[agent] = -1.0
        if action[3 * agent + 2] > rules.collaboration_threshold:
            help_share[agent] = 0.0
            partners += 1
            held += agents[agent, HELD]
    counts[PAIRS] += partners * (partners - 1)
    for agent in range(n_agents):
        if help_share[agent] < 0.0:
            continue
        others = held - agents[agent, HELD]
        if others > 0.0:
            help_share[agent] = (1.0 - agents[agent, LOAD]) / others
        for partner in range(n_agents):
            if partner != agent and help_share[partner] >= 0.0:
                matrix[agent, partner] = min(1.0, matrix[agent, partner] * rules.collaboration_growth)
    return partners


@njit(cache=True)
def help_from(helper: int, owner: int, kind: int, agents: Array, matrix: Array, help_share: Array) -> float:
    """What one collaborator adds to one task of another."""
    if helper == owner or help_share[helper] <= 0.0:
        return 0.0
    ability = agents[helper, CAPACITY] * agents[helper, EXPERTISE + kind]
    return matrix[owner, helper] * ability * help_share[helper]


@njit(cache=True)
def work(
    rules: Any,
    agents: Array,
    active: Array,
    matrix: Array,
    counts: Array,
    stream: Array,
    help_share: Array,
    partners: int,
    rewards: Array,
) -> None:
    """Each active task completes with probability pace x effort / complexity."""
    n_agents, kept = agents.shape[0], 0
    for place in range(counts[ACTIVE]):
        owner, kind = int(active[place, OWNER]), int(active[place, TYPE])
        own = agents[owner, CAPACITY] * agents[owner, EXPERTISE + kind] * active[place, SHARE] ** rules.share_exponent
        effort = own
        if help_share[owner] >= 0.0 and partners > 1:
            own *= 1.0 - rules.collaboration_cost
            effort = own
            for helper in range(n_agents):
                effort += help_from(helper, owner, kind, agents, matrix, help_share)
        if uniform(stream) * active[place, COMPLEXITY] >= rules.pace * effort:
            keep(place, kept, active)
            kept += 1
            continue
        rewards[owner] += rules.completion_reward * own / effort
        if effort > own:
            for helper in range(n_agents):
                part = help_from(helper, owner, kind, agents, matrix, help_share) / effort
                rewards[helper] += rules.completion_reward * part
        counts[IN_TIME] += 1
        agents[owner, COMPLETED] += 1.0
        agents[owner, WORK_DONE] += active[place, COMPLEXITY]
        note_outcome(owner, 1.0, rules.success_rate_step, agents)
    counts[ACTIVE] = kept


@njit(cache=True)
def expire(rules: Any, agents: Array, queue: Array, active: Array, counts: Array) -> None:
    """Tasks whose deadline is reached are lost, wherever they are: no later step could complete them in time."""
    kept = 0
    for place in range(counts[ACTIVE]):
        if active[place, DEADLINE] <= counts[STEP]:
            note_outcome(int(active[place, OWNER]), 0.0, rules.success_rate_step, agents)
        else:
            keep(place, kept, active)
            kept += 1
    counts[ACTIVE] = kept
    for position in range(queue.shape[0]):
        if queue[position, DEADLINE] > 0 and queue[position, DEADLINE] <= counts[STEP]:
            note_leaving(position, queue, counts)
            queue[position, DEADLINE] = 0.0
            counts[QUEUED] -= 1


@njit(cache=True)
def observe(
    rules: Any, agents: Array, queue: Array, active: Array, matrix: Array, counts: Array, observation: Array
) -> None:
    n_agents, n_types, at = agents.shape[0], rules.task_types, 0
    per_step = 1.0 / max(1, counts[STEP])
    agent_features = 6 + 2 * n_types
    m = queue.shape[0]
    for agent in range(n_agents):
        slot = (agent - counts[STEP]) % m
        head = int(queue[slot, TYPE]) if queue[slot, DEADLINE] > 0 else -1
        observation[at] = agents[agent, CAPACITY]
        observation[at + 1] = agents[agent, LOAD]
        observation[at + 2] = agents[agent, COMPLETED] * per_step
        observation[at + 3] = agents[agent, SUCCESS_RATE]
        observation[at + 4] = agents[agent, COLLABORATION_SCORE]
        for kind in range(n_types):
            observation[at + 5 + kind] = agents[agent, EXPERTISE + kind]
            observation[at + 5 + n_types + kind] = 0.0
        observation[at + 5 + 2 * n_types] = agents[agent, EXPERTISE + head] if head >= 0 else 0.0
        at += agent_features
    for place in range(counts[ACTIVE]):
        held = int(active[place, OWNER]) * agent_features + 5 + n_types + int(active[place, TYPE])
        observation[held] += rules.least_share
    for position in range(queue.shape[0]):
        for feature in range(4 + n_types):
            observation[at + feature] = 0.0
        slot = (position - counts[STEP]) % m
        if queue[slot, DEADLINE] > 0:
            observation[at] = queue[slot, COMPLEXITY]
            observation[at + 1] = queue[slot, PRIORITY]
            observation[at + 2] = (queue[slot, DEADLINE] - counts[STEP]) / rules.slack_max
            observation[at + 3] = 1.0
            observation[at + 4 + int(queue[slot, TYPE])] = 1.0
        at += 4 + n_types
    for first in range(n_agents):
        for second in range(n_agents):
            observation[at] = matrix[first, second]
            at += 1


@njit(cache=True)
def begin_rows(
    settings: Array,
    rows: Array,
    agents: Array,
    queue: Array,
    active: Array,
    matrix: Array,
    counts: Array,
    streams: Array,
    observation: Array,
) -> None:
    rules = settings[0]
    for row in range(rows.shape[0]):
        if not rows[row]:
            continue
        counts[row, :] = 0
        queue[row] = 0.0
        draw_team(rules, agents[row], matrix[row], streams[row])
        for _ in range(min(rules.initial_tasks, queue.shape[1])):
            task_arrives(rules, queue[row], counts[row], streams[row])
        observe(rules, agents[row], queue[row], active[row], matrix[row], counts[row], observation[row])


@njit(cache=True)
def step_rows(
    settings: Array,
    rows: Array,
    actions: Array,
    agents: Array,
    queue: Array,
    active: Array,
    matrix: Array,
    counts: Array,
    streams: Array,
    observation: Array,
    rewards: Array,
    reward: Array,
    truncated: Array,
) -> int:
    """Gives how many of these rows have reached their last step."""
    ended = 0
    help_share = np.empty(agents.shape[1])
    phis = agents[:, :, EXPERTISE + 2 * settings[0].task_types]
    rules = settings[0]
    for row in range(rows.shape[0]):
        if not rows[row]:
            continue
        team, waiting, busy, count, own = agents[row], queue[row], active[row], counts[row], rewards[row]
        phi = phis[row]
        count[STEP] += 1
        own[:] = 0.0
        assign(rules, actions[row], team, waiting, busy, count)
        update_loads(team, busy, count)
        partners = collaborate(rules, actions[row], team, matrix[row], count, help_share)
        work(rules, team, busy, matrix[row], count, streams[row], help_share, partners, own)
        expire(rules, team, waiting, busy, count)
        for _ in range(team.shape[0]):
            if uniform(streams[row]) < rules.arrival_probability:
                task_arrives(rules, waiting, count, streams[row])
        update_loads(team, busy, count)
        for agent in range(team.shape[0]):
            team[agent, LOAD_SUM] += team[agent, LOAD]
            own[agent] -= rules.shaping * phi[agent]
            phi[agent] = 0.0
        for place in range(count[ACTIVE]):
            o_ = int(busy[place, OWNER]); k_ = int(busy[place, TYPE])
            p_ = min(1.0, rules.pace * team[o_, CAPACITY] * team[o_, EXPERTISE + k_] * busy[place, SHARE] ** rules.share_exponent / busy[place, COMPLEXITY])
            phi[o_] += 1.0 - (1.0 - p_) ** (busy[place, DEADLINE] - count[STEP])
        for agent in range(team.shape[0]):
            own[agent] += rules.shaping * phi[agent]
        count[QUEUE_SUM] += count[QUEUED]
        observe(rules, team, waiting, busy, matrix[row], count, observation[row])
        reward[row] = own.sum()
        truncated[row] = count[STEP] >= rules.episode_steps
        ended += truncated[row]
    return ended
