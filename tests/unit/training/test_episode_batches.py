"""Finished episodes as rollouts: every step once, ends where they were, and importance as both log-probabilities give it."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from learnproof import EngineSettings
from learnproof.algorithms.returns import gae
from learnproof.training.episode_batches import (
    MOST_COLUMNS,
    behaviour_of,
    one_column,
    rollout_for_gradients,
    rollout_for_memory,
)
from learnproof.training.episode_results import ReadEpisode
from learnproof.training.episode_world import EpisodeWorld

SPACES = spaces.Box(-100, 100, (2,), np.float32), spaces.Discrete(3)


def small_actor():
    settings = EngineSettings().replace({"policy.hidden": (8,)})
    return EpisodeWorld.of(settings, *SPACES, None).actor(settings)


def made(length, number, source, *, terminated=True):
    """An episode whose observations say which one it is and which step."""
    steps = np.arange(length)
    return ReadEpisode(
        observation=np.stack([np.full(length, number), steps], axis=1).astype(np.float32),
        action=source.integers(0, 3, (length, 1)).astype(np.float32),
        reward=source.normal(size=length),
        log_prob=np.log(source.uniform(0.1, 1, length)),
        terminated=terminated,
        final_observation=np.array([number, length], np.float32),
        env=0,
        metrics={},
    )


@st.composite
def batches(draw):
    source = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=2 * MOST_COLUMNS))
    return [made(length, i, source, terminated=bool(source.random() < 0.5)) for i, length in enumerate(lengths)]


@given(batches())
@settings(max_examples=60, deadline=None)
def test_every_step_is_in_the_rollout_once_and_in_its_order(episodes):
    rollout = rollout_for_gradients(episodes, behaviour_of(small_actor(), episodes), None, 1.0)
    rows = rollout.observation[rollout.valid]
    assert sorted(map(tuple, rows)) == sorted(tuple(row) for episode in episodes for row in episode.observation)
    assert rollout.valid.sum() == sum(len(episode) for episode in episodes)
    assert rollout.reward.shape[1] == min(len(episodes), MOST_COLUMNS)
    for column in range(rollout.reward.shape[1]):
        inside = rollout.observation[rollout.valid[:, column], column]
        ended = (rollout.terminated | rollout.truncated)[rollout.valid[:, column], column]
        following = inside[1:] - inside[:-1]
        assert (following[~ended[:-1]] == [0, 1]).all()
        assert (inside[1:][ended[:-1]][:, 1] == 0).all()
        assert ended[-1]
        assert not rollout.valid[len(inside) :, column].any()


@given(batches())
@settings(max_examples=40, deadline=None)
def test_advantages_are_those_of_each_episode_by_itself(episodes):
    """Whatever column and row an episode lies in, and whatever lies below it."""
    rollout = rollout_for_gradients(episodes, behaviour_of(small_actor(), episodes), None, 0.5)
    value = rollout.observation[..., 1] * 0.3 + rollout.observation[..., 0]
    final = np.zeros(value.size)
    final[rollout.final_rows] = rollout.final_observation[:, 1] * 0.3 + rollout.final_observation[:, 0]
    last = np.full(value.shape[1], 1e6)  # nothing goes on at the end of a rollout, so it must not count
    flags = rollout.terminated, rollout.truncated
    together = gae(rollout.reward * 0.5, value, last, *flags, final.reshape(value.shape), 0.9, 0.8, rollout.importance)
    found = {tuple(o): a for o, a in zip(rollout.observation[rollout.valid], together[rollout.valid], strict=True)}
    for number, episode in enumerate(episodes):
        alone = rollout_for_gradients([episode], behaviour_of(small_actor(), [episode]), None, 0.5)
        own = alone.observation[..., 1] * 0.3 + alone.observation[..., 0]
        end = np.zeros_like(own)
        end[-1] = 0 if episode.terminated else len(episode) * 0.3 + number
        flags = alone.terminated, alone.truncated
        expected = gae(alone.reward * 0.5, own, np.zeros(1), *flags, end, 0.9, 0.8, alone.importance)
        for step in range(len(episode)):
            assert found[number, step] == pytest.approx(expected[step, 0], abs=1e-6)


def test_a_memory_gets_one_column_and_what_comes_after_a_cut():
    source = np.random.default_rng(0)
    episodes = [made(2, 0, source), made(3, 1, source, terminated=False), made(1, 2, source)]
    rollout = rollout_for_memory(episodes, 2.0)
    assert rollout.reward.shape == (6, 1)
    assert rollout.valid.all()
    assert rollout.reward_scale == 2.0
    assert rollout.terminated[:, 0].tolist() == [False, True, False, False, False, True]
    assert rollout.truncated[:, 0].tolist() == [False, False, False, False, True, False]
    assert rollout.final_rows.tolist() == [4]
    assert rollout.final_observation.tolist() == [[1, 3]]
    reward, ended = one_column(episodes)
    assert np.array_equal(reward, rollout.reward)
    assert ended[:, 0].tolist() == [False, True, False, False, True, True]


def own_log_probs(actor, episodes):
    return behaviour_of(actor, episodes).log_prob


def given_by(episodes, log_probs):
    return [
        ReadEpisode(**{**vars(episode), "log_prob": log_prob})
        for episode, log_prob in zip(episodes, log_probs, strict=True)
    ]


def test_episodes_of_the_policy_itself_are_told_apart_from_others():
    source, actor = np.random.default_rng(1), small_actor()
    episodes = [made(5, i, source) for i in range(4)]
    mine = given_by(episodes, own_log_probs(actor, episodes))
    itself = behaviour_of(actor, mine)
    assert itself.same
    assert itself.own == [True] * 4
    assert rollout_for_gradients(mine, itself, None, 1.0).importance is None

    theirs = given_by(mine, [log_prob - (0.5 if i < 2 else 0.0) for i, log_prob in enumerate(itself.log_prob)])
    other = behaviour_of(actor, theirs)
    assert not other.same
    assert other.own == [False, False, True, True]
    rollout = rollout_for_gradients(theirs, other, None, 1.0)
    assert np.allclose(rollout.importance, 1.0)
    assert np.array_equal(rollout.behaviour_log_prob[rollout.valid] < rollout.log_prob[rollout.valid] - 0.1,
                          rollout.observation[rollout.valid][:, 0] < 2)  # fmt: skip


def test_importance_statistics_by_hand():
    """Ratios 1/2, 1/2, 2 and 1: mean 1, half of them below 1, one of four cut."""
    source, actor = np.random.default_rng(2), small_actor()
    (episode,) = (made(4, 0, source),)
    own = own_log_probs(actor, [episode])[0]
    told = behaviour_of(actor, given_by([episode], [own - np.log([0.5, 0.5, 2.0, 1.0])])).statistics
    assert told.mean == pytest.approx(1.0)
    assert (told.smallest, told.largest) == pytest.approx((0.5, 2.0))
    assert told.truncated_share == 0.25
    assert told.effective_share == pytest.approx(3.0**2 / 2.5 / 4)
    assert told.kl == pytest.approx(np.mean([0.5 - 1 + np.log(2)] * 2 + [1 - np.log(2), 0.0]))
    assert told.mean_error == pytest.approx(np.std([0.5, 0.5, 2.0, 1.0], ddof=1) / 2)


def test_without_log_probabilities_nobody_can_tell_who_acted():
    source = np.random.default_rng(3)
    episodes = given_by([made(3, 0, source), made(3, 1, source)], [np.zeros(3), None])
    assert behaviour_of(small_actor(), episodes) is None
