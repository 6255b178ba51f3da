"""MBPO-like agent on Pendulum: probabilistic dynamics ensemble + short imagined rollouts + SAC on mixed data."""

import argparse
import copy
import itertools
import math

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

OBS, ACT, SCALE = 3, 1, 2.0
GAMMA, TAU, LR = 0.98, 0.01, 1e-3
MEMBERS, ROLLOUT, ROLLOUT_BATCH = 3, 2, 200
BATCH, REAL_SHARE = 128, 0.25


def mlp(*sizes, act=nn.ReLU):
    pairs = list(zip(sizes[:-1], sizes[1:]))
    layers = list(itertools.chain.from_iterable((nn.Linear(i, o), act()) for i, o in pairs))
    return nn.Sequential(*layers[:-1])


class Ring:
    def __init__(self, capacity):
        self.capacity, self.n = capacity, 0
        self.data = torch.zeros(capacity, OBS + ACT + 1 + OBS + 1)  # obs, act, rew, next obs, terminated

    def __len__(self):
        return min(self.n, self.capacity)

    def add(self, rows):
        idx = (torch.arange(rows.shape[0]) + self.n) % self.capacity
        self.data[idx] = rows
        self.n += rows.shape[0]

    def rows(self, k):
        return self.data[torch.randint(0, len(self), (k,))]


def split(rows):
    return torch.split(rows, [OBS, ACT, 1, OBS, 1], dim=1)


class DynamicsEnsemble:
    """Each member predicts a Gaussian over (normalised) observation change and reward."""

    def __init__(self):
        self.members = nn.ModuleList(mlp(OBS + ACT, 64, 64, 2 * (OBS + 1), act=nn.SiLU) for _ in range(MEMBERS))
        self.opt = torch.optim.Adam(self.members.parameters(), lr=LR)
        self.x_mean, self.x_std = torch.zeros(OBS + ACT), torch.ones(OBS + ACT)
        self.y_mean, self.y_std = torch.zeros(OBS + 1), torch.ones(OBS + 1)

    @staticmethod
    def _head(out):
        mean, raw = out.chunk(2, dim=-1)
        return mean, -4.75 + 5.25 * torch.tanh(raw)  # log variance in (-10, 0.5)

    def fit(self, real, grad_steps):
        obs, act, rew, nxt, _ = split(real.data[: len(real)])
        x, y = torch.cat([obs, act], dim=1), torch.cat([nxt - obs, rew], dim=1)
        self.x_mean, self.x_std = x.mean(dim=0), x.std(dim=0) + 1e-6
        self.y_mean, self.y_std = y.mean(dim=0), y.std(dim=0) + 1e-6
        x, y = (x - self.x_mean) / self.x_std, (y - self.y_mean) / self.y_std
        for _ in range(grad_steps):
            loss = 0.0
            for member in self.members:  # an independent minibatch for each member
                i = torch.randint(0, x.shape[0], (BATCH,))
                mean, logvar = self._head(member(x[i]))
                loss = loss + 0.5 * ((mean - y[i]).pow(2) * torch.exp(-logvar) + logvar).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item() / MEMBERS

    @torch.no_grad()
    def imagine(self, obs, act):
        x = (torch.cat([obs, act], dim=1) - self.x_mean) / self.x_std
        out = torch.stack([member(x) for member in self.members])
        pick = torch.randint(0, MEMBERS, (obs.shape[0],))
        mean, logvar = self._head(out[pick, torch.arange(obs.shape[0])])
        y = (mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)) * self.y_std + self.y_mean
        nxt = obs + y[:, :OBS]
        angle = nxt[:, :2] / nxt[:, :2].norm(dim=1, keepdim=True).clamp(min=1e-6)  # back on the unit circle
        nxt = torch.cat([angle, nxt[:, 2:].clamp(-8.0, 8.0)], dim=1)
        return nxt, y[:, OBS:]


