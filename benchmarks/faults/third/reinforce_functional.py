"""REINFORCE with a learned baseline, Gaussian policy, plain functions. Task: push a puck onto a mark before time is up."""

import argparse
import copy
import time
from functools import partial
from itertools import accumulate, pairwise

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

FAULTS = {
    "joined_episodes": ["returns", "broken", "rewards are discounted over the joined batch, across episode ends"],
    "baseline_column": ["shapes", "broken", "baseline of shape (N,1) against returns of shape (N,)"],
    "loose_std": ["weights", "broken", "the trainable log-std is not among the parameters given to the optimizer"],
    "clipped_store": ["shapes", "broken", "the clipped action is stored and scored under the unclipped Gaussian"],
    "shallow_best": ["rates", "broken", "the best weights are kept as references: restoring them does nothing"],
    "wide_mark": ["goal", "not proven", "the radius of the mark is in the wrong unit: every first step is a success"],
}
HEALTHY = {
    "": "plain",
    "fixed_std": "the exploration noise is a constant on purpose, only the mean is learnt",
    "frozen_features": "the policy's first layer is random and frozen on purpose",
    "per_episode": "one backward per episode, gradients accumulated over the batch, then one step",
}


class PuckEnv(gym.Env):
    """A puck with friction on a table, pushed by a force of two components; done when it is on the mark."""

    horizon = 50
    observation_space = gym.spaces.Box(-np.inf, np.inf, (7,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, radius_cm=15.0, unit=0.01):
        self.radius = radius_cm * unit

    def _look(self):
        left = 1.0 - self.t / self.horizon
        return np.concatenate([self.mark - self.pos, self.pos, 4 * self.vel, [left]]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos, self.mark = self.np_random.uniform(-1, 1, 2), self.np_random.uniform(-1, 1, 2)
        self.vel, self.t = np.zeros(2), 0
        return self._look(), {}

    def step(self, action):
        self.vel = 0.8 * self.vel + 0.04 * np.clip(action, -1.0, 1.0)
        self.pos = np.clip(self.pos + self.vel, -1.2, 1.2)
        self.t += 1
        distance = float(np.linalg.norm(self.pos - self.mark))
        terminated = distance < self.radius
        reward = 2.0 if terminated else -0.1 * distance
        return self._look(), reward, terminated, self.t >= self.horizon, {}


def mlp(*sizes):
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def make_policy(obs_dim, act_dim, variant):
    mean = mlp(obs_dim, 64, 64, act_dim)
    if variant == "frozen_features":
        mean[0].requires_grad_(False)
    log_std = torch.full((act_dim,), -0.5, requires_grad=variant != "fixed_std")

    def distribution(obs):
        return Normal(mean(obs), log_std.exp())

    return mean, log_std, distribution


def make_sampler(env, distribution, store_clipped):
    @torch.no_grad()
    def sample(obs):
        return distribution(torch.as_tensor(obs)).sample().numpy()

    def episode():
        obs, _ = env.reset()
        observations, actions, rewards, over = [], [], [], False
        while not over:
            action = sample(obs)
            executed = np.clip(action, env.action_space.low, env.action_space.high)
            observations.append(obs)
            actions.append(executed if store_clipped else action)
            obs, reward, terminated, truncated, _ = env.step(executed)
            rewards.append(reward)
            over = terminated or truncated
        return np.stack(observations), np.stack(actions), np.array(rewards, dtype=np.float32)

    return episode


def rewards_to_go(rewards, gamma):
    totals = list(accumulate(rewards[::-1], lambda total, r: r + gamma * total))
    return np.array(totals[::-1], dtype=np.float32)


def make_update(distribution, baseline, policy_opt, baseline_opt, gamma, fault, variant):
    to_go = partial(rewards_to_go, gamma=gamma)

    def estimate(obs):
        return baseline(obs) if fault == "baseline_column" else baseline(obs).squeeze(-1)

    def objective(obs, actions, advantages):
        return -(distribution(obs).log_prob(actions).sum(-1) * advantages)

    def fit_baseline(obs, returns, rounds=5):
        for _ in range(rounds):
            loss = ((estimate(obs) - returns) ** 2).mean()
            baseline_opt.zero_grad()
            loss.backward()
            baseline_opt.step()
        return loss.item()

    def update(batch):
        obs, actions = (torch.as_tensor(np.concatenate(column)) for column in list(zip(*batch, strict=True))[:2])
        rewards = [episode[2] for episode in batch]
        returns = torch.as_tensor(np.concatenate([to_go(r) for r in rewards]))
        if fault == "joined_episodes":
            returns = torch.as_tensor(to_go(np.concatenate(rewards)))
        advantages = returns - estimate(obs).detach()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-5)

        sizes, policy_loss = [len(r) for r in rewards] if variant == "per_episode" else [len(obs)], 0.0
        policy_opt.zero_grad()
        for part in zip(obs.split(sizes), actions.split(sizes), advantages.split(sizes), strict=True):
            loss = objective(*part).sum() / len(obs)
            loss.backward()
            policy_loss += loss.item()
        policy_opt.step()
        return policy_loss, fit_baseline(obs, returns)

    return update


def make_keeper(mean, shallow):
    best = {"score": -np.inf, "weights": None, "at": 0}

    def keep(score, when):
        if score > best["score"]:
            copied = dict if shallow else copy.deepcopy
            best.update(score=score, weights=copied(mean.state_dict()), at=when)

    def restore():
        mean.load_state_dict(best["weights"])
        return best["at"], best["score"]

    return keep, restore


def train(seed, steps, fault, variant, gamma=0.97, episodes_per_update=10):
    torch.manual_seed(seed)
    env = PuckEnv(unit=1.0 if fault == "wide_mark" else 0.01)
    env.reset(seed=seed)
    (mean, log_std, distribution), baseline = make_policy(7, 2, variant), mlp(7, 64, 64, 1)
    params = [p for p in mean.parameters() if p.requires_grad]
    if fault != "loose_std" and log_std.requires_grad:
        params.append(log_std)
    optimizers = [torch.optim.Adam(p, lr=3e-3) for p in (params, baseline.parameters())]
    episode = make_sampler(env, distribution, store_clipped=fault == "clipped_store")
    update = make_update(distribution, baseline, *optimizers, gamma, fault, variant)
    keep, restore = make_keeper(mean, shallow=fault == "shallow_best")

    history, done_steps, last_print = [], 0, time.time()
    while done_steps < steps:
        batch = [episode() for _ in range(episodes_per_update)]
        history += [float(rewards.sum()) for _, _, rewards in batch]
        done_steps += sum(len(rewards) for _, _, rewards in batch)
        keep(np.mean(history[-50:]), done_steps)
        policy_loss, baseline_loss = update(batch)
        if time.time() - last_print > 3:
            last_print = time.time()
            figures = f"policy {policy_loss:+.3f}  baseline {baseline_loss:.3f}  std {log_std.exp().mean().item():.2f}"
            print(f"step {done_steps:7d}  return {np.mean(history[-50:]):6.2f}  {figures}", flush=True)
    when, score = restore()
    again = np.mean([episode()[2].sum() for _ in range(50)])
    print(f"best weights from step {when} ({score:.2f}), 50 episodes with them: {again:.2f}")
    return history


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=45_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    torch.set_num_threads(1)
    history = train(**vars(parser.parse_args()))
    tenth = max(1, len(history) // 10)
    print(f"mean return: first tenth {np.mean(history[:tenth]):.2f}, last tenth {np.mean(history[-tenth:]):.2f}")


if __name__ == "__main__":
    main()
