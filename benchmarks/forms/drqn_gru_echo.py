"""DRQN: GRU Q-network on a memory task, sequences from an episode replay, burn-in, padding masks, double-Q targets."""

import argparse
from collections import deque, namedtuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

BURN, TRAIN, BATCH, HIDDEN, GAMMA = 4, 8, 32, 32, 0.9
Episode = namedtuple("Episode", "obs actions rewards terminated")  # obs has one more row than actions


class EchoEnv(gym.Env):
    """Name the symbol shown one step EARLIER. Three mistakes terminate the episode, 40 steps truncate it."""

    def __init__(self, n_symbols=4, lives=3, horizon=40):
        self.n, self.lives, self.horizon = n_symbols, lives, horizon
        self.observation_space = gym.spaces.Box(0.0, 1.0, (n_symbols + 1,), np.float32)
        self.action_space = gym.spaces.Discrete(n_symbols)

    def _obs(self):
        o = np.zeros(self.n + 1, np.float32)
        o[self.symbol] = 1.0
        o[-1] = self.left / self.lives
        return o

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.left, self.previous = 0, self.lives, None
        self.symbol = int(self.np_random.integers(self.n))
        return self._obs(), {}

    def step(self, action):
        reward = 0.0
        if self.previous is not None:
            if int(action) == self.previous:
                reward = 1.0
            else:
                self.left -= 1
        self.previous, self.symbol = self.symbol, int(self.np_random.integers(self.n))
        self.t += 1
        terminated = self.left == 0
        truncated = (not terminated) and self.t >= self.horizon
        return self._obs(), reward, terminated, truncated, {}


class RecurrentQ(nn.Module):
    def __init__(self, obs_dim, n_actions):
        super().__init__()
        self.encode = nn.Linear(obs_dim, HIDDEN)
        self.cell = nn.GRUCell(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, n_actions)

    def forward(self, obs, h):
        h = self.cell(F.relu(self.encode(obs)), h)
        return self.head(h), h

    def unroll(self, obs, warm):
        """Q-values for the TRAIN+1 observations after the burn-in; no gradient through the burn-in."""
        with torch.no_grad():
            h = torch.zeros(obs.shape[0], HIDDEN)
            for t in range(BURN):
                _, h = self(obs[:, t], h)
                h = h * warm[:, t : t + 1]  # left padding (before the episode start): state stays zero
        out = []
        for t in range(BURN, BURN + TRAIN + 1):
            q, h = self(obs[:, t], h)
            out.append(q)
        return torch.stack(out, dim=1)


def sample_sequences(episodes, obs_dim, rng):
    obs = np.zeros((BATCH, BURN + TRAIN + 1, obs_dim), np.float32)
    warm = np.zeros((BATCH, BURN), np.float32)
    act = np.zeros((BATCH, TRAIN), np.int64)
    rew, term, mask = (np.zeros((BATCH, TRAIN), np.float32) for _ in range(3))
    for i in range(BATCH):
        ep = episodes[int(rng.integers(len(episodes)))]
        length = len(ep.actions)
        start = int(rng.integers(length))
        b, n = min(BURN, start), min(TRAIN, length - start)
        obs[i, BURN - b : BURN + n + 1] = ep.obs[start - b : start + n + 1]
        warm[i, BURN - b :] = 1.0
        act[i, :n] = ep.actions[start : start + n]
        rew[i, :n] = ep.rewards[start : start + n]
        term[i, :n] = ep.terminated[start : start + n]
        mask[i, :n] = 1.0
    return tuple(torch.from_numpy(x) for x in (obs, warm, act, rew, term, mask))


def learn(net, target, opt, batch):
    obs, warm, act, rew, term, mask = batch
    q_all = net.unroll(obs, warm)
    with torch.no_grad():
        next_action = q_all[:, 1:].argmax(dim=2, keepdim=True)
        next_q = target.unroll(obs, warm)[:, 1:].gather(2, next_action).squeeze(2)
        y = rew + GAMMA * (1.0 - term) * next_q
    q = q_all[:, :-1].gather(2, act.unsqueeze(2)).squeeze(2)
    loss = (F.smooth_l1_loss(q, y, reduction="none") * mask).sum() / mask.sum()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
    return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--steps", type=int, default=9000)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    env = EchoEnv()
    obs_dim, n_actions = env.observation_space.shape[0], int(env.action_space.n)
    net, target = RecurrentQ(obs_dim, n_actions), RecurrentQ(obs_dim, n_actions)
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    episodes, returns, updates, loss = deque(maxlen=800), deque(maxlen=30), 0, float("nan")

    obs, _ = env.reset(seed=args.seed)
    h = torch.zeros(1, HIDDEN)
    track = {"obs": [obs], "act": [], "rew": [], "term": []}
    for step in range(1, args.steps + 1):
        epsilon = max(0.03, 1.0 - step / 3000)
        with torch.no_grad():  # the hidden state advances on every step, exploratory or not
            q, h = net(torch.from_numpy(obs).unsqueeze(0), h)
        action = int(rng.integers(n_actions)) if rng.random() < epsilon else int(q.argmax(dim=1).item())
        obs, reward, terminated, truncated, _ = env.step(action)
        track["obs"].append(obs)
        track["act"].append(action)
        track["rew"].append(reward)
        track["term"].append(float(terminated))
        if terminated or truncated:
            episodes.append(
                Episode(np.stack(track["obs"]), np.array(track["act"]), np.array(track["rew"]), np.array(track["term"]))
            )
            returns.append(sum(track["rew"]))
            obs, _ = env.reset()
            h = torch.zeros(1, HIDDEN)
            track = {"obs": [obs], "act": [], "rew": [], "term": []}
        if len(episodes) >= 40 and step % 3 == 0:
            loss = learn(net, target, opt, sample_sequences(episodes, obs_dim, rng))
            updates += 1
            if updates % 100 == 0:
                target.load_state_dict(net.state_dict())
        if step % 1000 == 0:
            print(
                f"step {step:5d}  return(30) {np.mean(returns):6.2f} / 39  loss {loss:.4f}  updates {updates}",
                flush=True,
            )


if __name__ == "__main__":
    main()
