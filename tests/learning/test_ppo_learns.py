"""PPO learns on every kind of space, on several seeds; thresholds leave room for noise, chance is far below them."""

import numpy as np
import pytest
from toy_environments import register_toys

import learnproof

pytestmark = pytest.mark.slow

SMALL = {
    "policy.hidden": (64, 64),
    "env.n_envs": 8,
    "ppo.n_steps": 128,
    "ppo.minibatch_size": 256,
    "ppo.learning_rate": 1e-3,
    "evaluation.every_steps": 0,
    "proof.episodes": 30,
}


def trained(tmp_path, env, steps, seed, **changes):
    register_toys()
    result = learnproof.train(env, steps=steps, seed=seed, out=tmp_path / f"run{seed}", **{**SMALL, **changes})
    assert result.verdict.verdict == "proven", result.verdict.missing
    scores = learnproof.evaluate(result.path, episodes=30)
    return {mode: float(np.mean(values)) for mode, values in scores.items()}


@pytest.mark.parametrize("seed", [0, 1])
def test_multidiscrete_observations_and_actions(tmp_path, seed):
    """Chance scores 2.9 of 10."""
    scores = trained(tmp_path, "toy/Lever-v0", 20_000, seed)
    assert scores["deterministic"] > 9
    assert scores["sampled"] > 7.5


@pytest.mark.parametrize("seed", [0, 1])
def test_dict_observations_and_dict_actions(tmp_path, seed):
    """Chance scores about -1 of 10."""
    scores = trained(tmp_path, "toy/Pantry-v0", 40_000, seed, **{"policy.log_std_init": -1.0})
    assert scores["deterministic"] > 7.5


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cartpole(tmp_path, seed):
    """Chance scores 22, the best 500; the long form is benchmarks/learning.py."""
    scores = trained(tmp_path, "CartPole-v1", 40_000, seed)
    assert scores["deterministic"] > 150


def test_every_autoreset_mode_of_a_given_vector_environment_learns(tmp_path):
    import gymnasium as gym
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    register_toys()
    for mode in AutoresetMode:
        envs = [SyncVectorEnv([lambda: gym.make("toy/Lever-v0")] * 8, autoreset_mode=mode) for _ in range(2)]
        result = learnproof.train(
            envs[0],
            evaluation_env=envs[1],
            steps=16_000,
            out=tmp_path / mode.name,
            **{**SMALL, "ppo.minibatch_size": 128},
        )
        assert result.verdict.verdict == "proven", (mode, result.verdict.missing)