class SAC:
    def __init__(self):
        self.actor = mlp(OBS, 64, 64, 2 * ACT)
        self.q = nn.ModuleList([mlp(OBS + ACT, 64, 64, 1), mlp(OBS + ACT, 64, 64, 1)])
        self.q_target = copy.deepcopy(self.q).requires_grad_(False)
        self.log_alpha = torch.tensor(math.log(0.2), requires_grad=True)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=LR)
        self.q_opt = torch.optim.Adam(self.q.parameters(), lr=LR)
        self.alpha_opt = torch.optim.Adam([self.log_alpha], lr=LR)

    def sample(self, obs):
        mu, log_std = self.actor(obs).chunk(2, dim=-1)
        dist = torch.distributions.Normal(mu, log_std.clamp(-5, 2).exp())
        u = dist.rsample()
        logp = (dist.log_prob(u) - 2 * (math.log(2) - u - F.softplus(-2 * u))).sum(dim=-1, keepdim=True)
        return torch.tanh(u), logp

    @staticmethod
    def min_q(pair, obs, act):
        x = torch.cat([obs, act], dim=1)
        return torch.min(pair[0](x), pair[1](x))

    def update(self, rows):
        obs, act, rew, nxt, term = split(rows)
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_act, next_logp = self.sample(nxt)
            y = rew + GAMMA * (1 - term) * (self.min_q(self.q_target, nxt, next_act) - alpha * next_logp)
        x = torch.cat([obs, act], dim=1)
        q_loss = sum(F.mse_loss(q(x), y) for q in self.q)
        self.q_opt.zero_grad()
        q_loss.backward()
        self.q_opt.step()

        new_act, logp = self.sample(obs)
        pi_loss = (alpha * logp - self.min_q(self.q, obs, new_act)).mean()
        self.actor_opt.zero_grad()
        pi_loss.backward()
        self.actor_opt.step()

        alpha_loss = -(self.log_alpha * (logp.detach() - ACT)).mean()  # target entropy -ACT
        self.alpha_opt.zero_grad()
        alpha_loss.backward()
        self.alpha_opt.step()
        with torch.no_grad():
            for pt, p in zip(self.q_target.parameters(), self.q.parameters()):
                pt.lerp_(p, TAU)
        return q_loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--steps", type=int, default=2000)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    env = gym.make("Pendulum-v1")
    model, agent = DynamicsEnsemble(), SAC()
    real, imagined = Ring(args.steps), Ring(6000)
    start, n_real = 400, int(BATCH * REAL_SHARE)
    obs, _ = env.reset(seed=args.seed)
    score, q_loss, m_loss = 0.0, float("nan"), float("nan")
    for t in range(1, args.steps + 1):
        if t <= start:
            act = rng.uniform(-1, 1, size=ACT).astype(np.float32)
        else:
            with torch.no_grad():
                act = agent.sample(torch.from_numpy(obs).unsqueeze(0))[0][0].numpy()
        nxt, rew, terminated, truncated, _ = env.step(SCALE * act)
        row = np.concatenate([obs, act, [rew], nxt, [float(terminated)]]).astype(np.float32)
        real.add(torch.from_numpy(row).unsqueeze(0))
        score += float(rew)
        obs = nxt
        if terminated or truncated:
            print(
                f"step {t:5d}  return {score:9.1f}  model nll {m_loss:7.3f}  q {q_loss:8.3f}  imagined {imagined.n}",
                flush=True,
            )
            score = 0.0
            obs, _ = env.reset()
        if t >= start and t % 200 == 0:
            m_loss = model.fit(real, grad_steps=300 if t == start else 100)
        if t >= start and t % 25 == 0:
            s = split(real.rows(ROLLOUT_BATCH))[0]
            for _ in range(ROLLOUT):
                with torch.no_grad():
                    a, _ = agent.sample(s)
                s2, r = model.imagine(s, a)
                imagined.add(torch.cat([s, a, r, s2, torch.zeros_like(r)], dim=1))  # Pendulum never terminates
                s = s2
        if t >= start:
            for _ in range(2):
                q_loss = agent.update(torch.cat([real.rows(n_real), imagined.rows(BATCH - n_real)]))
    env.close()


if __name__ == "__main__":
    main()
