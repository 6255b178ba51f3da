"""What the environment inside of its wrappers pays, beside what comes out of them."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
import torch

import learnproof
from learnproof.evidence import Evidence
from learnproof.proof.check import Finding
from learnproof.proof.seen import seen
from learnproof.proof.watched.ends import EndsTold
from learnproof.proof.watched.performance import unless_paid_otherwise
from learnproof.watching.cores import cores_of


class Scaled(gym.ObservationWrapper):
    def observation(self, observation):
        return observation / 2


class Turned(gym.RewardWrapper):
    def reward(self, reward):
        return 3 - 2 * reward


def pole():
    return gym.make("CartPole-v1", max_episode_steps=30)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (pole, 0),
        (lambda: Scaled(pole()), 0),
        (lambda: Turned(pole()), 1),
        (lambda: Scaled(Turned(Scaled(pole()))), 1),
        (lambda: gym.vector.SyncVectorEnv([pole, pole]), 0),
        (lambda: gym.vector.SyncVectorEnv([lambda: Turned(pole())] * 2), 2),
        (lambda: gym.wrappers.vector.TransformReward(gym.vector.SyncVectorEnv([pole, pole]), lambda r: -r), 2),
    ],
)
def test_innermost_environments_are_found_where_a_wrapper_may_change_their_rewards(make, found):
    environment = make()
    copies = getattr(environment, "num_envs", 1)
    cores = cores_of(environment, copies, hasattr(environment, "num_envs"))
    assert [type(core).__name__ for core in cores] == ["CartPoleEnv"] * found
    environment.close()


def played(folder, environment, steps=600):
    """Random play beside a model that trains on nothing much."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)
    with learnproof.watch(out=folder):
        environment.reset(seed=0)
        for step in range(steps):
            if step % 50 == 0:
                optimizer.zero_grad()
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
            if isinstance(environment, gym.vector.VectorEnv):
                environment.step(rng.integers(2, size=environment.num_envs))
                continue
            _, _, terminated, truncated, _ = environment.step(int(rng.integers(2)))
            if terminated or truncated:
                environment.reset()
            elif step == 20:
                environment.reset()  # an episode that is broken off leaves nothing to the next
    return Evidence.read(folder)


@pytest.mark.parametrize("vector", [False, True])
def test_both_sums_of_an_episode_are_told(tmp_path, vector):
    environment = gym.vector.SyncVectorEnv([lambda: Turned(pole())] * 2) if vector else Turned(pole())
    evidence = played(tmp_path / "run", environment)
    assert len(evidence.episodes) > 20
    for episode in evidence.episodes:
        assert episode.metrics["inside"] == episode.length
        assert episode.return_ == episode.length * 1.0


def finding():
    return Finding("performance", "pass", "better?", "Better.", {})


@pytest.mark.parametrize(("sign", "status"), [(-1, "undecided"), (1, "pass")])
def test_a_reward_that_was_turned_round_keeps_a_run_from_being_proven(tmp_path, sign, status):
    class Paid(gym.RewardWrapper):
        def reward(self, reward):
            return sign * reward

    evidence = played(tmp_path / "run", Paid(pole()))
    assert unless_paid_otherwise(evidence, finding(), 0.05).status == status
    failed = dataclasses.replace(finding(), status="fail")
    assert unless_paid_otherwise(evidence, failed, 0.05) is failed


@pytest.mark.parametrize(("share", "status"), [(0.0, "undecided"), (0.5, "pass")])
def test_a_shaped_reward_that_rises_without_the_environments_own_keeps_a_run_from_being_proven(tmp_path, share, status):
    """The wrapper pays more from episode to episode; `share` of that comes from the environment itself."""
    evidence = played(tmp_path / "run", Turned(pole()))
    rng = np.random.default_rng(1)
    told = []
    for number, episode in enumerate(evidence.episodes):
        noise = float(rng.normal())
        told.append(
            dataclasses.replace(
                episode,
                return_=float(number),
                metrics={**episode.metrics, "inside": share * number + noise},
            )
        )
    shaped = dataclasses.replace(evidence, episodes=told)
    judged = unless_paid_otherwise(shaped, finding(), 0.05)
    assert judged.status == status
    assert ("went from" in judged.summary) == (status == "undecided")


class Folded(gym.Wrapper):
    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, False, terminated or truncated, info


class Passed(gym.Wrapper):
    def step(self, action):
        return self.env.step(action)


@pytest.mark.parametrize(("wrapper", "status"), [(Folded, "fail"), (Passed, "pass")])
def test_an_end_that_a_wrapper_calls_a_time_limit_is_named(tmp_path, wrapper, status):
    evidence = played(tmp_path / "run", wrapper(pole()))
    assert EndsTold().look(seen(evidence)).status == status


def test_a_reset_of_some_copies_leaves_the_others_their_episodes(tmp_path):
    environment = gym.vector.SyncVectorEnv([pole] * 3, autoreset_mode=gym.vector.AutoresetMode.DISABLED)
    lengths, own = [], np.zeros(3, int)
    rng = np.random.default_rng(0)
    with learnproof.watch(out=tmp_path / "run"):
        environment.reset(seed=0)
        for _ in range(300):
            _, _, terminated, truncated, _ = environment.step(rng.integers(2, size=3))
            own += 1
            ended = terminated | truncated
            if ended.any():
                lengths += own[ended].tolist()
                own[ended] = 0
                environment.reset(options={"reset_mask": ended})
    assert [episode.length for episode in Evidence.read(tmp_path / "run").episodes] == lengths
