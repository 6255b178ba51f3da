"""Which environments may be played again after the script: none whose wrappers would write."""

import gymnasium as gym
import pytest
from stable_baselines3.common.monitor import Monitor

from learnproof.watching.playing import what_writes


class LogEverything(gym.Wrapper):
    pass


def test_a_monitor_without_a_file_leaves_nothing_behind(tmp_path):
    assert what_writes(Monitor(gym.make("CartPole-v1"))) is None
    assert what_writes(gym.wrappers.RecordEpisodeStatistics(gym.make("CartPole-v1"))) is None
    written = Monitor(gym.make("CartPole-v1"), str(tmp_path / "log"))
    assert what_writes(written) == "Monitor"
    written.close()


@pytest.mark.parametrize("outside", [False, True])
def test_a_wrapper_that_logs_is_found_at_any_depth(outside):
    env = LogEverything(gym.make("CartPole-v1"))
    assert what_writes(gym.wrappers.TimeLimit(env, 9) if outside else env) == "LogEverything"
