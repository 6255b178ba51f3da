"""Our own PPO broken on purpose: each fault is refused by the check that is there for it, its healthy twin is accepted."""

import pytest

import learnproof
from learnproof.algorithms.ppo import PPO
from sabotage import FAULTS, NoStep, ShuffledAdvantages

pytestmark = pytest.mark.slow

SMALL = {
    "steps": 24_576,
    "policy.hidden": (32, 32),
    "env.n_envs": 8,
    "ppo.n_steps": 128,
    "ppo.minibatch_size": 128,
    "ppo.learning_rate": 1e-3,
    "evaluation.every_steps": 4096,
    "proof.episodes": 30,
}


class FlippedPolicyGradient(PPO):
    """The missing minus: the policy learns to do what was worse than expected."""

    def gradient_step(self, batch):
        batch.advantage = -batch.advantage
        measured = super().gradient_step(batch)
        batch.advantage = -batch.advantage
        return measured


class TimeLimitAsTerminal(PPO):
    def advantages(self, rollout, value, last_value, final_value):
        return super().advantages(rollout, value, last_value, final_value * 0)


class StaleLogProbs(PPO):
    """Log-probabilities of a rollout that are not those of the policy which acted."""

    def update(self, rollout, learning_rate, inspect):
        rollout.log_prob = rollout.log_prob + 0.1
        return super().update(rollout, learning_rate, inspect)


def verdict_of(tmp_path, learner_type=None, **changes):
    settings = {**SMALL, **changes}
    env = settings.pop("env", "CartPole-v1")
    return learnproof.train(env, out=tmp_path / "run", learner_type=learner_type, **settings).verdict


def failed(verdict):
    return {finding.check for finding in verdict.findings if finding.status == "fail"}


def test_a_healthy_run_is_proven(tmp_path):
    verdict = verdict_of(tmp_path)
    assert verdict.verdict == "proven", verdict.missing
    assert bool(verdict)
    assert verdict.exit_code == 0


@pytest.mark.parametrize(
    ("learner", "changes", "check"),
    [
        (NoStep, {}, "weights_changing"),
        (None, FAULTS["learning rate 0"][1], "weights_changing"),
        (ShuffledAdvantages, {}, "advantages_recomputed"),
        (FlippedPolicyGradient, {}, "policy_direction"),
        (StaleLogProbs, {}, "ratio_is_one"),
        (TimeLimitAsTerminal, {"env": "Pendulum-v1"}, "advantages_recomputed"),
    ],
    ids=[
        "no step",
        "learning rate 0",
        "shuffled advantages",
        "flipped sign",
        "stale log-probs",
        "time limit as terminal",
    ],
)
def test_a_sabotaged_run_is_broken_and_the_right_check_says_so(tmp_path, learner, changes, check):
    verdict = verdict_of(tmp_path, learner, **changes)
    assert verdict.verdict == "broken"
    assert check in failed(verdict)
    assert verdict.exit_code == 1
