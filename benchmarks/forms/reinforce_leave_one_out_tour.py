# REINFORCE with a leave-one-out baseline: several tours are sampled from the same start state (same seed,
# same cities) and each one is compared with the mean of the others. Notebook style: everything is global.
import argparse
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

# %% settings
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(args.seed)
np.random.seed(args.seed)

N_CITIES = 10
ROLLOUTS = 6  # tours per start state
STARTS = 2  # start states per update
UPDATES = 220
LR = 3e-3


# %% environment
class TourEnv(gym.Env):
    """Visit every city once, then return to the first. Reward: minus the distance of each move."""

    def __init__(self, n):
        self.n = n
        self.action_space = gym.spaces.Discrete(n)
        self.observation_space = gym.spaces.Box(-2.0, 2.0, (n, 5), np.float32)

    def _obs(self):
        here, home = self.xy[self.at], self.xy[0]
        rel = self.xy - here
        dist = np.linalg.norm(rel, axis=1, keepdims=True)
        back = np.linalg.norm(self.xy - home, axis=1, keepdims=True)
        return np.concatenate([rel, dist, back, self.visited[:, None]], axis=1).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.xy = self.np_random.random((self.n, 2))
        self.at = 0
        self.visited = np.zeros(self.n)
        self.visited[0] = 1.0
        return self._obs(), {}

    def step(self, action):
        action = int(action)
        assert self.visited[action] == 0.0, "city already visited"
        reward = -float(np.linalg.norm(self.xy[action] - self.xy[self.at]))
        self.at = action
        self.visited[action] = 1.0
        terminated = bool(self.visited.all())
        if terminated:
            reward -= float(np.linalg.norm(self.xy[self.at] - self.xy[0]))
        return self._obs(), reward, terminated, False, {}


env = TourEnv(N_CITIES)


# %% policy: scores each city from its features and a summary of all of them
class CityScorer(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(5, hidden), nn.ReLU())
        self.score = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, obs):
        h = self.encode(obs)
        context = h.mean(dim=0, keepdim=True).expand_as(h)
        logits = self.score(torch.cat([h, context], dim=-1)).squeeze(-1)
        return logits.masked_fill(obs[:, 4] > 0.5, -1e9)


policy = CityScorer()
optimizer = torch.optim.Adam(policy.parameters(), lr=LR)


# %% one episode, log-probs kept in a list
def play(start_seed):
    obs, _ = env.reset(seed=start_seed)
    log_probs, total, terminated = [], 0.0, False
    while not terminated:
        dist = Categorical(logits=policy(torch.as_tensor(obs)))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        obs, reward, terminated, _, _ = env.step(action.item())
        total += reward
    return torch.stack(log_probs).sum(), total


@torch.no_grad()
def greedy_length(start_seed):
    obs, _ = env.reset(seed=start_seed)
    total, terminated = 0.0, False
    while not terminated:
        obs, reward, terminated, _, _ = env.step(policy(torch.as_tensor(obs)).argmax().item())
        total -= reward
    return total


# %% training
start_seeds = np.random.default_rng(args.seed)
EVAL_STARTS = list(range(2_000_000_000, 2_000_000_020))
recent = deque(maxlen=200)
print(f"before training: greedy tour length {np.mean([greedy_length(s) for s in EVAL_STARTS]):.3f}")

for update in range(1, UPDATES + 1):
    losses = []
    for _ in range(STARTS):
        start = int(start_seeds.integers(0, 1_000_000_000))
        sums, returns = zip(*[play(start) for _ in range(ROLLOUTS)])
        returns = torch.tensor(returns, dtype=torch.float32)
        baseline = (returns.sum() - returns) / (ROLLOUTS - 1)  # mean of the other rollouts
        advantage = returns - baseline
        losses.append(-(advantage * torch.stack(sums)).mean())
        recent.extend((-returns).tolist())
    loss = torch.stack(losses).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 20 == 0:
        print(f"update {update:4d}  sampled tour length {np.mean(recent):.3f}  loss {loss.item():.3f}", flush=True)

print(f"after training: greedy tour length {np.mean([greedy_length(s) for s in EVAL_STARTS]):.3f}")
