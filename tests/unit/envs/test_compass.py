"""The discrete reference task: what a step does and pays, its two forms, its snapshots."""

import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from learnproof.envs.compass import Compass, CompassVector
from learnproof.errors import SettingsError


def at(state, **arguments):
    env = CompassVector(len(state), AutoresetMode.DISABLED, **arguments)
    env.reset(seed=0)
    env.restore({**env.snapshot(), "state": np.array(state, np.float64)})
    return env


@pytest.mark.parametrize("direction", range(8))
def test_a_step_goes_its_way_and_pays_what_it_brings_nearer(direction):
    env = at([[1.0, 0.5]])
    observation, reward, terminated, truncated, _ = env.step(np.array([direction]))
    angle = math.radians(45 * direction)
    expected = np.array([1.0 - 0.1 * math.cos(angle), 0.5 - 0.1 * math.sin(angle)])
    np.testing.assert_allclose(observation[0], expected, rtol=1e-6)
    assert reward[0] == pytest.approx(math.hypot(1.0, 0.5) - math.hypot(*expected))
    assert not terminated[0]
    assert not truncated[0]


def test_the_mark_pays_one_more_and_ends_the_episode_and_the_limit_cuts_it():
    env = at([[0.15, 0.0], [1.0, 0.0]], episode_steps=1)
    _, reward, terminated, truncated, _ = env.step(np.array([0, 4]))
    np.testing.assert_allclose(reward, [1.1, -0.1])
    assert terminated.tolist() == [True, False]
    assert truncated.all()


def test_starts_lie_in_every_direction_within_their_distances():
    env = CompassVector(4_000)
    env.reset(seed=0)
    distance = np.hypot(*env.state.T)
    assert 0.5 <= distance.min() < 0.52
    assert 1.98 < distance.max() <= 2.0
    assert np.histogram(np.arctan2(*env.state.T), 8, (-math.pi, math.pi))[0].min() > 400


def test_both_forms_are_one_environment():
    check_env(gym.make("learnproof/Compass-v0").unwrapped, skip_render_check=True)
    batch = CompassVector(3, AutoresetMode.SAME_STEP, episode_steps=7)
    singles = SyncVectorEnv([lambda: Compass(episode_steps=7)] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    assert (batch.reset(seed=4)[0] == singles.reset(seed=4)[0]).all()
    rng = np.random.default_rng(0)
    for _ in range(30):
        actions = rng.integers(0, 8, 3)
        for left, right in zip(batch.step(actions)[:4], singles.step(actions)[:4], strict=True):
            assert left.tobytes() == right.tobytes()


def test_a_snapshot_goes_on_in_the_same_bytes():
    env, other = CompassVector(3), CompassVector(3)
    env.reset(seed=1)
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 8, (60, 3))
    for action in actions[:20]:
        env.step(action)
    other.restore(env.snapshot())
    for action in actions[20:]:
        assert env.step(action)[0].tobytes() == other.step(action)[0].tobytes()


def test_a_mark_that_is_reached_from_the_start_is_refused():
    with pytest.raises(SettingsError, match="reach must be below nearest_start"):
        CompassVector(1, reach=0.6)
