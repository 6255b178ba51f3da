"""Prioritized-replay double DQN on a key-and-door grid. One encoder feeds two heads, the optimizer has two parameter
groups, and half-way everything is saved to memory, thrown away and rebuilt from the checkpoint."""

import argparse
import copy
import io
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

GAMMA = 0.97


class KeyDoorGrid(gym.Env):
    """5x5 grid: fetch the key in one corner, then walk to the door in the opposite one (terminates, +1)."""

    SIZE, KEY, DOOR = 5, (0, 4), (4, 0)
    MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self):
        self.observation_space = gym.spaces.Box(0.0, 1.0, (2 * self.SIZE + 1,), np.float32)
        self.action_space = gym.spaces.Discrete(4)

    def _obs(self):
        o = np.zeros(2 * self.SIZE + 1, np.float32)
        o[self.row] = o[self.SIZE + self.col] = 1.0
        o[-1] = float(self.has_key)
        return o

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row, self.col, self.has_key = 2, int(self.np_random.integers(self.SIZE)), False
        return self._obs(), {}

    def step(self, action):
        dr, dc = self.MOVES[int(action)]
        self.row = min(max(self.row + dr, 0), self.SIZE - 1)
        self.col = min(max(self.col + dc, 0), self.SIZE - 1)
        reward = -0.01
        if not self.has_key and (self.row, self.col) == self.KEY:
            self.has_key = True
            reward += 0.3
        terminated = self.has_key and (self.row, self.col) == self.DOOR
        reward += 1.0 if terminated else 0.0
        return self._obs(), reward, terminated, False, {}


class PrioritizedReplay:
    def __init__(self, capacity, obs_dim, rng, alpha=0.6):
        self.capacity, self.rng, self.alpha, self.n = capacity, rng, alpha, 0
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.act = np.zeros(capacity, np.int64)
        self.rew = np.zeros(capacity, np.float32)
        self.nxt = np.zeros((capacity, obs_dim), np.float32)
        self.term = np.zeros(capacity, np.float32)
        self.mass = np.zeros(capacity, np.float64)  # priority ** alpha
        self.max_mass = 1.0

    def __len__(self):
        return min(self.n, self.capacity)

    def add(self, obs, act, rew, nxt, term):
        i = self.n % self.capacity
        self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.term[i] = obs, act, rew, nxt, term
        self.mass[i] = self.max_mass
        self.n += 1

    def sample(self, k, beta):
        cumulative = np.cumsum(self.mass[: len(self)])
        idx = np.searchsorted(cumulative, self.rng.random(k) * cumulative[-1], side="right")
        idx = np.minimum(idx, len(self) - 1)
        weights = (len(self) * self.mass[idx] / cumulative[-1]) ** (-beta)
        weights = torch.as_tensor(weights / weights.max(), dtype=torch.float32)
        fields = [torch.from_numpy(x[idx]) for x in (self.obs, self.act, self.rew, self.nxt, self.term)]
        return idx, weights, fields

    def reprioritize(self, idx, td_error):
        self.mass[idx] = (np.abs(td_error) + 1e-3) ** self.alpha
        self.max_mass = max(self.max_mass, float(self.mass[idx].max()))


