"""Advantage actor-critic on an 8x8 image world.

White pixels are the basket, the grey one is a falling apple. Several copies of the world live in an ordinary
Python list and are stepped one after the other.
"""

import argparse
import copy
import random
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

FAULTS = {
    "cross_episode": ["returns", "broken", "n-step returns run across episode ends, no done mask"],
    "timeout_terminal": ["returns", "broken", "episodes cut by the step limit are treated as finished, no bootstrap"],
    "probs_as_logits": ["shapes", "broken", "softmax output handed to Categorical as logits"],
    "plain_list_convs": ["weights", "broken", "conv layers kept in a plain Python list, so they are not parameters"],
    "cut_logp": [
        "weights",
        "broken",
        "log-probs rebuilt with torch.tensor, the policy loss has no graph to the network",
    ],
    "leaky_advantage": ["signs", "broken", "advantage not detached, the policy loss pushes the critic"],
    "same_env": ["goal", "broken", "[env] * n: all slots of the list are one and the same environment"],
    "int_division": ["goal", "not proven", "pixels are integer-divided by 255, the apple becomes invisible"],
}
HEALTHY = {
    "": "plain",
    "fixed_filters": "the first conv layer is a fixed random filter bank, frozen on purpose",
    "negative": "a reward that is negative at every step, games always last until the step limit",
    "ema": "a moving average of the weights is kept beside the model and used for the evaluation",
    "decay": "AdamW with weight decay",
}

SIZE = 8


class CatchApples(gym.Env):
    """Apples fall one row per step, the basket is two pixels wide. Three dropped apples end the game."""

    def __init__(self, limit=60, always_negative=False):
        self.limit, self.always_negative = limit, always_negative
        self.observation_space = gym.spaces.Box(0, 255, (1, SIZE, SIZE), np.uint8)
        self.action_space = gym.spaces.Discrete(3)

    def _draw(self):
        img = np.zeros((1, SIZE, SIZE), np.uint8)
        img[0, SIZE - 1, self.basket : self.basket + 2] = 255
        img[0, self.row, self.col] = 128
        return img

    def _new_apple(self):
        self.row, self.col = 0, int(self.np_random.integers(SIZE))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.basket, self.t, self.dropped, self.caught = int(self.np_random.integers(SIZE - 1)), 0, 0, 0
        self._new_apple()
        return self._draw(), {}

    def step(self, action):
        self.basket = min(max(self.basket + int(action) - 1, 0), SIZE - 2)
        self.row += 1
        self.t += 1
        gap = max(0, self.basket - self.col, self.col - self.basket - 1)
        reward = -0.05 * gap - (0.01 if self.always_negative else 0.0)
        if self.row == SIZE - 1:
            if self.basket <= self.col <= self.basket + 1:
                self.caught += 1
                reward += 0.0 if self.always_negative else 1.0
            else:
                self.dropped += 1
                reward -= 1.0
            self._new_apple()
        lost = self.dropped == 3 and not self.always_negative
        return self._draw(), reward, lost, self.t >= self.limit and not lost, {"caught": self.caught}


