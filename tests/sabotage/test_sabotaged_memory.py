"""A recurrent learner that remembers something else than the policy did when it acted is called broken; its healthy twin is not."""

from dataclasses import replace

import pytest
import torch
from hidden_and_pictured import Cue

import learnproof
from learnproof.algorithms.ppo import PPO

pytestmark = pytest.mark.slow

SMALL = {
    "steps": 6000,
    "policy.hidden": (32,),
    "policy.memory_size": 32,
    "policy.recurrent": True,
    "ppo.n_steps": 24,
    "ppo.minibatch_size": 128,
    "ppo.epochs": 4,
    "ppo.sequence_length": 8,
    "ppo.learning_rate": 2e-3,
    "schedule.kind": "constant",
    "evaluation.every_steps": 3000,
    "evaluation.max_episode_steps": 100,
    "proof.episodes": 30,
}


class LearnsWithAnEmptyMemory(PPO):
    """Every sequence starts as if its episode began there."""

    def gradient_step(self, batch):
        batch.sequences = replace(batch.sequences, memory=torch.zeros_like(batch.sequences.memory))
        return super().gradient_step(batch)


class NeverForgets(PPO):
    """What the last episode left behind leaks into the next one, when learning."""

    def gradient_step(self, batch):
        batch.sequences = replace(batch.sequences, begins=torch.zeros_like(batch.sequences.begins))
        return super().gradient_step(batch)


@pytest.mark.parametrize("learner_type", [LearnsWithAnEmptyMemory, NeverForgets, None])
def test_another_memory_in_learning_than_in_acting_is_refused(tmp_path, learner_type):
    verdict = learnproof.train(
        Cue(16, delay=8),
        evaluation_env=Cue(30, delay=8),
        out=tmp_path / "run",
        learner_type=learner_type,
        **SMALL,
    ).verdict
    status = {finding.check: finding.status for finding in verdict.findings}
    if learner_type is None:
        assert status["ratio_is_one"] == "pass"
        assert "fail" not in status.values()
    else:
        assert status["ratio_is_one"] == "fail"
        assert verdict.verdict == "broken"
