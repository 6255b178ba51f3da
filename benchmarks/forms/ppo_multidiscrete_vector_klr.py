"""PPO for a MultiDiscrete action space: several Categorical heads, value clipping, KL-adaptive learning rate.

Uses gymnasium's SyncVectorEnv with its default NEXT_STEP autoreset: the step after an end ignores the
action and only returns the reset observation, so that step is left out of the loss, and the observation
that follows an ending step is the episode's true last one (so its value is the truncation bootstrap).
"""

import argparse
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class FetchEnv(gym.Env):
    """Walk on a 6x6 board (dx, dy in -1..1) and press 'grab' on the item's cell."""

    SIZE = 6

    def __init__(self):
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (6,), np.float32)
        self.action_space = gym.spaces.MultiDiscrete([3, 3, 2])

    def _obs(self):
        n = self.SIZE - 1
        d = (self.item - self.pos) / n
        return np.array([*(self.pos / n), *(self.item / n), *d], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = self.np_random.integers(0, self.SIZE, 2)
        self.item = self.np_random.integers(0, self.SIZE, 2)
        return self._obs(), {}

    def step(self, action):
        dx, dy, grab = (int(a) for a in action)
        if grab:
            hit = bool((self.pos == self.item).all())
            return self._obs(), (1.0 if hit else -0.1), hit, False, {}
        self.pos = np.clip(self.pos + np.array([dx - 1, dy - 1]), 0, self.SIZE - 1)
        return self._obs(), -0.03, False, False, {}


def make_env():
    return gym.wrappers.TimeLimit(FetchEnv(), max_episode_steps=30)


class MultiHeadAgent(nn.Module):
    def __init__(self, obs_dim, nvec, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.heads = nn.ModuleList([nn.Linear(hidden, int(n)) for n in nvec])
        self.critic = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def dists(self, obs):
        z = self.body(obs)
        return [Categorical(logits=head(z)) for head in self.heads]

    def value(self, obs):
        return self.critic(obs).squeeze(-1)


def joint_log_prob(dists, actions):
    return torch.stack([d.log_prob(actions[..., k]) for k, d in enumerate(dists)], dim=-1).sum(-1)


def joint_entropy(dists):
    return torch.stack([d.entropy() for d in dists], dim=-1).sum(-1)


def gae(rewards, values, terminated, done, gamma, lam):
    """values has T+1 rows; row t+1 is the value of the true successor whenever step t was a real step."""
    T = rewards.shape[0]
    adv = torch.zeros_like(rewards)
    running = torch.zeros_like(rewards[0])
    for t in range(T - 1, -1, -1):
        delta = rewards[t] + gamma * values[t + 1] * (1.0 - terminated[t]) - values[t]
        running = delta + gamma * lam * (1.0 - done[t]) * running
        adv[t] = running
    return adv


def train(
    seed,
    n_envs=16,
    horizon=64,
    iterations=70,
    epochs=4,
    minibatch=256,
    gamma=0.97,
    lam=0.95,
    clip=0.2,
    v_clip=0.2,
    ent_coef=0.01,
    target_kl=0.01,
):
    envs = gym.vector.SyncVectorEnv([make_env] * n_envs)
    nvec = envs.single_action_space.nvec
    obs_dim = envs.single_observation_space.shape[0]
    agent = MultiHeadAgent(obs_dim, nvec)
    lr = 1e-3
    opt = torch.optim.Adam(agent.parameters(), lr=lr, eps=1e-5)
    obs_np, _ = envs.reset(seed=seed)
    prev_done = np.zeros(n_envs, dtype=bool)
    ep_ret, finished = np.zeros(n_envs), deque(maxlen=100)

    for it in range(1, iterations + 1):
        obs = torch.zeros(horizon, n_envs, obs_dim)
        act = torch.zeros(horizon, n_envs, len(nvec), dtype=torch.long)
        logp, rew, term, done = (torch.zeros(horizon, n_envs) for _ in range(4))
        val = torch.zeros(horizon + 1, n_envs)
        valid = torch.zeros(horizon, n_envs, dtype=torch.bool)
        for t in range(horizon):
            obs[t] = torch.as_tensor(obs_np)
            valid[t] = torch.from_numpy(~prev_done)
            with torch.no_grad():
                dists = agent.dists(obs[t])
                act[t] = torch.stack([d.sample() for d in dists], dim=-1)
                logp[t] = joint_log_prob(dists, act[t])
                val[t] = agent.value(obs[t])
            obs_np, r, te, tr, _ = envs.step(act[t].numpy())
            rew[t] = torch.as_tensor(r, dtype=torch.float32)
            term[t] = torch.as_tensor(te, dtype=torch.float32)
            prev_done = np.logical_or(te, tr)
            done[t] = torch.as_tensor(prev_done, dtype=torch.float32)
            ep_ret += r
            for i in np.flatnonzero(prev_done):
                finished.append(ep_ret[i])
                ep_ret[i] = 0.0
        with torch.no_grad():
            val[horizon] = agent.value(torch.as_tensor(obs_np))
        adv = gae(rew, val, term, done, gamma, lam)
        ret = adv + val[:-1]

        # keep real transitions only
        b_obs, b_act, b_logp, b_adv, b_ret, b_val = (x[valid] for x in (obs, act, logp, adv, ret, val[:-1]))
        b_adv = (b_adv - b_adv.mean()) / (b_adv.std() + 1e-8)
        kls = []
        for _ in range(epochs):
            for idx in torch.randperm(b_obs.shape[0]).split(minibatch):
                dists = agent.dists(b_obs[idx])
                log_ratio = joint_log_prob(dists, b_act[idx]) - b_logp[idx]
                ratio = log_ratio.exp()
                pg = -torch.min(ratio * b_adv[idx], ratio.clamp(1 - clip, 1 + clip) * b_adv[idx]).mean()
                v = agent.value(b_obs[idx])
                v_clipped = b_val[idx] + (v - b_val[idx]).clamp(-v_clip, v_clip)
                vf = 0.5 * torch.max((v - b_ret[idx]) ** 2, (v_clipped - b_ret[idx]) ** 2).mean()
                loss = pg + 0.5 * vf - ent_coef * joint_entropy(dists).mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                opt.step()
                kls.append(((ratio - 1.0) - log_ratio).mean().item())
        kl = float(np.mean(kls))
        if kl > 2.0 * target_kl:
            lr = max(1e-4, lr / 1.5)
        elif kl < 0.5 * target_kl:
            lr = min(5e-3, lr * 1.5)
        for group in opt.param_groups:
            group["lr"] = lr
        if it % 5 == 0:
            print(f"iter {it:3d}  return {np.mean(finished):6.3f}  kl {kl:.4f}  lr {lr:.2e}", flush=True)
    envs.close()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    seed = ap.parse_args().seed
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)
    train(seed)
