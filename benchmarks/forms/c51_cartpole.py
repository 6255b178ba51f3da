"""Categorical (C51) DQN on CartPole: class-based agent, scatter projection of the target distribution."""

import argparse
import random
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class CategoricalNet(nn.Module):
    def __init__(self, obs_dim, n_actions, n_atoms, v_min, v_max):
        super().__init__()
        self.n_actions, self.n_atoms = n_actions, n_atoms
        self.register_buffer("support", torch.linspace(v_min, v_max, n_atoms))
        self.body = nn.Sequential(
            nn.Linear(obs_dim, 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, n_actions * n_atoms),
        )

    def forward(self, x):
        return self.body(x).view(-1, self.n_actions, self.n_atoms)  # logits

    def q_values(self, x):
        return (self(x).softmax(dim=-1) * self.support).sum(dim=-1)


class C51Agent:
    def __init__(self, obs_dim, n_actions, gamma=0.99, n_atoms=51, v_min=0.0, v_max=100.0, lr=1e-3):
        self.n_actions, self.gamma = n_actions, gamma
        self.n_atoms, self.v_min, self.v_max = n_atoms, v_min, v_max
        self.delta_z = (v_max - v_min) / (n_atoms - 1)
        self.online = CategoricalNet(obs_dim, n_actions, n_atoms, v_min, v_max)
        self.target = CategoricalNet(obs_dim, n_actions, n_atoms, v_min, v_max)
        self.sync()
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=lr)

    def sync(self):
        self.target.load_state_dict(self.online.state_dict())

    @torch.no_grad()
    def act(self, obs, epsilon):
        if random.random() < epsilon:
            return random.randrange(self.n_actions)
        q = self.online.q_values(torch.as_tensor(obs, dtype=torch.float32).unsqueeze(0))
        return int(q.argmax(dim=1).item())

    @torch.no_grad()
    def projected_target(self, reward, next_obs, terminated):
        next_probs_all = self.target(next_obs).softmax(dim=-1)
        next_q = (next_probs_all * self.target.support).sum(dim=-1)
        best = next_q.argmax(dim=1)
        probs = next_probs_all[torch.arange(len(best)), best]  # (B, atoms)
        tz = reward[:, None] + self.gamma * (1.0 - terminated[:, None]) * self.target.support[None, :]
        tz = tz.clamp(self.v_min, self.v_max)
        b = ((tz - self.v_min) / self.delta_z).clamp(0, self.n_atoms - 1)
        lower, upper = b.floor(), b.ceil()
        # When b is an integer all the mass goes to that one atom.
        w_lower = torch.where(lower == upper, torch.ones_like(b), upper - b)
        w_upper = b - lower
        m = torch.zeros_like(probs)
        m.scatter_add_(1, lower.long(), probs * w_lower)
        m.scatter_add_(1, upper.long(), probs * w_upper)
        return m

    def learn(self, batch):
        obs, action, reward, next_obs, terminated = batch
        m = self.projected_target(reward, next_obs, terminated)
        logits = self.online(obs)[torch.arange(len(action)), action]
        loss = -(m * F.log_softmax(logits, dim=-1)).sum(dim=-1).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.optimizer.step()
        return loss.item()


class Replay:
    def __init__(self, capacity):
        self.data = deque(maxlen=capacity)

    def add(self, *transition):
        self.data.append(transition)

    def sample(self, n):
        obs, action, reward, next_obs, terminated = zip(*random.sample(self.data, n))
        return (
            torch.as_tensor(np.stack(obs), dtype=torch.float32),
            torch.as_tensor(action, dtype=torch.int64),
            torch.as_tensor(reward, dtype=torch.float32),
            torch.as_tensor(np.stack(next_obs), dtype=torch.float32),
            torch.as_tensor(terminated, dtype=torch.float32),
        )


def evaluate(agent, episodes, seed):
    env = gym.make("CartPole-v1")
    total = 0.0
    for k in range(episodes):
        obs, _ = env.reset(seed=seed + k)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(agent.act(obs, 0.0))
            total += reward
            over = terminated or truncated
    env.close()
    return total / episodes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=11000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    env = gym.make("CartPole-v1")
    agent = C51Agent(env.observation_space.shape[0], int(env.action_space.n))
    replay = Replay(10000)
    returns = deque(maxlen=20)
    obs, _ = env.reset(seed=args.seed)
    ep_return, loss = 0.0, float("nan")
    for step in range(1, args.steps + 1):
        epsilon = max(0.05, 1.0 - 0.95 * step / 3000)
        action = agent.act(obs, epsilon)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        # Only a real termination stops bootstrapping; a time limit does not.
        replay.add(obs, action, reward, next_obs, float(terminated))
        ep_return += reward
        obs = next_obs
        if terminated or truncated:
            returns.append(ep_return)
            ep_return = 0.0
            obs, _ = env.reset()
        if step >= 500:
            loss = agent.learn(replay.sample(64))
            if step % 200 == 0:
                agent.sync()
        if step % 1000 == 0:
            print(f"step {step:6d}  return(20) {np.mean(returns):7.1f}  loss {loss:.3f}  eps {epsilon:.2f}", flush=True)
    env.close()
    print(f"final greedy return {evaluate(agent, 5, 10_000 + args.seed):.1f}")


if __name__ == "__main__":
    main()
