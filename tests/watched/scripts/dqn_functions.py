"""DQN in plain functions: deque for a memory, target network copied whole every so many updates."""

import argparse
import hashlib
import json
import random
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

GAMMA = 0.99
BATCH = 64
WARMUP = 300
COPY_EVERY = 100
LR = 1e-3


class QNet(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.fc1 = nn.Linear(n_obs, 96)
        self.fc2 = nn.Linear(96, 96)
        self.head = nn.Linear(96, n_act)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.head(x)


def epsilon_at(step, total):
    """From 1 down to 0.05 over the first half."""
    return max(0.05, 1.0 - 0.95 * step / (0.5 * total))


def choose(qnet, obs, epsilon, n_act):
    if random.random() < epsilon:
        return random.randrange(n_act)
    with torch.no_grad():
        return qnet(torch.from_numpy(obs).unsqueeze(0)).argmax(dim=1).item()


def draw(memory):
    obs, act, rew, nxt, term = zip(*random.sample(memory, BATCH), strict=True)
    return (
        torch.from_numpy(np.array(obs)),
        torch.tensor(act).unsqueeze(1),
        torch.tensor(rew, dtype=torch.float32),
        torch.from_numpy(np.array(nxt)),
        torch.tensor(term, dtype=torch.float32),
    )


def update(qnet, target, optimizer, memory):
    obs, act, rew, nxt, term = draw(memory)
    with torch.no_grad():
        wanted = rew + GAMMA * (1 - term) * target(nxt).max(dim=1).values
    predicted = qnet(obs).gather(1, act).squeeze(1)
    loss = F.smooth_l1_loss(predicted, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def train(seed, steps):
    env = gym.make("CartPole-v1")
    n_obs, n_act = env.observation_space.shape[0], int(env.action_space.n)
    qnet, target = QNet(n_obs, n_act), QNet(n_obs, n_act)
    target.load_state_dict(qnet.state_dict())
    optimizer = torch.optim.Adam(qnet.parameters(), lr=LR)
    memory = deque(maxlen=10_000)

    counts = {"updates": 0, "copies": 0, "env_steps": 0}
    returns, total = [], 0.0
    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        act = choose(qnet, obs, epsilon_at(step, steps), n_act)
        nxt, rew, terminated, truncated, _ = env.step(act)
        counts["env_steps"] += 1
        memory.append((obs, act, float(rew), nxt, terminated))
        total += float(rew)
        obs = nxt
        if terminated or truncated:
            returns.append(total)
            total = 0.0
            obs, _ = env.reset()
        if step >= WARMUP:
            loss = update(qnet, target, optimizer, memory)
            counts["updates"] += 1
            if counts["updates"] % COPY_EVERY == 0:
                target.load_state_dict(qnet.state_dict())
                counts["copies"] += 1
        if step % 500 == 499:
            print(f"step {step + 1}: mean return {np.mean(returns[-20:]):.1f}, loss {loss:.4f}")
    env.close()
    return qnet, target, optimizer, counts, returns


def digest_of(networks, generator):
    sha = hashlib.sha256()
    for network in networks:
        for weights in network.parameters():
            sha.update(weights.detach().numpy().tobytes())
    sha.update(np.array([torch.rand(1).item(), generator.random(), random.random()]).tobytes())
    return sha.hexdigest()


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--seed", type=int, default=3)
    cli.add_argument("--steps", type=int, default=2000)
    given = cli.parse_args()
    torch.set_num_threads(1)
    random.seed(given.seed)
    torch.manual_seed(given.seed)
    numbers = np.random.default_rng(given.seed)
    qnet, target, optimizer, counts, returns = train(given.seed, given.steps)
    summary = {
        "optimizer_steps": {"adam": counts["updates"]},
        "owned": {"adam": sum(1 for _ in qnet.parameters())},
        "learning_rate": {"adam": optimizer.param_groups[0]["lr"]},
        "episodes": len(returns),
        "episode_returns": returns,
        "env_steps": counts["env_steps"],
        "target_updates": counts["copies"],
        "copy_every": COPY_EVERY,
        "gamma": GAMMA,
        "batch": BATCH,
    }
    print(json.dumps({"weights_sha256": digest_of([qnet, target], numbers), "facts": summary}))
