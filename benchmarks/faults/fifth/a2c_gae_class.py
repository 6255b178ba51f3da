"""Advantage actor-critic with one shared trunk, generalised advantages and RMSprop on a small docking task."""

import argparse
import math
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn
from torch.nn import functional as F

FAULTS = {
    "cleared_between": ["weights", "broken", "gradients are cleared between the critic's backward and the actor's"],
    "scaled_before_targets": ["returns", "broken", "advantages are standardised before the critic's targets use them"],
    "softmax_as_logits": ["shapes", "broken", "the head ends in a softmax whose output is used as logits"],
    "nll_negated": ["signs", "broken", "cross-entropy, already a negative log-prob, gets one more minus"],
    "optimizer_reborn": ["rates", "broken", "RMSprop is made anew at each update, so its running squares are lost"],
    "millimetres": ["goal", "not proven", "distance in mm, thresholds in m: each episode is lost at its first step"],
}
HEALTHY = {
    "": "plain: actor loss spelt with cross-entropy, two backward passes into one optimizer",
    "accumulate": "the rollout is worked off in four parts whose quartered gradients are gathered",
    "warmup_huber": "the rate climbs from zero during the first tenth; Huber loss for the critic, scaled down",
    "obs_norm": "observations are standardised with running statistics that stop moving after a third",
    "two_optimizers": "the value head has an optimizer and a rate of its own",
}


class Docking(gym.Env):
    """A craft drifts in the plane and fires one of four jets (or none) to stop at the origin."""

    JETS = np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)], dtype=np.float64)

    def __init__(self, unit=1.0):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(len(self.JETS))
        self.unit = unit

    def _obs(self):
        return np.concatenate([self.pos, 5.0 * self.vel]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        angle, far = self.np_random.uniform(0, 2 * math.pi), self.np_random.uniform(0.7, 1.3)
        self.pos = far * np.array([math.cos(angle), math.sin(angle)])
        self.vel = self.np_random.normal(0.0, 0.03, 2)
        return self._obs(), {}

    def step(self, action):
        self.vel = 0.88 * self.vel + 0.02 * self.JETS[action]
        self.pos = self.pos + self.vel
        distance = self.unit * math.hypot(*self.pos)
        reward = -min(0.05, 0.015 * distance)
        docked = distance < 0.15 and math.hypot(*self.vel) < 0.08
        lost = distance > 1.8
        return self._obs(), reward + docked - 4.0 * lost, docked or lost, False, {"is_success": docked}


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_act, hidden=64, softmax=False):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.policy = nn.Linear(hidden, n_act)
        self.value = nn.Linear(hidden, 1)
        nn.init.orthogonal_(self.policy.weight, 0.01)
        if softmax:
            self.policy = nn.Sequential(self.policy, nn.Softmax(dim=-1))

    def forward(self, x):
        h = self.trunk(x)
        return self.policy(h), self.value(h).squeeze(-1)


class RunningNorm:
    def __init__(self, size):
        self.count, self.mean, self.m2, self.frozen = 1e-4, np.zeros(size), np.full(size, 1e-4), False

    def __call__(self, x):
        return ((x - self.mean) / np.sqrt(self.m2 / self.count + 1e-6)).clip(-8, 8).astype(np.float32)

    def see(self, x):
        if not self.frozen:
            n, gap = len(x), x.mean(0) - self.mean
            self.m2 += x.var(0) * n + gap**2 * self.count * n / (self.count + n)
            self.mean = self.mean + gap * n / (self.count + n)
            self.count += n


