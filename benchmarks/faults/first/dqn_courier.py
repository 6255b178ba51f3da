"""Double deep Q-learning with Huber loss and a slowly moving target, written as functions; a small courier grid."""

import argparse
import random
import time
from collections import namedtuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FAULTS = {
    "soft_noop": ["targets", "broken", "the soft update rebinds a local name: the target never moves (AgileRL #462)"],
    "unsynced_start": ["targets", "broken", "the target starts from its own random weights (ray #45614)"],
    "column_target": ["shapes", "broken", "(N,1) Q against (N,) target: the Huber loss is (N,N) (Tianshou #155)"],
    "gamma_zero": ["goal", "not proven", "discount 0: a contextual bandit sold as reinforcement learning"],
    "step_division": ["rates", "broken", "floor division in the schedule: the learning rate is 0 from the second step"],
    "best_alias": ["rates", "broken", "the best weights are kept without a copy, so restoring them does nothing"],
    "stale_action": ["returns", "broken", "Q is gathered at the previous step's action, not the one that was taken"],
    "never_done": ["returns", "broken", "terminal states are bootstrapped like any other"],
}
HEALTHY = {
    "": "plain",
    "negative": "every reward is negative: each step costs until delivery",
    "warmup": "learning rate warmed up from 0",
    "noisy_eval": "evaluation of two episodes only, so its figure jumps about",
}

Batch = namedtuple("Batch", "obs action reward next_obs terminated")
MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))


class Courier(gym.Env):
    """Walk to the parcel, then to the door. A pit ends the episode. Both sites are drawn anew each time."""

    size = 4

    def __init__(self, always_negative=False):
        self.always_negative = always_negative
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (7,), np.float32)
        self.action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        cells = self.np_random.permutation(self.size**2)[:4]
        self.me, self.parcel, self.door, self.pit = (np.array(divmod(int(c), self.size)) for c in cells)
        self.carrying = False
        return self.look(), {}

    def look(self):
        span = self.size - 1
        errand = self.door if self.carrying else self.parcel
        parts = [2 * self.me / span - 1, (errand - self.me) / span, (self.pit - self.me) / span]
        return np.array([*np.concatenate(parts), float(self.carrying)], np.float32)

    def step(self, action):
        self.me = np.clip(self.me + MOVES[int(action)], 0, self.size - 1)
        fell = bool((self.me == self.pit).all())
        reward = -0.05
        if fell:
            reward = -1.5 if self.always_negative else -1.0
        elif not self.carrying and (self.me == self.parcel).all():
            self.carrying = True
            reward = -0.01 if self.always_negative else 0.5
        delivered = self.carrying and not fell and bool((self.me == self.door).all())
        if delivered:
            reward = -0.01 if self.always_negative else 1.0
        return self.look(), reward, fell or delivered, False, {}


def build_q(n_obs, n_actions):
    return nn.Sequential(nn.Linear(n_obs, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, n_actions))


def make_memory(capacity):
    rows, cursor = [], 0

    def push(*row):
        nonlocal cursor
        if len(rows) < capacity:
            rows.append(row)
        else:
            rows[cursor] = row
        cursor = (cursor + 1) % capacity

    def draw(n):
        columns = zip(*random.sample(rows, n), strict=True)
        obs, action, reward, next_obs, terminated = (torch.as_tensor(np.array(c)) for c in columns)
        return Batch(obs, action, reward.float(), next_obs, terminated.float())

    return push, draw


def td_loss(online, target, batch, gamma, fault):
    with torch.no_grad():
        greedy = online(batch.next_obs).argmax(1, keepdim=True)
        ahead = target(batch.next_obs).gather(1, greedy).squeeze(1)
        alive = 1.0 if fault == "never_done" else 1.0 - batch.terminated
        goal = batch.reward + gamma * alive * ahead
    guess = online(batch.obs).gather(1, batch.action.unsqueeze(1))
    return F.smooth_l1_loss(guess if fault == "column_target" else guess.squeeze(1), goal)


@torch.no_grad()
def polyak(online, target, tau, fault):
    for fast, slow in zip(online.parameters(), target.parameters(), strict=True):
        if fault == "soft_noop":
            slow = tau * fast + (1.0 - tau) * slow
        else:
            slow.copy_(tau * fast + (1.0 - tau) * slow)


def make_env(negative):
    return gym.wrappers.TimeLimit(Courier(negative), max_episode_steps=40)


def evaluate(online, env, episodes, seed):
    total = 0.0
    for k in range(episodes):
        obs, _ = env.reset(seed=seed + k)
        while True:
            with torch.no_grad():
                obs, reward, terminated, truncated, _ = env.step(int(online(torch.as_tensor(obs)).argmax()))
            total += reward
            if terminated or truncated:
                break
    return total / episodes


def train(seed, steps, fault, variant):
    env, test_env = make_env(variant == "negative"), make_env(variant == "negative")
    online, target = build_q(7, 4), build_q(7, 4)
    if fault != "unsynced_start":
        target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=2e-3)
    updates = max(1, steps // 2)

    def rate(k):
        if fault == "step_division":
            return (updates - k) // updates
        warm = min(1.0, k / 500) if variant == "warmup" else 1.0
        return warm * max(0.1, (updates - k) / updates)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    push, draw = make_memory(20_000)
    gamma, tau = 0.0 if fault == "gamma_zero" else 0.95, 0.02
    scores, score, best, best_weights = [], 0.0, -np.inf, None
    obs, _ = env.reset(seed=seed)
    previous = 0
    for step in range(1, steps + 1):
        epsilon = max(0.05, 1.0 - step / (0.5 * steps))
        if random.random() < epsilon:
            action = random.randrange(4)
        else:
            with torch.no_grad():
                action = int(online(torch.as_tensor(obs)).argmax())
        next_obs, reward, terminated, truncated, _ = env.step(action)
        push(obs, previous if fault == "stale_action" else action, reward, next_obs, terminated)
        obs, score, previous = next_obs, score + reward, action
        if terminated or truncated:
            scores.append(score)
            score = 0.0
            obs, _ = env.reset()
        if step >= 500 and step % 2 == 0:
            loss = td_loss(online, target, draw(64), gamma, fault)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            polyak(online, target, tau, fault)
        if step % 2000 == 0:
            tested = evaluate(online, test_env, 2 if variant == "noisy_eval" else 15, seed=9000)
            if tested > best:
                best = tested
                weights = online.state_dict()
                best_weights = weights if fault == "best_alias" else {k: v.clone() for k, v in weights.items()}
            print(f"step {step:6d}: test {tested:6.2f}, last episodes {np.mean(scores[-50:]):6.2f}, eps {epsilon:.2f}")
    if best_weights is not None:
        online.load_state_dict(best_weights)
        print(f"restored the best weights: test {evaluate(online, test_env, 15, seed=9000):.2f}")
    return scores


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=16_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    began = time.process_time()
    scores = train(args.seed, args.steps, args.fault, args.variant)
    first, last = np.mean(scores[:50]), np.mean(scores[-50:])
    print(f"first 50 episodes {first:.2f}, last 50 {last:.2f}, cpu {time.process_time() - began:.1f}s")


if __name__ == "__main__":
    main()
