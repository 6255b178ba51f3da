"""Soft actor-critic on Pendulum: twin critics, their two targets, a temperature that is learned."""

import argparse
import hashlib
import json
import math
import random
from copy import deepcopy
from itertools import chain, pairwise

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


def mlp(sizes, activation=nn.ReLU):
    layers = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])


class SquashedGaussianActor(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden, act_limit):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.mu = nn.Linear(hidden, act_dim)
        self.log_std = nn.Linear(hidden, act_dim)
        self.act_limit = act_limit

    def forward(self, obs):
        h = self.body(obs)
        log_std = self.log_std(h).clamp(LOG_STD_MIN, LOG_STD_MAX)
        normal = Normal(self.mu(h), log_std.exp())
        u = normal.rsample()
        squashed = torch.tanh(u)
        log_prob = normal.log_prob(u).sum(-1) - torch.log(1 - squashed.pow(2) + 1e-6).sum(-1)
        return self.act_limit * squashed, log_prob


class Critic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()
        self.q = mlp([obs_dim + act_dim, hidden, hidden, 1])

    def forward(self, obs, act):
        return self.q(torch.cat([obs, act], dim=-1)).squeeze(-1)


class Replay:
    def __init__(self, size, obs_dim, act_dim, generator):
        self.o = np.zeros((size, obs_dim), np.float32)
        self.a = np.zeros((size, act_dim), np.float32)
        self.r = np.zeros(size, np.float32)
        self.o2 = np.zeros((size, obs_dim), np.float32)
        self.d = np.zeros(size, np.float32)
        self.n = 0
        self.generator = generator

    def store(self, o, a, r, o2, d):
        i = self.n % len(self.r)
        self.o[i], self.a[i], self.r[i], self.o2[i], self.d[i] = o, a, r, o2, d
        self.n += 1

    def batch(self, k):
        i = self.generator.integers(0, min(self.n, len(self.r)), k)
        return tuple(torch.as_tensor(x[i]) for x in (self.o, self.a, self.r, self.o2, self.d))


class SAC:
    def __init__(self, obs_dim, act_dim, act_limit, *, hidden=64, lr=1e-3, gamma=0.98, tau=0.01, alpha=0.2):
        self.gamma, self.tau = gamma, tau
        self.actor = SquashedGaussianActor(obs_dim, act_dim, hidden, act_limit)
        self.q1, self.q2 = Critic(obs_dim, act_dim, hidden), Critic(obs_dim, act_dim, hidden)
        self.q1_target, self.q2_target = deepcopy(self.q1), deepcopy(self.q2)
        for p in chain(self.q1_target.parameters(), self.q2_target.parameters()):
            p.requires_grad_(False)
        self.log_alpha = torch.tensor(math.log(alpha), requires_grad=True)
        self.target_entropy = -float(act_dim)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=lr)
        self.critic_opt = torch.optim.Adam(chain(self.q1.parameters(), self.q2.parameters()), lr=lr)
        self.alpha_opt = torch.optim.Adam([self.log_alpha], lr=lr)
        self.steps = {"actor": 0, "critic": 0, "alpha": 0}
        self.target_updates = 0

    @torch.no_grad()
    def act(self, obs):
        return self.actor(torch.as_tensor(obs).unsqueeze(0))[0][0].numpy()

    def learn(self, o, a, r, o2, d):
        alpha = self.log_alpha.exp().detach()

        with torch.no_grad():
            a2, logp2 = self.actor(o2)
            q_next = torch.min(self.q1_target(o2, a2), self.q2_target(o2, a2))
            backup = r + self.gamma * (1 - d) * (q_next - alpha * logp2)
        critic_loss = F.mse_loss(self.q1(o, a), backup) + F.mse_loss(self.q2(o, a), backup)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()
        self.steps["critic"] += 1

        pi, logp = self.actor(o)
        actor_loss = (alpha * logp - torch.min(self.q1(o, pi), self.q2(o, pi))).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
        self.steps["actor"] += 1

        alpha_loss = -(self.log_alpha * (logp.detach() + self.target_entropy)).mean()
        self.alpha_opt.zero_grad()
        alpha_loss.backward()
        self.alpha_opt.step()
        self.steps["alpha"] += 1

        with torch.no_grad():
            for net, slow in ((self.q1, self.q1_target), (self.q2, self.q2_target)):
                for p, p_slow in zip(net.parameters(), slow.parameters(), strict=True):
                    p_slow.lerp_(p, self.tau)
        self.target_updates += 1


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=11)
    ap.add_argument("--steps", type=int, default=850)
    ap.add_argument("--start", type=int, default=200)
    ap.add_argument("--batch", type=int, default=64)
    args = ap.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    generator = np.random.default_rng(args.seed)

    env = gym.make("Pendulum-v1")
    env.action_space.seed(args.seed)
    obs_dim, act_dim = env.observation_space.shape[0], env.action_space.shape[0]
    agent = SAC(obs_dim, act_dim, float(env.action_space.high[0]))
    replay = Replay(50_000, obs_dim, act_dim, generator)

    returns, episode_return, env_steps = [], 0.0, 0
    o, _ = env.reset(seed=args.seed)
    for t in range(args.steps):
        a = env.action_space.sample() if t < args.start else agent.act(o)
        o2, r, terminated, truncated, _ = env.step(a)
        env_steps += 1
        replay.store(o, a, r, o2, float(terminated))
        episode_return += float(r)
        o = o2
        if terminated or truncated:
            returns.append(episode_return)
            print(f"t={t + 1} return={episode_return:.3f} alpha={agent.log_alpha.exp().item():.4f}")
            episode_return = 0.0
            o, _ = env.reset()
        if t >= args.start:
            agent.learn(*replay.batch(args.batch))
    env.close()

    sha = hashlib.sha256()
    for net in (agent.actor, agent.q1, agent.q2, agent.q1_target, agent.q2_target):
        for p in net.parameters():
            sha.update(p.detach().numpy().tobytes())
    sha.update(agent.log_alpha.detach().numpy().tobytes())
    sha.update(json.dumps([torch.rand(1).item(), generator.random(), random.random()]).encode())
    facts = {
        "optimizer_steps": agent.steps,
        "owned": {
            "actor": len(list(agent.actor.parameters())),
            "critic": len(list(agent.q1.parameters())) + len(list(agent.q2.parameters())),
            "alpha": 1,
        },
        "learning_rate": {"actor": 1e-3, "critic": 1e-3, "alpha": 1e-3},
        "episodes": len(returns),
        "episode_returns": returns,
        "env_steps": env_steps,
        "target_updates": agent.target_updates,
        "tau": agent.tau,
        "gamma": agent.gamma,
        "alpha_at_start": 0.2,
        "alpha_at_end": agent.log_alpha.exp().item(),
        "batch": args.batch,
    }
    print(json.dumps({"weights_sha256": sha.hexdigest(), "facts": facts}))


if __name__ == "__main__":
    main()
