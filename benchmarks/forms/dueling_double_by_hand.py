"""Dueling double DQN in a type-hinted library style; every layer's forward is called by hand."""

from __future__ import annotations

import argparse
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Batch(NamedTuple):
    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    terminated: Tensor


class TensorRing:
    """Fixed-size transition store made of preallocated tensors."""

    def __init__(self, capacity: int, obs_dim: int, generator: torch.Generator) -> None:
        self.capacity = capacity
        self.generator = generator
        self.size = 0
        self._head = 0
        self._obs = torch.zeros(capacity, obs_dim)
        self._action = torch.zeros(capacity, 1, dtype=torch.int64)
        self._reward = torch.zeros(capacity, 1)
        self._next_obs = torch.zeros(capacity, obs_dim)
        self._terminated = torch.zeros(capacity, 1, dtype=torch.bool)

    def append(self, obs: np.ndarray, action: int, reward: float, next_obs: np.ndarray, terminated: bool) -> None:
        i = self._head
        self._obs[i] = torch.from_numpy(obs)
        self._action[i, 0] = action
        self._reward[i, 0] = reward
        self._next_obs[i] = torch.from_numpy(next_obs)
        self._terminated[i, 0] = terminated
        self._head = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, n: int) -> Batch:
        idx = torch.randint(0, self.size, (n,), generator=self.generator)
        return Batch(self._obs[idx], self._action[idx], self._reward[idx], self._next_obs[idx], self._terminated[idx])


class DuelingNet(nn.Module):
    def __init__(self, obs_dim: int, n_actions: int, width: int = 64) -> None:
        super().__init__()
        self.fc1 = nn.Linear(obs_dim, width)
        self.fc2 = nn.Linear(width, width)
        self.value = nn.Linear(width, 1)
        self.advantage = nn.Linear(width, n_actions)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.fc1.forward(x))
        h = F.relu(self.fc2.forward(h))
        v = self.value.forward(h)
        a = self.advantage.forward(h)
        return v + a - a.mean(dim=-1, keepdim=True)


class DuelingDoubleDQN:
    def __init__(
        self, obs_dim: int, n_actions: int, *, gamma: float = 0.99, lr: float = 1e-3, tau: float = 0.01
    ) -> None:
        self.n_actions = n_actions
        self.gamma = gamma
        self.tau = tau
        self.net = DuelingNet(obs_dim, n_actions)
        self.target_net = DuelingNet(obs_dim, n_actions)
        self.target_net.load_state_dict(self.net.state_dict())
        for p in self.target_net.parameters():
            p.requires_grad_(False)
        self.optim = torch.optim.AdamW(self.net.parameters(), lr=lr, weight_decay=0.0)

    def select(self, obs: np.ndarray, epsilon: float, rng: np.random.Generator) -> int:
        if rng.random() < epsilon:
            return int(rng.integers(self.n_actions))
        with torch.no_grad():
            q: Tensor = self.net.forward(torch.from_numpy(obs))
        return int(torch.argmax(q).item())

    def td_target(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            chosen = self.net.forward(batch.next_obs).argmax(dim=1, keepdim=True)
            next_q = self.target_net.forward(batch.next_obs).gather(1, chosen)
            return torch.where(batch.terminated, batch.reward, batch.reward + self.gamma * next_q)

    def train_on(self, batch: Batch) -> float:
        target = self.td_target(batch)
        q = self.net.forward(batch.obs).gather(1, batch.action)
        loss = F.huber_loss(q, target)
        self.optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(self.net.parameters(), 10.0)
        self.optim.step()
        self._track()
        return loss.item()

    @torch.no_grad()
    def _track(self) -> None:
        for slow, fast in zip(self.target_net.parameters(), self.net.parameters()):
            slow.lerp_(fast, self.tau)


def evaluate(agent: DuelingDoubleDQN, seed: int, episodes: int = 5) -> list[float]:
    env = gym.make("CartPole-v1")
    rng = np.random.default_rng(0)
    scores: list[float] = []
    for k in range(episodes):
        obs, _ = env.reset(seed=seed + k)
        score = 0.0
        while True:
            obs, reward, terminated, truncated, _ = env.step(agent.select(obs, 0.0, rng))
            score += float(reward)
            if terminated or truncated:
                break
        scores.append(score)
    env.close()
    return scores


def train(seed: int, total_steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gym.make("CartPole-v1")
    obs_dim = int(np.prod(env.observation_space.shape))
    agent = DuelingDoubleDQN(obs_dim, int(env.action_space.n))
    ring = TensorRing(10_000, obs_dim, torch.Generator().manual_seed(seed + 1))
    returns: list[float] = []
    score, loss = 0.0, float("nan")
    obs, _ = env.reset(seed=seed)
    for t in range(1, total_steps + 1):
        epsilon = float(np.interp(t, [0, 3000], [1.0, 0.05]))
        action = agent.select(obs, epsilon, rng)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        ring.append(obs, action, float(reward), next_obs, bool(terminated))
        score += float(reward)
        if terminated or truncated:
            returns.append(score)
            score = 0.0
            next_obs, _ = env.reset()
        obs = next_obs
        if ring.size >= 500:
            loss = agent.train_on(ring.sample(64))
        if t % 1000 == 0:
            print(f"[{t:6d}] mean return of last 20: {np.mean(returns[-20:]):7.1f}  loss {loss:8.4f}", flush=True)
    env.close()
    print("greedy returns:", evaluate(agent, 7000 + seed))


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--steps", type=int, default=11_000)
    ns = cli.parse_args()
    train(ns.seed, ns.steps)
