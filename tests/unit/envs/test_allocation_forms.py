"""The forms of task allocation that other libraries know, and how they are made."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test, parallel_seed_test

from learnproof.envs import register_environments, shipped_environments
from learnproof.envs.task_allocation import (
    RulesV0,
    RulesV1,
    TaskAllocationV1,
    TaskAllocationVectorV0,
    TaskAllocationVectorV1,
    parallel_env,
)
from learnproof.envs.task_allocation.layout import observation_parts
from learnproof.envs.vector import BatchEnv
from learnproof.errors import SettingsError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore:.*is out of date")
OUT_OF_DATE = ".*is out of date"
"""Gymnasium says so of every version but the newest; version 0 stays on purpose."""

IDS = [environment.id for environment in shipped_environments() if environment.agents_entry_point]


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("n_agents", [1, 3])
def test_gymnasium_finds_nothing_wrong_with_the_single_form(env_id: str, n_agents: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=OUT_OF_DATE)
        env = gym.make(env_id, n_agents=n_agents)
        check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("env_id", IDS)
def test_observations_stay_inside_their_space(env_id: str) -> None:
    env = gym.make_vec(env_id, 20, n_agents=4)
    env.reset(seed=0)
    generator = np.random.default_rng(0)
    for _ in range(150):
        actions = np.minimum(1, 2 * generator.random(env.action_space.shape, dtype=np.float32))
        observation, *_ = env.step(actions)
        assert observation in env.observation_space


@pytest.mark.parametrize("env_id", IDS)
def test_make_vec_gives_one_native_batch_with_a_declared_mode(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=OUT_OF_DATE)
        env = gym.make_vec(env_id, 3, n_agents=2, autoreset_mode="NextStep")
    assert isinstance(env.unwrapped, BatchEnv)
    assert env.metadata["autoreset_mode"] is gym.vector.AutoresetMode.NEXT_STEP
    assert gym.make_vec(env_id, 3).metadata["autoreset_mode"] is gym.vector.AutoresetMode.SAME_STEP


@pytest.mark.parametrize(("env_id", "metric"), [(IDS[0], "return"), (IDS[1], "completion_rate")])
def test_both_forms_say_what_is_measured_and_which_heads_fit(env_id: str, metric: str) -> None:
    single, batch = gym.make(env_id, n_agents=3).unwrapped, gym.make_vec(env_id, 2, n_agents=3)
    for env in (single, batch):
        assert env.metric == metric  # type: ignore[attr-defined]
        fitting = ("bernoulli", "beta", "bernoulli") if env_id == IDS[1] else ("bernoulli",) * 3
        assert env.action_heads == fitting * 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("env_id", IDS)
def test_the_last_step_carries_the_metrics_and_no_other_does(env_id: str) -> None:
    env = gym.make(env_id, n_agents=2, episode_steps=4)
    env.reset(seed=0)
    infos = [env.step(env.action_space.sample())[-1] for _ in range(4)]
    assert infos[:3] == [{}, {}, {}]
    assert 0 <= infos[3]["completion_rate"] <= 1
    assert all(isinstance(value, float) for value in infos[3].values())


def test_the_single_form_saves_and_restores_itself() -> None:
    env, other = TaskAllocationV1(n_agents=3), TaskAllocationV1(n_agents=3)
    env.reset(seed=0)
    for _ in range(10):
        env.step(np.ones(9, np.float32))
    other.restore(env.snapshot())
    assert (env.step(np.ones(9, np.float32))[0] == other.step(np.ones(9, np.float32))[0]).all()


@pytest.mark.parametrize("version", ["v0", "v1"])
@pytest.mark.parametrize("reward", ["shared", "individual"])
def test_pettingzoo_finds_nothing_wrong_with_the_parallel_form(version: Any, reward: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(parallel_env(version, reward, n_agents=3, episode_steps=20), num_cycles=60)
        parallel_seed_test(lambda: parallel_env(version, reward, n_agents=3, episode_steps=20), num_cycles=60)


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_individual_rewards_sum_to_the_shared_one_and_the_state_is_the_joint_observation(version: Any) -> None:
    shared, own = (parallel_env(version, reward, n_agents=4) for reward in ("shared", "individual"))
    joint = gym.make(f"learnproof/TaskAllocation-{version}", n_agents=4)
    shared.reset(seed=3)
    own.reset(seed=3)
    joint.reset(seed=3)
    generator = np.random.default_rng(0)
    differed = False
    for _ in range(100):
        actions = generator.random((4, 3), dtype=np.float32)
        by_name = dict(zip(shared.possible_agents, actions, strict=True))
        _, team, *_ = shared.step(by_name)
        views, parts, *_ = own.step(by_name)
        observation, reward, *_ = joint.step(actions.reshape(-1))
        assert set(team.values()) == {reward}
        assert sum(parts.values()) == pytest.approx(reward)
        differed |= len(set(parts.values())) > 1
        assert (own.state() == observation).all()
        seen = observation_parts(observation[None], own.rules)
        size = own.rules.agent_features
        assert (views["agent_2"][:size] == seen.agents[0, 2]).all()
        first_slot = seen.slots[0, 2 if version == "v1" else 0]
        assert (views["agent_2"][size : size + first_slot.size] == first_slot).all()
    assert differed


def test_the_parallel_form_refuses_what_it_cannot_do() -> None:
    with pytest.raises(UsageError, match="no version 'v7'"):
        parallel_env("v7")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'shared' or 'individual'"):
        parallel_env("v0", "equal")  # type: ignore[arg-type]
    env = parallel_env("v0", n_agents=2)
    with pytest.raises(UsageError, match="call reset"):
        env.step({})
    env.reset(seed=0)
    with pytest.raises(UsageError, match="No action was given for agent_1"):
        env.step({"agent_0": np.zeros(3)})


def test_without_pettingzoo_the_error_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['pettingzoo'] = None\n"
        "from learnproof.envs.task_allocation import parallel_env\n"
        "from learnproof.errors import MissingExtra\n"
        "try: parallel_env('v1')\n"
        "except MissingExtra as error: print(error)\n"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'learnproof[multiagent]'" in answer.stdout


def test_registration_is_light_and_can_be_repeated() -> None:
    script = (
        "import sys, warnings; warnings.simplefilter('error')\n"
        "import gymnasium, learnproof.envs as envs\n"
        "envs.register_environments(); envs.register_environments()\n"
        "assert 'numba' not in sys.modules and 'torch' not in sys.modules\n"
        "print(*[e for e in gymnasium.registry if e.startswith('learnproof/')])\n"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == [environment.id for environment in shipped_environments()]
    before = dict(gym.registry)
    register_environments()
    assert dict(gym.registry) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_agent": 3}, "Did you mean 'n_agents'"),
        ({"n_agents": 0}, "n_agents: input should be greater than or equal to 1"),
        ({"n_agents": "many"}, "n_agents: input should be a valid integer"),
        ({"capacity_min": 0.9, "capacity_max": 0.2}, "capacity_min = 0.9 exceeds capacity_max = 0.2"),
        ({"arrival_probability": 1.5}, "arrival_probability: input should be less than or equal to 1"),
    ],
)
@pytest.mark.parametrize("vector", [TaskAllocationVectorV0, TaskAllocationVectorV1])
def test_impossible_arguments_are_refused_by_name(vector: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        vector(1, **arguments)


def test_version_1_needs_a_place_for_each_agent() -> None:
    with pytest.raises(SettingsError, match="leaves some of 5 agents without a place"):
        TaskAllocationVectorV1(1, n_agents=5, max_tasks=4)
    assert TaskAllocationVectorV1(1, n_agents=5, max_tasks=12).rules.max_tasks == 12


def test_every_number_of_the_rules_is_a_setting_of_the_environment() -> None:
    for kind, rules in ((TaskAllocationVectorV0, RulesV0()), (TaskAllocationVectorV1, RulesV1())):
        assert kind(1, **rules.model_dump()).rules == rules
        assert all(isinstance(value, int | float) for value in rules.model_dump().values())


@pytest.mark.parametrize("kind", [TaskAllocationVectorV0, TaskAllocationVectorV1])
@pytest.mark.parametrize("n_agents", [1, 50, 200])
def test_any_number_of_agents_works(kind: Any, n_agents: int) -> None:
    env = kind(2, n_agents=n_agents)
    env.reset(seed=0)
    generator = np.random.default_rng(0)
    for _ in range(101):
        observation, reward, *_ = env.step(generator.random(env.action_space.shape, dtype=np.float32))
    assert np.isfinite(observation).all()
    assert np.isfinite(reward).all()
    assert env.snapshot()["counts"][:, 0].tolist() == [1, 1]


@pytest.mark.parametrize("kind", [TaskAllocationVectorV0, TaskAllocationVectorV1])
def test_memory_does_not_grow_with_steps(kind: Any) -> None:
    env = kind(16, n_agents=3)
    env.reset(seed=0)
    actions = np.random.default_rng(0).random((16, 9), dtype=np.float32)
    for _ in range(300):
        env.step(actions)
    tracemalloc.start()
    start, _ = tracemalloc.get_traced_memory()
    for _ in range(2000):
        env.step(actions)
    end, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert end - start < 20_000