@dataclass
class Learner:
    encoder: nn.Module
    value_head: nn.Module
    adv_head: nn.Module
    target: nn.ModuleList  # encoder, value head, advantage head
    optimizer: torch.optim.Optimizer
    updates: int = 0

    @classmethod
    def fresh(cls, obs_dim, n_actions):
        encoder = nn.Sequential(nn.Linear(obs_dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        value_head, adv_head = nn.Linear(64, 1), nn.Linear(64, n_actions)
        target = copy.deepcopy(nn.ModuleList([encoder, value_head, adv_head])).requires_grad_(False)
        optimizer = torch.optim.Adam(
            [
                {"params": encoder.parameters(), "lr": 5e-4},
                {"params": [*value_head.parameters(), *adv_head.parameters()], "lr": 1e-3},
            ]
        )
        return cls(encoder, value_head, adv_head, target, optimizer)

    @staticmethod
    def _q(encoder, value_head, adv_head, x):
        z = encoder(x)
        adv = adv_head(z)
        return value_head(z) + adv - adv.mean(dim=-1, keepdim=True)

    def q(self, x):
        return self._q(self.encoder, self.value_head, self.adv_head, x)

    def q_target(self, x):
        return self._q(*self.target, x)

    def sync(self):
        for t, m in zip(self.target, (self.encoder, self.value_head, self.adv_head)):
            t.load_state_dict(m.state_dict())

    def learn(self, replay, beta):
        idx, weights, (obs, act, rew, nxt, term) = replay.sample(64, beta)
        with torch.no_grad():
            best = self.q(nxt).argmax(dim=1, keepdim=True)
            y = rew + GAMMA * (1.0 - term) * self.q_target(nxt).gather(1, best).squeeze(1)
        q = self.q(obs).gather(1, act.unsqueeze(1)).squeeze(1)
        loss = (weights * F.smooth_l1_loss(q, y, reduction="none")).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        replay.reprioritize(idx, (y - q).detach().numpy())
        self.updates += 1
        if self.updates % 150 == 0:
            self.sync()
        return loss.item()

    def save(self):
        blob = io.BytesIO()
        torch.save(
            {
                "encoder": self.encoder.state_dict(),
                "value": self.value_head.state_dict(),
                "adv": self.adv_head.state_dict(),
                "target": self.target.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "updates": self.updates,
            },
            blob,
        )
        return blob.getvalue()

    @classmethod
    def restore(cls, raw, obs_dim, n_actions):
        state = torch.load(io.BytesIO(raw))
        new = cls.fresh(obs_dim, n_actions)
        new.encoder.load_state_dict(state["encoder"])
        new.value_head.load_state_dict(state["value"])
        new.adv_head.load_state_dict(state["adv"])
        new.target.load_state_dict(state["target"])
        new.optimizer.load_state_dict(state["optimizer"])
        new.updates = state["updates"]
        return new


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--steps", type=int, default=8000)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    env = gym.wrappers.TimeLimit(KeyDoorGrid(), max_episode_steps=60)
    obs_dim, n_actions = env.observation_space.shape[0], int(env.action_space.n)
    learner = Learner.fresh(obs_dim, n_actions)
    replay = PrioritizedReplay(8000, obs_dim, rng)
    obs, _ = env.reset(seed=args.seed)
    score, scores, loss = 0.0, [], float("nan")
    for step in range(1, args.steps + 1):
        epsilon = max(0.05, 1.0 - step / 3500)
        if rng.random() < epsilon:
            action = int(rng.integers(n_actions))
        else:
            with torch.no_grad():
                action = int(learner.q(torch.from_numpy(obs)).argmax().item())
        nxt, reward, terminated, truncated, _ = env.step(action)
        replay.add(obs, action, reward, nxt, float(terminated))  # the time limit still bootstraps
        score += reward
        obs = nxt
        if terminated or truncated:
            scores.append(score)
            score = 0.0
            obs, _ = env.reset()
        if step >= 500:
            loss = learner.learn(replay, beta=0.4 + 0.6 * step / args.steps)
        if step == args.steps // 2:
            raw = learner.save()
            learner = Learner.restore(raw, obs_dim, n_actions)  # the old modules and optimizer are dropped
            print(
                f"step {step}: checkpoint of {len(raw)} bytes written, learner rebuilt after {learner.updates} updates"
            )
        if step % 800 == 0:
            print(
                f"step {step:5d}  return(20) {np.mean(scores[-20:]):6.3f}  loss {loss:.5f}  eps {epsilon:.2f}",
                flush=True,
            )
    env.close()


if __name__ == "__main__":
    main()
