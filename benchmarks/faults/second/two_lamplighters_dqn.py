"""Two independent double-DQN learners that share one reward.

A street of nine houses, two lamps to light, two lamplighters. The shift is over when a lamplighter stands at each
lamp. Both see the whole street from their own point of view, both get the same reward.
"""

import argparse
import copy
import random

import gymnasium as gym
import numpy as np
import torch
from torch import nn

FAULTS = {
    "crossed_optim": ["weights", "broken", "the two optimizers hold each other's network, nothing ever moves"],
    "one_learner": ["weights", "broken", "both optimizers were built on the left agent, the right one never trains"],
    "noop_soft": ["targets", "broken", "the soft update rebinds the loop variable, targets never change"],
    "alias_target": ["targets", "broken", "the target networks are the online networks, no copy was made"],
    "other_obs": ["returns", "broken", "next-state value of the right agent is taken from the left agent's view"],
    "outer_td": ["shapes", "broken", "Q (B,1) minus target (B,) gives a (B,B) error"],
    "store_late": ["returns", "broken", "obs is advanced before the transition is stored: obs and next_obs are equal"],
    "best_alias": ["rates", "broken", "best weights kept as state_dict() without a copy, restoring them does nothing"],
}
HEALTHY = {
    "": "plain",
    "hard_sync": "targets are copied every 400 updates only",
    "alternate": "the agents take turns: one trains for 250 updates while the other stands still",
    "vdn": "one TD error on the sum of both Q-values, stepped by both optimizers",
}

NAMES = ("left", "right")
HOUSES = 9


class Lamplighters(gym.Env):
    def __init__(self):
        self.action_space = gym.spaces.MultiDiscrete([3, 3])
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2, 4), np.float32)

    def _views(self):
        a, b = self.where
        rows = [[a, b, *self.lamps], [b, a, *self.lamps]]
        return (np.array(rows, np.float32) - 4.0) / 4.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        while True:
            self.where = self.np_random.integers(0, HOUSES, 2)
            self.lamps = sorted(int(x) for x in self.np_random.choice(HOUSES, 2, replace=False))
            if set(self.where.tolist()) != set(self.lamps):
                return self._views(), {}

    def step(self, action):
        self.where = np.clip(self.where + np.asarray(action) - 1, 0, HOUSES - 1)
        lit = sorted(self.where.tolist()) == self.lamps
        gaps = sum(int(np.abs(self.where - lamp).min()) for lamp in self.lamps)
        reward = -0.1 - 0.1 * gaps + (2.0 if lit else 0.0)
        return self._views(), reward, lit, False, {}


class Memory:
    def __init__(self, size):
        self.size, self.n = size, 0
        self.obs = np.zeros((size, 2, 4), np.float32)
        self.nxt = np.zeros((size, 2, 4), np.float32)
        self.act = np.zeros((size, 2), np.int64)
        self.rew = np.zeros(size, np.float32)
        self.term = np.zeros(size, np.float32)

    def push(self, obs, act, rew, nxt, term):
        i = self.n % self.size
        self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.term[i] = obs, act, rew, nxt, term
        self.n += 1

    def draw(self, rng, batch):
        i = rng.integers(0, min(self.n, self.size), batch)
        return (torch.from_numpy(x[i]) for x in (self.obs, self.act, self.rew, self.nxt, self.term))


def mlp():
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))


@torch.no_grad()
def greedy(nets, obs):
    views = torch.from_numpy(obs)
    return np.array([nets[name](views[i]).argmax().item() for i, name in enumerate(NAMES)])


def play(nets, env, episodes, seed):
    """Greedy evaluation, always on the same starts."""
    total = 0.0
    for e in range(episodes):
        obs, _ = env.reset(seed=seed + e)
        over = False
        while not over:
            obs, rew, term, trunc, _ = env.step(greedy(nets, obs))
            total += rew
            over = term or trunc
    return total / episodes


