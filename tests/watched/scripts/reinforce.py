"""REINFORCE from a notebook: log-probabilities piled up while playing, one update per episode, no classes but the net."""

import argparse
import hashlib
import json
import random
from itertools import count

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

parser = argparse.ArgumentParser(description="REINFORCE on CartPole")
parser.add_argument("--seed", type=int, default=543)
parser.add_argument("--episodes", type=int, default=90)
parser.add_argument("--gamma", type=float, default=0.99)
parser.add_argument("--baseline", action="store_true", help="subtract a learned value from the returns")
parser.add_argument("--score-late", action="store_true", help="score the action after the environment has taken it")
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(args.seed)
random.seed(args.seed)
numpy_generator = np.random.default_rng(args.seed)
env = gym.make("CartPole-v1")


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 128)
        self.affine2 = nn.Linear(128, 2)

    def forward(self, x):
        return F.softmax(self.affine2(F.relu(self.affine1(x))), dim=-1)


policy = Policy()
optimizer = optim.Adam(policy.parameters(), lr=1e-2)
scheduler = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.995)
if args.baseline:
    baseline = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
    baseline_optimizer = optim.Adam(baseline.parameters(), lr=1e-2)

env_steps = 0
optimizer_steps = 0
baseline_steps = 0
episode_returns = []
last_rate = None

for episode in range(args.episodes):
    state, _ = env.reset(seed=args.seed if episode == 0 else None)
    log_probs, rewards, states = [], [], []
    for _step in count():
        state = torch.from_numpy(state).float()
        states.append(state)
        distribution = Categorical(policy(state))
        action = distribution.sample()
        if not args.score_late:
            log_probs.append(distribution.log_prob(action))
        state, reward, terminated, truncated, _ = env.step(action.item())
        if args.score_late:
            log_probs.append(distribution.log_prob(action))
        env_steps += 1
        rewards.append(float(reward))
        if terminated or truncated:
            break

    to_go, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + args.gamma * running
        to_go.insert(0, running)
    to_go = torch.tensor(to_go)
    weights = to_go
    if args.baseline:
        guess = baseline(torch.stack(states)).squeeze(1)
        weights = to_go - guess.detach()
        baseline_optimizer.zero_grad()
        F.mse_loss(guess, to_go).backward()
        baseline_optimizer.step()
        baseline_steps += 1
    weights = (weights - weights.mean()) / (weights.std() + 1e-8)

    loss = -(torch.stack(log_probs) * weights).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    optimizer_steps += 1
    last_rate = optimizer.param_groups[0]["lr"]
    scheduler.step()

    episode_returns.append(sum(rewards))
    if episode % 20 == 19:
        print(f"Episode {episode + 1}\tLast: {episode_returns[-1]:.1f}\tAverage: {np.mean(episode_returns[-20:]):.2f}")

sha = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in policy.parameters()))
if args.baseline:
    sha.update(b"".join(p.detach().numpy().tobytes() for p in baseline.parameters()))
sha.update(repr([torch.rand(1).item(), numpy_generator.random(), random.random()]).encode())
facts = {
    "optimizer_steps": {"adam": optimizer_steps, **({"baseline": baseline_steps} if args.baseline else {})},
    "owned": {"adam": 4, **({"baseline": 4} if args.baseline else {})},
    "learning_rate": {"adam": last_rate},
    "episodes": len(episode_returns),
    "episode_returns": episode_returns,
    "env_steps": env_steps,
    "gamma": args.gamma,
    "decay": 0.995,
}
print(json.dumps({"weights_sha256": sha.hexdigest(), "facts": facts}))
