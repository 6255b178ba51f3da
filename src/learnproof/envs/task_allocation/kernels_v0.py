"""Version 0, one step of one instance in eight small kernels, and the two that run over the batch.

    begin_rows   draws a team, the default matrix and the first tasks        (rules, rows, state..., observation)
    step_rows    assign -> collaborate -> work -> charge -> arrive -> observe (rules, rows, actions, state..., results)

The present step is counted from 1. Each agent's own part of the reward is kept apart in `rewards` [n]; the team's reward
is their sum. `rules` is the record that RulesV0.as_record makes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import kernel
from ..random_streams import uniform, uniform_between, whole_number
from .queue_kernels import close_queue, give, keep, note_outcome
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


@kernel
def draw_agent(rules: Any, agent: Array, stream: Array) -> None:
    agent[:] = 0.0
    agent[CAPACITY] = uniform_between(stream, rules.capacity_min, rules.capacity_max)
    agent[SUCCESS_RATE] = uniform_between(stream, rules.success_rate_min, rules.success_rate_max)
    agent[COLLABORATION_SCORE] = uniform_between(stream, rules.collaboration_score_min, rules.collaboration_score_max)
    for kind in range(rules.task_types):
        has_own = uniform(stream) < rules.expertise_probability
        own = uniform_between(stream, rules.expertise_min, rules.expertise_max)
        agent[EXPERTISE + kind] = own if has_own else rules.expertise_default


@kernel
def task_arrives(rules: Any, queue: Array, counts: Array, stream: Array) -> None:
    """A new task joins the queue's end, or is turned away where it is full; either way it has arrived."""
    counts[ARRIVED] += 1
    position = counts[QUEUED]
    if position == queue.shape[0]:
        return
    queue[position, TYPE] = whole_number(stream, 0, rules.task_types - 1)
    queue[position, COMPLEXITY] = uniform_between(stream, rules.complexity_min, rules.complexity_max)
    queue[position, PRIORITY] = uniform_between(stream, rules.priority_min, rules.priority_max)
    queue[position, DEADLINE] = whole_number(stream, rules.deadline_min, rules.deadline_max)
    queue[position, ARRIVAL] = counts[STEP]
    counts[QUEUED] += 1


@kernel
def assign(
    rules: Any, action: Array, agents: Array, queue: Array, active: Array, counts: Array, rewards: Array
) -> None:
    """In the order of their numbers, agents that accept take the queue's head: expertise x priority."""
    taken = 0
    for agent in range(agents.shape[0]):
        if taken == counts[QUEUED] or counts[ACTIVE] == active.shape[0]:
            break  # the second cannot happen under the rules (see active_slots); a restored state is not trusted
        if action[3 * agent] > rules.accept_threshold:
            expertise = agents[agent, EXPERTISE + int(queue[taken, TYPE])]
            rewards[agent] += expertise * queue[taken, PRIORITY]
            share = min(1.0, max(0.0, float(action[3 * agent + 1])))
            give(agent, taken, share, agents, queue, active, counts)
            taken += 1
    close_queue(taken, queue, counts)


@kernel
def collaborate(rules: Any, action: Array, matrix: Array, counts: Array, rewards: Array) -> None:
    """Each ordered pair of collaborating agents is paid, and its entry of the matrix grows."""
    n_agents = matrix.shape[0]
    for first in range(n_agents):
        if action[3 * first + 2] <= rules.collaboration_threshold:
            continue
        for second in range(n_agents):
            if second != first and action[3 * second + 2] > rules.collaboration_threshold:
                matrix[first, second] = min(rules.matrix_ceiling, matrix[first, second] * rules.collaboration_growth)
                rewards[first] += rules.pair_reward
                counts[PAIRS] += 1


