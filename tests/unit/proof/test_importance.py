"""Rollouts of another policy: what our PPO makes of them is what the definition gives, and wrong importance is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from learnproof.algorithms.learner import Inspect, Rollout
from learnproof.algorithms.ppo import PPO
from learnproof.algorithms.returns import truncated_importance
from learnproof.config import OptimizerSettings, PolicySettings, PPOSettings
from learnproof.evidence import Evidence, Inspection, RunStarted
from learnproof.policies.actor import NetworkActor
from learnproof.policies.heads import make_head
from learnproof.policies.networks import ActorCritic
from learnproof.policies.spaces import ActionLayout, ObservationLayout
from learnproof.proof.check import Finding, run_checks
from learnproof.proof.identity import RatioIsOne
from learnproof.proof.oracle import IMPORTANCE_FAULTS, oracles
from learnproof.proof.targets import AdvantagesRecomputed

STEPS, COLUMNS = 12, 4
SETTINGS = PPOSettings(gamma=0.9, gae_lambda=0.8, minibatch_size=16, epochs=2, learning_rate=1e-3)


def small_ppo(kind: type[PPO] = PPO) -> PPO:
    policy = PolicySettings(hidden=(16,))
    actions = ActionLayout(spaces.Discrete(3))
    observations = ObservationLayout(spaces.Box(-5, 5, (4,), np.float32))
    head = make_head(actions, "auto", 0.0, None)
    network = ActorCritic(4, head, policy, torch.Generator().manual_seed(1))
    with torch.no_grad():
        network.policy.out.weight.mul_(100)  # a policy that has made up its mind, so that another one differs
    return kind(NetworkActor(network, observations, actions, None), SETTINGS, OptimizerSettings(), 0)


def lived_through(learner: PPO, source: np.random.Generator, *, by_another: bool) -> Rollout:
    shape = (STEPS, COLUMNS)
    observation = source.normal(size=(*shape, 4)).astype(np.float32)
    rows = observation.reshape(-1, 4)
    action = source.integers(0, 3, (rows.shape[0], 1)).astype(np.float32)
    with torch.no_grad():
        own = learner.network(torch.from_numpy(rows), torch.from_numpy(action))[0].numpy().reshape(shape)
    behaviour = np.full(shape, np.log(1 / 3), np.float32)
    terminated = source.random(shape) < 0.1
    truncated = (source.random(shape) < 0.1) & ~terminated
    cut = np.flatnonzero(truncated.ravel())
    return Rollout(
        observation=observation,
        action=action.reshape(*shape, 1),
        log_prob=own,
        reward=source.normal(size=shape),
        reward_scale=1.0,
        terminated=terminated,
        truncated=truncated,
        valid=np.ones(shape, bool),
        last_observation=source.normal(size=(COLUMNS, 4)).astype(np.float32),
        final_rows=cut,
        final_observation=source.normal(size=(len(cut), 4)).astype(np.float32),
        importance=truncated_importance(own, behaviour) if by_another else None,
        behaviour_log_prob=behaviour if by_another else None,
    )


def evidence_of(learner: PPO, *, updates: int = 6, by_another: bool = True) -> Evidence:
    source = np.random.default_rng(5)
    run = RunStarted(
        producer="test", algorithm="ppo", environment="made up", seed=0, metric="return", n_envs=COLUMNS,
        constants=learner.constants(), parameters=learner.parameter_sizes(),
    )  # fmt: skip
    evidence = Evidence(run=run)

    def keep(kind: Any, update: int, arrays: dict[str, Any], minibatch: int = 0, epoch: int = 0) -> None:
        evidence.held[len(evidence.inspections)] = arrays
        about = {"update": update, "optimizer_step": learner.optimizer_steps, "epoch": epoch, "minibatch": minibatch}
        evidence.add(Inspection(kind=kind, roles=sorted(arrays), **about))

    for update in range(updates):
        report = learner.update(lived_through(learner, source, by_another=by_another), 1e-3, Inspect(3, 0))
        keep("rollout", update, report.rollout)
        for step in report.inspected:
            keep("gradient_step", update, step.arrays, step.minibatch, step.epoch)
    return evidence


def ask(evidence: Evidence) -> Finding:
    return run_checks(evidence, [AdvantagesRecomputed()], 0.001)[0]


class OtherImportance(PPO):
    """Credit passes by other weights than those that the log-probabilities give."""

    fault = ""

    def advantages(self, rollout, value, last_value, final_value):
        right = rollout.importance
        log_ratio = rollout.log_prob.astype(np.float64) - rollout.behaviour_log_prob
        rollout.importance = {
            "importance left out": np.ones_like(right),
            "importance not truncated": np.exp(log_ratio),
            "importance upside down": np.exp(np.minimum(-log_ratio, 0)),
            "importance shifted": np.concatenate([np.ones_like(right[:1]), right[:-1]]),
        }[self.fault]
        wrong = super().advantages(rollout, value, last_value, final_value)
        rollout.importance = right
        return wrong


class WeightsForgotten(PPO):
    def _experience(self, rollout, value, advantage, target):
        experience = super()._experience(rollout, value, advantage, target)
        experience.weight = torch.ones_like(experience.weight)
        return experience


class TargetsForgotten(PPO):
    def _experience(self, rollout, value, advantage, target):
        target[:] = value + advantage
        return super()._experience(rollout, value, advantage, target)


def test_what_another_policy_did_is_learnt_from_as_defined() -> None:
    finding = ask(evidence_of(small_ppo()))
    assert finding.status == "pass", finding.summary
    assert finding.figures["rollouts_of_another_policy"] == finding.figures["rollouts"] == 6
    assert finding.figures["gradient_steps_that_agree"] == 18


def test_the_oracle_agrees_with_the_learner_to_rounding() -> None:
    evidence = evidence_of(small_ppo())
    for sample in evidence.samples("rollout"):
        oracle = oracles(evidence)[sample.event.update]
        assert oracle.importance.min() < 0.5
        assert oracle.advantage == pytest.approx(sample["advantage"].ravel(), abs=2e-6)
        assert oracle.target == pytest.approx(sample["target"].ravel(), abs=2e-6)


@pytest.mark.parametrize("fault", IMPORTANCE_FAULTS)
def test_wrong_importance_is_refused_and_named(fault: str) -> None:
    finding = ask(evidence_of(small_ppo(type("Faulty", (OtherImportance,), {"fault": fault}))))
    assert finding.status == "fail"
    assert finding.figures["explained_by"] == [fault]
    assert finding.advice


def test_weights_that_are_missing_from_the_loss_are_refused() -> None:
    finding = ask(evidence_of(small_ppo(WeightsForgotten)))
    assert finding.status == "fail"
    assert "weighed its actions by other numbers" in finding.summary


def test_targets_without_importance_are_refused() -> None:
    finding = ask(evidence_of(small_ppo(TargetsForgotten)))
    assert finding.status == "fail"
    assert "value targets" in finding.summary


def test_rollouts_of_the_policy_itself_know_nothing_of_importance() -> None:
    finding = ask(evidence_of(small_ppo(), by_another=False))
    assert finding.status == "pass", finding.summary
    assert finding.figures["rollouts_of_another_policy"] == 0
    assert not set(IMPORTANCE_FAULTS) & set(finding.figures["not_yet_observable"])


def test_the_ratio_is_asked_of_the_policys_own_rollouts_only() -> None:
    own, other = evidence_of(small_ppo(), by_another=False), evidence_of(small_ppo())
    assert run_checks(own, [RatioIsOne()], 0.001)[0].status == "pass"
    assert run_checks(other, [RatioIsOne()], 0.001)[0].status == "undecided"


def test_importance_1_everywhere_trains_to_the_same_weights() -> None:
    learners = small_ppo(), small_ppo()
    for learner, by_another in zip(learners, (False, True), strict=True):
        rollout = lived_through(learner, np.random.default_rng(2), by_another=by_another)
        if by_another:
            rollout.behaviour_log_prob = rollout.log_prob
            rollout.importance = truncated_importance(rollout.log_prob, rollout.log_prob)
        learner.update(rollout, 1e-3, Inspect())
    assert torch.equal(learners[0].flat.vector, learners[1].flat.vector)
