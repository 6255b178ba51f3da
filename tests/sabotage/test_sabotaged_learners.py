"""Our own DQN, SAC and REINFORCE broken on purpose: each typical fault is refused by name, healthy twins are proven."""

import pytest
import torch
from toy_environments import Corridor

import learnproof
from learnproof.algorithms.dqn import DQN
from learnproof.algorithms.reinforce import REINFORCE
from learnproof.algorithms.sac import SAC

pytestmark = pytest.mark.slow

SHARED = {"policy.hidden": (32, 32), "schedule.kind": "constant", "evaluation.every_steps": 2000, "proof.episodes": 30}
SMALL = {
    "dqn": {
        "steps": 8000,
        "dqn.learning_starts": 500,
        "dqn.train_every": 1,
        "dqn.target_every": 50,
        "dqn.learning_rate": 1e-3,
        "dqn.epsilon_end": 0.2,
    },
    "sac": {
        "steps": 6000,
        "sac.learning_starts": 500,
        "sac.minibatch_size": 64,
        "sac.learning_rate": 1e-3,
        "sac.temperature_start": 0.1,
        "sac.target_entropy_fraction": 0.2,
    },
    "reinforce": {"steps": 40_000, "reinforce.n_steps": 64, "reinforce.learning_rate": 3e-3, "env.n_envs": 8},
}


def verdict_of(tmp_path, algorithm, learner_type=None, **changes):
    settings = {
        "stopping.plateau_patience": 0,
        **SHARED,
        **SMALL[algorithm],
        "algorithm": algorithm,
        "evaluation.max_episode_steps": 100,
        **changes,
    }
    world = {"env": Corridor(4), "evaluation_env": Corridor(10)}
    if algorithm == "reinforce":  # a corridor is learnt before its direction is told from chance
        world = {"env": "CartPole-v1"}
        settings["evaluation.max_episode_steps"] = 1000
    return learnproof.train(**world, out=tmp_path / "run", learner_type=learner_type, **settings).verdict


def failed(verdict):
    return {finding.check: finding for finding in verdict.findings if finding.status == "fail"}


def related(*words):
    """A near relative of another case: left to `make thorough`."""
    return pytest.param(*words, marks=pytest.mark.thorough)


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        related("dqn", {}),
        ("dqn", {"dqn.prioritised": True, "dqn.n_step": 3, "dqn.duelling": True, "dqn.double": False}),
        ("sac", {}),
        ("reinforce", {}),
    ],
    ids=["dqn", "dqn with everything", "sac", "reinforce"],
)
def test_healthy_learners_are_proven(tmp_path, algorithm, changes):
    verdict = verdict_of(tmp_path, algorithm, **changes)
    assert not failed(verdict)
    assert verdict.verdict == "proven", verdict.missing


class NeverSynced:
    def move_target(self):
        pass


class SyncedTooOften(DQN):
    def move_target(self):
        self.target.flat.vector.data.copy_(self.stepper.flat.vector.data)


class EndsIgnored(DQN):
    def targets(self, batch):
        return batch.reward + batch.discount * self.next_values(batch)


class EndsReversed(DQN):
    def targets(self, batch):
        return batch.reward + batch.discount * (1 - batch.goes_on) * self.next_values(batch)


class OwnTargets(DQN):
    def next_values(self, batch):
        return self.network(batch.next_observation).max(1).values.detach()


class Ascent(DQN):
    """The missing minus: values are driven away from their targets."""

    def optimizer_step(self):
        self.stepper.flat.gradient.neg_()
        return super().optimizer_step()


class NoEntropyInTargets(SAC):
    def next_values(self, batch, alpha):
        return super().next_values(batch, 0.0)


class EntropyPunishedInTargets(SAC):
    def next_values(self, batch, alpha):
        return super().next_values(batch, -alpha)


class EntropyPunishedInActor(SAC):
    def log_prob_weight(self, alpha):
        return -alpha


class OneCriticTwice(SAC):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.critics.second.load_state_dict(self.critics.first.state_dict())
        self.slower.second.load_state_dict(self.slower.first.state_dict())


class TemperatureReversed(SAC):
    def temperature_step(self, log_prob):
        super().temperature_step(-log_prob - 2 * self.target_entropy)


class LargerCritic(SAC):
    def next_values(self, batch, alpha):
        with torch.no_grad():
            log_prob = torch.log_softmax(self.network.policy_params(batch.next_observation), dim=1)
            worth = torch.max(*self.slower(batch.next_observation))
            return (log_prob.exp() * (worth - alpha * log_prob)).sum(1)


class Flipped(REINFORCE):
    def gradient_step(self, batch):
        batch.advantage = -batch.advantage
        measured = super().gradient_step(batch)
        batch.advantage = -batch.advantage
        return measured


@pytest.mark.parametrize(
    ("algorithm", "learner", "check", "word"),
    [
        ("dqn", type("NeverSyncedDQN", (NeverSynced, DQN), {}), "target_network_follows", "never moved"),
        related("dqn", SyncedTooOften, "target_network_follows", ""),
        ("dqn", EndsIgnored, "targets_recomputed", "terminal states bootstrapped"),
        related("dqn", EndsReversed, "targets_recomputed", "ends reversed"),
        related("dqn", OwnTargets, "targets_recomputed", "valued by the trained network"),
        ("dqn", Ascent, "value_direction", ""),
        related("sac", type("NeverSyncedSAC", (NeverSynced, SAC), {}), "target_network_follows", "never moved"),
        related("sac", NoEntropyInTargets, "targets_recomputed", "entropy left out"),
        ("sac", EntropyPunishedInTargets, "targets_recomputed", "entropy with the wrong sign"),
        ("sac", EntropyPunishedInActor, "actor_climbs", ""),
        related("sac", OneCriticTwice, "critics_apart", ""),
        related("sac", TemperatureReversed, "temperature_right", ""),
        related("sac", LargerCritic, "targets_recomputed", "the larger of two critics"),
        ("reinforce", Flipped, "policy_direction", ""),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_each_fault_is_found_by_its_check_and_named(tmp_path, algorithm, learner, check, word):
    verdict = verdict_of(tmp_path, algorithm, learner)
    assert verdict.verdict == "broken"
    assert check in failed(verdict), verdict.final_status
    assert word in failed(verdict)[check].summary
