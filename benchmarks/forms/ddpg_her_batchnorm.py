"""DDPG with Ornstein-Uhlenbeck noise, batch norm in the actor and hindsight relabelling on a 2-D reaching task."""

import argparse
import copy

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class ReachEnv(gym.Env):
    """A point moves in a square. Reward 0 inside the goal disc, else -1. Never terminates; truncates after 25 steps."""

    RADIUS, STEP, HORIZON = 0.15, 0.15, 25

    def __init__(self):
        square = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = gym.spaces.Dict(
            observation=square,
            achieved_goal=gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
            desired_goal=gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
        )
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    @classmethod
    def compute_reward(cls, achieved, desired):
        return -(np.linalg.norm(achieved - desired, axis=-1) > cls.RADIUS).astype(np.float32)

    def _obs(self):
        return {"observation": self.pos.copy(), "achieved_goal": self.pos.copy(), "desired_goal": self.goal.copy()}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.pos = self.np_random.uniform(-0.9, 0.9, size=2).astype(np.float32)
        self.goal = self.np_random.uniform(-0.9, 0.9, size=2).astype(np.float32)
        return self._obs(), {}

    def step(self, action):
        action = np.clip(np.asarray(action, dtype=np.float32), -1.0, 1.0)
        self.pos = np.clip(self.pos + np.float32(self.STEP) * action, -1.0, 1.0).astype(np.float32)
        self.t += 1
        reward = float(self.compute_reward(self.pos, self.goal))
        return self._obs(), reward, False, self.t >= self.HORIZON, {}


class OUNoise:
    def __init__(self, size, rng, theta=0.15, sigma=0.3):
        self.size, self.rng, self.theta, self.sigma = size, rng, theta, sigma
        self.reset()

    def reset(self):
        self.x = np.zeros(self.size)

    def __call__(self):
        self.x = self.x - self.theta * self.x + self.sigma * self.rng.normal(size=self.size)
        return self.x


class HindsightReplay:
    def __init__(self, capacity, rng, k_future=4):
        self.rng, self.k, self.capacity, self.n = rng, k_future, capacity, 0
        self.state = np.zeros((capacity, 4), np.float32)  # position, goal
        self.action = np.zeros((capacity, 2), np.float32)
        self.reward = np.zeros((capacity, 1), np.float32)
        self.next_state = np.zeros((capacity, 4), np.float32)
        self.terminated = np.zeros((capacity, 1), np.float32)

    def _put(self, pos, goal, action, reward, next_pos, terminated):
        i = self.n % self.capacity
        self.state[i] = np.concatenate([pos, goal])
        self.next_state[i] = np.concatenate([next_pos, goal])
        self.action[i], self.reward[i], self.terminated[i] = action, reward, terminated
        self.n += 1

    def add_episode(self, episode):
        for t, (obs, action, reward, nxt, terminated) in enumerate(episode):
            self._put(obs["observation"], obs["desired_goal"], action, reward, nxt["observation"], terminated)
            for j in self.rng.integers(t, len(episode), size=self.k):
                goal = episode[j][3]["achieved_goal"]  # reached at this step or later
                new_reward = ReachEnv.compute_reward(nxt["achieved_goal"], goal)
                self._put(obs["observation"], goal, action, new_reward, nxt["observation"], terminated)

    def sample(self, size):
        i = self.rng.integers(0, min(self.n, self.capacity), size=size)
        return [
            torch.from_numpy(x[i]) for x in (self.state, self.action, self.reward, self.next_state, self.terminated)
        ]


class DDPG:
    def __init__(self, gamma=0.95, tau=0.02, lr=1e-3):
        self.gamma, self.tau = gamma, tau
        self.actor = nn.Sequential(
            nn.Linear(4, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Linear(64, 2),
            nn.Tanh(),
        )
        self.critic = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        self.actor_target, self.critic_target = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.actor.eval()
        self.actor_target.eval()  # the target always uses the running statistics
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=lr)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=lr)

    @torch.no_grad()
    def act(self, obs):
        x = np.concatenate([obs["observation"], obs["desired_goal"]])[None]
        return self.actor(torch.from_numpy(x))[0].numpy()  # actor is in eval mode outside its update

    def update(self, state, action, reward, next_state, terminated):
        with torch.no_grad():
            next_q = self.critic_target(torch.cat([next_state, self.actor_target(next_state)], dim=1))
            y = reward + self.gamma * (1.0 - terminated) * next_q
            y = y.clamp(-1.0 / (1.0 - self.gamma), 0.0)  # range of possible returns
        critic_loss = F.mse_loss(self.critic(torch.cat([state, action], dim=1)), y)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()

        self.actor.train()
        actor_loss = -self.critic(torch.cat([state, self.actor(state)], dim=1)).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
        self.actor.eval()

        with torch.no_grad():
            for target, source in ((self.actor_target, self.actor), (self.critic_target, self.critic)):
                for pt, p in zip(target.parameters(), source.parameters()):
                    pt.lerp_(p, self.tau)
                for bt, b in zip(target.buffers(), source.buffers()):
                    bt.copy_(b)
        return critic_loss.item(), actor_loss.item()


def success_rate(agent, seed, episodes=20):
    env, hits = ReachEnv(), 0
    for k in range(episodes):
        obs, _ = env.reset(seed=seed + k)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
            over = terminated or truncated
        hits += reward == 0.0
    return hits / episodes


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--episodes", type=int, default=200)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    env, agent = ReachEnv(), DDPG()
    replay, noise = HindsightReplay(50_000, rng), OUNoise(2, rng)
    losses = (float("nan"), float("nan"))
    print(f"untrained success {success_rate(agent, 999 + args.seed):.2f}")
    for ep in range(1, args.episodes + 1):
        obs, _ = env.reset(seed=args.seed if ep == 1 else None)
        noise.reset()
        episode, over, total = [], False, 0.0
        while not over:
            action = np.clip(agent.act(obs) + noise(), -1.0, 1.0).astype(np.float32)
            nxt, reward, terminated, truncated, _ = env.step(action)
            episode.append((obs, action, reward, nxt, float(terminated)))
            total += reward
            obs, over = nxt, terminated or truncated
        replay.add_episode(episode)
        if ep >= 5:
            for _ in range(25):
                losses = agent.update(*replay.sample(128))
        if ep % 20 == 0:
            print(
                f"episode {ep:4d}  return {total:6.1f}  critic {losses[0]:.4f}  actor {losses[1]:7.3f}"
                f"  success {success_rate(agent, 999 + args.seed):.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
