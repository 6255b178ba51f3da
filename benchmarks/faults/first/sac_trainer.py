"""Soft actor-critic with a Trainer and a dataclass of settings: twin critics, tuned temperature, a docking task."""

import argparse
import copy
import itertools
import math
import random
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

FAULTS = {
    "entropy_unmasked": ["returns", "broken", "the entropy term of the target stands outside the done mask (SB3 #77)"],
    "squash_jacobian": ["shapes", "broken", "the tanh correction uses the squashed action again (Tianshou #591)"],
    "logprob_unsummed": ["shapes", "broken", "log-probs of the two action dimensions are not summed (Tianshou #49)"],
    "same_critic": ["signs", "broken", "the minimum is taken of the first critic and itself (ray #7354)"],
    "actor_leak": ["signs", "broken", "gradients of the actor loss are left in the critics' next step (ray #65125)"],
    "alpha_reaches_actor": ["signs", "broken", "the temperature loss keeps its graph to the actor (ManiSkill #899)"],
    "q_detached": ["signs", "broken", "Q is detached in the actor loss: only entropy is left to learn from"],
    "stale_alpha": ["weights", "broken", "the optimizer holds the old temperature tensor after a reload (SB3 #392)"],
    "one_target_synced": ["targets", "broken", "only the first critic's target follows; the second keeps its start"],
}
HEALTHY = {
    "": "plain",
    "log_alpha_loss": "log_alpha in place of alpha in the temperature loss (CleanRL #414)",
    "delayed_actor": "actor and temperature step at every second critic step",
}

HIDDEN = (64, 64)


