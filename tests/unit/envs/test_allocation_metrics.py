"""Each metric equals its formula, recomputed slowly from what an observer of the episode saw."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from learnproof.envs.task_allocation import TaskAllocationVectorV0, TaskAllocationVectorV1
from learnproof.envs.task_allocation.layout import observation_parts
from learnproof.envs.task_allocation.metrics import METRICS, load_balance, mutual_information
from learnproof.envs.task_allocation.state import (
    ACTIVE,
    ARRIVAL,
    ARRIVED,
    COMPLETED,
    COMPLEXITY,
    DEADLINE,
    QUEUED,
    TYPE,
    WORK_DONE,
)

Array = np.ndarray[Any, Any]


def gini(values: list[float]) -> float:
    """By definition: mean absolute difference over twice the mean."""
    differences = [abs(a - b) for a, b in itertools.product(values, values)]
    return sum(differences) / (2 * len(values) * sum(values))


def information(pairs: list[tuple[int, int]]) -> float:
    joint, left, right = Counter(pairs), Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    n = len(pairs)
    return sum(c / n * math.log((c / n) / (left[a] / n * right[b] / n)) for (a, b), c in joint.items())


def tasks_in(state: dict[str, Array], place: str, length: int, is_list: bool) -> dict[tuple[float, ...], Array]:
    rows = state[place][0]
    rows = rows[: state["counts"][0, length]] if is_list else rows[rows[:, DEADLINE] > 0]
    return {tuple(row[[TYPE, COMPLEXITY, DEADLINE, ARRIVAL]]): row for row in rows}


@pytest.mark.parametrize("kind", [TaskAllocationVectorV0, TaskAllocationVectorV1])
@pytest.mark.parametrize("n_agents", [1, 4])
def test_metrics_equal_their_formulas(kind: Any, n_agents: int) -> None:
    env = kind(1, "Disabled", n_agents=n_agents, episode_steps=60)
    env.reset(seed=4)
    generator = np.random.default_rng(n_agents)
    is_list = kind is TaskAllocationVectorV0
    pairs, in_time = 0, 0
    loads: list[float] = []
    queue_lengths: list[float] = []
    waits: list[float] = []
    taken: list[tuple[int, int]] = []
    work = np.zeros(n_agents)
    after = env.snapshot()
    for step in range(1, 61):
        actions = generator.random((1, 3 * n_agents), dtype=np.float32)
        before = after
        *_, infos = env.step(actions)
        after = env.snapshot()
        parts = observation_parts(env.observation, env.rules)
        loads.append(parts.agents[0, :, 1].mean())
        queue_lengths.append(parts.slots[0, :, 3].sum())
        joined = int((actions[0, 2::3] > 0.7).sum())
        pairs += joined * (joined - 1)

        queues = [tasks_in(state, "queue", QUEUED, is_list) for state in (before, after)]
        waits += [step - row[ARRIVAL] for task, row in queues[0].items() if task not in queues[1]]
        counts_by_type = [state["agents"][0][:, -env.rules.task_types :] for state in (before, after)]
        taken += [(int(agent), int(type_)) for agent, type_ in np.argwhere(counts_by_type[1] > counts_by_type[0])]
        done = after["agents"][0, :, COMPLETED] - before["agents"][0, :, COMPLETED]
        work += after["agents"][0, :, WORK_DONE] - before["agents"][0, :, WORK_DONE]
        if is_list:
            here = [queues[i] | tasks_in(s, "active", ACTIVE, True) for i, s in enumerate((before, after))]
            gone = [row for task, row in here[0].items() if task not in here[1]]
            assert len(gone) == done.sum()
            in_time += sum(row[DEADLINE] >= step for row in gone)
        else:
            in_time += int(done.sum())
    expected = {
        "completion_rate": in_time / after["counts"][0, ARRIVED],
        "utilisation": np.mean(loads),
        "load_balance": 1 - gini(work.tolist()),
        "collaboration_frequency": pairs / (60 * max(1, n_agents * (n_agents - 1))),
        "role_specialisation": information(taken),
        "mean_queue_length": np.mean(queue_lengths),
        "mean_waiting_steps": np.mean(waits),
    }
    assert work.sum() > 0
    assert {name: infos[name][0] for name in METRICS} == pytest.approx(expected, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize(
    ("work", "balance"),
    [([2.0, 2.0, 2.0], 1.0), ([0.0, 0.0, 5.0], 1 / 3), ([0.0, 0.0], 0.0), ([3.0], 1.0), ([1.0, 3.0], 0.75)],
)
def test_load_balance_at_its_ends(work: list[float], balance: float) -> None:
    assert load_balance(np.array(work)) == pytest.approx(balance)


@pytest.mark.parametrize(
    ("taken", "nats"),
    [([[4.0, 0.0], [0.0, 4.0]], math.log(2)), ([[2.0, 2.0], [4.0, 4.0]], 0.0), ([[0.0, 0.0], [0.0, 0.0]], 0.0)],
)
def test_mutual_information_at_its_ends(taken: list[list[float]], nats: float) -> None:
    assert mutual_information(np.array(taken)) == pytest.approx(nats)


def test_an_episode_in_which_nothing_happens_has_finite_metrics() -> None:
    env = TaskAllocationVectorV0(1, n_agents=1, arrival_probability=0.0, initial_tasks=0, episode_steps=1)
    env.reset(seed=0)
    *_, infos = env.step(np.zeros((1, 3), np.float32))
    assert all(infos["final_info"][name][0] == 0.0 for name in METRICS)
