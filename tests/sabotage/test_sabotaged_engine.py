"""An engine whose learner is broken on purpose is told so after a training call, and its healthy twin is not."""

import logging

import numpy as np
import pytest
from collecting import acting_with, collect
from toy_environments import Corridor

from learnproof import TrainingEngine
from learnproof.algorithms.dqn import DQN
from learnproof.algorithms.ppo import PPO
from sabotage import NoStep

pytestmark = pytest.mark.slow
WORLD = Corridor(1).single_observation_space, Corridor(1).single_action_space
SMALL = {"policy.hidden": (16,), "ppo.learning_rate": 1e-3, "dqn.target_every": 20}


class ImportanceForgotten(PPO):
    """Another policy's episodes are credited as if they were its own."""

    def advantages(self, rollout, value, last_value, final_value):
        right, rollout.importance = rollout.importance, None
        wrong = super().advantages(rollout, value, last_value, final_value)
        rollout.importance = right
        return wrong


class WeightsForgotten(PPO):
    def update(self, rollout, learning_rate, inspect):
        if rollout.importance is not None:
            rollout.importance = np.ones_like(rollout.importance)
        return super().update(rollout, learning_rate, inspect)


class NoStepDQN(DQN):
    def optimizer_step(self):
        self.stepper.steps += 1
        return float(self.stepper.flat.gradient.norm())


def trained(folder, learner, algorithm="ppo", *, by_another=False):
    """Twelve calls; `by_another` = on episodes of a policy that soon lags behind."""
    with TrainingEngine(*WORLD, out=folder, algorithm=algorithm, learner_type=learner, **SMALL) as engine:
        first = engine.policy
        for call in range(12):
            act = acting_with(first, seed=call) if by_another else engine.act_many
            metrics = engine.train_step_now(collect(Corridor(8), act, 8), 32, 4)
        return metrics, engine.verify_learning_now()


@pytest.mark.parametrize(
    ("learner", "algorithm", "by_another", "check"),
    [
        (NoStep, "ppo", False, "weights_changing"),
        (NoStepDQN, "dqn", False, "weights_changing"),
        (ImportanceForgotten, "ppo", True, "advantages_recomputed"),
        (WeightsForgotten, "ppo", True, "advantages_recomputed"),
    ],
)
def test_a_broken_engine_is_told(tmp_path, caplog, learner, algorithm, by_another, check):
    with caplog.at_level(logging.WARNING, "learnproof.engine"):
        metrics, verdict = trained(tmp_path / "e", learner, algorithm, by_another=by_another)
    assert verdict.verdict == metrics.verdict.verdict == "broken"
    assert check in {finding.check for finding in verdict.findings if finding.status == "fail"}
    assert any(warning.startswith(f"It is not learning: {check}") for warning in metrics.warnings)
    said = [record.message for record in caplog.records if f"It is not learning: {check}" in record.message]
    assert 2 <= len(said) <= 4  # when it was first seen, perhaps in other words once more, and when it was asked for


@pytest.mark.parametrize(("algorithm", "by_another"), [("ppo", False), ("ppo", True), ("dqn", False)])
def test_its_healthy_twin_is_not(tmp_path, algorithm, by_another):
    metrics, verdict = trained(tmp_path / "e", None, algorithm, by_another=by_another)
    assert verdict.verdict != "broken", verdict.final_status
    assert not metrics.warnings