class Docking(gym.Env):
    """Steer a craft with drag to the berth at the origin; leaving the basin or docking ends the episode."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-4.0, 4.0, (4,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        angle, radius = self.np_random.uniform(0, 2 * math.pi), self.np_random.uniform(0.8, 1.4)
        self.place = radius * np.array([math.cos(angle), math.sin(angle)])
        self.speed = self.np_random.uniform(-0.05, 0.05, 2)
        return self.view(), {}

    def view(self) -> np.ndarray:
        return np.concatenate([self.place, 5.0 * self.speed]).astype(np.float32)

    def step(self, action):
        self.speed = 0.7 * self.speed + 0.08 * np.clip(action, -1.0, 1.0)
        self.place = self.place + self.speed
        distance = float(np.hypot(*self.place))
        docked, lost = distance < 0.15, distance > 2.0
        reward = -0.2 * distance + 5.0 * docked - 5.0 * lost
        return self.view(), reward, docked or lost, False, {}


@dataclass
class Settings:
    seed: int = 0
    steps: int = 5000
    fault: str = ""
    variant: str = ""
    gamma: float = 0.97
    tau: float = 0.01
    batch: int = 128
    rate: float = 1e-3
    warmup: int = 500
    update_every: int = 2


def mlp(sizes: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Actor(nn.Module):
    def __init__(self, s: Settings, n_obs: int, n_act: int) -> None:
        super().__init__()
        self.fault = s.fault
        self.net = mlp([n_obs, *HIDDEN, 2 * n_act])

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.net(obs).chunk(2, dim=-1)
        dist = torch.distributions.Normal(mean, log_std.clamp(-5.0, 2.0).exp())
        raw = dist.rsample()
        action = raw.tanh()
        squashed = action.tanh() if self.fault == "squash_jacobian" else action
        log_prob = dist.log_prob(raw) - torch.log(1.0 - squashed.pow(2) + 1e-6)
        return action, log_prob if self.fault == "logprob_unsummed" else log_prob.sum(-1, keepdim=True)


class TwinCritic(nn.Module):
    def __init__(self, s: Settings, n_obs: int, n_act: int) -> None:
        super().__init__()
        self.fault = s.fault
        self.first, self.second = (mlp([n_obs + n_act, *HIDDEN, 1]) for _ in range(2))

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.cat([obs, action], dim=-1)
        return self.first(x), self.second(x)

    def least(self, obs: Tensor, action: Tensor) -> Tensor:
        q1, q2 = self(obs, action)
        return torch.min(q1, q1 if self.fault == "same_critic" else q2)


class Memory:
    def __init__(self, size: int, widths: tuple[int, ...], seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.columns = [np.zeros((size, w), np.float32) for w in widths]
        self.count = 0

    def store(self, *row) -> None:
        for column, item in zip(self.columns, row, strict=True):
            column[self.count % len(column)] = item
        self.count += 1

    def batch(self, n: int) -> list[Tensor]:
        pick = self.rng.integers(0, min(self.count, len(self.columns[0])), n)
        return [torch.from_numpy(column[pick]) for column in self.columns]


class Trainer:
    def __init__(self, s: Settings) -> None:
        self.s = s
        self.env = gym.wrappers.TimeLimit(Docking(), max_episode_steps=60)
        n_obs, n_act = 4, 2
        self.actor, self.critic = Actor(s, n_obs, n_act), TwinCritic(s, n_obs, n_act)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = torch.tensor(-1.0, requires_grad=True)
        self.entropy_goal = -float(n_act)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=s.rate)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=s.rate)
        self.alpha_opt = torch.optim.Adam([self.log_alpha], lr=s.rate)
        if s.fault == "stale_alpha":
            self.log_alpha = self.log_alpha.detach().clone().requires_grad_()
        self.memory = Memory(50_000, (n_obs, n_act, 1, n_obs, 1), s.seed)
        self.scores: list[float] = []
        self.updates = 0

    def critic_loss(self, obs, action, reward, following, done) -> Tensor:
        with torch.no_grad():
            next_action, next_log_prob = self.actor(following)
            ahead = self.target.least(following, next_action)
            entropy = -self.log_alpha.exp() * next_log_prob
            if self.s.fault == "entropy_unmasked":
                goal = reward + self.s.gamma * ((1.0 - done) * ahead + entropy)
            else:
                goal = reward + self.s.gamma * (1.0 - done) * (ahead + entropy)
        q1, q2 = self.critic(obs, action)
        return F.mse_loss(q1, goal) + F.mse_loss(q2, goal)

    def actor_losses(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        action, log_prob = self.actor(obs)
        q = self.critic.least(obs, action)
        if self.s.fault == "q_detached":
            q = q.detach()
        actor_loss = (self.log_alpha.exp().detach() * log_prob - q).mean()
        gap = log_prob + self.entropy_goal
        if self.s.fault != "alpha_reaches_actor":
            gap = gap.detach()
        weight = self.log_alpha if self.s.variant == "log_alpha_loss" else self.log_alpha.exp()
        return actor_loss, -(weight * gap).mean()

    def update(self) -> None:
        batch = self.memory.batch(self.s.batch)
        if self.s.fault != "actor_leak":
            self.critic_opt.zero_grad()
        self.critic_loss(*batch).backward()
        self.critic_opt.step()
        if self.s.fault == "actor_leak":
            self.critic_opt.zero_grad()
        self.updates += 1
        if self.s.variant != "delayed_actor" or self.updates % 2 == 0:
            actor_loss, alpha_loss = self.actor_losses(batch[0])
            self.actor_opt.zero_grad()
            self.alpha_opt.zero_grad()
            (actor_loss + alpha_loss).backward()
            self.actor_opt.step()
            self.alpha_opt.step()
        with torch.no_grad():
            pairs = [(self.critic.first, self.target.first), (self.critic.second, self.target.second)]
            for fast, slow in pairs[:1] if self.s.fault == "one_target_synced" else pairs:
                for p, q in zip(fast.parameters(), slow.parameters(), strict=True):
                    q.lerp_(p, self.s.tau)

    def fit(self) -> list[float]:
        obs, _ = self.env.reset(seed=self.s.seed)
        self.env.action_space.seed(self.s.seed)
        score = 0.0
        for step in range(1, self.s.steps + 1):
            if step <= self.s.warmup:
                action = self.env.action_space.sample()
            else:
                with torch.no_grad():
                    action = self.actor(torch.from_numpy(obs).unsqueeze(0))[0].squeeze(0).numpy()
            following, reward, terminated, truncated, _ = self.env.step(action)
            self.memory.store(obs, action, reward, following, terminated)
            obs, score = following, score + reward
            if terminated or truncated:
                self.scores.append(score)
                obs, score = self.env.reset()[0], 0.0
            if step > self.s.warmup and step % self.s.update_every == 0:
                self.update()
            if step % 1000 == 0:
                alpha = self.log_alpha.exp().item()
                print(
                    f"step={step} episodes={len(self.scores)} mean={np.mean(self.scores[-20:]):.2f} alpha={alpha:.3f}"
                )
        return self.scores


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    settings = Settings(**vars(parser.parse_args()))
    torch.set_num_threads(1)
    random.seed(settings.seed)
    torch.manual_seed(settings.seed)
    began = time.process_time()
    scores = Trainer(settings).fit()
    spent = time.process_time() - began
    print(f"result first20={np.mean(scores[:20]):.2f} last20={np.mean(scores[-20:]):.2f} cpu={spent:.1f}s")


if __name__ == "__main__":
    main()
