"""A rollout in one call is the rollout that is collected step by step."""

import gymnasium as gym
import numpy as np
import pytest

import learnproof  # noqa: F401 (registers the environments)
from learnproof.config import Settings
from learnproof.errors import UsageError
from learnproof.training.assembly import make_actor, make_learner
from learnproof.training.native_rollout import NativeCollector
from learnproof.training.rollout import Collector

ENVIRONMENTS = ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0", "TaskAllocation-v0", "TaskAllocation-v1"]


def collector_of(kind, name, **kwargs):
    settings = Settings().replace(
        {"env.id": f"learnproof/{name}", "env.n_envs": 3, "policy.hidden": (8, 8), "env.kwargs": kwargs}
    )
    env = gym.make_vec(settings.env.id, num_envs=3, vectorization_mode="vector_entry_point", **kwargs)
    actor = make_actor(settings, env)
    make_learner(settings, actor)
    collector = kind(env, name, actor, None, 7)
    collector.start()
    return collector


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_array_and_every_episode_is_the_same(name):
    one, other = (collector_of(kind, name, episode_steps=35) for kind in (NativeCollector, Collector))
    for steps in (50, 1, 73):
        (native, ended), (plain, also) = one.collect(steps), other.collect(steps)
        for column in ("observation", "action", "log_prob", "reward", "terminated", "truncated", "valid"):
            np.testing.assert_array_equal(getattr(native, column), getattr(plain, column), err_msg=column)
        for column in ("last_observation", "final_rows", "final_observation"):
            np.testing.assert_array_equal(getattr(native, column), getattr(plain, column), err_msg=column)
        assert ended == also
        assert one.state() == other.state()
        for key, array in one.tensors().items():
            np.testing.assert_array_equal(array, other.tensors()[key], err_msg=key)
    assert len(native.final_rows) or name == "CartPole-v1"


@pytest.mark.parametrize("name", ["Pendulum-v1", "TaskAllocation-v1"])
def test_an_action_that_is_not_finite_is_refused_as_step_by_step(name):
    collector = collector_of(NativeCollector, name)
    collector.actor.compiled.net.vector[:] = np.nan
    with pytest.raises(UsageError, match="not a finite number"):
        collector.collect(5)
