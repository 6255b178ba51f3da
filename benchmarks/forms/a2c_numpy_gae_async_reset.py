"""A2C on CartPole-v1 over gymnasium.make_vec with its default, next-step autoreset; GAE in numpy.

Form: with next-step autoreset the step that follows an end is not a transition: the action is ignored, the reward
is 0 and the observation that comes back is the first of the new episode. Those rows are collected with the others,
so that the arrays stay rectangular, and are then masked out of the advantage statistics and of all three losses.

Why it is right: since a reset takes a row of its own, obs[t + 1] is the true successor of obs[t] in each row that
counts, so V(obs[t + 1]) bootstraps a truncated episode from its last state; termination zeroes it, and both cut the
recursion, so nothing flows out of a reset row into the episode before it.
"""

import argparse
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_actions, width=64):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(obs_dim, width), nn.Tanh(), nn.Linear(width, n_actions))
        self.v = nn.Sequential(nn.Linear(obs_dim, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.v_out = nn.Linear(width, 1)

    def forward(self, obs):
        return self.pi(obs), self.v_out(self.v(obs)).squeeze(-1)


def numpy_gae(rewards, values, terminated, truncated, gamma, lam):
    """values has one row more than the others: the value of the observation after the last step."""
    horizon = rewards.shape[0]
    advantages = np.zeros_like(rewards)
    tail = np.zeros(rewards.shape[1], dtype=np.float32)
    for t in reversed(range(horizon)):
        delta = rewards[t] + gamma * np.where(terminated[t], 0.0, values[t + 1]) - values[t]
        tail = delta + gamma * lam * np.where(terminated[t] | truncated[t], 0.0, tail)
        advantages[t] = tail
    return advantages


class Trainer:
    def __init__(self, args):
        self.args = args
        self.envs = gym.make_vec("CartPole-v1", num_envs=args.num_envs)
        self.net = ActorCritic(4, 2)
        self.optimizer = torch.optim.RMSprop(self.net.parameters(), lr=args.lr, alpha=0.99, eps=1e-5)
        self.obs, _ = self.envs.reset(seed=args.seed)
        self.needs_reset = np.zeros(args.num_envs, dtype=bool)
        self.score = np.zeros(args.num_envs)
        self.finished = deque(maxlen=50)

    def collect(self):
        T, N = self.args.horizon, self.args.num_envs
        obs = np.zeros((T + 1, N, 4), dtype=np.float32)
        actions = np.zeros((T, N), dtype=np.int64)
        rewards = np.zeros((T, N), dtype=np.float32)
        terminated = np.zeros((T, N), dtype=bool)
        truncated = np.zeros((T, N), dtype=bool)
        valid = np.zeros((T, N), dtype=bool)
        for t in range(T):
            obs[t] = self.obs
            valid[t] = ~self.needs_reset
            with torch.no_grad():
                probs = self.net.pi(torch.from_numpy(obs[t])).softmax(-1)
                actions[t] = torch.multinomial(probs, 1).squeeze(-1).numpy()
            self.obs, rewards[t], terminated[t], truncated[t], _ = self.envs.step(actions[t])
            self.needs_reset = terminated[t] | truncated[t]
            self.score += rewards[t]
            for i in np.flatnonzero(self.needs_reset):
                self.finished.append(self.score[i])
                self.score[i] = 0.0
        obs[T] = self.obs
        return obs, actions, rewards, terminated, truncated, valid

    def update(self, obs, actions, rewards, terminated, truncated, valid):
        a = self.args
        logits, values = self.net(torch.from_numpy(obs))
        adv = numpy_gae(rewards, values.detach().numpy(), terminated, truncated, a.gamma, a.lam)
        adv = torch.from_numpy(adv)[valid]
        values = values[:-1][valid]
        returns = adv + values.detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        log_probs = F.log_softmax(logits[:-1][valid], dim=-1)
        taken = log_probs.gather(1, torch.from_numpy(actions[valid]).unsqueeze(1)).squeeze(1)
        pg_loss = -(taken * adv).mean()
        v_loss = F.mse_loss(values, returns)
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        loss = pg_loss + a.vf_coef * v_loss - a.ent_coef * entropy
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizer.step()
        return v_loss.item(), entropy.item()

    def run(self):
        for k in range(1, self.args.updates + 1):
            v_loss, entropy = self.update(*self.collect())
            if k % 100 == 0:
                frames = k * self.args.horizon * self.args.num_envs
                print(f"{frames:7d} | return {np.mean(self.finished):5.1f} | v_loss {v_loss:7.2f} | H {entropy:.2f}")
        self.envs.close()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--num-envs", type=int, default=16)
    p.add_argument("--horizon", type=int, default=16)
    p.add_argument("--updates", type=int, default=1000)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--gamma", type=float, default=0.98)
    p.add_argument("--lam", type=float, default=0.95)
    p.add_argument("--vf-coef", type=float, default=0.5)
    p.add_argument("--ent-coef", type=float, default=0.005)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    Trainer(args).run()
