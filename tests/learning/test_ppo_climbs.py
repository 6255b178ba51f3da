"""Our PPO on rungs of the probe ladder that learners often fail, and the same PPO told a lie by its environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import learnproof
from learnproof.probing.climbing import Climb, climb_ladder, ladder

pytestmark = pytest.mark.slow
SETTINGS: dict[str, Any] = {
    "ppo.n_steps": 64, "ppo.minibatch_size": 64, "ppo.learning_rate": 1e-3, "policy.hidden": (64, 64),
    "policy.activation": "tanh", "evaluation.every_steps": 0, "evidence.enabled": False,
}  # fmt: skip


class LimitsAreEnds(gym.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, ended, cut, info = self.env.step(action)
        return seen, reward, ended or cut, False, info


def climb(rung: str, folder: Path, wrap: Callable[[Any], Any] = lambda env: env) -> Climb:
    def train(make_env: Any, steps: int, seed: int, gamma: float) -> Any:
        env = gym.vector.SyncVectorEnv([lambda: wrap(make_env())] * 4)
        settings = {**SETTINGS, "ppo.gamma": gamma, "seed": seed}
        result = learnproof.train(env, steps=steps, out=folder / f"{rung}-{seed}", **settings)
        return learnproof.load_policy(result.path, env)

    return next(climb_ladder(train, rungs=ladder([rung]), seeds=1))


@pytest.mark.parametrize(
    "rung",
    ["time_limit", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("delayed_reward", "terminal"))],
)
def test_ppo_climbs(rung: str, tmp_path: Path) -> None:
    done = climb(rung, tmp_path)
    assert done.status == "climbed", done.finding


def test_a_time_limit_taken_for_the_end_is_named(tmp_path: Path) -> None:
    done = climb("time_limit", tmp_path, LimitsAreEnds)
    assert done.status == "failed"
    assert "takes a time limit for the end of the task" in done.finding
