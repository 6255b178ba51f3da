"""Version 1, scratch D"""
from __future__ import annotations
from typing import Any
import numpy as np
from numba import njit
from ..random_streams import uniform, uniform_between, whole_number
from .queue_kernels import note_leaving, note_outcome
from .state import *
Array = np.ndarray[Any, Any]
# active[agent]: DEADLINE>0 exists; SHARE column = remaining work ; COMPLEXITY

@njit(cache=True)
def draw_team(rules, agents, matrix, stream):
    deck = np.arange(rules.task_types)
    for last in range(rules.task_types - 1, 0, -1):
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
def task_arrives(rules, queue, counts, stream):
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
    queue[position, SHARE] = queue[position, COMPLEXITY]
    counts[QUEUED] += 1

@njit(cache=True)
def assign(rules, action, agents, queue, active, counts):
    m = queue.shape[0]
    n_types = rules.task_types
    for agent in range(min(m, agents.shape[0])):
        slot = (agent - (counts[STEP] - 1)) % m
        if active[agent, DEADLINE] == 0 and queue[slot, DEADLINE] > 0 and action[3 * agent] > rules.accept_threshold:
            active[agent] = queue[slot]
            active[agent, OWNER] = agent
            agents[agent, EXPERTISE + n_types + int(queue[slot, TYPE])] += 1.0
            note_leaving(slot, queue, counts)
            queue[slot, DEADLINE] = 0.0
            counts[QUEUED] -= 1
            counts[ACTIVE] += 1

@njit(cache=True)
def work(rules, action, agents, active, matrix, counts, effort, rewards):
    n = agents.shape[0]
    partners = 0
    held = 0
    for i in range(n):
        if action[3 * i + 2] > rules.collaboration_threshold:
            partners += 1
            held += active[i, DEADLINE] > 0
    counts[PAIRS] += partners * (partners - 1)
    effort[:] = 0.0
    for i in range(n):
        joins = action[3 * i + 2] > rules.collaboration_threshold and partners > 1
        own = 0.0
        has = active[i, DEADLINE] > 0
        strength = agents[i, CAPACITY] * ((1.0 - rules.collaboration_cost) if joins else 1.0)
        if has:
            own = min(1.0, max(0.0, action[3 * i + 1]))
            effort[i, i] = strength * agents[i, EXPERTISE + int(active[i, TYPE])] * own**rules.share_exponent
        agents[i, LOAD] = own
        if joins:
            others = held - has
            if others > 0:
                agents[i, LOAD] = 1.0
                for k in range(n):
                    if k != i and active[k, DEADLINE] > 0 and action[3 * k + 2] > rules.collaboration_threshold:
                        effort[k, i] = matrix[k, i] * strength * agents[i, EXPERTISE + int(active[k, TYPE])] * (1.0 - own) / others
            for k in range(n):
                if k != i and action[3 * k + 2] > rules.collaboration_threshold:
                    matrix[i, k] = min(1.0, matrix[i, k] * rules.collaboration_growth)
    for i in range(n):
        if active[i, DEADLINE] == 0:
            continue
        total = effort[i].sum()
        active[i, SHARE] -= rules.pace * total
        if active[i, SHARE] <= 1e-9:
            for k in range(n):
                rewards[k] += rules.completion_reward * effort[i, k] / total
            counts[IN_TIME] += 1
            agents[i, COMPLETED] += 1.0
            agents[i, WORK_DONE] += active[i, COMPLEXITY]
            note_outcome(i, 1.0, rules.success_rate_step, agents)
            active[i, DEADLINE] = 0.0
            counts[ACTIVE] -= 1
        elif active[i, DEADLINE] <= counts[STEP]:
            note_outcome(i, 0.0, rules.success_rate_step, agents)
            active[i, DEADLINE] = 0.0
            counts[ACTIVE] -= 1

@njit(cache=True)
def expire(rules, queue, counts):
    for position in range(queue.shape[0]):
        if queue[position, DEADLINE] > 0 and queue[position, DEADLINE] <= counts[STEP]:
            note_leaving(position, queue, counts)
            queue[position, DEADLINE] = 0.0
            counts[QUEUED] -= 1

@njit(cache=True)
def observe(rules, agents, queue, active, matrix, counts, observation):
    n_agents, n_types, at = agents.shape[0], rules.task_types, 0
    per_step = 1.0 / max(1, counts[STEP])
    m = queue.shape[0]
    for agent in range(n_agents):
        slot = (agent - counts[STEP]) % m
        head = int(queue[slot, TYPE]) if (queue[slot, DEADLINE] > 0 and agent < m) else -1
        observation[at] = agents[agent, CAPACITY]
        observation[at + 1] = agents[agent, LOAD]
        observation[at + 2] = agents[agent, COMPLETED] * per_step
        observation[at + 3] = agents[agent, SUCCESS_RATE]
        observation[at + 4] = agents[agent, COLLABORATION_SCORE]
        for kind in range(n_types):
            observation[at + 5 + kind] = agents[agent, EXPERTISE + kind]
            observation[at + 5 + n_types + kind] = 0.0
        at += 5 + 2 * n_types
        if active[agent, DEADLINE] > 0:
            observation[at - n_types + int(active[agent, TYPE])] = 1.0
            observation[at] = active[agent, SHARE]
            observation[at + 1] = (active[agent, DEADLINE] - counts[STEP]) / rules.slack_max
        else:
            observation[at] = 0.0
            observation[at + 1] = 0.0
        observation[at + 2] = agents[agent, EXPERTISE + head] if (head >= 0 and rules.front > 0) else 0.0
        at += 3
    for position in range(m):
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
def begin_rows(settings, rows, agents, queue, active, matrix, counts, streams, observation):
    rules = settings[0]
    for row in range(rows.shape[0]):
        if not rows[row]:
            continue
        counts[row, :] = 0
        queue[row] = 0.0
        active[row] = 0.0
        draw_team(rules, agents[row], matrix[row], streams[row])
        for _ in range(min(rules.initial_tasks, queue.shape[1])):
            task_arrives(rules, queue[row], counts[row], streams[row])
        observe(rules, agents[row], queue[row], active[row], matrix[row], counts[row], observation[row])

@njit(cache=True)
def step_rows(settings, rows, actions, agents, queue, active, matrix, counts, streams, observation, rewards, reward, truncated):
    ended = 0
    rules = settings[0]
    effort = np.empty((agents.shape[1], agents.shape[1]))
    for row in range(rows.shape[0]):
        if not rows[row]:
            continue
        team, waiting, busy, count, own = agents[row], queue[row], active[row], counts[row], rewards[row]
        count[STEP] += 1
        own[:] = 0.0
        assign(rules, actions[row], team, waiting, busy, count)
        work(rules, actions[row], team, busy, matrix[row], count, effort, own)
        expire(rules, waiting, count)
        for _ in range(team.shape[0]):
            if uniform(streams[row]) < rules.arrival_probability:
                task_arrives(rules, waiting, count, streams[row])
        for agent in range(team.shape[0]):
            team[agent, LOAD_SUM] += team[agent, LOAD]
        count[QUEUE_SUM] += count[QUEUED]
        observe(rules, team, waiting, busy, matrix[row], count, observation[row])
        reward[row] = own.sum()
        truncated[row] = count[STEP] >= rules.episode_steps
        ended += truncated[row]
    return ended
