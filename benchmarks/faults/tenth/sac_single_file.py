"""Soft actor-critic in one file, on a small planar docking task: a puck with drag must reach a berth and stay there.

Twin critics, tuned temperature, a numpy ring buffer. The last block prints how often the berth was held.
"""
# ruff: noqa: E402

FAULTS = {
    "twin_is_one": ["signs", "broken", "the minimum in the TD target is taken of the first critic with itself"],
    "polyak_self": ["targets", "broken", "the soft update mixes the target network with itself, so it never moves"],
    "aliased_rows": [
        "returns",
        "broken",
        "the observation is a view that step() overwrites, so s and s' are stored equal",
    ],
    "double_tanh": ["shapes", "broken", "the squash correction applies tanh to the already squashed action"],
    "orphan_alpha": [
        "weights",
        "broken",
        "setting the start temperature makes a new tensor that the optimizer never sees",
    ],
    "late_zero": [
        "signs",
        "broken",
        "critic gradients are cleared after the step, so the actor loss leaks into the critics",
    ],
    "stale_berth": ["goal", "not proven", "the observation points to the berth of the previous episode"],
}
HEALTHY = {
    "": "plain: SAC with Polyak targets and one actor step per critic step",
    "hard_copy": "the target critics are copied whole every 100 updates instead of averaged",
    "log_alpha_loss": "the temperature loss uses log_alpha itself in place of its exponential",
    "slow_actor": "the actor and temperature wait for every second critic step and then step twice",
}

import argparse
import copy
import math
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    steps: int = 3000
    warmup: int = 500
    batch: int = 64
    hidden: int = 64
    memory: int = 20_000
    gamma: float = 0.97
    tau: float = 0.01
    lr_pi: float = 1e-3
    lr_q: float = 1e-3
    lr_temp: float = 2e-3
    temp_start: float = 0.2
    report: int = 300


class Docking:
    """Force in [-2, 2]^2 on a puck inside a square pool. Leaving the pool ends the episode; the clock only cuts it.

    The arrays handed out are views on the internal state: copy what you want to keep.
    """

    obs_dim, act_dim, force, clock, wall = 6, 2, 2.0, 50, 1.5

    def __init__(self, seed, stale=False):
        self.rng = np.random.default_rng(seed)
        self.state = np.zeros(self.obs_dim, dtype=np.float32)
        self.berth = np.zeros(2)
        self.stale = stale

    def _write(self, told):
        self.state[:2] = self.pos
        self.state[2:4] = self.vel
        self.state[4:] = told - self.pos
        return self.state

    def reset(self):
        self.t = 0
        self.pos = self.rng.uniform(-0.8, 0.8, 2)
        self.vel = self.rng.normal(0.0, 0.02, 2)
        former = self.berth
        self.berth = self.rng.uniform(-1.0, 1.0, 2)
        self.told = former if self.stale else self.berth
        return self._write(self.told)

    def step(self, force):
        self.t += 1
        self.vel = 0.85 * self.vel + 0.08 * np.clip(force, -self.force, self.force)
        self.pos = self.pos + self.vel
        gap = float(np.linalg.norm(self.berth - self.pos))
        crashed = bool(np.abs(self.pos).max() > self.wall)
        reward = -3.0 if crashed else 1.0 - gap - 0.01 * float(np.square(force).sum())
        return self._write(self.told), reward, crashed, self.t >= self.clock, gap


class Ring:
    """One structured numpy array, written round and round."""

    def __init__(self, size, obs_dim, act_dim, rng):
        row = [("s", "f4", obs_dim), ("a", "f4", act_dim), ("r", "f4"), ("s2", "f4", obs_dim), ("end", "f4")]
        self.rows, self.head, self.full, self.rng = np.zeros(size, dtype=row), 0, 0, rng

    def push(self, s, a, r, s2, end):
        self.rows[self.head] = (s, a, r, s2, end)
        self.head = (self.head + 1) % len(self.rows)
        self.full = min(self.full + 1, len(self.rows))

    def draw(self, n):
        picked = self.rows[self.rng.integers(0, self.full, n)]
        return [torch.from_numpy(np.ascontiguousarray(picked[k])) for k in ("s", "a", "r", "s2", "end")]


def mlp(n_in, n_hidden, n_out):
    return nn.Sequential(
        nn.Linear(n_in, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_out)
    )


