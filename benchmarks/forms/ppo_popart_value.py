"""PPO on a batch of pendulums whose returns are in the hundreds, with a PopArt value head.

Form: the critic's last layer predicts normalised returns. Whenever the running mean and deviation of the return
targets move, weight and bias of that layer are rewritten in place, so that the de-normalised prediction is the same
before and after; then the critic is regressed on normalised targets.

Why it is right: GAE works with de-normalised values throughout; the in-place change of the head is outside autograd
and keeps the function (asserted on the rollout in each iteration). The pendulum never terminates: after 200 steps
an episode is cut and its last value is bootstrapped from the true successor, kept before the reset. The Gaussian is
not squashed; the environment clips the torque, and log-probs belong to the sample before clipping.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.distributions import Independent, Normal


@dataclass(frozen=True)
class Config:
    seed: int = 0
    n_envs: int = 32
    horizon: int = 64
    iterations: int = 50
    epochs: int = 8
    minibatch: int = 256
    gamma: float = 0.95
    lam: float = 0.95
    clip: float = 0.2
    lr: float = 1e-3
    popart_beta: float = 0.1
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5


class PendulumBatch:
    """The dynamics of Pendulum-v1 for many pendulums at once; episodes are cut at different times."""

    g, m, length, dt, max_speed, max_torque, limit = 10.0, 1.0, 1.0, 0.05, 8.0, 2.0, 200

    def __init__(self, n: int, rng: np.random.Generator):
        self.n, self.rng = n, rng
        self.theta, self.speed = np.zeros(n), np.zeros(n)
        self.age = rng.integers(0, self.limit, n)
        self._restart(np.ones(n, dtype=bool))

    def _restart(self, which: np.ndarray) -> None:
        k = int(which.sum())
        self.theta[which] = self.rng.uniform(-np.pi, np.pi, k)
        self.speed[which] = self.rng.uniform(-1.0, 1.0, k)

    def observe(self) -> torch.Tensor:
        obs = np.stack([np.cos(self.theta), np.sin(self.theta), self.speed / self.max_speed], axis=1)
        return torch.as_tensor(obs, dtype=torch.float32)

    def step(self, action: np.ndarray):
        """Returns (reward, true successor, cut); episodes that were cut are restarted."""
        u = np.clip(action, -self.max_torque, self.max_torque)
        angle = (self.theta + np.pi) % (2 * np.pi) - np.pi
        reward = -(angle**2 + 0.1 * self.speed**2 + 0.001 * u**2)
        accel = 1.5 * self.g / self.length * np.sin(self.theta) + 3.0 / (self.m * self.length**2) * u
        self.speed = np.clip(self.speed + accel * self.dt, -self.max_speed, self.max_speed)
        self.theta = self.theta + self.speed * self.dt
        successor = self.observe()
        self.age += 1
        cut = self.age >= self.limit
        self._restart(cut)
        self.age[cut] = 0
        return torch.as_tensor(reward, dtype=torch.float32), successor, torch.as_tensor(cut)


class PopArtHead(nn.Module):
    def __init__(self, width: int, beta: float):
        super().__init__()
        self.linear = nn.Linear(width, 1)
        self.beta = beta
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("second", torch.ones(()))
        self.register_buffer("updates", torch.zeros(()))

    @property
    def std(self) -> torch.Tensor:
        return (self.second - self.mean**2).clamp_min(1e-4).sqrt()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).squeeze(-1)

    def denormalise(self, v: torch.Tensor) -> torch.Tensor:
        return v * self.std + self.mean

    def normalise(self, y: torch.Tensor) -> torch.Tensor:
        return (y - self.mean) / self.std

    @torch.no_grad()
    def track(self, targets: torch.Tensor) -> None:
        old_mean, old_std = self.mean.clone(), self.std.clone()
        self.updates += 1
        rate = max(self.beta, 1.0 / self.updates.item())
        self.mean.lerp_(targets.mean(), rate)
        self.second.lerp_((targets**2).mean(), rate)
        self.linear.weight.mul_(old_std / self.std)
        self.linear.bias.mul_(old_std).add_(old_mean - self.mean).div_(self.std)


class Agent(nn.Module):
    def __init__(self, beta: float):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.log_std = nn.Parameter(torch.zeros(1))
        self.trunk = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.head = PopArtHead(64, beta)
        with torch.no_grad():
            self.policy[-1].weight.mul_(0.1)

    def dist(self, obs: torch.Tensor) -> Independent:
        mean = self.policy(obs)
        return Independent(Normal(mean, self.log_std.exp().expand_as(mean), validate_args=False), 1)

    def value(self, obs: torch.Tensor) -> torch.Tensor:
        return self.head.denormalise(self.head(self.trunk(obs)))


@torch.no_grad()
def rollout(env: PendulumBatch, agent: Agent, cfg: Config):
    steps = []
    for _ in range(cfg.horizon):
        obs = env.observe()
        dist = agent.dist(obs)
        action = dist.sample()
        reward, successor, cut = env.step(action.squeeze(-1).double().numpy())
        steps.append((obs, action, dist.log_prob(action), reward, successor, cut))
    return [torch.stack(column) for column in zip(*steps, strict=True)]


@torch.no_grad()
def advantages(agent: Agent, obs, reward, successor, cut, cfg: Config):
    value, next_value = agent.value(obs), agent.value(successor)
    delta = reward + cfg.gamma * next_value - value
    adv, acc = torch.empty_like(delta), torch.zeros(cfg.n_envs)
    for t in reversed(range(cfg.horizon)):
        acc = delta[t] + cfg.gamma * cfg.lam * acc * ~cut[t]
        adv[t] = acc
    return adv, adv + value


def train(cfg: Config) -> None:
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    env = PendulumBatch(cfg.n_envs, np.random.default_rng(cfg.seed))
    agent = Agent(cfg.popart_beta)
    optimizer = torch.optim.Adam(agent.parameters(), lr=cfg.lr, eps=1e-5)

    for iteration in range(1, cfg.iterations + 1):
        obs, action, logp, reward, successor, cut = rollout(env, agent, cfg)
        adv, target = advantages(agent, obs, reward, successor, cut, cfg)
        mean_reward = reward.mean().item()
        obs, action, logp, adv, target = (x.flatten(0, 1) for x in (obs, action, logp, adv, target))

        with torch.no_grad():
            before = agent.value(obs)
            agent.head.track(target)
            assert torch.allclose(before, agent.value(obs), rtol=1e-3, atol=1e-2)
        normal_target = agent.head.normalise(target)

        for _ in range(cfg.epochs):
            for idx in torch.randperm(len(adv)).split(cfg.minibatch):
                ratio = (agent.dist(obs[idx]).log_prob(action[idx]) - logp[idx]).exp()
                a = (adv[idx] - adv[idx].mean()) / (adv[idx].std() + 1e-8)
                policy_loss = -torch.min(ratio * a, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * a).mean()
                value_loss = (agent.head(agent.trunk(obs[idx])) - normal_target[idx]).square().mean()
                optimizer.zero_grad()
                (policy_loss + cfg.vf_coef * value_loss).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), cfg.max_grad_norm)
                optimizer.step()

        if iteration == 1 or iteration % 5 == 0:
            print(
                f"iter {iteration:3d}  reward/step {mean_reward:7.3f} (x200 = {200 * mean_reward:8.1f})  "
                f"v_loss {value_loss.item():.4f}  popart mean {agent.head.mean.item():8.2f} "
                f"std {agent.head.std.item():6.2f}  action std {agent.log_std.exp().item():.3f}"
            )


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--seed", type=int, default=0)
    train(Config(seed=cli.parse_args().seed))
