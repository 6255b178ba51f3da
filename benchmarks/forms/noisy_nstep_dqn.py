"""Noisy-net DQN with n-step returns on CartPole: dataclass config, generator for the n-step window, no epsilon."""

import argparse
import math
from collections import deque
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Config:
    seed: int = 0
    total_steps: int = 11000
    warmup: int = 500
    batch_size: int = 64
    capacity: int = 11000
    n_step: int = 3
    gamma: float = 0.99
    lr: float = 1e-3
    sync_every: int = 250
    hidden: int = 64


class NoisyLinear(nn.Module):
    """Factorised Gaussian noise (Fortunato et al.). In eval mode only the means are used."""

    def __init__(self, n_in, n_out, sigma0=0.5):
        super().__init__()
        bound = 1.0 / math.sqrt(n_in)
        self.w_mu = nn.Parameter(torch.empty(n_out, n_in).uniform_(-bound, bound))
        self.w_sigma = nn.Parameter(torch.full((n_out, n_in), sigma0 * bound))
        self.b_mu = nn.Parameter(torch.empty(n_out).uniform_(-bound, bound))
        self.b_sigma = nn.Parameter(torch.full((n_out,), sigma0 * bound))
        self.register_buffer("eps_in", torch.zeros(n_in))
        self.register_buffer("eps_out", torch.zeros(n_out))
        self.resample()

    @torch.no_grad()
    def resample(self):
        for buf in (self.eps_in, self.eps_out):
            x = torch.randn_like(buf)
            buf.copy_(x.sign() * x.abs().sqrt())

    def forward(self, x):
        if not self.training:
            return F.linear(x, self.w_mu, self.b_mu)
        # New tensors each call, so a later in-place resample cannot disturb a pending backward.
        weight = self.w_mu + self.w_sigma * torch.outer(self.eps_out, self.eps_in)
        bias = self.b_mu + self.b_sigma * self.eps_out.clone()
        return F.linear(x, weight, bias)


class NoisyQ(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden):
        super().__init__()
        self.inp = nn.Linear(obs_dim, hidden)
        self.mid = NoisyLinear(hidden, hidden)
        self.out = NoisyLinear(hidden, n_actions)

    def resample(self):
        self.mid.resample()
        self.out.resample()

    def forward(self, x):
        return self.out(F.relu(self.mid(F.relu(self.inp(x)))))


class NStepWindow:
    def __init__(self, n, gamma):
        self.n, self.gamma, self.items = n, gamma, deque()

    def push(self, obs, action, reward, next_obs, terminated, truncated):
        """Yield (obs, action, n-step reward, bootstrap obs, bootstrap factor); consume it fully."""
        self.items.append((obs, action, reward))
        ended = terminated or truncated
        while self.items and (ended or len(self.items) == self.n):
            total = sum(self.gamma**k * item[2] for k, item in enumerate(self.items))
            factor = 0.0 if terminated else self.gamma ** len(self.items)
            first_obs, first_action, _ = self.items.popleft()
            yield first_obs, first_action, total, next_obs, factor


def to_batch(samples):
    obs, action, ret, boot_obs, factor = zip(*samples)
    return (
        torch.from_numpy(np.stack(obs)).float(),
        torch.tensor(action, dtype=torch.long),
        torch.tensor(ret, dtype=torch.float32),
        torch.from_numpy(np.stack(boot_obs)).float(),
        torch.tensor(factor, dtype=torch.float32),
    )


def update(online, target, optimizer, samples):
    obs, action, ret, boot_obs, factor = to_batch(samples)
    online.resample()
    target.resample()
    with torch.no_grad():
        y = ret + factor * target(boot_obs).max(dim=1).values
    q = online(obs).gather(1, action.unsqueeze(1)).squeeze(1)
    loss = F.smooth_l1_loss(q, y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), 10.0)
    optimizer.step()
    return loss.item()


def main(cfg: Config):
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    env = gym.make("CartPole-v1")
    obs_dim, n_actions = env.observation_space.shape[0], int(env.action_space.n)
    online = NoisyQ(obs_dim, n_actions, cfg.hidden)
    target = NoisyQ(obs_dim, n_actions, cfg.hidden)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=cfg.lr)
    window = NStepWindow(cfg.n_step, cfg.gamma)
    memory: list = []
    position = 0

    def greedy(o):
        with torch.no_grad():
            return int(online(torch.as_tensor(o, dtype=torch.float32)).argmax())

    obs, _ = env.reset(seed=cfg.seed)
    ep_return, recent, loss = 0.0, deque(maxlen=20), float("nan")
    for step in range(1, cfg.total_steps + 1):
        online.resample()
        action = greedy(obs)  # exploration comes from the parameter noise alone
        next_obs, reward, terminated, truncated, _ = env.step(action)
        for item in window.push(obs, action, float(reward), next_obs, terminated, truncated):
            if len(memory) < cfg.capacity:
                memory.append(item)
            else:
                memory[position] = item
                position = (position + 1) % cfg.capacity
        ep_return += float(reward)
        obs = next_obs
        if terminated or truncated:
            recent.append(ep_return)
            ep_return = 0.0
            obs, _ = env.reset()
        if step > cfg.warmup:
            picks = rng.integers(0, len(memory), size=cfg.batch_size)
            loss = update(online, target, optimizer, [memory[i] for i in picks])
        if step % cfg.sync_every == 0:
            target.load_state_dict(online.state_dict())
        if step % 1000 == 0:
            sigma = online.out.w_sigma.detach().abs().mean().item()
            print(f"step {step:6d} return(20) {np.mean(recent):7.1f} loss {loss:8.4f} sigma {sigma:.4f}", flush=True)

    online.eval()
    scores = []
    for k in range(5):
        obs, _ = env.reset(seed=5000 + cfg.seed + k)
        score, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(greedy(obs))
            score += float(reward)
            over = terminated or truncated
        scores.append(score)
    env.close()
    print("noise-free evaluation", scores)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    main(Config(seed=parser.parse_args().seed))
