"""Recurrent PPO (GRU) on CartPole with the velocities hidden; minibatches are whole short sequences."""

import argparse
from collections import deque
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


@dataclass
class Config:
    n_envs: int = 8
    horizon: int = 128
    seq_len: int = 16
    iterations: int = 65
    epochs: int = 4
    seqs_per_minibatch: int = 16
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    vf_coef: float = 0.5
    ent_coef: float = 0.005
    lr: float = 1e-3
    max_grad_norm: float = 0.5
    hidden: int = 64


class HideVelocities(gym.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observation(self, observation):
        return np.array([observation[0] / 2.4, observation[2] / 0.2095], dtype=np.float32)


class GRUActorCritic(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden):
        super().__init__()
        self.enc = nn.Linear(obs_dim, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.pi = nn.Linear(hidden, n_actions)
        self.v = nn.Linear(hidden, 1)
        nn.init.orthogonal_(self.pi.weight, 0.01)
        nn.init.zeros_(self.pi.bias)

    def step(self, obs, h, start):
        """start = 1 where obs is the first of an episode: the carried state is wiped there."""
        h = self.cell(torch.tanh(self.enc(obs)), h * (1.0 - start).unsqueeze(-1))
        return self.pi(h), self.v(h).squeeze(-1), h

    def unroll(self, obs, h, starts):
        x = torch.tanh(self.enc(obs))
        keep = (1.0 - starts).unsqueeze(-1)
        hs = []
        for t in range(obs.shape[0]):
            h = self.cell(x[t], h * keep[t])
            hs.append(h)
        hs = torch.stack(hs)
        return self.pi(hs), self.v(hs).squeeze(-1)


class RecurrentPPO:
    def __init__(self, cfg, seed):
        self.cfg = cfg
        self.envs = [
            gym.wrappers.TransformReward(HideVelocities(gym.make("CartPole-v1")), lambda r: 0.1 * r)
            for _ in range(cfg.n_envs)
        ]
        first = [env.reset(seed=1000 * seed + i)[0] for i, env in enumerate(self.envs)]
        self.obs = torch.as_tensor(np.stack(first))
        self.h = torch.zeros(cfg.n_envs, cfg.hidden)
        self.start = torch.ones(cfg.n_envs)
        self.net = GRUActorCritic(2, 2, cfg.hidden)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr, eps=1e-5)
        self.running = np.zeros(cfg.n_envs)
        self.finished = deque(maxlen=30)

    @torch.no_grad()
    def collect(self):
        c = self.cfg
        T, N = c.horizon, c.n_envs
        b = {
            "obs": torch.zeros(T, N, 2),
            "h": torch.zeros(T, N, c.hidden),
            "start": torch.zeros(T, N),
            "act": torch.zeros(T, N, dtype=torch.long),
            "logp": torch.zeros(T, N),
            "val": torch.zeros(T, N),
            "rew": torch.zeros(T, N),
            "term": torch.zeros(T, N),
            "trunc": torch.zeros(T, N),
            "final_val": torch.zeros(T, N),
        }
        for t in range(T):
            b["obs"][t], b["h"][t], b["start"][t] = self.obs, self.h, self.start
            logits, value, h_after = self.net.step(self.obs, self.h, self.start)
            dist = Categorical(logits=logits)
            action = dist.sample()
            b["act"][t], b["logp"][t], b["val"][t] = action, dist.log_prob(action), value
            next_obs = torch.zeros_like(self.obs)
            start = torch.zeros(N)
            for i, env in enumerate(self.envs):
                o, r, terminated, truncated, _ = env.step(action[i].item())
                b["rew"][t, i] = r
                self.running[i] += 1
                if terminated:
                    b["term"][t, i] = 1.0
                elif truncated:
                    # value of the true last observation, given the state carried up to it
                    b["trunc"][t, i] = 1.0
                    last = torch.as_tensor(o).unsqueeze(0)
                    _, fv, _ = self.net.step(last, h_after[i : i + 1], torch.zeros(1))
                    b["final_val"][t, i] = fv[0]
                if terminated or truncated:
                    start[i] = 1.0
                    self.finished.append(self.running[i])
                    self.running[i] = 0.0
                    o, _ = env.reset()
                next_obs[i] = torch.as_tensor(o)
            self.obs, self.h, self.start = next_obs, h_after, start
        _, last_val, _ = self.net.step(self.obs, self.h, self.start)

        adv = torch.zeros(T, N)
        gae = torch.zeros(N)
        for t in reversed(range(T)):
            following = b["val"][t + 1] if t + 1 < T else last_val
            ended = torch.clamp(b["term"][t] + b["trunc"][t], max=1.0)
            next_val = (1.0 - ended) * following + b["trunc"][t] * b["final_val"][t]
            delta = b["rew"][t] + c.gamma * next_val - b["val"][t]
            gae = delta + c.gamma * c.lam * (1.0 - ended) * gae
            adv[t] = gae
        b["adv"], b["ret"] = adv, adv + b["val"]
        return b

    def update(self, b):
        c = self.cfg
        n_chunks = c.horizon // c.seq_len

        def to_seqs(x):  # [T, N, ...] -> [L, chunks * N, ...]
            x = x.reshape(n_chunks, c.seq_len, c.n_envs, *x.shape[2:]).transpose(0, 1)
            return x.reshape(c.seq_len, n_chunks * c.n_envs, *x.shape[3:])

        adv = (b["adv"] - b["adv"].mean()) / (b["adv"].std() + 1e-8)
        obs, start, act, logp_old, ret, adv = map(to_seqs, (b["obs"], b["start"], b["act"], b["logp"], b["ret"], adv))
        h0 = b["h"][:: c.seq_len].reshape(n_chunks * c.n_envs, c.hidden)
        for _ in range(c.epochs):
            for idx in torch.randperm(h0.shape[0]).split(c.seqs_per_minibatch):
                logits, value = self.net.unroll(obs[:, idx], h0[idx], start[:, idx])
                dist = Categorical(logits=logits)
                ratio = (dist.log_prob(act[:, idx]) - logp_old[:, idx]).exp()
                a = adv[:, idx]
                pg = -torch.min(ratio * a, ratio.clamp(1 - c.clip, 1 + c.clip) * a).mean()
                vf = 0.5 * (value - ret[:, idx]).pow(2).mean()
                loss = pg + c.vf_coef * vf - c.ent_coef * dist.entropy().mean()
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), c.max_grad_norm)
                self.opt.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    cfg = Config()
    algo = RecurrentPPO(cfg, args.seed)
    for it in range(1, cfg.iterations + 1):
        algo.update(algo.collect())
        if it % 5 == 0:
            print(
                f"iter {it:3d} steps {it * cfg.horizon * cfg.n_envs:6d} episode length {np.mean(algo.finished):6.1f}",
                flush=True,
            )