class A2C:
    gamma, lam, n_steps, n_envs = 0.99, 0.95, 16, 16
    lr, value_coef, entropy_coef, max_norm = 7e-4, 0.5, 0.005, 0.5

    def __init__(self, seed, fault, variant, total_steps):
        self.fault, self.variant = fault, variant
        unit = 1000.0 if fault == "millimetres" else 1.0
        self.envs = SyncVectorEnv(
            [lambda: gym.wrappers.TimeLimit(Docking(unit), 60)] * self.n_envs, autoreset_mode=AutoresetMode.DISABLED
        )
        self.obs, _ = self.envs.reset(seed=seed)
        self.norm = RunningNorm(4) if variant == "obs_norm" else None
        self.net = ActorCritic(4, 5, softmax=fault == "softmax_as_logits")
        self.optimizers = self.build_optimizers()
        self.n_updates = total_steps // (self.n_steps * self.n_envs)
        self.update_count, self.running, self.history, self.docked = 0, np.zeros(self.n_envs), [], []

    def build_optimizers(self):
        options = {"alpha": 0.99, "eps": 1e-5}
        if self.variant == "two_optimizers":
            body = [*self.net.trunk.parameters(), *self.net.policy.parameters()]
            return [
                torch.optim.RMSprop(body, lr=self.lr, **options),
                torch.optim.RMSprop(self.net.value.parameters(), lr=2 * self.lr, **options),
            ]
        return [torch.optim.RMSprop(self.net.parameters(), lr=self.lr, **options)]

    def look(self, obs):
        return torch.as_tensor(obs if self.norm is None else self.norm(obs))

    @torch.no_grad()
    def rollout(self):
        """Returns observations, actions, advantages and value targets, each of shape (steps, envs, ...)."""
        seen, acts, values, deltas, chain = [], [], [], [], []
        for _ in range(self.n_steps):
            x = self.look(self.obs)
            logits, value = self.net(x)
            action = torch.distributions.Categorical(logits=logits).sample()
            obs, reward, terminated, truncated, info = self.envs.step(action.numpy())
            if self.norm is not None:
                self.norm.see(obs)
            _, after = self.net(self.look(obs))
            alive = torch.as_tensor(~terminated).float()
            ended = terminated | truncated
            deltas.append(torch.as_tensor(reward).float() + self.gamma * alive * after - value)
            chain.append(torch.as_tensor(~ended).float())
            seen.append(x)
            acts.append(action)
            values.append(value)
            self.running += reward
            if ended.any():
                self.history.extend(self.running[ended].tolist())
                self.docked.extend(info["is_success"][ended].tolist())
                self.running[ended] = 0.0
                obs, _ = self.envs.reset(options={"reset_mask": ended})
            self.obs = obs
        advantage, carry = [], torch.zeros(self.n_envs)
        for delta, goes_on in zip(reversed(deltas), reversed(chain), strict=True):
            carry = delta + self.gamma * self.lam * goes_on * carry
            advantage.insert(0, carry)
        advantage, values = torch.stack(advantage), torch.stack(values)
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        targets = (scaled if self.fault == "scaled_before_targets" else advantage) + values
        return torch.stack(seen), torch.stack(acts), scaled, targets

    def losses(self, x, act, adv, target):
        logits, value = self.net(x)
        nll = F.cross_entropy(logits, act, reduction="none")
        entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
        sign = -1.0 if self.fault == "nll_negated" else 1.0
        actor = sign * (nll * adv).mean() - self.entropy_coef * entropy
        if self.variant == "warmup_huber":
            critic = 0.5 * F.smooth_l1_loss(value, target)
        else:
            critic = F.mse_loss(value, target)
        return actor, self.value_coef * critic, entropy

    def update(self):
        batch = [part.flatten(0, 1) for part in self.rollout()]
        parts = 4 if self.variant == "accumulate" else 1
        if self.fault == "optimizer_reborn":
            self.optimizers = self.build_optimizers()
        if self.variant == "warmup_huber":
            for group in self.optimizers[0].param_groups:
                group["lr"] = self.lr * min(1.0, 10 * self.update_count / self.n_updates)
        self.net.zero_grad()
        for piece in zip(*(x.chunk(parts) for x in batch), strict=True):
            actor, critic, entropy = self.losses(*piece)
            (critic / parts).backward(retain_graph=True)
            if self.fault == "cleared_between":
                self.net.zero_grad()
            (actor / parts).backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), self.max_norm)
        for optimizer in self.optimizers:
            optimizer.step()
        self.update_count += 1
        if self.norm is not None and 3 * self.update_count > self.n_updates:
            self.norm.frozen = True
        return actor.item(), critic.item(), entropy.item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--steps", type=int, default=300_000)
    cli.add_argument("--fault", default="", choices=["", *FAULTS])
    cli.add_argument("--variant", default="", choices=list(HEALTHY))
    args = cli.parse_args()
    torch.manual_seed(args.seed)
    agent = A2C(args.seed, args.fault, args.variant, args.steps)
    clock = time.monotonic()
    while agent.update_count < agent.n_updates:
        actor, critic, entropy = agent.update()
        if time.monotonic() - clock > 3:
            clock = time.monotonic()
            print(
                f"[{agent.update_count}/{agent.n_updates}] return {np.mean(agent.history[-100:]):.2f} docked "
                f"{np.mean(agent.docked[-100:]):.2f} actor {actor:.3f} critic {critic:.4f} entropy {entropy:.2f}"
            )
    n = max(1, len(agent.history) // 10)
    print(f"first tenth {np.mean(agent.history[:n]):.2f}, last tenth {np.mean(agent.history[-n:]):.2f}")


if __name__ == "__main__":
    main()
