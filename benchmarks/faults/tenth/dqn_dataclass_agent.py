"""Double DQN for CartPole-v1: a config dataclass, a numpy ring memory and a small agent class."""

from __future__ import annotations

import argparse
import copy
import random
from collections import deque
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import nn

FAULTS = {
    "noop_soft_update": [
        "targets",
        "broken",
        "The soft update rebinds a local name instead of writing the tensor, so the target network never moves.",
    ],
    "shared_features": [
        "targets",
        "broken",
        "The target network reuses the online network's feature body, so only its head lags behind.",
    ],
    "stale_input_layer": [
        "weights",
        "broken",
        "The input layer is replaced after the optimizer was built, so the optimizer steps the discarded layer.",
    ],
    "clips_the_target": [
        "rates",
        "broken",
        "Gradient clipping is given the target network's parameters, so the online gradients are never clipped.",
    ],
    "limit_stored_as_done": [
        "returns",
        "broken",
        "Episodes that run into the time limit are stored as terminal, so their value is not bootstrapped.",
    ],
    "best_not_copied": [
        "rates",
        "broken",
        "The best weights are kept as a live state_dict, so restoring them at the end changes nothing.",
    ],
    "frozen_frame": [
        "goal",
        "not proven",
        "An observation wrapper keeps returning the observation of the reset, so the agent is blind.",
    ],
}

HEALTHY = {
    "": "plain: double DQN, soft target updates, Huber loss, linearly falling epsilon",
    "hard_sync": "The target is copied whole, once every hundred updates, and stands still in between.",
    "cost_of_falling": "The reward learnt from is never positive: 0 while up and -1 at the fall.",
    "averaged_weights": "AdamW with weight decay; a moving average of the weights is kept beside the agent and evaluated.",
}


@dataclass
class Config:
    seed: int = 0
    fault: str = ""
    variant: str = ""
    total_steps: int = 22_000
    time_limit: int = 200
    capacity: int = 40_000
    batch_size: int = 64
    warmup: int = 1_000
    train_every: int = 4
    gamma: float = 0.98
    reward_scale: float = 0.1
    lr: float = 7e-4
    lr_end: float = 0.05  # as a share of lr, reached with the last step
    tau: float = 0.02
    sync_every: int = 100  # updates, only with hard_sync
    eps_start: float = 1.0
    eps_end: float = 0.04
    eps_steps: int = 10_000
    hidden: int = 128
    max_grad_norm: float = 0.1
    report_every: int = 2_000


class ResetFrame(gym.ObservationWrapper):
    """Copies observations into an own buffer (so that callers may keep them)."""

    def __init__(self, env):
        super().__init__(env)
        self.frame = None

    def reset(self, **kwargs):
        self.frame = None
        return super().reset(**kwargs)

    def observation(self, observation):
        if self.frame is None:
            self.frame = np.array(observation)
        return self.frame


class QNetwork(nn.Module):
    def __init__(self, n_in: int, n_out: int, hidden: int):
        super().__init__()
        self.n_in, self.hidden = n_in, hidden
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_out)
        nn.init.uniform_(self.head.weight, -3e-3, 3e-3)
        nn.init.zeros_(self.head.bias)

    def orthogonal_input(self, gain: float = 2.5) -> None:
        """Swap in an orthogonally initialised input layer."""
        self.body[0] = nn.Linear(self.n_in, self.hidden)
        nn.init.orthogonal_(self.body[0].weight, gain)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


class Memory:
    """Ring buffer; sampling returns torch tensors."""

    def __init__(self, capacity: int, n_obs: int, rng: np.random.Generator):
        self.s = np.zeros((capacity, n_obs), np.float32)
        self.s2 = np.zeros((capacity, n_obs), np.float32)
        self.a = np.zeros(capacity, np.int64)
        self.r = np.zeros(capacity, np.float32)
        self.end = np.zeros(capacity, np.float32)
        self.capacity, self.rng = capacity, rng
        self.head = self.size = 0

    def push(self, s, a, r, s2, end) -> None:
        i = self.head
        self.s[i], self.a[i], self.r[i], self.s2[i], self.end[i] = s, a, r, s2, end
        self.head = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, n: int):
        idx = self.rng.integers(0, self.size, size=n)
        return tuple(torch.from_numpy(col[idx]) for col in (self.s, self.a, self.r, self.s2, self.end))


