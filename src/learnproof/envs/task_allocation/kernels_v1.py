"""Version 1, one step of one instance in small kernels, and the two that run over the batch.

    begin_rows   draws a team of specialists and the first tasks            (rules, rows, state..., observation)
    step_rows    assign -> work together -> expire -> arrive -> observe      (rules, rows, actions, state..., results)

Tasks wait on a belt with a place before each agent. It moves on by one place in each step, so a task passes every agent,
and each agent decides about one task at a time: the one before it. `queue` and `active` are places: a row with DEADLINE 0
is empty, and active[i] is the task that agent i holds.

The present step is counted from 1. The only reward is for tasks completed in time; it is divided among those who worked
on the task in that step, by their effort. `rules` is the record that RulesV1.as_record makes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import kernel
from ..random_streams import uniform, uniform_between, whole_number
from .observation_v1 import observe, place_before
from .queue_kernels import note_leaving, note_outcome, note_taking
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
    REMAINING,
    STEP,
    SUCCESS_RATE,
    TYPE,
    WORK_DONE,
)

Array = np.ndarray[Any, Any]

ROUNDING = 1e-9
"""Work left over by rounding counts as done."""


@kernel
def draw_team(rules: Any, agents: Array, matrix: Array, stream: Array) -> None:
    """Each agent has one speciality; dealing them from shuffled types covers the types as evenly as possible."""
    deck = np.arange(rules.task_types)
    for last in range(rules.task_types - 1, 0, -1):
        other = whole_number(stream, 0, last)
        deck[last], deck[other] = deck[other], deck[last]
    agents[:] = 0.0
    for agent in range(agents.shape[0]):
        figures = agents[agent]
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


@kernel
def free_place(queue: Array, counts: Array) -> int:
    """The first empty place; where there is none, the task that has waited longest is lost."""
    oldest = 0
    for place in range(queue.shape[0]):
        if queue[place, DEADLINE] == 0.0:
            return place
        if queue[place, ARRIVAL] < queue[oldest, ARRIVAL]:
            oldest = place
    leave(oldest, queue, counts)
    return oldest


@kernel
def leave(place: int, queue: Array, counts: Array) -> None:
    note_leaving(place, queue, counts)
    queue[place, DEADLINE] = 0.0
    counts[QUEUED] -= 1


@kernel
def task_arrives(rules: Any, queue: Array, counts: Array, stream: Array) -> None:
    counts[ARRIVED] += 1
    place = free_place(queue, counts)
    priority = uniform(stream)
    slack = np.rint(rules.slack_max - priority * (rules.slack_max - rules.slack_min))
    complexity = uniform_between(stream, rules.complexity_min, rules.complexity_max)
    queue[place, TYPE] = whole_number(stream, 0, rules.task_types - 1)
    queue[place, COMPLEXITY] = complexity
    queue[place, REMAINING] = complexity
    queue[place, PRIORITY] = priority
    queue[place, ARRIVAL] = counts[STEP]
    queue[place, DEADLINE] = counts[STEP] + slack
    counts[QUEUED] += 1


@kernel
def assign(rules: Any, action: Array, agents: Array, queue: Array, active: Array, counts: Array) -> None:
    """An agent that accepts and holds nothing takes the task before it."""
    for agent in range(agents.shape[0]):
        place = place_before(agent, counts[STEP] - 1, queue.shape[0])
        if queue[place, DEADLINE] == 0.0 or active[agent, DEADLINE] != 0.0:
            continue
        if action[3 * agent] > rules.accept_threshold:
            active[agent, :] = queue[place, :]
            active[agent, OWNER] = agent
            counts[ACTIVE] += 1
            note_taking(agent, place, agents, queue)
            leave(place, queue, counts)


@kernel
def meet(rules: Any, action: Array, matrix: Array, counts: Array, joins: Array) -> None:
    """Who collaborates (joins [n]): those above the threshold, if they are at least two. Practice makes pairs better."""
    n_agents = joins.shape[0]
    n_joined = 0
    for agent in range(n_agents):
        joins[agent] = action[3 * agent + 2] > rules.collaboration_threshold
        n_joined += joins[agent]
    if n_joined < 2:
        joins[:] = False
        return
    counts[PAIRS] += n_joined * (n_joined - 1)
    for first in range(n_agents):
        for second in range(n_agents):
            if first != second and joins[first] and joins[second]:
                matrix[first, second] = min(1.0, matrix[first, second] * rules.collaboration_growth)


@kernel
def share_out(
    rules: Any, action: Array, agents: Array, active: Array, matrix: Array, joins: Array, efforts: Array
) -> None:
    """efforts [owner, worker]: what each agent puts into each held task in this step.

    An agent gives its allocation to its own task. The rest of its capacity goes, if it collaborates, to the tasks of the
    other collaborators, in equal parts; how much of that arrives is the pair's entry of the matrix.
    """
    n_agents = agents.shape[0]
    efforts[:] = 0.0
    open_tasks = 0
    for agent in range(n_agents):
        open_tasks += joins[agent] and active[agent, DEADLINE] != 0.0
    for agent in range(n_agents):
        busy = active[agent, DEADLINE] != 0.0
        own = min(1.0, max(0.0, float(action[3 * agent + 1]))) if busy else 0.0
        capacity = agents[agent, CAPACITY]
        if busy:
            ability = capacity * agents[agent, EXPERTISE + int(active[agent, TYPE])]
            efforts[agent, agent] = ability * own**rules.allocation_exponent
        others = open_tasks - (1 if busy else 0)
        helps = joins[agent] and others > 0
        agents[agent, LOAD] = 1.0 if helps else own
        agents[agent, LOAD_SUM] += agents[agent, LOAD]
        if not helps:
            continue
        for owner in range(n_agents):
            if owner != agent and joins[owner] and active[owner, DEADLINE] != 0.0:
                ability = capacity * agents[agent, EXPERTISE + int(active[owner, TYPE])]
                efforts[owner, agent] = matrix[owner, agent] * ability * (1.0 - own) / others


@kernel
def work(rules: Any, agents: Array, active: Array, counts: Array, efforts: Array, rewards: Array) -> None:
    """Held tasks progress; each that is done pays, each that has reached its deadline undone is lost."""
    for owner in range(agents.shape[0]):
        if active[owner, DEADLINE] == 0.0:
            continue
        effort = efforts[owner].sum()
        active[owner, REMAINING] -= effort / rules.work_steps
        done = active[owner, REMAINING] <= ROUNDING
        if done:
            counts[IN_TIME] += 1
            agents[owner, COMPLETED] += 1.0
            agents[owner, WORK_DONE] += active[owner, COMPLEXITY]
            for worker in range(agents.shape[0]):
                rewards[worker] += rules.completion_reward * efforts[owner, worker] / effort
        if done or active[owner, DEADLINE] <= counts[STEP]:
            note_outcome(owner, 1.0 if done else 0.0, rules.success_rate_step, agents)
            active[owner, DEADLINE] = 0.0
            counts[ACTIVE] -= 1


@kernel
def expire(queue: Array, counts: Array) -> None:
    """Waiting tasks that have reached their deadline are lost."""
    for place in range(queue.shape[0]):
        if queue[place, DEADLINE] != 0.0 and queue[place, DEADLINE] <= counts[STEP]:
            leave(place, queue, counts)


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
        queue[row, :] = 0.0
        active[row, :] = 0.0
        draw_team(rules, agents[row], matrix[row], streams[row])
        for _ in range(min(rules.initial_tasks, queue.shape[1])):
            task_arrives(rules, queue[row], counts[row], streams[row])
        observe(rules, agents[row], queue[row], active[row], matrix[row], counts[row], observation[row])


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
    n_agents = agents.shape[1]
    joins, efforts = np.zeros(n_agents, np.bool_), np.zeros((n_agents, n_agents))
    for row in range(rows.shape[0]):
        if not rows[row]:
            continue
        team, waiting, held, count, own = agents[row], queue[row], active[row], counts[row], rewards[row]
        count[STEP] += 1
        own[:] = 0.0
        assign(rules, actions[row], team, waiting, held, count)
        meet(rules, actions[row], matrix[row], count, joins)
        share_out(rules, actions[row], team, held, matrix[row], joins, efforts)
        work(rules, team, held, count, efforts, own)
        expire(waiting, count)
        for _ in range(n_agents):
            if uniform(streams[row]) < rules.arrival_probability:
                task_arrives(rules, waiting, count, streams[row])
        count[QUEUE_SUM] += count[QUEUED]
        observe(rules, team, waiting, held, matrix[row], count, observation[row])
        reward[row] = own.sum()
        truncated[row] = count[STEP] >= rules.episode_steps
        ended += truncated[row]
    return ended
