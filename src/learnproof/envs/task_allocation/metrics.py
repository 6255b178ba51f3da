"""What an episode was worth, beyond its reward: seven figures from the tallies of its end, each a formula.

    completion_rate          tasks completed in time / tasks arrived
    utilisation              mean over steps and agents of the load
    load_balance             1 - Gini coefficient of completed work (complexities); 0 where nothing was completed
    collaboration_frequency  collaborating ordered pairs / possible ordered pairs, over all steps; 0 for a single agent
    role_specialisation      mutual information of agent and task type over the tasks taken, in nats
    mean_queue_length        mean over steps of the tasks queued
    mean_waiting_steps       mean over the tasks that left the queue of the steps that they spent in it

Arrays in, arrays out; docs/environments.md writes the formulas out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

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
    AllocationState,
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


def episode_metrics(state: AllocationState, rows: Array) -> dict[str, Array]:
    """Each metric as float64 [N], computed in the rows of the mask and 0 elsewhere."""
    agents, counts = state.agents[rows], state.counts[rows].astype(np.float64)
    n_agents, n_types = agents.shape[1], (agents.shape[2] - EXPERTISE) // 2
    steps = counts[:, STEP]
    values = (
        _ratio(counts[:, IN_TIME], counts[:, ARRIVED]),
        agents[:, :, LOAD_SUM].sum(axis=1) / (steps * n_agents),
        load_balance(agents[:, :, WORK_DONE]),
        _ratio(counts[:, PAIRS], steps * n_agents * (n_agents - 1)),
        mutual_information(agents[:, :, EXPERTISE + n_types : EXPERTISE + 2 * n_types]),
        counts[:, QUEUE_SUM] / steps,
        _ratio(counts[:, WAITING_SUM], counts[:, LEFT_QUEUE]),
    )
    metrics = {name: np.zeros(rows.shape[0]) for name in METRICS}
    for name, value in zip(METRICS, values, strict=True):
        metrics[name][rows] = value
    return metrics


def load_balance(work: Array) -> Array:
    """1 - Gini of work [M, n]: 1 where all did alike, 1/n where one did everything, 0 where nothing was done."""
    n_agents = work.shape[1]
    ordered = np.sort(work, axis=1)
    ranks = np.arange(1, n_agents + 1)
    total = ordered.sum(axis=1)
    gini = _ratio((2 * ranks - n_agents - 1) @ ordered.T, n_agents * total)
    return np.where(total > 0, 1.0 - gini, 0.0)


def mutual_information(taken: Array) -> Array:
    """Plug-in mutual information in nats of counts [M, n, types]; 0 where nothing was taken.

    It is biased upward by about (n - 1)(types - 1) / (2 x tasks taken).
    """
    total = taken.sum(axis=(1, 2), keepdims=True)
    joint = _ratio(taken, total)
    independent = joint.sum(axis=2, keepdims=True) * joint.sum(axis=1, keepdims=True)
    logs = np.log(_ratio(joint, independent), out=np.zeros_like(joint), where=joint > 0)
    information: Array = (joint * logs).sum(axis=(1, 2))
    return np.maximum(information, 0.0)


def _ratio(numerator: Array, denominator: Array) -> Array:
    """0 where there is nothing to divide by."""
    denominator = np.broadcast_to(denominator, numerator.shape)
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