class DoubleDQN:
    def __init__(self, cfg: Config, n_obs: int, n_actions: int):
        self.cfg = cfg
        self.n_actions = n_actions
        self.rng = np.random.default_rng(cfg.seed)
        self.memory = Memory(cfg.capacity, n_obs, self.rng)
        self.q = QNetwork(n_obs, n_actions, cfg.hidden)
        if cfg.fault != "stale_input_layer":
            self.q.orthogonal_input()
        decay = 1e-3 if cfg.variant == "averaged_weights" else 0.0
        self.opt = torch.optim.AdamW(self.q.parameters(), lr=cfg.lr, weight_decay=decay)
        if cfg.fault == "stale_input_layer":
            self.q.orthogonal_input()

        n_updates = max(1, (cfg.total_steps - cfg.warmup) // cfg.train_every)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.opt, 1.0, cfg.lr_end, total_iters=n_updates)

        self.q_target = copy.deepcopy(self.q)
        if cfg.fault == "shared_features":
            self.q_target.body = self.q.body
        self.average = copy.deepcopy(self.q) if cfg.variant == "averaged_weights" else None
        self.updates = 0

    def epsilon(self, step: int) -> float:
        c = self.cfg
        return max(c.eps_end, c.eps_start + (c.eps_end - c.eps_start) * step / c.eps_steps)

    @torch.no_grad()
    def act(self, obs: np.ndarray, eps: float, net: nn.Module | None = None) -> int:
        if eps > 0 and self.rng.random() < eps:
            return int(self.rng.integers(self.n_actions))
        return int((net or self.q)(torch.from_numpy(obs)).argmax())

    def td_target(self, r, s2, end) -> torch.Tensor:
        with torch.no_grad():
            best = self.q(s2).argmax(dim=1, keepdim=True)
            return r + self.cfg.gamma * (1.0 - end) * self.q_target(s2).gather(1, best).squeeze(1)

    def learn(self) -> float:
        s, a, r, s2, end = self.memory.sample(self.cfg.batch_size)
        predicted = self.q(s).gather(1, a.unsqueeze(1)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(predicted, self.td_target(r, s2, end))
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        clipped = self.q_target if self.cfg.fault == "clips_the_target" else self.q
        nn.utils.clip_grad_norm_(clipped.parameters(), self.cfg.max_grad_norm)
        self.opt.step()
        self.schedule.step()
        self.updates += 1
        self.update_target()
        if self.average is not None:
            self.blend(self.average, 0.005)
        return loss.item()

    @torch.no_grad()
    def blend(self, into: nn.Module, tau: float) -> None:
        for slow, fast in zip(into.parameters(), self.q.parameters(), strict=True):
            slow.lerp_(fast, tau)

    @torch.no_grad()
    def update_target(self) -> None:
        tau = self.cfg.tau
        if self.cfg.variant == "hard_sync":
            if self.updates % self.cfg.sync_every == 0:
                self.q_target.load_state_dict(self.q.state_dict())
        elif self.cfg.fault == "noop_soft_update":
            for slow, fast in zip(self.q_target.parameters(), self.q.parameters(), strict=True):
                slow = tau * fast + (1.0 - tau) * slow
        else:
            for slow, fast in zip(self.q_target.parameters(), self.q.parameters(), strict=True):
                slow.copy_(tau * fast + (1.0 - tau) * slow)


def make_env(cfg: Config) -> gym.Env:
    env = gym.make("CartPole-v1", max_episode_steps=cfg.time_limit)
    return ResetFrame(env) if cfg.fault == "frozen_frame" else env


def evaluate(agent: DoubleDQN, cfg: Config, episodes: int = 10) -> float:
    env = make_env(cfg)
    total = 0.0
    for k in range(episodes):
        obs, _ = env.reset(seed=10_000 + cfg.seed * 100 + k)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(agent.act(obs, 0.0, agent.average))
            total += reward
            over = terminated or truncated
    env.close()
    return total / episodes


def train(cfg: Config) -> None:
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)

    env = make_env(cfg)
    agent = DoubleDQN(cfg, env.observation_space.shape[0], int(env.action_space.n))
    returns: list[float] = []
    losses: deque[float] = deque(maxlen=200)
    best_score, best_weights = -np.inf, None

    obs, _ = env.reset(seed=cfg.seed)
    episode_return = 0.0
    for step in range(1, cfg.total_steps + 1):
        action = agent.act(obs, agent.epsilon(step))
        nxt, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        learnt = -float(terminated) if cfg.variant == "cost_of_falling" else cfg.reward_scale * reward
        agent.memory.push(obs, action, learnt, nxt, over if cfg.fault == "limit_stored_as_done" else terminated)
        obs = nxt
        episode_return += reward

        if over:
            returns.append(episode_return)
            episode_return = 0.0
            obs, _ = env.reset()
            score = float(np.mean(returns[-10:]))
            if len(returns) >= 10 and score > best_score:
                best_score = score
                weights = agent.q.state_dict()
                best_weights = weights if cfg.fault == "best_not_copied" else copy.deepcopy(weights)

        if step > cfg.warmup and step % cfg.train_every == 0:
            losses.append(agent.learn())

        if step % cfg.report_every == 0:
            print(
                f"step {step:6d} | eps {agent.epsilon(step):.2f} | episodes {len(returns):4d} | "
                f"return {np.mean(returns[-10:]):6.1f} | loss {np.mean(losses):.4f}",
                flush=True,
            )

    env.close()
    if best_weights is not None:
        agent.q.load_state_dict(best_weights)
    print(f"first 20 episodes {np.mean(returns[:20]):.1f}, last 20 episodes {np.mean(returns[-20:]):.1f}")
    print(f"best 10-episode mean {best_score:.1f}; greedy evaluation {evaluate(agent, cfg):.1f}")


def parse() -> Config:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--fault", default="", choices=["", *FAULTS])
    p.add_argument("--variant", default="", choices=list(HEALTHY))
    p.add_argument("--steps", type=int, default=Config.total_steps)
    ns = p.parse_args()
    return Config(seed=ns.seed, fault=ns.fault, variant=ns.variant, total_steps=ns.steps)


if __name__ == "__main__":
    train(parse())
