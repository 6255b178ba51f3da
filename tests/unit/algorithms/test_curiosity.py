"""The bonus for new states: what is paid, what wears off, what goes on after a kill."""

from dataclasses import replace

import numpy as np
import pytest

import learnproof
from learnproof.algorithms.curiosity import Curiosity
from learnproof.algorithms.learner import Rollout
from learnproof.config import CuriositySettings
from learnproof.errors import SettingsError

STEPS, ENVS, SIZE = 32, 4, 3


def rollout(seed: int, centre: float = 0.0) -> Rollout:
    rng = np.random.default_rng(seed)
    observation = rng.normal(centre, 1.0, (STEPS + 1, ENVS, SIZE)).astype(np.float32)
    terminated = rng.random((STEPS, ENVS)) < 0.1
    truncated = ~terminated & (rng.random((STEPS, ENVS)) < 0.1)
    final_rows = np.flatnonzero(truncated)
    return Rollout(
        observation=observation[:-1],
        action=np.zeros((STEPS, ENVS, 1), np.float32),
        log_prob=np.zeros((STEPS, ENVS), np.float32),
        reward=rng.normal(size=(STEPS, ENVS)),
        reward_scale=0.5,
        terminated=terminated,
        truncated=truncated,
        valid=np.ones((STEPS, ENVS), bool),
        last_observation=observation[-1],
        final_rows=final_rows,
        final_observation=rng.normal(centre, 1.0, (len(final_rows), SIZE)).astype(np.float32),
    )


def curious(coefficient: float = 1.0) -> Curiosity:
    return Curiosity(
        SIZE, ENVS, 0.99, CuriositySettings(coefficient=coefficient, learning_rate=1e-3, minibatch_size=32), 0
    )


def test_the_bonus_is_in_the_rewards_and_an_end_is_paid_none():
    lived = rollout(0)
    paid, bonus = curious().paid(lived)
    assert (bonus[~lived.terminated] > 0).all()
    assert (bonus[lived.terminated] == 0).all()
    np.testing.assert_allclose(paid.reward * paid.reward_scale, lived.reward * lived.reward_scale + bonus)


def test_steps_that_belong_to_no_episode_are_paid_none():
    lived = rollout(0)
    valid = lived.valid.copy()
    valid[3, 1] = False
    _, bonus = curious().paid(replace(lived, valid=valid))
    assert bonus[3, 1] == 0


def test_a_time_limit_is_paid_for_the_state_that_it_reached():
    lived = rollout(1)
    assert len(lived.final_rows)
    far = replace(lived, final_observation=lived.final_observation + 20)
    _, near_bonus = curious().paid(lived)
    _, far_bonus = curious().paid(far)
    assert far_bonus.ravel()[lived.final_rows].mean() > near_bonus.ravel()[lived.final_rows].mean()


def test_what_was_seen_often_is_paid_less_than_what_is_new():
    curiosity = curious()
    first = curiosity.paid(rollout(0))[1].mean()
    for seed in range(1, 40):
        curiosity.paid(rollout(seed))
    known = curiosity.paid(rollout(100))[1].mean()
    new = curiosity.paid(rollout(101, centre=4.0))[1].mean()
    assert known < 0.7 * first
    assert new > 2 * known


def test_it_goes_on_in_the_same_numbers():
    one, other = curious(), curious()
    for seed in range(3):
        one.paid(rollout(seed))
    other.load(one.state(), {name: array.copy() for name, array in one.tensors().items()})
    for seed in range(3, 6):
        np.testing.assert_array_equal(one.paid(rollout(seed))[1], other.paid(rollout(seed))[1])


def test_who_learns_from_a_memory_is_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"curiosity\.coefficient"):
        learnproof.train(
            "CartPole-v1", algorithm="dqn", steps=100, out=tmp_path / "run", **{"curiosity.coefficient": 0.5}
        )
