"""A memory gives back what the environments did: the right successor, the right sum over n steps, never an empty step."""

import numpy as np
import pytest

from learnproof.algorithms.learner import Rollout
from learnproof.algorithms.replay import Priorities, Replay
from learnproof.algorithms.sum_tree import SumTree
from learnproof.errors import SettingsError
from learnproof.policies.normalization import ObservationNormalizer


class Counting:
    """Environments that count their steps: the observation of environment n at its step t is 100 n + t, the reward t."""

    def __init__(self, envs, length, truncates=False):
        self.at = np.zeros(envs, int)
        self.resetting = np.zeros(envs, bool)
        self.length, self.truncates = np.broadcast_to(length, envs), truncates

    def rollout(self, steps):
        envs = len(self.at)
        names = ("observation", "reward", "terminated", "truncated", "valid")
        told = {name: np.zeros((steps, envs)) for name in names}
        final_rows, finals = [], []
        for t in range(steps):
            told["observation"][t] = 100 * np.arange(envs) + self.at
            told["valid"][t] = ~self.resetting
            told["reward"][t] = np.where(self.resetting, 0, self.at)
            after = np.where(self.resetting, 0, self.at + 1)
            ended = (after >= self.length) & ~self.resetting
            told["truncated" if self.truncates else "terminated"][t] = ended
            if self.truncates:
                for env in np.flatnonzero(ended):
                    final_rows.append(t * envs + env)
                    finals.append([100 * env + after[env]])
            self.at, self.resetting = after, ended
        last = (100 * np.arange(envs) + self.at)[:, None].astype(np.float32)
        return Rollout(
            observation=told["observation"][..., None].astype(np.float32),
            action=told["observation"][..., None].astype(np.float32),
            log_prob=np.zeros((steps, envs), np.float32),
            reward=told["reward"],
            reward_scale=1.0,
            terminated=told["terminated"].astype(bool),
            truncated=told["truncated"].astype(bool),
            valid=told["valid"].astype(bool),
            last_observation=last,
            final_rows=np.array(final_rows, np.int64),
            final_observation=np.array(finals, np.float32).reshape(-1, 1),
        )


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("piece", [1, 4, 7, 30])
def test_every_row_has_its_own_successor_sum_and_end(truncates, n_step, piece):
    world = Counting(3, [5, 7, 11], truncates)
    replay = Replay(40, 1, 1, gamma=0.9, n_step=n_step)
    for _ in range(60 // piece):
        replay.add(world.rollout(piece))
    assert len(replay) == 40
    batch = replay.take(np.arange(40))
    env, at = np.divmod(batch.observation[:, 0].astype(int), 100)
    length = np.array([5, 7, 11])[env]
    assert (at < length).all(), "the step that only resets was stored"
    reached = at + batch.steps
    assert (batch.next_observation[:, 0] == 100 * env + reached).all()
    assert (batch.terminated == ((reached == length) & (not truncates))).all()
    np.testing.assert_allclose(batch.discount, 0.9**batch.steps, rtol=1e-6)
    expected = [sum(0.9**k * (a + k) for k in range(s)) for a, s in zip(at, batch.steps, strict=True)]
    np.testing.assert_allclose(batch.reward, expected, rtol=1e-5)
    whole = (batch.steps == n_step) | (reached == length)
    assert whole.sum() >= 40 - 3 * (n_step - 1), "only the newest rows of each environment may be cut short"


@pytest.mark.parametrize("truncates", [False, True])
def test_a_long_rollout_is_stored_as_its_steps_one_by_one_would_be(truncates):
    whole, stepwise = (Replay(40, 1, 1, gamma=0.9, n_step=3) for _ in range(2))
    one, other = Counting(3, [5, 7, 11], truncates), Counting(3, [5, 7, 11], truncates)
    for _ in range(3):
        rows = whole.add(one.rollout(31))
        np.testing.assert_array_equal(rows, np.concatenate([stepwise.add(other.rollout(1)) for _ in range(31)]))
        assert whole.state() == stepwise.state()
        for name, array in whole.tensors().items():
            np.testing.assert_array_equal(array, stepwise.tensors()[name], err_msg=name)


def test_after_a_restart_nothing_follows_what_was_stored():
    world = Counting(2, 50)
    replay = Replay(40, 1, 1, gamma=0.9, n_step=5)
    replay.add(world.rollout(3))
    replay.break_off()
    replay.add(Counting(2, 50).rollout(3))
    batch = replay.take(np.arange(12))
    assert (batch.next_observation <= 100 * (batch.observation // 100) + 3).all()
    assert batch.steps.max() == 3


def test_draws_are_uniform_over_what_is_kept_or_over_the_newest():
    replay = Replay(50, 1, 1, gamma=0.9)
    replay.add(Counting(1, 1000).rollout(73))
    generator = np.random.default_rng(0)
    drawn = replay.draw(20_000, generator)
    assert set(drawn) == set(range(50))
    assert np.bincount(drawn, minlength=50).std() < 4 * np.sqrt(20_000 / 50)
    newest = replay.take(replay.draw(1000, generator, recent=5)).observation[:, 0]
    assert set(newest) == {68, 69, 70, 71, 72}


def test_rows_are_normalised_and_rewards_scaled_as_they_stand_when_taken():
    replay = Replay(50, 1, 1, gamma=0.9)
    rollout = Counting(1, 1000).rollout(10)
    rollout.reward_scale = 0.5
    replay.add(rollout)
    normalizer = ObservationNormalizer(1)
    normalizer.add(np.array([[0.0], [10.0]], np.float32))
    batch = replay.take(np.arange(10), normalizer)
    np.testing.assert_allclose(batch.observation[:, 0], (np.arange(10) - 5) / 5, atol=1e-3)
    np.testing.assert_allclose(batch.reward, np.arange(10) * 0.5)


def test_a_memory_smaller_than_its_environments_is_refused():
    with pytest.raises(SettingsError, match="raise replay_size"):
        Replay(10, 1, 1, gamma=0.9).add(Counting(6, 10).rollout(1))


def test_state_and_arrays_bring_a_memory_back():
    world = Counting(3, 7)
    first = Replay(40, 1, 1, gamma=0.9, n_step=3)
    first.add(world.rollout(20))
    second = Replay(40, 1, 1, gamma=0.9, n_step=3)
    second.load(first.state(), {name: array.copy() for name, array in first.tensors().items()})
    more = world.rollout(9)
    first.add(more)
    second.add(more)
    for name, array in first.tensors().items():
        assert (array == second.tensors()[name]).all(), name


def test_a_sum_tree_finds_indices_in_proportion_and_follows_from_its_leaves():
    generator = np.random.default_rng(0)
    weights = generator.random(13)
    weights[4] = 0
    tree = SumTree(13)
    tree.put(np.arange(13), weights)
    assert tree.total == pytest.approx(weights.sum())
    found = tree.find(generator.random(100_000) * tree.total)
    shares = np.bincount(found, minlength=13) / 100_000
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.01)
    assert shares[4] == 0
    again = SumTree(13)
    again.load(tree.leaves)
    tree.put(np.array([3, 3]), np.array([0.1, weights[3]]))
    assert (again.nodes == tree.nodes).all()
    assert (tree.find(np.array([0.0, tree.total])) == [0, 12]).all()


def test_priorities_prefer_large_errors_and_weigh_them_back():
    priorities = Priorities(100, alpha=1.0)
    priorities.added(np.arange(100))
    error = np.full(100, 0.1)
    error[7] = 10.0
    priorities.learnt(np.arange(100), error)
    rows, weight = priorities.draw(10_000, 100, 1.0, np.random.default_rng(0))
    share = (rows == 7).mean()
    assert share == pytest.approx(10 / (99 * 0.1 + 10), abs=0.02)
    assert weight[rows == 7].max() == pytest.approx(0.01, rel=1e-3)
    assert weight.max() == 1
    # weighed back, every row counts alike
    counts = np.bincount(rows, weights=weight, minlength=100)
    assert counts[7] == pytest.approx(counts.mean(), rel=0.1)
