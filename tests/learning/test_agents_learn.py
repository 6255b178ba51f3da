"""Agents that share one policy learn, on several seeds: task allocation, a small PettingZoo team, and credit among many."""

from pathlib import Path

import numpy as np
import pytest
from team_environments import Matching

import learnproof
from learnproof.config import load_settings
from learnproof.envs.parallel_agents import ParallelAgents

pytestmark = pytest.mark.slow

SMALL = {
    "policy.hidden": (32, 32),
    "ppo.n_steps": 32,
    "ppo.minibatch_size": 128,
    "ppo.learning_rate": 3e-3,
    "evaluation.every_steps": 0,
    "proof.episodes": 30,
}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ten_agents_allocate_tasks(tmp_path, seed):
    """Chance completes 0.096, agents who take everything 0.156; benchmarks/agents.py has the long form."""
    settings = load_settings(Path(__file__).parents[2] / "configs" / "allocation_agents.toml")
    result = learnproof.train(
        settings=settings, out=tmp_path / "run", steps=15_000, seed=seed, **{"evaluation.every_steps": 0}
    )
    assert result.verdict.verdict == "proven", result.verdict.missing
    assert np.mean(learnproof.evaluate(result.path, episodes=30)["deterministic"]) > 0.25


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("rewards", ["individual", "shared"])
def test_a_team_that_names_symbols(tmp_path, seed, rewards):
    """3 agents, 8 steps: chance earns 8, the best 24."""
    envs = [ParallelAgents(Matching, count, rewards) for count in (8, 10)]
    result = learnproof.train(envs[0], evaluation_env=envs[1], steps=6_000, seed=seed, out=tmp_path / "run", **SMALL)
    assert result.verdict.verdict == "proven", result.verdict.missing
    assert result.verdict.performance.trained > 20


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_own_rewards_tell_an_agent_what_the_teams_sum_drowns(tmp_path, seed):
    """40 agents, each one voice in the sum, in 128 steps of one team: the best earn 1 an agent and step, chance earns a third."""
    earned, verdicts = {}, {}
    for rewards in ("individual", "shared"):
        envs = [ParallelAgents(lambda: Matching(40), count, rewards) for count in (1, 10)]
        result = learnproof.train(
            envs[0],
            evaluation_env=envs[1],
            steps=128,
            seed=seed,
            out=tmp_path / rewards,
            **{**SMALL, "ppo.n_steps": 8, "ppo.minibatch_size": 64, "proof.episodes": 10},
        )
        earned[rewards] = result.verdict.performance.trained / (40 * Matching.steps)
        verdicts[rewards] = result.verdict.verdict
    assert earned["individual"] > 0.95
    assert earned["shared"] < 0.6
    assert verdicts["individual"] == "proven"
