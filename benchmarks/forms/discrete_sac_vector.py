"""Discrete SAC with twin critics and a learned temperature on CartPole, using a gymnasium vector environment.

gymnasium 1.x vector environments reset on the step AFTER an end: that step's action is ignored, so the
pseudo-transition it returns is never stored. The observation returned at the end itself is the true last one.
"""

import argparse
import copy
import math

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp(n_in, n_out, width=64):
    return nn.Sequential(nn.Linear(n_in, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, n_out))


class TwinCritic(nn.Module):
    def __init__(self, obs_dim, n_actions):
        super().__init__()
        self.q1 = mlp(obs_dim, n_actions)
        self.q2 = mlp(obs_dim, n_actions)

    def forward(self, obs):
        return self.q1(obs), self.q2(obs)


class DiscreteSAC:
    def __init__(self, obs_dim, n_actions, gamma=0.99, lr=1e-3, tau=0.01, entropy_fraction=0.4):
        self.gamma, self.tau = gamma, tau
        self.actor = mlp(obs_dim, n_actions)
        self.critic = TwinCritic(obs_dim, n_actions)
        self.critic_target = copy.deepcopy(self.critic)
        for p in self.critic_target.parameters():
            p.requires_grad = False
        self.log_alpha = torch.tensor(math.log(0.2), requires_grad=True)
        self.target_entropy = entropy_fraction * math.log(n_actions)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=lr)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=lr)
        self.alpha_opt = torch.optim.Adam([self.log_alpha], lr=lr)

    def act(self, obs, greedy=False):
        with torch.no_grad():
            logits = self.actor(torch.as_tensor(obs, dtype=torch.float32))
            if greedy:
                return logits.argmax(dim=-1).numpy()
            return torch.distributions.Categorical(logits=logits).sample().numpy()

    def update(self, obs, action, reward, next_obs, terminated):
        alpha = self.log_alpha.exp().detach()

        with torch.no_grad():
            next_logp = F.log_softmax(self.actor(next_obs), dim=-1)
            t1, t2 = self.critic_target(next_obs)
            next_v = (next_logp.exp() * (torch.min(t1, t2) - alpha * next_logp)).sum(dim=-1)
            y = reward + self.gamma * (1.0 - terminated) * next_v
        q1, q2 = self.critic(obs)
        q1a = q1.gather(1, action[:, None]).squeeze(1)
        q2a = q2.gather(1, action[:, None]).squeeze(1)
        critic_loss = F.mse_loss(q1a, y) + F.mse_loss(q2a, y)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()

        # Policy: exact expectation over the actions; critics are constants here.
        logp = F.log_softmax(self.actor(obs), dim=-1)
        probs = logp.exp()
        with torch.no_grad():
            q = torch.min(*self.critic(obs))
        actor_loss = (probs * (alpha * logp - q)).sum(dim=-1).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()

        # Temperature: rises while the entropy is under its target, falls while it is over.
        entropy = -(probs * logp).sum(dim=-1).detach()
        alpha_loss = (self.log_alpha.exp() * (entropy - self.target_entropy)).mean()
        self.alpha_opt.zero_grad()
        alpha_loss.backward()
        self.alpha_opt.step()

        with torch.no_grad():
            for pt, p in zip(self.critic_target.parameters(), self.critic.parameters()):
                pt.mul_(1.0 - self.tau).add_(p, alpha=self.tau)
        return critic_loss.item(), actor_loss.item(), entropy.mean().item()


class Buffer:
    def __init__(self, capacity, obs_dim, rng):
        self.capacity, self.rng, self.n = capacity, rng, 0
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.next_obs = np.zeros((capacity, obs_dim), np.float32)
        self.action = np.zeros(capacity, np.int64)
        self.reward = np.zeros(capacity, np.float32)
        self.terminated = np.zeros(capacity, np.float32)

    def __len__(self):
        return min(self.n, self.capacity)

    def add(self, obs, action, reward, next_obs, terminated):
        i = self.n % self.capacity
        self.obs[i], self.action[i], self.reward[i] = obs, action, reward
        self.next_obs[i], self.terminated[i] = next_obs, terminated
        self.n += 1

    def sample(self, k):
        i = self.rng.integers(0, len(self), size=k)
        return [torch.from_numpy(a[i]) for a in (self.obs, self.action, self.reward, self.next_obs, self.terminated)]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--rounds", type=int, default=2400)
    ap.add_argument("--envs", type=int, default=4)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(args.envs)])
    obs_dim = envs.single_observation_space.shape[0]
    agent = DiscreteSAC(obs_dim, int(envs.single_action_space.n))
    buffer = Buffer(10000, obs_dim, rng)

    obs, _ = envs.reset(seed=args.seed)
    resetting = np.zeros(args.envs, dtype=bool)
    score = np.zeros(args.envs)
    finished, stats = [], (float("nan"),) * 3
    for it in range(1, args.rounds + 1):
        if len(buffer) < 400:
            action = rng.integers(0, int(envs.single_action_space.n), size=args.envs)
        else:
            action = agent.act(obs)
        next_obs, reward, terminated, truncated, _ = envs.step(action)
        for i in range(args.envs):
            if resetting[i]:  # this call only reset environment i
                continue
            buffer.add(obs[i], action[i], reward[i], next_obs[i], float(terminated[i]))
            score[i] += reward[i]
            if terminated[i] or truncated[i]:
                finished.append(score[i])
                score[i] = 0.0
        resetting = np.logical_or(terminated, truncated)
        obs = next_obs
        if len(buffer) >= 400:
            for _ in range(2):
                stats = agent.update(*buffer.sample(64))
        if it % 300 == 0:
            print(
                f"round {it:5d}  stored {buffer.n:6d}  return(20) {np.mean(finished[-20:]):7.1f}  critic {stats[0]:8.3f}"
                f"  entropy {stats[2]:.3f}  alpha {agent.log_alpha.exp().item():.3f}",
                flush=True,
            )
    envs.close()

    env = gym.make("CartPole-v1")
    scores = []
    for k in range(5):
        o, _ = env.reset(seed=3000 + args.seed + k)
        total, over = 0.0, False
        while not over:
            o, r, term, trunc, _ = env.step(int(agent.act(o, greedy=True)))
            total += r
            over = term or trunc
        scores.append(total)
    env.close()
    print("greedy returns", scores)


if __name__ == "__main__":
    main()
