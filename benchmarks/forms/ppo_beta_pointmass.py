"""PPO with a Beta policy for bounded continuous actions, in a small type-hinted library style."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Beta
from torch.nn.functional import softplus


class PointMassEnv(gym.Env):
    """Steer a 2-D point mass to the origin; leaving the arena terminates, 80 steps truncate."""

    def __init__(self, max_steps: int = 80) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.max_steps = max_steps

    def _obs(self) -> np.ndarray:
        return np.concatenate([self.pos, self.vel]).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.pos = self.np_random.uniform(-1.0, 1.0, 2)
        self.vel = self.np_random.uniform(-0.3, 0.3, 2)
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        a = np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0)
        self.vel = self.vel + 0.1 * (3.0 * a - 0.5 * self.vel)
        self.pos = self.pos + 0.1 * self.vel
        self.t += 1
        reward = float(np.exp(-4.0 * np.sum(self.pos**2)) - 0.01 * np.sum(a**2))
        terminated = bool(np.any(np.abs(self.pos) > 1.5))
        truncated = self.t >= self.max_steps
        return self._obs(), reward, terminated, truncated, {}


@dataclass(frozen=True)
class PPOConfig:
    n_envs: int = 8
    horizon: int = 128
    iterations: int = 60
    epochs: int = 6
    minibatch: int = 256
    gamma: float = 0.97
    lam: float = 0.95
    clip: float = 0.2
    ent_coef: float = 0.0
    lr: float = 1e-3


class BetaActor(nn.Module):
    """Beta(alpha, beta) per dimension with alpha, beta > 1 (unimodal), affinely mapped to [low, high]."""

    EPS = 1e-5

    def __init__(self, obs_dim: int, low: np.ndarray, high: np.ndarray, hidden: int = 64) -> None:
        super().__init__()
        dim = low.shape[0]
        self.net = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2 * dim)
        )
        self.register_buffer("low", torch.as_tensor(low))
        self.register_buffer("span", torch.as_tensor(high - low))

    def dist(self, obs: Tensor) -> Beta:
        alpha, beta = (1.0 + softplus(self.net(obs))).chunk(2, dim=-1)
        return Beta(alpha, beta)

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """A unit-interval sample and its log-density as an environment action."""
        d = self.dist(obs)
        unit = d.sample().clamp(self.EPS, 1.0 - self.EPS)
        return unit, self.log_prob(d, unit)

    def log_prob(self, d: Beta, unit: Tensor) -> Tensor:
        return (d.log_prob(unit) - self.span.log()).sum(-1)

    def to_env(self, unit: Tensor) -> np.ndarray:
        return (self.low + self.span * unit).numpy()


@dataclass
class Batch:
    obs: Tensor
    unit: Tensor
    logp: Tensor
    adv: Tensor
    ret: Tensor

    def minibatches(self, size: int) -> Iterator[Batch]:
        for idx in torch.randperm(len(self.obs)).split(size):
            yield Batch(self.obs[idx], self.unit[idx], self.logp[idx], self.adv[idx], self.ret[idx])


class PPO:
    def __init__(self, cfg: PPOConfig, seed: int) -> None:
        self.cfg = cfg
        self.envs = [PointMassEnv() for _ in range(cfg.n_envs)]
        self.obs = np.stack([e.reset(seed=seed * 100 + i)[0] for i, e in enumerate(self.envs)])
        space = self.envs[0].action_space
        self.actor = BetaActor(4, space.low, space.high)
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=cfg.lr)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=2e-3)
        self.running = np.zeros(cfg.n_envs)
        self.finished: deque[float] = deque(maxlen=50)

    @torch.no_grad()
    def collect(self) -> Batch:
        c = self.cfg
        obs_l, next_l, unit_l, logp_l, rew_l, term_l, end_l = [], [], [], [], [], [], []
        for _ in range(c.horizon):
            obs = torch.as_tensor(self.obs)
            unit, logp = self.actor.sample(obs)
            env_actions = self.actor.to_env(unit)
            stepped = [env.step(a) for env, a in zip(self.envs, env_actions)]
            nxt = np.stack([s[0] for s in stepped])
            rew = np.array([s[1] for s in stepped], dtype=np.float32)
            term = np.array([s[2] for s in stepped])
            end = term | np.array([s[3] for s in stepped])
            obs_l.append(obs), next_l.append(torch.as_tensor(nxt)), unit_l.append(unit), logp_l.append(logp)
            rew_l.append(torch.as_tensor(rew))
            term_l.append(torch.as_tensor(term, dtype=torch.float32))
            end_l.append(torch.as_tensor(end, dtype=torch.float32))
            self.running += rew
            cur = nxt.copy()
            for i in np.flatnonzero(end):
                self.finished.append(float(self.running[i]))
                self.running[i] = 0.0
                cur[i], _ = self.envs[i].reset()
            self.obs = cur
        obs, nxt, unit, logp, rew, term, end = map(torch.stack, (obs_l, next_l, unit_l, logp_l, rew_l, term_l, end_l))
        value = self.critic(obs).squeeze(-1)
        next_value = self.critic(nxt).squeeze(-1) * (1.0 - term)  # true successors; zero only on termination
        delta = rew + c.gamma * next_value - value
        adv = torch.zeros_like(delta)
        acc = torch.zeros(c.n_envs)
        for t in reversed(range(c.horizon)):
            acc = delta[t] + c.gamma * c.lam * (1.0 - end[t]) * acc
            adv[t] = acc
        ret = adv + value
        return Batch(obs.flatten(0, 1), unit.flatten(0, 1), logp.flatten(), adv.flatten(), ret.flatten())

    def update(self, batch: Batch) -> None:
        c = self.cfg
        batch.adv = (batch.adv - batch.adv.mean()) / (batch.adv.std() + 1e-8)
        for _ in range(c.epochs):
            for mb in batch.minibatches(c.minibatch):
                d = self.actor.dist(mb.obs)
                ratio = torch.exp(self.actor.log_prob(d, mb.unit) - mb.logp)
                surrogate = torch.min(ratio * mb.adv, ratio.clamp(1 - c.clip, 1 + c.clip) * mb.adv)
                actor_loss = -surrogate.mean() - c.ent_coef * d.entropy().sum(-1).mean()
                self.actor_opt.zero_grad()
                actor_loss.backward()
                nn.utils.clip_grad_norm_(self.actor.parameters(), 0.5)
                self.actor_opt.step()

                critic_loss = nn.functional.mse_loss(self.critic(mb.obs).squeeze(-1), mb.ret)
                self.critic_opt.zero_grad()
                critic_loss.backward()
                self.critic_opt.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)
    cfg = PPOConfig()
    algo = PPO(cfg, seed)
    for it in range(1, cfg.iterations + 1):
        algo.update(algo.collect())
        if it % 5 == 0:
            print(f"iter {it:3d}  mean return {np.mean(algo.finished):7.2f}", flush=True)


if __name__ == "__main__":
    main()
