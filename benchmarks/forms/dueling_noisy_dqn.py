"""Duelling DQN with noisy layers and 3-step returns on CartPole-v1; there is no epsilon.

Form: exploration comes from NoisyLinear heads (factorised noise, redrawn for each action and for each network in
each update). Transitions are folded into n-step ones before they reach the replay. The first thousand actions are
uniform, to fill the replay; after that the noise is all there is.

Why it is right: each stored row carries its own bootstrap factor. It is gamma**n in mid-episode; when an episode
ends, the shorter windows that are left are flushed with gamma**k for their true length k, or with 0 if the episode
terminated. A time limit is no termination and bootstraps from the last observation. No window spans two episodes.
"""

import argparse
import math
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class NoisyLinear(nn.Module):
    def __init__(self, in_features, out_features, sigma0=0.5):
        super().__init__()
        bound = 1 / math.sqrt(in_features)
        self.weight_mu = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.bias_mu = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), sigma0 * bound))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), sigma0 * bound))
        self.register_buffer("eps_in", torch.zeros(in_features), persistent=False)
        self.register_buffer("eps_out", torch.zeros(out_features), persistent=False)

    @staticmethod
    def _scaled(n):
        x = torch.randn(n)
        return x.sign() * x.abs().sqrt()

    def redraw(self):
        self.eps_in = self._scaled(self.eps_in.numel())
        self.eps_out = self._scaled(self.eps_out.numel())

    def mute(self):
        self.eps_in = torch.zeros_like(self.eps_in)
        self.eps_out = torch.zeros_like(self.eps_out)

    def forward(self, x):
        weight = self.weight_mu + self.weight_sigma * torch.outer(self.eps_out, self.eps_in)
        return F.linear(x, weight, self.bias_mu + self.bias_sigma * self.eps_out)


class DuellingNet(nn.Module):
    def __init__(self, obs_dim, n_actions, width=128):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(obs_dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value = NoisyLinear(width, 1)
        self.advantage = NoisyLinear(width, n_actions)

    def redraw(self):
        self.value.redraw()
        self.advantage.redraw()

    def mute(self):
        self.value.mute()
        self.advantage.mute()

    def forward(self, obs):
        h = self.features(obs)
        adv = self.advantage(h)
        return self.value(h) + adv - adv.mean(dim=-1, keepdim=True)


class NStepWindow:
    """Turns one-step transitions into (obs, action, n-step reward, bootstrap obs, bootstrap factor)."""

    def __init__(self, n, gamma):
        self.n, self.gamma, self.pending = n, gamma, deque()

    def _oldest(self, next_obs, terminated):
        obs, action, _ = self.pending[0]
        reward = sum(self.gamma**k * r for k, (_, _, r) in enumerate(self.pending))
        factor = 0.0 if terminated else self.gamma ** len(self.pending)
        return obs, action, reward, next_obs, factor

    def push(self, obs, action, reward, next_obs, terminated, truncated):
        self.pending.append((obs, action, reward))
        if terminated or truncated:
            while self.pending:
                yield self._oldest(next_obs, terminated)
                self.pending.popleft()
        elif len(self.pending) == self.n:
            yield self._oldest(next_obs, False)
            self.pending.popleft()


class Replay:
    def __init__(self, capacity, obs_dim, rng):
        self.obs = np.empty((capacity, obs_dim), np.float32)
        self.next_obs = np.empty((capacity, obs_dim), np.float32)
        self.action = np.empty(capacity, np.int64)
        self.reward = np.empty(capacity, np.float32)
        self.factor = np.empty(capacity, np.float32)
        self.capacity, self.count, self.rng = capacity, 0, rng

    def __len__(self):
        return min(self.count, self.capacity)

    def store(self, obs, action, reward, next_obs, factor):
        i = self.count % self.capacity
        self.obs[i], self.action[i], self.reward[i], self.next_obs[i], self.factor[i] = (
            obs,
            action,
            reward,
            next_obs,
            factor,
        )
        self.count += 1

    def sample(self, size):
        i = self.rng.integers(len(self), size=size)
        return [torch.from_numpy(x[i]) for x in (self.obs, self.action, self.reward, self.next_obs, self.factor)]


def update(net, target, optimizer, batch):
    obs, action, reward, next_obs, factor = batch
    with torch.no_grad():
        net.redraw()
        choice = net(next_obs).argmax(-1, keepdim=True)
        target.redraw()
        y = reward + factor * target(next_obs).gather(-1, choice).squeeze(-1)
    net.redraw()
    q = net(obs).gather(-1, action.unsqueeze(-1)).squeeze(-1)
    loss = F.smooth_l1_loss(q, y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 10.0)
    optimizer.step()
    return loss.item()


@torch.no_grad()
def choose(net, obs):
    return int(net(torch.from_numpy(obs)).argmax())


def evaluate(net, episodes=5):
    net.mute()
    env = gym.make("CartPole-v1")
    total = 0.0
    for k in range(episodes):
        obs, _ = env.reset(seed=500 + k)
        done = False
        while not done:
            obs, reward, terminated, truncated, _ = env.step(choose(net, obs))
            total += reward
            done = terminated or truncated
    return total / episodes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=8_000)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    gamma, learning_starts, train_every, sync_every = 0.98, 1_000, 3, 60
    env = gym.make("CartPole-v1")
    net, target = DuellingNet(4, 2), DuellingNet(4, 2)
    target.load_state_dict(net.state_dict())
    target.requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    replay = Replay(10_000, 4, np.random.default_rng(args.seed))
    window = NStepWindow(3, gamma)

    obs, _ = env.reset(seed=args.seed)
    score, scores, losses = 0.0, deque(maxlen=10), deque(maxlen=100)
    for step in range(1, args.steps + 1):
        if step <= learning_starts:
            action = int(replay.rng.integers(2))
        else:
            net.redraw()
            action = choose(net, obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        score += reward
        for row in window.push(obs, action, reward, next_obs, terminated, truncated):
            replay.store(*row)
        obs = next_obs
        if terminated or truncated:
            scores.append(score)
            score = 0.0
            obs, _ = env.reset()
        if step > learning_starts and step % train_every == 0:
            losses.append(update(net, target, optimizer, replay.sample(128)))
        if step % sync_every == 0:
            target.load_state_dict(net.state_dict())
        if step % 1_000 == 0 and losses:
            sigma = net.advantage.weight_sigma.detach().abs().mean().item()
            print(f"{step:6d}  return {np.mean(scores):6.1f}  loss {np.mean(losses):.4f}  sigma {sigma:.4f}")
    print(f"without noise: {evaluate(net):.1f}")


if __name__ == "__main__":
    main()
