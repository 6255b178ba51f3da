"""Double DQN with a dueling head, written as plain functions over one namespace of state.

The task is a hot-air balloon in a shaft. The burner can be on, idle, or the vent open; the pilot has to bring the
balloon to a marked height and keep it there against gusts. Touching the floor or the ceiling ends the flight.
"""

import argparse
import copy
import time
from collections import deque
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

FAULTS = {
    "trunk_left_out": ["weights", "broken", "the optimizer gets the two heads only: the trunk stays as it began"],
    "lerp_dropped": ["targets", "broken", "the soft update drops the result of lerp where lerp_ was meant"],
    "limit_is_end": ["returns", "broken", "a flight stopped by the time limit is stored as if it had ended for good"],
    "unfilled_rows": ["returns", "broken", "batches come from the whole capacity, rows nobody stored included"],
    "column_against_row": ["shapes", "broken", "the gathered Q column minus the row of targets gives an N by N loss"],
    "best_by_reference": [
        "rates",
        "broken",
        "the best weights are kept as a state_dict that still points at the live network: restoring them does nothing",
    ],
    "paid_by_the_minute": ["goal", "not proven", "every step in the air pays one, wherever the mark is"],
}
HEALTHY = {
    "": "plain: one-step targets, soft target updates, linear epsilon, the best evaluated weights restored at the end",
    "nstep": "three-step returns, cut and bootstrapped where a flight ends",
    "rare_sync": "hard target copy every 1000 updates, weight decay, warm-up of the learning rate from zero",
    "prioritised": "proportional prioritised replay with importance weights annealed to one",
}