class Twin(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()
        self.left = mlp(obs_dim + act_dim, hidden, 1)
        self.right = mlp(obs_dim + act_dim, hidden, 1)

    def forward(self, s, a):
        sa = torch.cat((s, a), dim=-1)
        return self.left(sa).squeeze(-1), self.right(sa).squeeze(-1)


class SquashedActor(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden, scale, fault):
        super().__init__()
        self.body = mlp(obs_dim, hidden, 2 * act_dim)
        self.scale, self.fault = scale, fault

    def forward(self, s):
        mean, raw = self.body(s).chunk(2, dim=-1)
        std = torch.exp(-1.5 + 3.0 * torch.tanh(raw / 3.0))
        u = mean + std * torch.randn_like(mean)
        a = torch.tanh(u)
        gauss = -0.5 * ((u - mean) / std).square() - std.log() - 0.5 * math.log(2 * math.pi)
        slope = 1.0 - (torch.tanh(a) if self.fault == "double_tanh" else a).square()
        logp = (gauss - torch.log(self.scale * slope + 1e-6)).sum(-1)
        return self.scale * a, logp


class SAC:
    def __init__(self, cfg, env, fault, variant):
        self.cfg, self.fault, self.variant, self.count = cfg, fault, variant, 0
        self.actor = SquashedActor(env.obs_dim, env.act_dim, cfg.hidden, env.force, fault)
        self.critic = Twin(env.obs_dim, env.act_dim, cfg.hidden)
        self.shadow = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.goal_entropy = -float(env.act_dim)
        self.opt_pi = torch.optim.Adam(self.actor.parameters(), lr=cfg.lr_pi)
        self.opt_q = torch.optim.Adam(self.critic.parameters(), lr=cfg.lr_q)
        self.opt_temp = torch.optim.Adam([self.log_alpha], lr=cfg.lr_temp)
        self.start_from(cfg.temp_start)

    def start_from(self, alpha):
        if self.fault == "orphan_alpha":
            self.log_alpha = torch.tensor(math.log(alpha), requires_grad=True)
        else:
            self.log_alpha.data.fill_(math.log(alpha))

    @torch.no_grad()
    def act(self, s):
        return self.actor(torch.as_tensor(s).unsqueeze(0))[0].squeeze(0).numpy()

    def td_target(self, r, s2, end):
        with torch.no_grad():
            a2, logp2 = self.actor(s2)
            q1, q2 = self.shadow(s2, a2)
            low = torch.minimum(q1, q1 if self.fault == "twin_is_one" else q2)
            return r + self.cfg.gamma * (1.0 - end) * (low - self.log_alpha.exp() * logp2)

    def critic_step(self, s, a, r, s2, end):
        y = self.td_target(r, s2, end)
        q1, q2 = self.critic(s, a)
        loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
        if self.fault != "late_zero":
            self.opt_q.zero_grad()
        loss.backward()
        self.opt_q.step()
        if self.fault == "late_zero":
            self.opt_q.zero_grad()
        return loss.item()

    def actor_step(self, s):
        a, logp = self.actor(s)
        loss = (self.log_alpha.exp().detach() * logp - torch.minimum(*self.critic(s, a))).mean()
        self.opt_pi.zero_grad()
        loss.backward()
        self.opt_pi.step()

        gap = (logp.detach() + self.goal_entropy).mean()
        temp = self.log_alpha if self.variant == "log_alpha_loss" else self.log_alpha.exp()
        self.opt_temp.zero_grad()
        (-temp * gap).backward()
        self.opt_temp.step()

    @torch.no_grad()
    def follow(self):
        if self.variant == "hard_copy":
            if self.count % 100 == 0:
                self.shadow.load_state_dict(self.critic.state_dict())
            return
        source = self.shadow if self.fault == "polyak_self" else self.critic
        for slow, fast in zip(self.shadow.parameters(), source.parameters(), strict=True):
            slow.lerp_(fast, self.cfg.tau)

    def update(self, ring):
        self.count += 1
        batch = ring.draw(self.cfg.batch)
        q_loss = self.critic_step(*batch)
        if self.variant != "slow_actor":
            self.actor_step(batch[0])
        elif self.count % 2 == 0:
            for _ in range(2):
                self.actor_step(batch[0])
        self.follow()
        return q_loss


def train(cfg, seed, fault, variant):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed + 1000)
    env = Docking(seed, stale=fault == "stale_berth")
    ring = Ring(cfg.memory, env.obs_dim, env.act_dim, rng)
    agent = SAC(cfg, env, fault, variant)
    keep = (lambda view: view) if fault == "aliased_rows" else np.copy

    recent, held, score, q_loss = deque(maxlen=10), deque(maxlen=10), 0.0, float("nan")
    s = keep(env.reset())
    for step in range(1, cfg.steps + 1):
        a = rng.uniform(-env.force, env.force, env.act_dim) if step <= cfg.warmup else agent.act(s)
        view, r, crashed, timeout, gap = env.step(a)
        s2 = keep(view)
        ring.push(s, a, r, s2, float(crashed))
        s, score = s2, score + r
        if crashed or timeout:
            recent.append(score)
            held.append(gap < 0.3 and not crashed)
            s, score = keep(env.reset()), 0.0
        if step > cfg.warmup:
            q_loss = agent.update(ring)
        if step % cfg.report == 0:
            alpha = agent.log_alpha.exp().item()
            print(f"step {step:5d}  return {np.mean(recent):8.2f}  q_loss {q_loss:7.3f}  alpha {alpha:.3f}", flush=True)
    print(f"berth held in {100 * np.mean(held):.0f} % of the last {len(held)} episodes")


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--steps", type=int, default=Config.steps)
    cli.add_argument("--fault", default="", choices=["", *FAULTS])
    cli.add_argument("--variant", default="", choices=list(HEALTHY))
    args = cli.parse_args()
    torch.set_num_threads(1)
    train(Config(steps=args.steps), args.seed, args.fault, args.variant)
