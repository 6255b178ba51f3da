"""What a plain network cannot do: a cue that is gone when it is asked for needs a memory, a picture is read by convolutions."""

import pytest
from hidden_and_pictured import Cue, Dots

import learnproof

pytestmark = pytest.mark.slow

SHARED = {
    "policy.hidden": (32,),
    "policy.memory_size": 32,
    "schedule.kind": "constant",
    "evaluation.every_steps": 2000,
    "evaluation.episodes": 16,
    "evaluation.max_episode_steps": 100,
    "stopping.plateau_patience": 0,
    "proof.episodes": 40,
}
PPO = {
    "steps": 8000,
    "ppo.n_steps": 16,
    "ppo.minibatch_size": 64,
    "ppo.epochs": 4,
    "ppo.sequence_length": 16,
    "ppo.learning_rate": 1e-3,
}
REINFORCE = {
    "algorithm": "reinforce",
    "steps": 24_000,
    "evaluation.every_steps": 6000,
    "reinforce.n_steps": 16,
    "reinforce.learning_rate": 2e-3,
}
DQN = {
    "algorithm": "dqn",
    "steps": 4000,
    "dqn.gamma": 0.95,
    "dqn.learning_rate": 1e-3,
    "dqn.learning_starts": 500,
    "dqn.replay_size": 5000,
    "dqn.train_every": 1,
    "dqn.target_every": 50,
    "dqn.epsilon_end": 0.1,
    "dqn.epsilon_fraction": 0.5,
}


def train(tmp_path, world, count, seed, **settings):
    return learnproof.train(
        world(count),
        evaluation_env=world(40),
        out=tmp_path / "run",
        **{**SHARED, **settings, "seed": seed},
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("settings", [PPO, REINFORCE], ids=["ppo", "reinforce"])
def test_a_memory_answers_what_was_shown_four_steps_ago(tmp_path, settings, seed):
    verdict = train(tmp_path, Cue, 16, seed, **settings, **{"policy.recurrent": True}).verdict
    assert verdict.verdict == "proven", verdict.missing
    assert verdict.performance.trained > 0.9


@pytest.mark.parametrize("settings", [PPO, REINFORCE], ids=["ppo", "reinforce"])
def test_without_a_memory_it_is_guessing(tmp_path, settings):
    verdict = train(tmp_path, Cue, 16, 0, **settings).verdict
    assert verdict.verdict == "unproven"
    assert abs(verdict.performance.trained) < 0.5


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("settings", [PPO, DQN], ids=["ppo", "dqn"])
def test_pictures_are_learnt_from(tmp_path, settings, seed):
    verdict = train(tmp_path, Dots, 4 if settings is DQN else 16, seed, **settings).verdict
    assert verdict.verdict == "proven", verdict.missing
    assert verdict.performance.trained > 0.6, "from anywhere to the middle of 8 x 8 costs 0.05 a step"