class Balloon(gym.Env):
    observation_space = gym.spaces.Box(-2.0, 2.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, pay_presence=False):
        self.pay_presence = pay_presence

    def _obs(self):
        return np.array([self.height, 5.0 * self.speed, self.mark - self.height], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.height = self.np_random.uniform(-0.7, 0.7)
        self.speed = self.np_random.uniform(-0.03, 0.03)
        self.mark = self.np_random.uniform(-0.7, 0.7)
        return self._obs(), {}

    def step(self, action):
        gust = self.np_random.normal(0.0, 0.008)
        self.speed = 0.95 * self.speed + 0.03 * (int(action) - 1) + gust
        self.height += self.speed
        crashed = abs(self.height) > 1.0
        if self.pay_presence:
            reward = 1.0
        else:
            reward = 1.0 - min(1.0, 1.5 * abs(self.height - self.mark))
        return self._obs(), reward, crashed, False, {}


def make_env(fault, limit=60):
    return gym.wrappers.TimeLimit(Balloon(pay_presence=fault == "paid_by_the_minute"), max_episode_steps=limit)


# ---- ring buffer: a dict of arrays and two integers -------------------------------------------------------------


def ring_new(capacity, obs_size):
    arrays = {
        "obs": np.zeros((capacity, obs_size), np.float32),
        "action": np.zeros(capacity, np.int64),
        "reward": np.zeros(capacity, np.float32),
        "discount": np.zeros(capacity, np.float32),  # gamma ** n, or 0 where the flight ended for good
        "next_obs": np.zeros((capacity, obs_size), np.float32),
    }
    return SimpleNamespace(arrays=arrays, priority=np.zeros(capacity), capacity=capacity, head=0, size=0)


def ring_put(ring, **row):
    for key, value in row.items():
        ring.arrays[key][ring.head] = value
    ring.priority[ring.head] = max(ring.priority.max(), 1.0)
    ring.head = (ring.head + 1) % ring.capacity
    ring.size = min(ring.size + 1, ring.capacity)


def ring_draw(ring, rng, batch_size, fault):
    filled = ring.capacity if fault == "unfilled_rows" else ring.size
    rows = rng.integers(0, filled, batch_size)
    return rows, np.ones(batch_size, np.float32)


def ring_draw_by_priority(ring, rng, batch_size, beta, alpha=0.6):
    mass = ring.priority[: ring.size] ** alpha
    cumulative = np.cumsum(mass)
    rows = np.searchsorted(cumulative, rng.random(batch_size) * cumulative[-1], side="right")
    rows = np.minimum(rows, ring.size - 1)
    weights = (ring.size * mass[rows] / cumulative[-1]) ** -beta
    return rows, (weights / weights.max()).astype(np.float32)


def push_steps(ring, window, obs, action, reward, next_obs, ended, over, cfg):
    """Feed one step into the n-step window and store every transition that is complete."""
    window.append((obs, action, reward))
    while window and (over or len(window) == cfg.n_step):
        total = sum(cfg.gamma**k * r for k, (_, _, r) in enumerate(window))
        discount = 0.0 if ended else cfg.gamma ** len(window)
        first_obs, first_action, _ = window.popleft()
        ring_put(ring, obs=first_obs, action=first_action, reward=total, discount=discount, next_obs=next_obs)


# ---- networks ---------------------------------------------------------------------------------------------------


def net_new(obs_size, n_actions, width=64):
    return nn.ModuleDict(
        {
            "trunk": nn.Sequential(nn.Linear(obs_size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
            "value": nn.Linear(width, 1),
            "gain": nn.Linear(width, n_actions),
        }
    )


def q_values(net, obs):
    h = net["trunk"](obs)
    gain = net["gain"](h)
    return net["value"](h) + gain - gain.mean(dim=1, keepdim=True)


def optimizer_new(net, cfg, fault):
    params = [*net["value"].parameters(), *net["gain"].parameters()]
    if fault != "trunk_left_out":
        params += net["trunk"].parameters()
    if cfg.weight_decay > 0:
        return torch.optim.AdamW(params, lr=cfg.lr, weight_decay=cfg.weight_decay)
    return torch.optim.Adam(params, lr=cfg.lr)


@torch.no_grad()
def greedy(net, obs):
    return q_values(net, torch.from_numpy(obs).unsqueeze(0)).argmax(dim=1).item()


@torch.no_grad()
def refresh_target(s, cfg, fault):
    if cfg.sync_every:
        if s.updates % cfg.sync_every == 0:
            s.target.load_state_dict(s.net.state_dict())
        return
    for slow, fast in zip(s.target.parameters(), s.net.parameters(), strict=True):
        if fault == "lerp_dropped":
            slow.lerp(fast, cfg.tau)
        else:
            slow.lerp_(fast, cfg.tau)


# ---- learning ---------------------------------------------------------------------------------------------------


def learn(s, cfg, progress, fault):
    if cfg.prioritised:
        rows, weights = ring_draw_by_priority(s.ring, s.rng, cfg.batch_size, beta=0.4 + 0.6 * progress)
    else:
        rows, weights = ring_draw(s.ring, s.rng, cfg.batch_size, fault)
    batch = {key: torch.from_numpy(column[rows]) for key, column in s.ring.arrays.items()}

    with torch.no_grad():
        choice = q_values(s.net, batch["next_obs"]).argmax(dim=1, keepdim=True)
        next_q = q_values(s.target, batch["next_obs"]).gather(1, choice).squeeze(1)
        goal = batch["reward"] + batch["discount"] * next_q

    q = q_values(s.net, batch["obs"]).gather(1, batch["action"].unsqueeze(1))
    if fault != "column_against_row":
        q = q.squeeze(1)
    error = q - goal
    loss = (torch.from_numpy(weights) * F.huber_loss(error, torch.zeros_like(error), reduction="none")).mean()

    s.optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(s.net.parameters(), 10.0)
    s.optimizer.step()
    if s.warmup is not None:
        s.warmup.step()
    s.updates += 1
    refresh_target(s, cfg, fault)
    if cfg.prioritised:
        s.ring.priority[rows] = error.detach().abs().numpy() + 1e-2
    return loss.item()


def evaluate(net, env, n_episodes, seed):
    scores = []
    for i in range(n_episodes):
        obs, _ = env.reset(seed=seed + i)
        score, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(greedy(net, obs))
            score += reward
            over = terminated or truncated
        scores.append(score)
    return float(np.mean(scores))


def config(variant):
    cfg = SimpleNamespace(
        steps=17_000, capacity=12_000, batch_size=64, learn_after=500, gamma=0.97, lr=1e-3, tau=0.01, n_step=1
    )
    cfg.explore_for, cfg.eps_last, cfg.eval_every = 5_000, 0.05, 2_000
    cfg.sync_every, cfg.weight_decay, cfg.warmup, cfg.prioritised = 0, 0.0, 0, False
    if variant == "nstep":
        cfg.n_step = 3
    elif variant == "rare_sync":
        cfg.sync_every, cfg.weight_decay, cfg.warmup = 1_000, 1e-2, 500
    elif variant == "prioritised":
        cfg.prioritised = True
    return cfg


def setup(cfg, seed, fault):
    env = make_env(fault)
    s = SimpleNamespace(env=env, eval_env=make_env(fault), rng=np.random.default_rng(seed), updates=0)
    s.net = net_new(env.observation_space.shape[0], int(env.action_space.n))
    s.target = copy.deepcopy(s.net).requires_grad_(False)
    s.optimizer = optimizer_new(s.net, cfg, fault)
    s.warmup = None
    if cfg.warmup:
        s.warmup = torch.optim.lr_scheduler.LambdaLR(s.optimizer, lambda k: min(1.0, k / cfg.warmup))
    s.ring = ring_new(cfg.capacity, env.observation_space.shape[0])
    return s


def run(seed, fault, variant):
    torch.manual_seed(seed)
    cfg = config(variant)
    s = setup(cfg, seed, fault)
    scores, score, loss = [], 0.0, float("nan")
    best_score, best_weights = -np.inf, None
    window = deque()
    obs, _ = s.env.reset(seed=seed)

    for step in range(1, cfg.steps + 1):
        eps = max(cfg.eps_last, 1.0 - step / cfg.explore_for)
        action = int(s.rng.integers(s.env.action_space.n)) if s.rng.random() < eps else greedy(s.net, obs)
        next_obs, reward, terminated, truncated, _ = s.env.step(action)
        over = terminated or truncated
        ended = over if fault == "limit_is_end" else terminated
        push_steps(s.ring, window, obs, action, reward, next_obs, ended, over, cfg)
        score += reward
        obs = next_obs
        if over:
            scores.append(score)
            score = 0.0
            obs, _ = s.env.reset()

        if step > cfg.learn_after:
            loss = learn(s, cfg, step / cfg.steps, fault)
        if step % cfg.eval_every == 0:
            tested = evaluate(s.net, s.eval_env, 8, seed=10_000)
            if tested > best_score:
                best_score = tested
                weights = s.net.state_dict()
                best_weights = weights if fault == "best_by_reference" else copy.deepcopy(weights)
            recent = np.mean(scores[-20:])
            print(f"step {step:6d}  eps {eps:.2f}  return {recent:6.2f}  greedy {tested:6.2f}  loss {loss:.4f}")

    s.net.load_state_dict(best_weights)
    print(f"restored the best weights ({best_score:.2f}): {evaluate(s.net, s.eval_env, 20, seed=20_000):.2f}")
    return scores


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    torch.set_num_threads(1)
    start = time.process_time()
    scores = run(args.seed, args.fault, args.variant)
    took = time.process_time() - start
    print(f"first 40 episodes {np.mean(scores[:40]):.2f}, last 40 {np.mean(scores[-40:]):.2f}, cpu {took:.1f} s")


if __name__ == "__main__":
    main()
