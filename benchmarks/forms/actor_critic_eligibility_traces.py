"""Online actor-critic with eligibility traces (TD(lambda)); the gradients are written into .grad by hand."""

import argparse
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


class WalledGrid(gym.Env):
    """6x6 grid, one-hot observation, a wall with one gap, goal in the far corner, random start."""

    MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self, size=6):
        self.size = size
        self.goal = (size - 1, size - 1)
        self.walls = {(r, 3) for r in range(size) if r != 2}
        self.free = [
            (r, c) for r in range(size) for c in range(size) if (r, c) not in self.walls and (r, c) != self.goal
        ]
        self.observation_space = gym.spaces.Box(0.0, 1.0, (size * size,), np.float32)
        self.action_space = gym.spaces.Discrete(4)

    def _obs(self):
        x = np.zeros(self.size * self.size, dtype=np.float32)
        x[self.pos[0] * self.size + self.pos[1]] = 1.0
        return x

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = self.free[int(self.np_random.integers(len(self.free)))]
        return self._obs(), {}

    def step(self, action):
        dr, dc = self.MOVES[int(action)]
        r, c = self.pos[0] + dr, self.pos[1] + dc
        if 0 <= r < self.size and 0 <= c < self.size and (r, c) not in self.walls:
            self.pos = (r, c)
        terminated = self.pos == self.goal
        return self._obs(), (1.0 if terminated else -0.01), terminated, False, {}


class Trace:
    """Accumulating eligibility trace over a list of parameters."""

    def __init__(self, params, decay):
        self.params = list(params)
        self.decay = decay
        self.z = [torch.zeros_like(p) for p in self.params]

    def reset(self):
        for z in self.z:
            z.zero_()

    def accumulate(self, scalar):
        """z <- gamma * lambda * z + d scalar / d params"""
        for z, g in zip(self.z, torch.autograd.grad(scalar, self.params)):
            z.mul_(self.decay).add_(g)

    def add_to_grad(self, coefficient):
        """p.grad += coefficient * z"""
        for p, z in zip(self.params, self.z):
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad.add_(z, alpha=coefficient)


def linear(n_in, n_out):
    layer = nn.Linear(n_in, n_out, bias=False)
    nn.init.zeros_(layer.weight)
    return layer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=22_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)

    gamma, lam = 0.97, 0.8
    env = gym.wrappers.TimeLimit(WalledGrid(), max_episode_steps=80)
    actor, critic = linear(36, 4), linear(36, 1)
    optimizer = torch.optim.SGD(
        [
            {"params": actor.parameters(), "lr": 0.15},
            {"params": critic.parameters(), "lr": 0.1},
        ]
    )
    actor_trace = Trace(actor.parameters(), gamma * lam)
    critic_trace = Trace(critic.parameters(), gamma * lam)

    obs, _ = env.reset(seed=args.seed)
    ep_return, ep_length = 0.0, 0
    returns, lengths = deque(maxlen=100), deque(maxlen=100)
    for step in range(1, args.steps + 1):
        x = torch.from_numpy(obs)
        dist = Categorical(logits=actor(x))
        action = dist.sample()
        value = critic(x).squeeze()

        next_obs, reward, terminated, truncated, _ = env.step(action.item())

        # a time limit is not the end of the world: only termination removes the bootstrap
        if terminated:
            next_value = 0.0
        else:
            with torch.no_grad():
                next_value = critic(torch.from_numpy(next_obs)).item()
        delta = reward + gamma * next_value - value.item()

        critic_trace.accumulate(value)
        actor_trace.accumulate(dist.log_prob(action))

        # descent on -delta * z is the ascent step  w += lr * delta * z
        optimizer.zero_grad()
        critic_trace.add_to_grad(-delta)
        actor_trace.add_to_grad(-delta)
        optimizer.step()

        ep_return += reward
        ep_length += 1
        obs = next_obs
        if terminated or truncated:
            returns.append(ep_return)
            lengths.append(ep_length)
            ep_return, ep_length = 0.0, 0
            actor_trace.reset()
            critic_trace.reset()
            obs, _ = env.reset()
        if step % 2000 == 0:
            print(
                f"step {step:6d}  return {np.mean(returns):6.3f}  length {np.mean(lengths):5.1f}  delta {delta:+.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
