"""Advantage-weighted regression (AWR) on a replay of the agent's own complete episodes (CartPole)."""

import argparse
from collections import deque
from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Episode:
    observations: list = field(default_factory=list)  # T + 1 entries: the true last one is kept
    actions: list = field(default_factory=list)
    rewards: list = field(default_factory=list)
    terminated: bool = False

    def __len__(self):
        return len(self.actions)

    def seal(self):
        self.observations = np.asarray(self.observations, dtype=np.float32)
        self.actions = np.asarray(self.actions, dtype=np.int64)
        self.rewards = np.asarray(self.rewards, dtype=np.float32)
        return self


class EpisodeReplay:
    def __init__(self, max_transitions):
        self.max_transitions = max_transitions
        self.episodes = deque()
        self.size = 0

    def add(self, episode):
        self.episodes.append(episode)
        self.size += len(episode)
        while self.size > self.max_transitions and len(self.episodes) > 1:
            self.size -= len(self.episodes.popleft())

    def flat(self):
        obs = np.concatenate([e.observations[:-1] for e in self.episodes])
        act = np.concatenate([e.actions for e in self.episodes])
        return torch.from_numpy(obs), torch.from_numpy(act)


class AWR:
    def __init__(self, gamma=0.99, lam=0.95, temperature=1.0, max_weight=20.0):
        self.gamma, self.lam, self.temperature, self.max_weight = gamma, lam, temperature, max_weight
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=2e-3)

    @torch.no_grad()
    def act(self, obs):
        logits = self.actor(torch.from_numpy(obs))
        return torch.multinomial(torch.softmax(logits, dim=-1), 1).item()

    @torch.no_grad()
    def td_lambda_returns(self, replay):
        """Fresh lambda-returns of every stored transition, flat, in the order of replay.flat()."""
        all_obs = torch.from_numpy(np.concatenate([e.observations for e in replay.episodes]))
        all_values = self.critic(all_obs).squeeze(-1).tolist()
        out, offset = [], 0
        for e in replay.episodes:
            T = len(e)
            values = all_values[offset : offset + T + 1]
            offset += T + 1
            # after the last step: nothing if terminated, V(true last observation) if truncated
            following = 0.0 if e.terminated else values[T]
            rewards = e.rewards.tolist()
            returns = [0.0] * T
            g = rewards[T - 1] + self.gamma * following
            returns[T - 1] = g
            for t in range(T - 2, -1, -1):
                g = rewards[t] + self.gamma * ((1.0 - self.lam) * values[t + 1] + self.lam * g)
                returns[t] = g
            out.extend(returns)
        return torch.tensor(out, dtype=torch.float32)

    def fit_critic(self, replay, updates, batch):
        obs, _ = replay.flat()
        targets = self.td_lambda_returns(replay)
        total = 0.0
        for _ in range(updates):
            idx = torch.randint(len(obs), (batch,))
            loss = F.mse_loss(self.critic(obs[idx]).squeeze(-1), targets[idx])
            self.critic_opt.zero_grad()
            loss.backward()
            self.critic_opt.step()
            total += loss.item()
        return total / updates

    def fit_actor(self, replay, updates, batch):
        obs, act = replay.flat()
        returns = self.td_lambda_returns(replay)
        with torch.no_grad():
            adv = returns - self.critic(obs).squeeze(-1)
            adv = (adv - adv.mean()) / (adv.std() + 1e-5)
            weights = torch.exp(adv / self.temperature).clamp(max=self.max_weight)
        total = 0.0
        for _ in range(updates):
            idx = torch.randint(len(obs), (batch,))
            nll = F.cross_entropy(self.actor(obs[idx]), act[idx], reduction="none")  # -log pi(a|s)
            loss = (weights[idx] * nll).mean()
            self.actor_opt.zero_grad()
            loss.backward()
            self.actor_opt.step()
            total += loss.item()
        return total / updates


def run_episode(env, agent, seed=None):
    obs, _ = env.reset(seed=seed)
    ep = Episode(observations=[obs])
    while True:
        a = agent.act(obs)
        obs, r, terminated, truncated, _ = env.step(a)
        ep.actions.append(a)
        ep.rewards.append(r)
        ep.observations.append(obs)
        if terminated or truncated:
            ep.terminated = terminated
            return ep.seal()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--iterations", type=int, default=30)
    ap.add_argument("--steps-per-iteration", type=int, default=1200)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)

    env = gym.make("CartPole-v1")
    agent = AWR()
    replay = EpisodeReplay(max_transitions=12_000)
    first = True
    for it in range(1, args.iterations + 1):
        collected, lengths = 0, []
        while collected < args.steps_per_iteration:
            ep = run_episode(env, agent, seed=args.seed if first else None)
            first = False
            replay.add(ep)
            collected += len(ep)
            lengths.append(float(ep.rewards.sum()))
        c_loss = agent.fit_critic(replay, updates=80, batch=256)
        a_loss = agent.fit_actor(replay, updates=120, batch=256)
        print(
            f"iter {it:3d}  return {np.mean(lengths):6.1f}  replay {replay.size:6d}  "
            f"critic {c_loss:8.2f}  actor {a_loss:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
