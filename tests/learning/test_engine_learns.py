"""Engines learn from episodes that others collect: of their own policy, of older ones, of a coin; on three seeds each.

Chance scores about 0 in the corridor and the untrained policy -0.3 deterministically, the best 0.93. On the beam chance costs 8, the
untrained policy 3 to 5, the best less than 0.1.
"""

from collections import deque

import numpy as np
import pytest
from collecting import acting_with, collect
from toy_environments import Beam, Corridor

from learnproof import TrainingEngine
from learnproof.training.acting import Choice

pytestmark = pytest.mark.slow
SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])
ONE_SEED = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
SHARED = {"policy.hidden": (32, 32), "proof.episodes": 30, "evaluation.max_episode_steps": 100}


def engine_for(world, folder, seed, **changes):
    return TrainingEngine(evaluation_env=world(10), out=folder, seed=seed, **{**SHARED, **changes})


def failed(verdict):
    return [finding.summary for finding in verdict.findings if finding.status == "fail"]


@SEEDS
def test_ppo_learns_from_its_own_episodes_and_proves_it_by_their_returns(tmp_path, seed):
    with engine_for(Corridor, tmp_path / "e", seed, **{"ppo.learning_rate": 1e-3}) as engine:
        for _ in range(28):
            metrics = engine.train_step_now(collect(Corridor(8), engine.act_many, 16), 64, 4)
            assert not failed(metrics.verdict)
        assert metrics.mean_return > 0.9
        assert metrics.verdict.verdict == "proven", metrics.verdict.missing
        assert metrics.verdict.performance is None
        played = engine.verify_learning_now()
        assert played.verdict == "proven", played.missing
        assert played.performance.trained > 0.9


@ONE_SEED
def test_ppo_learns_from_episodes_of_an_older_policy(tmp_path, seed):
    """Those that act are five training calls behind."""
    with engine_for(Corridor, tmp_path / "e", seed, **{"ppo.learning_rate": 1e-3}) as engine:
        older = deque([engine.policy], maxlen=6)
        corrected = 0
        for call in range(30):
            episodes = collect(Corridor(8), acting_with(older[0], seed=call), 16)
            metrics = engine.train_step_now(episodes, 64, 4)
            corrected += metrics.corrected
            older.append(engine.policy)
        verdict = engine.verify_learning_now()
        assert corrected >= 25
        assert not failed(verdict)
        assert verdict.verdict == "proven", verdict.missing
        assert verdict.performance.trained > 0.9


@ONE_SEED
def test_ppo_learns_from_a_coins_episodes_and_their_returns_prove_nothing(tmp_path, seed):
    with engine_for(Corridor, tmp_path / "e", seed, **{"ppo.learning_rate": 1e-3}) as engine:
        coin = np.random.default_rng(seed)

        def act(observations):
            action = coin.integers(0, 2, len(observations))
            return Choice(action, np.full(len(action), np.log(0.5)), action)

        for _ in range(24):
            metrics = engine.train_step_now(collect(Corridor(8), act, 16), 64, 4)
        assert metrics.mean_return < 0.6
        assert metrics.verdict.verdict == "unproven"
        verdict = engine.verify_learning_now()
        assert verdict.verdict == "proven", verdict.missing
        assert verdict.performance.trained > 0.9


@SEEDS
def test_dqn_learns_without_log_probabilities(tmp_path, seed):
    settings = {"dqn.learning_rate": 1e-3, "dqn.target_every": 50, "dqn.epsilon_end": 0.1}
    options = {"algorithm": "dqn", "expected_transitions": 8_000, **settings}
    with engine_for(Corridor, tmp_path / "e", seed, **options) as engine:
        for _ in range(36):
            metrics = engine.train_step_now(collect(Corridor(8), engine.act_many, 16, log_probs=False), 64, 8)
            assert metrics.importance is None
        assert metrics.verdict.verdict == "unproven"
        assert "explores less" in metrics.verdict.findings[0].summary
        verdict = engine.verify_learning_now()
        assert verdict.verdict == "proven", verdict.missing
        assert verdict.performance.trained > 0.9


@ONE_SEED
def test_sac_learns_a_continuous_action(tmp_path, seed):
    settings = {"sac.learning_rate": 3e-3, "sac.temperature_start": 0.1, "sac.target_tau": 0.02}
    with engine_for(Beam, tmp_path / "e", seed, algorithm="sac", **settings) as engine:
        for call in range(16):
            engine.train_step_now(collect(Beam(8), engine.act_many, 16, seed=100 * call), 64, 8)
        verdict = engine.verify_learning_now()
        assert verdict.verdict == "proven", verdict.missing
        assert verdict.performance.trained > -0.5 > -2 > verdict.performance.initial
