"""Runs with a memory, runs that read images, and curious ones end in the same bytes however often they were interrupted."""

import signal

import pytest
from gymnasium.vector import AutoresetMode
from hidden_and_pictured import Cue, Dots
from test_interruptions import Display

import learnproof
from crashes import digests

SMALL = {
    "policy.hidden": (16,),
    "policy.memory_size": 8,
    "checkpoint.every_steps": 150,
    "checkpoint.keep": 2,
    "evaluation.every_steps": 400,
    "evaluation.episodes": 3,
    "evaluation.max_episode_steps": 100,
    "proof.episodes": 10,
    "stopping.plateau_patience": 0,
}
PPO = {"ppo.n_steps": 22, "ppo.minibatch_size": 32, "ppo.epochs": 2, "ppo.sequence_length": 8, "steps": 900}
DQN = {"algorithm": "dqn", "dqn.learning_starts": 100, "dqn.replay_size": 300, "dqn.minibatch_size": 16, "steps": 900}
REINFORCE = {"algorithm": "reinforce", "reinforce.n_steps": 22, "steps": 900}
RUNS = {
    "memory": ((Cue, {"delay": 5}), {**PPO, "policy.recurrent": True}),
    "memory, next step": (
        (Cue, {"delay": 5, "mode": AutoresetMode.NEXT_STEP}),
        {**PPO, "policy.recurrent": True, "env.normalize_observations": True},
    ),
    "memory, reinforce": ((Cue, {"delay": 5}), {**REINFORCE, "policy.recurrent": True}),
    "images": ((Dots, {}), PPO),
    "images, dqn": ((Dots, {}), DQN),
    "images, dqn, normalised": ((Dots, {}), {**DQN, "env.normalize_observations": True}),
    "curiosity": ((Cue, {"delay": 5}), {**PPO, "curiosity.coefficient": 0.5}),
    "images and memory": ((Dots, {"channels_first": True}), {**PPO, "policy.recurrent": True}),
}


FAST = ("images and memory", "images, dqn")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in RUNS])
def test_interrupted_runs_end_in_the_same_bytes(tmp_path, name):
    (kind, arguments), changes = RUNS[name]

    def world():
        return {"env": kind(4, **arguments), "evaluation_env": kind(3, **arguments)}

    settings = {**SMALL, **changes}
    calm = learnproof.train(**world(), out=tmp_path / "calm", display=Display(), **settings)
    assert calm.verdict is not None
    result = learnproof.train(**world(), out=tmp_path / "hunted", display=Display(200), **settings)
    for step in (500, None):
        assert result.verdict is None
        assert result.stopped_by is signal.SIGINT
        result = learnproof.resume(tmp_path / "hunted", **world(), display=Display(step))
    assert digests(tmp_path / "hunted") == digests(tmp_path / "calm")
