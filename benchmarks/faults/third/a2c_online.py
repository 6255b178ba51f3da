"""Advantage actor-critic, one environment, n-step updates. Task: hold the level of a water tank at its set point."""

import argparse
import copy
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F

FAULTS = {
    "reset_bootstrap": [
        "returns",
        "broken",
        "after a time limit the bootstrap is the value of the next episode's start",
    ],
    "kept_logps": ["weights", "broken", "log-probs kept from acting, no graph: only the entropy moves the policy"],
    "open_advantage": ["signs", "broken", "the advantage is not detached: the policy loss drives the value head"],
    "plogp": ["signs", "broken", "entropy written without its minus: the bonus rewards a deterministic policy"],
    "clip_first": ["rates", "broken", "gradients are clipped before backward, so never"],
    "deaf_valve": ["goal", "not proven", "the environment forgets the new valve position: actions do nothing"],
}
HEALTHY = {
    "": "plain",
    "scaled_values": "the value head predicts returns divided by a constant, unscaled where it is used",
    "warmup": "the learning rate rises from 0 over the first tenth of the updates",
    "ema": "a moving average of the weights is kept beside the model and used for the final evaluation",
}


class TankEnv(gym.Env):
    """Level, inflow valve and a drifting demand. Overflow or running dry ends the episode."""

    LIMIT = 120
    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, deaf=False):
        self.deaf = deaf

    def _observe(self):
        error = self.level - self.setpoint
        return np.array([4 * error, 2 * self.level - 1, self.valve - self.demand, self.demand], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.setpoint, self.demand = self.np_random.uniform(0.3, 0.7, 2)
        self.level, self.valve = self.np_random.uniform(0.15, 0.85, 2)
        self.t = 0
        return self._observe(), {}

    def step(self, action):
        valve = float(np.clip(self.valve + 0.15 * (int(action) - 1), 0.0, 1.0))
        if not self.deaf:
            self.valve = valve
        self.demand = float(np.clip(self.demand + 0.04 * self.np_random.normal(), 0.2, 0.8))
        self.level += 0.08 * (self.valve - self.demand)
        self.t += 1
        terminated = not 0.0 < self.level < 1.0
        reward = 0.0 if terminated else max(0.0, 1.0 - abs(self.level - self.setpoint) / 0.25)
        return self._observe(), reward, terminated, self.t >= self.LIMIT, {}


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_actions, hidden=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.policy_head = nn.Linear(hidden, n_actions)
        self.value_head = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.policy_head(h), self.value_head(h).squeeze(-1)


class Learner:
    gamma, n_steps, lr = 0.97, 8, 1e-3
    entropy_coef, value_coef, max_norm = 0.01, 0.25, 0.5

    def __init__(self, env, total_steps, fault="", variant=""):
        self.fault, self.variant = fault, variant
        self.net = ActorCritic(env.observation_space.shape[0], int(env.action_space.n))
        self.optimizer = torch.optim.RMSprop(self.net.parameters(), lr=self.lr, alpha=0.99, eps=1e-5)
        self.average = copy.deepcopy(self.net).requires_grad_(False) if variant == "ema" else None
        self.value_scale = 15.0 if variant == "scaled_values" else 1.0
        self.warmup = total_steps // self.n_steps // 10 if variant == "warmup" else 0
        self.updates, self.memory, self.log = 0, [], {}

    @torch.no_grad()
    def act(self, obs):
        dist = Categorical(logits=self.net(torch.as_tensor(obs))[0])
        action = dist.sample()
        return action.item(), dist.log_prob(action)

    def remember(self, obs, action, logp, reward):
        self.memory.append((obs, action, logp, reward))

    @torch.no_grad()
    def value_of(self, obs):
        return self.net(torch.as_tensor(obs))[1].item() * self.value_scale

    def update(self, last_obs, terminated):
        obs, actions, logps, rewards = zip(*self.memory, strict=True)
        self.memory = []
        obs, actions = torch.as_tensor(np.stack(obs)), torch.as_tensor(actions)

        returns = [0.0 if terminated else self.value_of(last_obs)]
        for reward in reversed(rewards):
            returns.insert(0, reward + self.gamma * returns[0])
        returns = torch.tensor(returns[:-1], dtype=torch.float32)

        logits, values = self.net(obs)
        log_all = F.log_softmax(logits, dim=-1)
        taken = log_all.gather(1, actions.unsqueeze(1)).squeeze(1)
        if self.fault == "kept_logps":
            taken = torch.stack(logps)
        advantages = returns - values * self.value_scale
        if self.fault != "open_advantage":
            advantages = advantages.detach()
        plogp = (log_all.exp() * log_all).sum(-1).mean()
        entropy = plogp if self.fault == "plogp" else -plogp
        policy_loss = -(taken * advantages).mean()
        value_loss = F.mse_loss(values, returns / self.value_scale)
        loss = policy_loss + self.value_coef * value_loss - self.entropy_coef * entropy

        if self.warmup:
            self.optimizer.param_groups[0]["lr"] = self.lr * min(1.0, self.updates / self.warmup)
        self.optimizer.zero_grad()
        if self.fault == "clip_first":
            nn.utils.clip_grad_norm_(self.net.parameters(), self.max_norm)
        loss.backward()
        if self.fault != "clip_first":
            nn.utils.clip_grad_norm_(self.net.parameters(), self.max_norm)
        self.optimizer.step()
        self.updates += 1
        if self.average is not None:
            for slow, fast in zip(self.average.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(fast.detach(), 0.005)
        self.log = {"policy": policy_loss.item(), "value": value_loss.item(), "entropy": entropy.item()}


@torch.no_grad()
def evaluate(net, env, episodes=10):
    total = 0.0
    for _ in range(episodes):
        obs, _ = env.reset()
        terminated = truncated = False
        while not (terminated or truncated):
            obs, reward, terminated, truncated, _ = env.step(net(torch.as_tensor(obs))[0].argmax().item())
            total += reward
    return total / episodes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=32_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    env = TankEnv(deaf=args.fault == "deaf_valve")
    learner = Learner(env, args.steps, args.fault, args.variant)
    (obs, _), history, score = env.reset(seed=args.seed), [], 0.0
    start = last_print = time.time()
    for step in range(1, args.steps + 1):
        action, logp = learner.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        learner.remember(obs, action, logp, reward)
        score += reward
        over = terminated or truncated
        if args.fault == "reset_bootstrap" and over:
            next_obs, _ = env.reset()
        if over or len(learner.memory) == learner.n_steps:
            learner.update(next_obs, terminated)
        obs = next_obs
        if over:
            history.append(score)
            score = 0.0
            if args.fault != "reset_bootstrap":
                obs, _ = env.reset()
        if time.time() - last_print > 3:
            last_print = time.time()
            figures = "  ".join(f"{k} {v:+.3f}" for k, v in learner.log.items())
            print(f"step {step:6d}  return {np.mean(history[-30:]):6.2f}  {figures}", flush=True)

    tenth = max(1, len(history) // 10)
    final = evaluate(learner.net if learner.average is None else learner.average, env)
    print(f"episodes {len(history)}  updates {learner.updates}  seconds {time.time() - start:.0f}  greedy {final:.2f}")
    print(f"mean return: first tenth {np.mean(history[:tenth]):.2f}, last tenth {np.mean(history[-tenth:]):.2f}")


if __name__ == "__main__":
    main()
