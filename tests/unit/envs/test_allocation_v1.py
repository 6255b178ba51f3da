"""TaskAllocation-v1: each repair holds, and cannot be gamed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learnproof.envs.task_allocation import RulesV1, TaskAllocationVectorV1
from learnproof.envs.task_allocation.dispatchers import best_expert, best_expert_in_time, constant, dispatch
from learnproof.envs.task_allocation.layout import observation_parts
from learnproof.envs.task_allocation.state import (
    ACTIVE,
    ARRIVAL,
    ARRIVED,
    CAPACITY,
    COMPLEXITY,
    DEADLINE,
    EXPERTISE,
    IN_TIME,
    PRIORITY,
    QUEUED,
    REMAINING,
    STEP,
    TYPE,
)

Array = np.ndarray[Any, Any]


def play(env: TaskAllocationVectorV1, act: Any) -> tuple[Array, dict[str, Array]]:
    """One episode of every instance: returns and metrics."""
    observation, _ = env.reset(seed=0)
    returns = np.zeros(env.num_envs)
    for _ in range(env.rules.episode_steps):
        observation, reward, *_, infos = env.step(act(observation))
        returns += reward
    return returns, infos["final_info"]


class Desk:
    """Two agents (a third idle): we decide who holds what. Nothing arrives."""

    def __init__(self, **settings: Any) -> None:
        self.env = TaskAllocationVectorV1(1, n_agents=3, arrival_probability=0.0, initial_tasks=0, **settings)
        self.env.reset(seed=0)
        self.state = self.env.snapshot()
        team = self.state["agents"][0]
        team[:, CAPACITY] = 1.0
        team[:, EXPERTISE : EXPERTISE + 3] = [[1.0, 0.1, 0.1], [0.5, 1.0, 0.1], [0.1, 0.1, 1.0]]
        self.state["matrix"][0] = 0.5

    def hold(self, agent: int, kind: int, complexity: float = 1.0, deadline: int = 50) -> Desk:
        row = self.state["active"][0, agent]
        row[TYPE], row[COMPLEXITY], row[REMAINING], row[DEADLINE] = kind, complexity, complexity, deadline
        self.state["counts"][0, ACTIVE] += 1
        return self

    def place(self, slot: int, kind: int, complexity: float = 1.0, deadline: int = 50) -> Desk:
        row = self.state["queue"][0, slot]
        row[TYPE], row[COMPLEXITY], row[REMAINING], row[DEADLINE] = kind, complexity, complexity, deadline
        self.state["counts"][0, QUEUED] += 1
        return self

    def step(self, *actions: tuple[float, float, float]) -> float:
        self.env.restore(self.state)
        _, reward, *_ = self.env.step(np.array(actions, np.float32).reshape(1, 9))
        self.state = self.env.snapshot()
        return float(reward[0])

    def work_done(self, agent: int) -> float:
        """In steps of a perfect agent."""
        task = self.state["active"][0, agent]
        return float((task[COMPLEXITY] - task[REMAINING]) * self.env.rules.as_numbers()["work_steps"])


IDLE, WORK, MEET = (0.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 1.0, 1.0)


@pytest.mark.parametrize("allocation", [0.0, 0.25, 0.5, 1.0])
def test_allocation_decides_the_speed_of_own_work(allocation: float) -> None:
    desk = Desk().hold(0, 0).hold(1, 0)
    desk.step((0, allocation, 0), (0, allocation, 0), IDLE)
    assert desk.work_done(0) == pytest.approx(allocation**0.4)
    assert desk.work_done(1) == pytest.approx(0.5 * allocation**0.4), "half the expertise, half the speed"


def test_collaboration_lends_what_is_left_to_the_tasks_of_the_others() -> None:
    desk = Desk().hold(0, 0)
    desk.step(MEET, MEET, IDLE)
    grown = 0.5 * 1.01
    assert desk.work_done(0) == pytest.approx(1.0 + grown * 0.5), "agent 1 holds nothing: all of it goes to agent 0"
    desk = Desk().hold(0, 0).hold(2, 2)
    desk.step(MEET, MEET, MEET)
    assert desk.work_done(0) == pytest.approx(1.0 + grown * 0.5 / 2), "divided among the tasks of the others"
    desk = Desk().hold(0, 0).hold(1, 1)
    desk.step((0, 0.5, 1), MEET, IDLE)
    assert desk.work_done(1) == pytest.approx(1.0 + grown * 0.1 * 0.5), "what agent 0 does not need itself"


def test_help_needs_two_that_collaborate() -> None:
    for actions in [(WORK, MEET, IDLE), (MEET, WORK, IDLE), (WORK, WORK, WORK)]:
        desk = Desk().hold(0, 0)
        desk.step(*actions)
        assert desk.work_done(0) == pytest.approx(1.0)


def test_collaboration_by_itself_pays_nothing() -> None:
    returns, metrics = play(TaskAllocationVectorV1(20, n_agents=4), lambda o: constant(o, RulesV1(n_agents=4), 0, 1, 1))
    assert (returns == 0).all()
    assert (metrics["collaboration_frequency"] == 1).all()
    assert (metrics["completion_rate"] == 0).all()


def test_only_completion_in_time_is_paid_and_by_effort() -> None:
    desk = Desk().hold(0, 0, complexity=0.2, deadline=1)
    assert desk.step((0, 1, 1), (0, 1, 1), IDLE) == 0.0, "not done by its deadline: lost"
    assert desk.state["counts"][0, ACTIVE] == 0
    desk = Desk(work_steps=0.25).hold(0, 0, complexity=1.0, deadline=1)
    assert desk.step(MEET, MEET, IDLE) == pytest.approx(1.0)
    help_ = 0.5 * 1.01 * 0.5
    assert desk.env.agent_rewards[0] == pytest.approx([1 / (1 + help_), help_ / (1 + help_), 0])


def test_an_agent_takes_the_task_before_it_one_at_a_time() -> None:
    desk = Desk().place(0, 0).place(1, 1)
    desk.step((1, 1, 0), IDLE, IDLE)
    assert desk.state["active"][0, 0, DEADLINE] > 0
    assert desk.state["counts"][0, QUEUED] == 1
    parts = observation_parts(desk.env.observation, desk.env.rules)
    assert parts.slots[0, :, 3].tolist() == [0, 0, 1], "the belt has moved on: place 1 stands before agent 2"
    assert parts.agents[0, 2, -1] == pytest.approx(0.1), "agent 2's expertise in the task before it"
    desk.step(IDLE, IDLE, IDLE)
    parts = observation_parts(desk.env.observation, desk.env.rules)
    assert parts.slots[0, :, 3].tolist() == [1, 0, 0]
    desk.step((1, 1, 0), IDLE, IDLE)
    assert desk.state["counts"][0, QUEUED] == 1, "agent 0 holds a task already"


def test_a_waiting_task_passes_every_agent() -> None:
    desk = Desk().place(0, 0)
    seen = []
    for _ in range(3):
        desk.env.restore(desk.state)
        seen.append(int(observation_parts(desk.env.observation, desk.env.rules).slots[0, :, 3].argmax()))
        desk.step(IDLE, IDLE, IDLE)
    assert seen == [0, 1, 2]


def test_deadlines_count_from_arrival_and_priority_says_how_soon() -> None:
    env = TaskAllocationVectorV1(300, n_agents=3)
    env.reset(seed=0)
    for _ in range(70):
        env.step(np.zeros((300, 9), np.float32))
    queue = env.snapshot()["queue"]
    tasks = queue[queue[:, :, DEADLINE] > 0]
    slack = tasks[:, DEADLINE] - tasks[:, ARRIVAL]
    assert (slack == np.rint(14 - 10 * tasks[:, PRIORITY])).all()
    assert tasks[:, DEADLINE].min() > 70, "what is overdue is gone"


def test_the_observation_shows_types_and_all_expertises() -> None:
    env = TaskAllocationVectorV1(50, n_agents=4)
    env.reset(seed=1)
    for _ in range(30):
        env.step(np.random.default_rng(0).random((50, 12), dtype=np.float32))
    state, rules = env.snapshot(), env.rules
    parts = observation_parts(env.observation, rules)
    kinds = rules.task_types
    assert parts.agents[:, :, 5 : 5 + kinds] == pytest.approx(state["agents"][:, :, EXPERTISE : EXPERTISE + kinds])
    for row in range(50):
        for position in range(4):
            task = state["queue"][row, (position - state["counts"][row, STEP]) % 4]
            shown = parts.slots[row, position]
            if task[DEADLINE] == 0:
                assert (shown == 0).all()
                continue
            left = (task[DEADLINE] - state["counts"][row, STEP]) / 14
            one_hot = np.eye(kinds)[int(task[TYPE])]
            assert shown == pytest.approx([task[COMPLEXITY], task[PRIORITY], left, 1.0, *one_hot])
            expertise = state["agents"][row, position, EXPERTISE + int(task[TYPE])]
            assert parts.agents[row, position, -1] == pytest.approx(expertise)
        for agent in range(4):
            held = state["active"][row, agent]
            features = parts.agents[row, agent, 5 + kinds : 7 + 2 * kinds]
            if held[DEADLINE] == 0:
                assert (features == 0).all()
            else:
                left = (held[DEADLINE] - state["counts"][row, STEP]) / 14
                assert features == pytest.approx([*np.eye(kinds)[int(held[TYPE])], held[REMAINING], left])


def test_specialities_are_dealt_evenly() -> None:
    env = TaskAllocationVectorV1(200, n_agents=7)
    env.reset(seed=0)
    expertise = env.snapshot()["agents"][:, :, EXPERTISE : EXPERTISE + 3]
    special = expertise >= 0.8
    assert (special.sum(axis=2) == 1).all()
    assert set(np.unique(special.sum(axis=1))) == {2, 3}
    assert len(np.unique(special.argmax(axis=2), axis=0)) > 3, "who is what changes from episode to episode"


def test_arrivals_and_places_scale_with_the_team() -> None:
    arrived = {}
    for n_agents in (2, 20):
        env = TaskAllocationVectorV1(100, "Disabled", n_agents=n_agents)
        env.reset(seed=0)
        for _ in range(100):
            env.step(np.zeros((100, 3 * n_agents), np.float32))
        arrived[n_agents] = env.snapshot()["counts"][:, ARRIVED].mean()
        assert env.rules.max_tasks == n_agents
    assert arrived[20] == pytest.approx(10 * arrived[2], rel=0.1)


def test_a_full_belt_loses_the_oldest_task() -> None:
    env = TaskAllocationVectorV1(1, "Disabled", n_agents=2, arrival_probability=1.0)
    env.reset(seed=0)
    for _ in range(10):
        env.step(np.zeros((1, 6), np.float32))
    state = env.snapshot()
    assert state["counts"][0, QUEUED] == 2
    assert (state["queue"][0, :, ARRIVAL] == 10).all(), "only the newest two are left"
    assert state["counts"][0, ARRIVED] == 2 + 2 * 10


@pytest.mark.parametrize("n_agents", [3, 5, 10])
def test_a_random_policy_completes_far_less_than_the_dispatcher(n_agents: int) -> None:
    env = TaskAllocationVectorV1(200, n_agents=n_agents)
    rules, generator = env.rules, np.random.default_rng(0)
    assert isinstance(rules, RulesV1)
    rate = {
        "random": play(env, lambda o: generator.random((len(o), rules.action_size), dtype=np.float32)),
        "accept": play(env, lambda o: constant(o, rules, 1, 1, 1)),
        "expert": play(env, lambda o: dispatch(o, rules)),
        "in time": play(env, lambda o: best_expert_in_time(o, rules)),
    }
    mean = {name: metrics["completion_rate"].mean() for name, (_, metrics) in rate.items()}
    assert mean["random"] < 0.4 * mean["expert"]
    assert mean["accept"] < 0.6 * mean["expert"], "specialisation pays"
    assert mean["expert"] < 0.95 * mean["in time"], "there is room above the dispatcher"
    information = {name: metrics["role_specialisation"].mean() for name, (_, metrics) in rate.items()}
    assert information["expert"] > 5 * information["accept"]


def test_the_return_is_the_number_of_tasks_completed_in_time() -> None:
    env = TaskAllocationVectorV1(50, "Disabled", n_agents=3)
    rules = env.rules
    assert isinstance(rules, RulesV1)
    observation, _ = env.reset(seed=0)
    returns = np.zeros(50)
    for _ in range(100):
        observation, reward, _, _, infos = env.step(best_expert(observation, rules))
        returns += reward
    counts = env.snapshot()["counts"]
    assert returns == pytest.approx(counts[:, IN_TIME])
    assert infos["completion_rate"] == pytest.approx(counts[:, IN_TIME] / counts[:, ARRIVED])


def test_the_dispatcher_accepts_where_it_is_the_best_expert_and_the_careful_one_only_in_time() -> None:
    """Before agents 0, 1, 2 stand tasks of types 0, 0, 2; their experts are agents 0 and 2."""
    desk = Desk().place(2, 0, deadline=40).place(0, 0, deadline=40).place(1, 2, deadline=4)
    desk.step(IDLE, IDLE, IDLE)
    rules, observation = desk.env.rules, desk.env.observation
    assert isinstance(rules, RulesV1)
    assert best_expert(observation, rules).reshape(3, 3).tolist() == [[1, 1, 1], [0, 1, 1], [1, 1, 1]]
    careful = best_expert_in_time(observation, rules).reshape(3, 3)
    assert careful[:, 0].tolist() == [1, 0, 0], "agent 2 would need 6.5 steps and has 3"
    assert not best_expert(np.zeros_like(observation), rules).reshape(3, 3)[:, 0].any(), "an empty belt"
