"""What an episode was worth, beyond its reward: seven figures from the tallies of its end, each a formula.

    completion_rate          tasks completed in time / tasks arrived
    utilisation              mean over steps and agents of the load
    load_balance             1 - Gini coefficient of completed work (complexities); 0 where nothing was completed
    collaboration_frequency  collaborating ordered pairs / possible ordered pairs, over all steps; 0 for a single agent
    role_specialisation      mutual information of agent and task type over the tasks taken, in nats
    mean_queue_length        mean over steps of the tasks queued
    mean_waiting_steps       mean over the tasks that left the queue of the steps that they spent in it

Computed row by row, never over the batch: NumPy sums in an order that depends on the number of rows, and an instance's
figures must not. docs/environments.md writes the formulas out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import kernel
from .state import (
    ARRIVED,
    EXPERTISE,
    IN_TIME,
    LEFT_QUEUE,
    LOAD_SUM,
    PAIRS,
    QUEUE_SUM,
    STEP,
    WAITING_SUM,
    WORK_DONE,
)

Array = np.ndarray[Any, Any]

METRICS = (
    "completion_rate",
    "utilisation",
    "load_balance",
    "collaboration_frequency",
    "role_specialisation",
    "mean_queue_length",
    "mean_waiting_steps",
)


@kernel
def measure_rows(rows: Array, agents: Array, counts: Array, values: Array) -> None:
    """Each metric of the rows of the mask, [M, N] in the order of METRICS."""
    n_agents, n_types = agents.shape[1], (agents.shape[2] - EXPERTISE) // 2
    for row in range(rows.shape[0]):
        if not rows[row]:
            continue
        team, count = agents[row], counts[row]
        steps = count[STEP]
        values[0, row] = ratio(count[IN_TIME], count[ARRIVED])
        values[1, row] = ratio(team[:, LOAD_SUM].sum(), steps * n_agents)
        values[2, row] = load_balance(team[:, WORK_DONE].copy())
        values[3, row] = ratio(count[PAIRS], steps * n_agents * (n_agents - 1))
        values[4, row] = mutual_information(team[:, EXPERTISE + n_types :].copy())
        values[5, row] = ratio(count[QUEUE_SUM], steps)
        values[6, row] = ratio(count[WAITING_SUM], count[LEFT_QUEUE])


@kernel
def ratio(numerator: float, denominator: float) -> float:
    """0 where there is nothing to divide by."""
    return numerator / denominator if denominator > 0 else 0.0


@kernel
def load_balance(work: Array) -> float:
    """1 - Gini of work [n]: 1 where all did alike, 1/n where one did everything, 0 where nothing was done."""
    n_agents, total, weighted = work.shape[0], 0.0, 0.0
    work.sort()
    for index in range(n_agents):
        total += work[index]
        weighted += (2 * index + 1 - n_agents) * work[index]
    return 1.0 - weighted / (n_agents * total) if total > 0 else 0.0


@kernel
def mutual_information(taken: Array) -> float:
    """Plug-in mutual information in nats of counts [n, types]; 0 where nothing was taken.

    It is biased upward by about (n - 1)(types - 1) / (2 x tasks taken).
    """
    by_agent, by_type, total = taken.sum(axis=1), taken.sum(axis=0), taken.sum()
    information = 0.0
    for agent in range(taken.shape[0]):
        for kind in range(taken.shape[1]):
            count = taken[agent, kind]
            if count > 0:
                information += count / total * np.log(count * total / (by_agent[agent] * by_type[kind]))
    return max(0.0, information)
