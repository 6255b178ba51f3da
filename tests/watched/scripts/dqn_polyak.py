# ruff: noqa: C408
"""Double DQN as a flat script: sequential networks, a ring of arrays for replay, a target that drifts after its network."""

import copy
import hashlib
import json
import random
import sys
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn


@dataclass
class Config:
    seed: int = 5
    steps: int = 1800
    gamma: float = 0.98
    tau: float = 0.01
    lr: float = 5e-4
    batch_size: int = 64
    capacity: int = 5000
    start: int = 200


cfg = Config()
for flag, value in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    field = flag.removeprefix("--").replace("-", "_")
    setattr(cfg, field, type(getattr(cfg, field))(value))

torch.set_num_threads(1)
torch.manual_seed(cfg.seed)
random.seed(cfg.seed)
rng = np.random.default_rng(cfg.seed)

env = gym.make("CartPole-v1")
obs_dim = env.observation_space.shape[0]
n_actions = int(env.action_space.n)

online = nn.Sequential(nn.Linear(obs_dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, n_actions))
target = copy.deepcopy(online)
for p in target.parameters():
    p.requires_grad = False
opt = torch.optim.Adam(online.parameters(), lr=cfg.lr)


class Ring:
    def __init__(self, capacity: int, dim: int):
        self.obs = np.zeros((capacity, dim), dtype=np.float32)
        self.next_obs = np.zeros((capacity, dim), dtype=np.float32)
        self.action = np.zeros(capacity, dtype=np.int64)
        self.reward = np.zeros(capacity, dtype=np.float32)
        self.terminal = np.zeros(capacity, dtype=np.float32)
        self.capacity, self.size, self.at = capacity, 0, 0

    def put(self, obs, action, reward, next_obs, terminal):
        i = self.at
        self.obs[i], self.next_obs[i] = obs, next_obs
        self.action[i], self.reward[i], self.terminal[i] = action, reward, terminal
        self.at = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, n):
        i = rng.integers(0, self.size, size=n)
        parts = self.obs[i], self.action[i], self.reward[i], self.next_obs[i], self.terminal[i]
        return [torch.from_numpy(part) for part in parts]


ring = Ring(cfg.capacity, obs_dim)
mse = nn.MSELoss()
returns, score, n_updates, n_soft, n_steps = [], 0.0, 0, 0, 0
obs, _ = env.reset(seed=cfg.seed)

for t in range(cfg.steps):
    explore = max(0.05, 1.0 - t / (0.4 * cfg.steps))
    if rng.random() < explore:
        action = int(rng.integers(n_actions))
    else:
        with torch.no_grad():
            action = int(online(torch.as_tensor(obs)[None]).argmax())
    next_obs, reward, terminated, truncated, _ = env.step(action)
    n_steps += 1
    score += float(reward)
    ring.put(obs, action, reward, next_obs, float(terminated))
    obs = next_obs
    if terminated or truncated:
        returns.append(score)
        score = 0.0
        obs, _ = env.reset()

    if t < cfg.start:
        continue

    s, a, r, s2, d = ring.sample(cfg.batch_size)
    with torch.no_grad():
        best = online(s2).argmax(dim=1, keepdim=True)
        y = r + cfg.gamma * (1.0 - d) * target(s2).gather(1, best).squeeze(1)
    q = online(s).gather(1, a.view(-1, 1)).squeeze(1)
    loss = mse(q, y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_value_(online.parameters(), 10.0)
    opt.step()
    n_updates += 1

    for p, p_target in zip(online.parameters(), target.parameters(), strict=True):
        p_target.data.mul_(1.0 - cfg.tau).add_(cfg.tau * p.data)
    n_soft += 1

    if n_updates % 400 == 0:
        print("updates", n_updates, "return", round(float(np.mean(returns[-15:])), 2), "loss", round(loss.item(), 5))

sha = hashlib.sha256()
for net in (online, target):
    for tensor in net.state_dict().values():
        sha.update(tensor.numpy().tobytes())
sha.update(str([torch.rand(()).item(), rng.random(), random.random()]).encode())

facts = dict(
    optimizer_steps={"adam": n_updates},
    owned={"adam": len(opt.param_groups[0]["params"])},
    learning_rate={"adam": cfg.lr},
    episodes=len(returns),
    episode_returns=returns,
    env_steps=n_steps,
    target_updates=n_soft,
    tau=cfg.tau,
    gamma=cfg.gamma,
    batch=cfg.batch_size,
)
print(json.dumps(dict(weights_sha256=sha.hexdigest(), facts=facts)))