def td_parts(nets, targets, batch, i, gamma, fault):
    """Q(s, a) and the double-DQN estimate of the discounted next value for agent i."""
    obs, act, _, nxt, term = batch
    name = NAMES[i]
    seen = nxt[:, 0] if fault == "other_obs" and i == 1 else nxt[:, i]
    q = nets[name](obs[:, i]).gather(1, act[:, i : i + 1])
    with torch.no_grad():
        best = nets[name](seen).argmax(1, keepdim=True)
        follow = targets[name](seen).gather(1, best).squeeze(1)
    if fault != "outer_td":
        q = q.squeeze(1)
    return q, gamma * (1.0 - term) * follow


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--steps", type=int, default=16_000)
    ap.add_argument("--fault", default="")
    ap.add_argument("--variant", default="")
    args = ap.parse_args()
    random.seed(args.seed)
    rng = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    gamma, lr, tau, batch_size, warm = 0.95, 1e-3, 0.01, 64, 500

    env = gym.wrappers.TimeLimit(Lamplighters(), 25)
    eval_env = gym.wrappers.TimeLimit(Lamplighters(), 25)
    nets = nn.ModuleDict({name: mlp() for name in NAMES})
    if args.fault == "alias_target":
        targets = nets
    else:
        targets = copy.deepcopy(nets).requires_grad_(False)
    owner = {"left": "left", "right": "right"}
    if args.fault == "crossed_optim":
        owner = {"left": "right", "right": "left"}
    elif args.fault == "one_learner":
        owner["right"] = "left"
    opts = {name: torch.optim.Adam(nets[owner[name]].parameters(), lr=lr) for name in NAMES}
    memory = Memory(10_000)

    obs, _ = env.reset(seed=args.seed)
    episode, returns, updates = 0.0, [], 0
    best_score, best_weights, best_at = -np.inf, None, 0
    for step in range(1, args.steps + 1):
        eps = max(0.05, 1.0 - step / (0.4 * args.steps))
        explore = rng.random(2) < eps
        act = np.where(explore, rng.integers(0, 3, 2), greedy(nets, obs))
        nxt, rew, term, trunc, _ = env.step(act)
        episode += rew
        # running out of time is not an end of the task, so only `term` goes into the memory
        if args.fault == "store_late":
            obs = nxt
            memory.push(obs, act, rew, nxt, term)
        else:
            memory.push(obs, act, rew, nxt, term)
            obs = nxt
        if term or trunc:
            returns.append(episode)
            episode = 0.0
            obs, _ = env.reset()

        if step >= warm and step % 4 == 0:
            updates += 1
            batch = tuple(memory.draw(rng, batch_size))
            if args.variant == "vdn":
                parts = [td_parts(nets, targets, batch, i, gamma, args.fault) for i in range(2)]
                error = sum(p[0] for p in parts) - (batch[2] + sum(p[1] for p in parts))
                for opt in opts.values():
                    opt.zero_grad()
                (0.5 * error.pow(2)).mean().backward()
                for name in NAMES:
                    nn.utils.clip_grad_norm_(nets[name].parameters(), 10.0)
                    opts[name].step()
            else:
                for i, name in enumerate(NAMES):
                    if args.variant == "alternate" and (updates // 250) % 2 != i:
                        continue
                    q, follow = td_parts(nets, targets, batch, i, gamma, args.fault)
                    loss = (0.5 * (q - (batch[2] + follow)).pow(2)).mean()
                    opts[name].zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(nets[name].parameters(), 10.0)
                    opts[name].step()

            with torch.no_grad():
                if args.variant == "hard_sync":
                    if updates % 400 == 0:
                        targets.load_state_dict(nets.state_dict())
                else:
                    for t, p in zip(targets.parameters(), nets.parameters(), strict=True):
                        if args.fault == "noop_soft":
                            t = (1.0 - tau) * t + tau * p
                        else:
                            t.lerp_(p, tau)

        if step % 1000 == 0:
            score = play(nets, eval_env, 20, seed=5_000)
            if score > best_score:
                best_score, best_at = score, step
                best_weights = nets.state_dict() if args.fault == "best_alias" else copy.deepcopy(nets.state_dict())
            print(f"step {step:6d} eps {eps:.2f} train {np.mean(returns[-50:]):7.3f} eval {score:7.3f}", flush=True)

    if best_weights is not None:
        nets.load_state_dict(best_weights)
        print(f"restored the weights of step {best_at}: {play(nets, eval_env, 50, seed=9_000):.3f}")
    k = max(1, len(returns) // 5)
    print(f"return of the first fifth {np.mean(returns[:k]):.3f}, last fifth {np.mean(returns[-k:]):.3f}")


if __name__ == "__main__":
    main()
