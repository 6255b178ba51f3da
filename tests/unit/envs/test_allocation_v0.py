"""TaskAllocation-v0 keeps to the letter of its rules, on states made by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learnproof.envs.task_allocation import RulesV0, TaskAllocationVectorV0
from learnproof.envs.task_allocation.dispatchers import CONSTANTS, constant
from learnproof.envs.task_allocation.state import (
    ACTIVE,
    ARRIVAL,
    ARRIVED,
    CAPACITY,
    COMPLETED,
    COMPLEXITY,
    DEADLINE,
    EXPERTISE,
    IN_TIME,
    OWNER,
    PRIORITY,
    QUEUED,
    SHARE,
    STEP,
    SUCCESS_RATE,
    TYPE,
)

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from plain_allocation import PlainTaskAllocation

Array = np.ndarray[Any, Any]

SURE, NEVER = 1.0, 0.0
"""Capacities with which an expert of 1.0 completes at once, or nobody ever does."""


class Case:
    """One team of three at a step of our choice, with what we put into its queue and on its desks. Nothing arrives."""

    def __init__(self, step: int = 0, capacity: float = NEVER, **settings: Any) -> None:
        self.env = TaskAllocationVectorV0(1, n_agents=3, arrival_probability=0.0, **settings)
        self.env.reset(seed=0)
        self.state = self.env.snapshot()
        self.state["counts"][:] = 0
        self.state["counts"][0, STEP] = step
        team = self.state["agents"][0]
        team[:, CAPACITY] = capacity
        team[:, SUCCESS_RATE] = (0.5, 0.6, 0.7)
        team[:, EXPERTISE : EXPERTISE + 4] = [[0.9, 0.8, 0.3, 0.5], [0.4, 1.0, 0.3, 0.5], [0.1, 0.2, 0.3, 0.5]]

    def queue(self, kind: int, priority: float, deadline: int = 100, complexity: float = 0.5) -> Case:
        self._put("queue", QUEUED, kind, priority, deadline, complexity)
        return self

    def working(self, owner: int, kind: int, priority: float, deadline: int = 100, complexity: float = 0.5) -> Case:
        row = self._put("active", ACTIVE, kind, priority, deadline, complexity)
        row[OWNER], row[SHARE] = owner, 1.0
        return self

    def _put(self, where: str, length: int, kind: int, priority: float, deadline: int, complexity: float) -> Array:
        counts = self.state["counts"][0]
        row: Array = self.state[where][0, counts[length]]
        row[:] = 0
        row[TYPE], row[COMPLEXITY], row[PRIORITY], row[DEADLINE], row[ARRIVAL] = kind, complexity, priority, deadline, 0
        counts[length] += 1
        counts[ARRIVED] += 1
        return row

    def step(self, *actions: tuple[float, float, float]) -> float:
        self.env.restore(self.state)
        _, reward, *_ = self.env.step(np.array(actions, np.float32).reshape(1, 9))
        self.state = self.env.snapshot()
        return float(reward[0])

    def count(self, column: int) -> int:
        return int(self.state["counts"][0, column])


IDLE = (0.0, 0.0, 0.0)
TAKE = (1.0, 1.0, 0.0)
MEET = (0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("case", "actions", "reward"),
    [
        pytest.param(Case(), (IDLE, IDLE, IDLE), 0.0, id="an empty queue costs nothing"),
        pytest.param(Case(), (TAKE, TAKE, TAKE), 0.0, id="accepting from an empty queue does nothing"),
        pytest.param(Case().queue(0, 0.5), (TAKE, IDLE, IDLE), 0.9 * 0.5, id="assignment: expertise x priority"),
        pytest.param(Case().queue(0, 0.5), (IDLE, TAKE, IDLE), 0.4 * 0.5, id="assignment to another agent"),
        pytest.param(Case().queue(1, 0.5), (TAKE, TAKE, TAKE), 0.8 * 0.5, id="the first that accepts takes the head"),
        pytest.param(
            Case().queue(0, 0.5).queue(1, 0.2), (IDLE, TAKE, TAKE), 0.4 * 0.5 + 0.2 * 0.2, id="the next takes the next"
        ),
        pytest.param(Case().queue(0, 0.5), ((0.5, 1, 0), IDLE, IDLE), -0.1, id="0.5 does not exceed the threshold"),
        pytest.param(Case().queue(0, 0.5).queue(0, 0.5), (IDLE, IDLE, IDLE), -0.2, id="0.1 for each queued task"),
        pytest.param(Case(9).queue(0, 0.5, deadline=2), (IDLE, IDLE, IDLE), -0.1, id="overdue in the queue: no more"),
        pytest.param(Case(), (MEET, MEET, IDLE), 2 * 0.5, id="collaboration: 0.5 for each ordered pair"),
        pytest.param(Case(), (MEET, MEET, MEET), 6 * 0.5, id="three collaborators are six ordered pairs"),
        pytest.param(Case(), (MEET, IDLE, IDLE), 0.0, id="nobody collaborates alone"),
        pytest.param(Case(), (MEET, (0, 0, 0.7), IDLE), 0.0, id="0.7 does not exceed the threshold"),
        pytest.param(Case(9).working(0, 0, 1.0, deadline=10), (IDLE,) * 3, 0.0, id="due in this step is not overdue"),
        pytest.param(Case(10).working(0, 0, 1.0, deadline=10), (IDLE,) * 3, -0.5, id="overdue while active: 0.5"),
        pytest.param(
            Case(10).working(0, 0, 1.0, deadline=10).working(2, 1, 0.3, deadline=3), (IDLE,) * 3, -1.0, id="for each"
        ),
        pytest.param(
            Case(19, SURE).working(1, 1, 0.5, deadline=80),
            (IDLE,) * 3,
            10 * (1.0 * 0.6) * 0.5 * (1 + 1 - 20 / 80),
            id="completion: 10 x expertise x success rate x priority x (1 + time bonus)",
        ),
        pytest.param(
            Case(89, SURE).working(1, 1, 0.5, deadline=80),
            (IDLE,) * 3,
            10 * (1.0 * 0.6) * 0.5,
            id="late completion: no bonus, and no cost of being overdue any more",
        ),
        pytest.param(
            Case(0, SURE).queue(1, 0.5, deadline=50),
            (IDLE, TAKE, IDLE),
            1.0 * 0.5 + 10 * 0.6 * 0.5 * (1 + 1 - 1 / 50),
            id="a task can be completed in the step that assigns it",
        ),
    ],
)
def test_rewards(case: Case, actions: Any, reward: float) -> None:
    assert case.step(*actions) == pytest.approx(reward, abs=1e-12)
    assert case.env.agent_rewards.sum() == pytest.approx(reward, abs=1e-12)


def test_each_agents_own_part_of_the_reward() -> None:
    case = Case(10).queue(0, 0.5).queue(0, 0.5).working(2, 0, 1.0, deadline=3)
    case.step((0, 0, 1), (1, 1, 1), (0, 0, 0))
    expected = [0.5 - 0.1 / 3, 0.5 + 0.4 * 0.5 - 0.1 / 3, -0.5 - 0.1 / 3]
    assert case.env.agent_rewards[0] == pytest.approx(expected)


def test_collaborating_pairs_entries_grow_by_a_hundredth_and_no_others() -> None:
    case = Case()
    for _ in range(3):
        case.step(MEET, IDLE, MEET)
    expected = np.full((3, 3), 0.5)
    np.fill_diagonal(expected, 1.0)
    expected[0, 2] = expected[2, 0] = 0.5 * 1.01**3
    assert case.state["matrix"][0] == pytest.approx(expected)


def test_completion_has_probability_expertise_times_capacity() -> None:
    env = TaskAllocationVectorV0(4000, n_agents=1, arrival_probability=0.0, initial_tasks=1, capacity_min=0.5)
    env.reset(seed=0)
    state = env.snapshot()
    kinds = state["queue"][:, 0, TYPE].astype(int)
    chance = state["agents"][np.arange(4000), 0, EXPERTISE + kinds] * state["agents"][:, 0, CAPACITY]
    env.step(np.ones((4000, 3), np.float32))
    done = env.snapshot()["agents"][:, 0, COMPLETED]
    deviation = np.sqrt((chance * (1 - chance)).sum()) / 4000
    assert abs(done.mean() - chance.mean()) < 4 * deviation
    strong, weak = chance > 0.5, chance < 0.25
    assert done[strong].mean() > 2 * done[weak].mean()


def test_success_rate_follows_outcomes_and_load_follows_tasks() -> None:
    case = Case(0, SURE).working(1, 1, 0.5, deadline=50)
    case.step(IDLE, IDLE, IDLE)
    assert case.state["agents"][0, 1, SUCCESS_RATE] == pytest.approx(0.6 + 0.02 * 0.4)
    assert case.count(IN_TIME) == 1
    case = Case(60, SURE).working(1, 1, 0.5, deadline=50)
    case.step(IDLE, IDLE, IDLE)
    assert case.state["agents"][0, 1, SUCCESS_RATE] == pytest.approx(0.6 * 0.98)
    assert case.count(IN_TIME) == 0
    case = Case().queue(0, 0.5, complexity=0.4)
    case.step((1, 0.5, 0), IDLE, IDLE)
    assert case.env.observation[0, 1] == pytest.approx(0.5 * 0.4)


def test_the_observation_is_laid_out_as_listed() -> None:
    case = Case(3).queue(1, 0.25, deadline=40, complexity=0.75).working(0, 0, 1.0)
    case.state["agents"][0, 1, COMPLETED] = 2
    case.step(IDLE, IDLE, IDLE)
    observation, agents = case.env.observation[0], case.state["agents"][0]
    assert observation.dtype == np.float32
    assert observation.shape == (3 * 7 + 10 * 5 + 9,)
    assert observation[7:14] == pytest.approx([NEVER, 0.0, 2 / 4, 0.6, agents[1, 4], 0.4, 1.0])
    assert observation[21:26] == pytest.approx([0.75, 0.25, 40, 1, 0])
    assert (observation[26:71] == 0).all()
    assert observation[71:].reshape(3, 3) == pytest.approx(case.state["matrix"][0])


def test_reset_gives_three_tasks_no_load_and_the_default_matrix() -> None:
    env = TaskAllocationVectorV0(500, n_agents=4)
    env.reset(seed=0)
    state = env.snapshot()
    assert (state["counts"][:, [STEP, ACTIVE]] == 0).all()
    assert (state["counts"][:, QUEUED] == 3).all()
    assert (state["agents"][:, :, 1] == 0).all()
    assert (state["matrix"] == np.where(np.eye(4) > 0, 1.0, 0.5)).all()
    expertise = state["agents"][:, :, EXPERTISE : EXPERTISE + 4]
    assert 0.2 <= expertise.min() < 0.21
    assert 0.99 < expertise.max() <= 1.0
    assert (expertise == 0.5).mean() == pytest.approx(0.25, abs=0.03), "0.5 where an agent has no expertise of its own"


def test_deadlines_count_from_the_start_of_the_episode() -> None:
    env = TaskAllocationVectorV0(200, n_agents=2, max_tasks=50)
    env.reset(seed=0)
    for _ in range(60):
        env.step(np.zeros((200, 6), np.float32))
    state = env.snapshot()
    real = np.arange(50) < state["counts"][:, QUEUED, None]
    late = real & (state["queue"][:, :, ARRIVAL] > 50)
    deadlines = state["queue"][late][:, DEADLINE]
    assert deadlines.min() < 20, "a task that arrives after step 50 may be overdue from the first"
    assert deadlines.max() > 90


def test_no_task_is_lost_however_many_are_active() -> None:
    env = TaskAllocationVectorV0(2, "Disabled", n_agents=1, capacity_min=0, capacity_max=0, arrival_probability=1.0)
    env.reset(seed=0)
    for _ in range(100):
        env.step(np.ones((2, 3), np.float32))
    counts = env.snapshot()["counts"]
    assert (counts[:, ACTIVE] == 100).all()
    assert (counts[:, QUEUED] == 3).all()
    assert (counts[:, ARRIVED] == 103).all()
    assert RulesV0(n_agents=1).active_slots == 100
    assert RulesV0(n_agents=5).active_slots == 102


def test_a_full_queue_turns_tasks_away_and_counts_them_as_arrived() -> None:
    env = TaskAllocationVectorV0(1, "Disabled", n_agents=2, max_tasks=4, arrival_probability=1.0)
    env.reset(seed=0)
    for _ in range(100):
        *_, infos = env.step(np.zeros((1, 6), np.float32))
    counts = env.snapshot()["counts"][0]
    assert counts[QUEUED] == 4
    assert counts[ARRIVED] == 103
    assert infos["completion_rate"][0] == 0.0


@pytest.mark.parametrize("name", ["always accept, always collaborate", "never accept, always collaborate", "random"])
def test_a_plain_python_environment_with_the_same_rules_has_the_same_mean_return(name: str) -> None:
    plain_returns = []
    generator = np.random.default_rng(0)
    rules = RulesV0(n_agents=3)

    def act(observation: Array) -> Array:
        if name == "random":
            return generator.random((len(observation), 9), dtype=np.float32)
        return constant(observation, rules, *CONSTANTS[name])

    plain = PlainTaskAllocation(n_agents=3)
    for episode in range(120):
        observation, _ = plain.reset(seed=episode)
        total, truncated = 0.0, False
        while not truncated:
            observation, reward, _, truncated, _ = plain.step(act(observation[None])[0])
            total += reward
        plain_returns.append(total)
    batch = TaskAllocationVectorV0(2000, n_agents=3)
    batch_observation, _ = batch.reset(seed=0)
    batch_returns = np.zeros(2000)
    for _ in range(100):
        batch_observation, rewards, *_ = batch.step(act(batch_observation))
        batch_returns += rewards
    error = np.sqrt(np.var(plain_returns) / len(plain_returns) + batch_returns.var() / 2000)
    assert abs(np.mean(plain_returns) - batch_returns.mean()) < 4 * error
    assert error < 4.0, "the bound is tight enough to notice a rule that differs"
