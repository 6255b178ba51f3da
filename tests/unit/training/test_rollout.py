"""The collector sees the same episodes through every autoreset mode, and keeps termination and truncation apart."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy_environments import Clock

from learnproof.config import Settings
from learnproof.training.assembly import make_actor
from learnproof.training.rollout import Collector

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED]


def collect(mode, steps, lengths=(3, 4), **changes):
    env = SyncVectorEnv([lambda n=n: Clock(n) for n in lengths], autoreset_mode=mode)
    actor = make_actor(Settings().replace({"policy.hidden": (4,), **changes}), env)
    collector = Collector(env, "Clock", actor, None, seed=0)
    collector.start()
    return (*collector.collect(steps), collector)


def transitions(rollout, env):
    """What an instance lived through, empty steps left out."""
    keep = rollout.valid[:, env]
    parts = (rollout.observation, rollout.reward, rollout.terminated, rollout.truncated)
    return [tuple(np.asarray(part[t, env]).tolist() for part in parts) for t in np.flatnonzero(keep)]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_shows_the_same_transitions(mode):
    expected, _, _ = collect(AutoresetMode.SAME_STEP, 40)
    rollout, _, _ = collect(mode, 40)
    for env in range(2):
        seen, wanted = transitions(rollout, env), transitions(expected, env)
        assert seen == wanted[: len(seen)]
        assert len(seen) >= 28


@pytest.mark.parametrize("mode", MODES)
def test_the_last_observation_before_a_time_limit_is_the_true_one(mode):
    rollout, _, _ = collect(mode, 40)
    assert len(rollout.final_rows) > 5
    for row, seen in zip(rollout.final_rows, rollout.final_observation, strict=True):
        t, env = divmod(int(row), 2)
        assert rollout.truncated[t, env]
        assert not rollout.terminated[t, env]
        assert seen.tolist() == [rollout.observation[t, env, 0], (3, 4)[env]]
    assert int(rollout.truncated.sum()) == len(rollout.final_rows)


@pytest.mark.parametrize("mode", MODES)
def test_episodes_have_the_returns_and_lengths_that_the_rules_give(mode):
    _, episodes, _ = collect(mode, 40)
    for episode in episodes:
        length = (3, 4)[episode.env]
        assert episode.length == length
        assert episode.return_ == length * (length + 1) / 2
    first = [e for e in episodes if e.env == 0]
    assert [e.terminated for e in first[:4]] == [True, False, True, False]


def test_next_step_autoreset_marks_its_empty_steps_and_only_those():
    rollout, _, _ = collect(AutoresetMode.NEXT_STEP, 16, lengths=(3,))
    assert rollout.valid[:, 0].tolist() == [True, True, True, False] * 4
    same, _, _ = collect(AutoresetMode.SAME_STEP, 16, lengths=(3,))
    assert same.valid.all()


def test_a_rollout_goes_on_where_the_one_before_stopped():
    whole, _, _ = collect(AutoresetMode.SAME_STEP, 20)
    first, _, collector = collect(AutoresetMode.SAME_STEP, 11)
    second, _ = collector.collect(9)
    joined = np.concatenate([first.observation, second.observation])
    assert np.array_equal(joined, whole.observation)
    assert np.array_equal(first.last_observation, second.observation[0])


def test_episode_metrics_come_from_the_episode_that_ended():
    for mode in MODES:
        _, episodes, _ = collect(mode, 20, lengths=(3,))
        assert {e.metrics["t"] for e in episodes} == {3.0}


def test_normalised_rows_use_the_moments_of_all_that_was_seen():
    rollout, _, collector = collect(AutoresetMode.SAME_STEP, 50, **{"env.normalize_observations": True})
    moments = collector.actor.normalizer.moments
    assert moments.count[0] == pytest.approx(102, abs=0.01)
    assert np.abs(rollout.observation).max() <= 10