class Network(nn.Module):
    def __init__(self, n_actions, fault="", variant=""):
        super().__init__()
        convs = [nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)]
        if variant == "fixed_filters":
            convs[0].requires_grad_(False)
        self.convs = convs if fault == "plain_list_convs" else nn.ModuleList(convs)
        self.fc = nn.Linear(16 * 16, 64)
        self.pi = nn.Linear(64, n_actions)
        self.v = nn.Linear(64, 1)
        for part, gain in [(convs[0], 2**0.5), (convs[1], 2**0.5), (self.fc, 2**0.5), (self.pi, 0.01)]:
            nn.init.orthogonal_(part.weight, gain)
            nn.init.zeros_(part.bias)
        self.fault = fault

    def forward(self, pixels):
        if self.fault == "int_division":
            x = (pixels // 255).float()
        else:
            x = pixels.float() / 255.0
        for conv in self.convs:
            x = F.relu(conv(x))
        x = F.relu(self.fc(x.flatten(1)))
        return self.pi(x), self.v(x).squeeze(-1)


class RewardScaler:
    """Divides rewards by the running standard deviation of the discounted return (no shift)."""

    def __init__(self, n, gamma):
        self.gamma = gamma
        self.acc = np.zeros(n)
        self.count, self.mean, self.m2 = 1e-4, 0.0, 1e-4

    def __call__(self, rewards, ended):
        self.acc = self.gamma * self.acc + rewards
        for g in self.acc:
            self.count += 1
            d = g - self.mean
            self.mean += d / self.count
            self.m2 += d * (g - self.mean)
        self.acc[ended] = 0.0
        return np.clip(rewards / np.sqrt(self.m2 / self.count + 1e-8), -10, 10)


class Agent:
    GAMMA, ENTROPY, VALUE, MAX_NORM = 0.97, 0.01, 0.5, 0.5

    def __init__(self, n_actions, fault, variant):
        self.fault, self.variant = fault, variant
        self.net = Network(n_actions, fault, variant)
        weights = [p for p in self.net.parameters() if p.requires_grad]
        if variant == "decay":
            self.opt = torch.optim.AdamW(weights, lr=2e-3, weight_decay=0.02)
        else:
            self.opt = torch.optim.Adam(weights, lr=2e-3)
        self.average = copy.deepcopy(self.net).requires_grad_(False) if variant == "ema" else None
        self.forget()

    def forget(self):
        self.logps, self.values, self.entropies, self.rewards, self.masks = [], [], [], [], []

    def act(self, pixels):
        """Samples actions; keeps what learn() needs, with the graph."""
        logits, value = self.net(torch.from_numpy(pixels))
        if self.fault == "probs_as_logits":
            dist = Categorical(logits=F.softmax(logits, dim=-1))
        else:
            dist = Categorical(logits=logits)
        action = dist.sample()
        self.logps.append(dist.log_prob(action))
        self.values.append(value)
        self.entropies.append(dist.entropy())
        return action.numpy()

    @torch.no_grad()
    def value_of(self, pixels):
        return self.net(torch.from_numpy(pixels))[1]

    def record(self, rewards, ended, cut_off):
        """cut_off: {index: last image} of the episodes that ran into the step limit."""
        rewards = torch.as_tensor(rewards, dtype=torch.float32)
        if cut_off and self.fault != "timeout_terminal":
            idx = list(cut_off)
            rewards[idx] += self.GAMMA * self.value_of(np.stack([cut_off[i] for i in idx]))
        self.rewards.append(rewards)
        self.masks.append(1.0 - torch.as_tensor(ended, dtype=torch.float32))

    def learn(self, next_pixels):
        ret = self.value_of(next_pixels)
        returns = []
        for r, m in zip(reversed(self.rewards), reversed(self.masks), strict=True):
            ret = r + self.GAMMA * ret if self.fault == "cross_episode" else r + self.GAMMA * ret * m
            returns.insert(0, ret)
        returns, values = torch.stack(returns), torch.stack(self.values)
        if self.fault == "cut_logp":
            logps = torch.tensor([lp.tolist() for lp in self.logps], requires_grad=True)
        else:
            logps = torch.stack(self.logps)
        advantage = returns - values
        weight = advantage if self.fault == "leaky_advantage" else advantage.detach()
        policy_loss = -(logps * weight).mean()
        value_loss = advantage.pow(2).mean()
        entropy = torch.stack(self.entropies).mean()
        loss = policy_loss + self.VALUE * value_loss - self.ENTROPY * entropy

        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), self.MAX_NORM)
        self.opt.step()
        if self.average is not None:
            with torch.no_grad():
                for a, p in zip(self.average.parameters(), self.net.parameters(), strict=True):
                    a.lerp_(p, 0.005)
        self.forget()
        return {"policy": policy_loss.item(), "value": value_loss.item(), "entropy": entropy.item()}


def evaluate(net, env, seed, episodes=40):
    caught = 0
    for e in range(episodes):
        img, _ = env.reset(seed=10_000 + seed * 100 + e)
        over = False
        while not over:
            with torch.no_grad():
                logits, _ = net(torch.from_numpy(img[None]))
            img, _, term, trunc, info = env.step(logits.argmax(-1).item())
            over = term or trunc
        caught += info["caught"]
    return caught / episodes


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--steps", type=int, default=100_000, help="environment steps over all copies")
    ap.add_argument("--fault", default="")
    ap.add_argument("--variant", default="")
    opts = ap.parse_args()
    random.seed(opts.seed)
    np.random.seed(opts.seed)  # noqa: NPY002
    torch.manual_seed(opts.seed)
    torch.set_num_threads(1)

    n, horizon = 16, 8
    negative = opts.variant == "negative"
    if opts.fault == "same_env":
        envs = [CatchApples(always_negative=negative)] * n
    else:
        envs = [CatchApples(always_negative=negative) for _ in range(n)]
    agent = Agent(3, opts.fault, opts.variant)
    scaler = RewardScaler(n, agent.GAMMA)

    images = np.stack([env.reset(seed=opts.seed * 1000 + i)[0] for i, env in enumerate(envs)])
    running, finished = np.zeros(n), []
    updates = max(1, opts.steps // (n * horizon))
    t0 = time.time()
    for u in range(updates):
        for _ in range(horizon):
            actions = agent.act(images)
            rewards, ended, cut_off, following = np.zeros(n), np.zeros(n, bool), {}, []
            for i, env in enumerate(envs):
                img, rewards[i], term, trunc, _ = env.step(actions[i])
                running[i] += rewards[i]
                if trunc:
                    cut_off[i] = img
                if term or trunc:
                    ended[i] = True
                    finished.append(running[i])
                    running[i] = 0.0
                    img, _ = env.reset()
                following.append(img)
            agent.record(scaler(rewards, ended), ended, cut_off)
            images = np.stack(following)
        stats = agent.learn(images)
        if u % max(1, updates // 10) == 0 or u == updates - 1:
            text = "  ".join(f"{k} {v:6.3f}" for k, v in stats.items())
            print(
                f"[{time.time() - t0:5.1f}s] update {u:5d}  return {np.mean(finished[-100:] or [0]):7.3f}  {text}",
                flush=True,
            )

    final = agent.average if agent.average is not None else agent.net
    score = evaluate(final, CatchApples(always_negative=negative), opts.seed)
    print(f"greedy: {score:.1f} apples per game")
    k = max(1, len(finished) // 5)
    print(f"mean return of the first fifth {np.mean(finished[:k]):.3f}, of the last {np.mean(finished[-k:]):.3f}")


if __name__ == "__main__":
    main()