@kernel
def work(rules: Any, agents: Array, active: Array, counts: Array, stream: Array, rewards: Array) -> None:
    """Each active task completes with probability expertise x capacity; quality, priority and earliness are paid."""
    step = counts[STEP]
    kept = 0
    for place in range(counts[ACTIVE]):
        agent = int(active[place, OWNER])
        expertise = agents[agent, EXPERTISE + int(active[place, TYPE])]
        if uniform(stream) >= expertise * agents[agent, CAPACITY]:
            keep(place, kept, active)
            kept += 1
            continue
        deadline = active[place, DEADLINE]
        quality = expertise * agents[agent, SUCCESS_RATE]
        time_bonus = max(0.0, 1.0 - step / deadline)
        rewards[agent] += rules.completion_reward * quality * active[place, PRIORITY] * (1.0 + time_bonus)
        in_time = 1 if step <= deadline else 0
        counts[IN_TIME] += in_time
        agents[agent, COMPLETED] += 1.0
        agents[agent, WORK_DONE] += active[place, COMPLEXITY]
        note_outcome(agent, float(in_time), rules.success_rate_step, agents)
    counts[ACTIVE] = kept


@kernel
def charge(rules: Any, agents: Array, active: Array, counts: Array, rewards: Array) -> None:
    """Overdue active tasks cost their owner, queued tasks cost everybody alike."""
    for place in range(counts[ACTIVE]):
        if active[place, DEADLINE] < counts[STEP]:
            rewards[int(active[place, OWNER])] -= rules.overdue_cost
    rewards -= rules.queue_cost * counts[QUEUED] / agents.shape[0]


@kernel
def update_loads(agents: Array, active: Array, counts: Array) -> None:
    """Load: allocation x complexity, summed over the agent's active tasks, at most 1."""
    agents[:, LOAD] = 0.0
    for place in range(counts[ACTIVE]):
        agents[int(active[place, OWNER]), LOAD] += active[place, SHARE] * active[place, COMPLEXITY]
    for agent in range(agents.shape[0]):
        agents[agent, LOAD] = min(1.0, agents[agent, LOAD])
        agents[agent, LOAD_SUM] += agents[agent, LOAD]
    counts[QUEUE_SUM] += counts[QUEUED]


@kernel
def observe(agents: Array, queue: Array, matrix: Array, counts: Array, observation: Array) -> None:
    n_agents, at = agents.shape[0], 0
    per_step = 1.0 / max(1, counts[STEP])
    for agent in range(n_agents):
        observation[at] = agents[agent, CAPACITY]
        observation[at + 1] = agents[agent, LOAD]
        observation[at + 2] = agents[agent, COMPLETED] * per_step
        observation[at + 3] = agents[agent, SUCCESS_RATE]
        observation[at + 4] = agents[agent, COLLABORATION_SCORE]
        observation[at + 5] = agents[agent, EXPERTISE]
        observation[at + 6] = agents[agent, EXPERTISE + 1]
        at += 7
    for position in range(queue.shape[0]):
        exists = position < counts[QUEUED]
        observation[at] = queue[position, COMPLEXITY] if exists else 0.0
        observation[at + 1] = queue[position, PRIORITY] if exists else 0.0
        observation[at + 2] = queue[position, DEADLINE] if exists else 0.0
        observation[at + 3] = 1.0 if exists else 0.0
        observation[at + 4] = 0.0  # assigned: a task leaves the queue in the moment that it is assigned
        at += 5
    for first in range(n_agents):
        for second in range(n_agents):
            observation[at] = matrix[first, second]
            at += 1


@kernel
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
        for agent in range(agents.shape[1]):
            draw_agent(rules, agents[row, agent], streams[row])
            matrix[row, agent, :] = rules.matrix_default
            matrix[row, agent, agent] = 1.0
        for _ in range(min(rules.initial_tasks, queue.shape[1])):
            task_arrives(rules, queue[row], counts[row], streams[row])
        observe(agents[row], queue[row], matrix[row], counts[row], observation[row])


@kernel
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
    rules = settings[0]
    for row in range(rows.shape[0]):
        if not rows[row]:
            continue
        team, waiting, busy, count, own = agents[row], queue[row], active[row], counts[row], rewards[row]
        count[STEP] += 1
        own[:] = 0.0
        assign(rules, actions[row], team, waiting, busy, count, own)
        collaborate(rules, actions[row], matrix[row], count, own)
        work(rules, team, busy, count, streams[row], own)
        charge(rules, team, busy, count, own)
        if uniform(streams[row]) < rules.arrival_probability:
            task_arrives(rules, waiting, count, streams[row])
        update_loads(team, busy, count)
        observe(team, waiting, matrix[row], count, observation[row])
        reward[row] = own.sum()
        truncated[row] = count[STEP] >= rules.episode_steps
        ended += truncated[row]
    return ended
