# Double DQN for a small warehouse: how much to order every evening.
# No classes for the learning part, only functions that return functions.
import argparse
import copy
import math
import random
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F

FAULTS = {
    "stale_actor": ["weights", "broken", "the acting function is given a copy of the network, which nobody refreshes"],
    "roles_swapped": [
        "targets",
        "broken",
        "the target network picks the next action and the online network, which is learning, values it",
    ],
    "gamma_once": ["returns", "broken", "after three summed rewards the bootstrap is discounted once, not three times"],
    "max_for_taken": [
        "shapes",
        "broken",
        "the loss moves the largest Q-value, not the one of the action that was taken",
    ],
    "warmup_restarts": [
        "rates",
        "broken",
        "the warm-up counts updates since the last reset of the environment: it begins anew with every episode",
    ],
    "free_orders": [
        "goal",
        "not proven",
        "goods bought and goods stored cost nothing: the shelves are filled to the roof",
    ],
}
HEALTHY = {
    "": "plain: three-step double Q-learning, Huber loss, warm-up of the rate, target copied every 150 updates",
    "one_step": "one-step targets, and a soft target update at each step",
    "prioritised": "proportional prioritised replay with importance weights",
    "rare_copy": "the target is copied every 900 updates only, and the network has layer norm",
}

ORDERS = (0, 2, 4, 6, 9)
ROOM = 24


class Warehouse(gym.Env):
    """Ordered goods come the next morning; demand follows the week; three empty days in a row lose the customer."""

    def __init__(self, free=False):
        self.observation_space = gym.spaces.Box(-1.0, 2.0, (5,), np.float32)
        self.action_space = gym.spaces.Discrete(len(ORDERS))
        self.free = free

    def _obs(self):
        angle = 2 * math.pi * self.day / 7
        return np.array(
            [self.stock / ROOM, self.coming / 9, math.sin(angle), math.cos(angle), self.empty / 3], dtype=np.float32
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.day = int(self.np_random.integers(7))
        self.stock = int(self.np_random.integers(2, 12))
        self.coming, self.empty = 0, 0
        return self._obs(), {}

    def step(self, action):
        self.stock = min(ROOM, self.stock + self.coming)
        demand = int(self.np_random.poisson(3.5 + 2.5 * math.sin(2 * math.pi * self.day / 7)))
        sold = min(demand, self.stock)
        self.stock -= sold
        self.coming = ORDERS[action]
        self.empty = self.empty + 1 if demand > sold else 0
        self.day = (self.day + 1) % 7
        income = 1.0 * sold
        cost = 0.0 if self.free else 0.5 * self.coming + 0.12 * self.stock
        lost = self.empty >= 3
        return self._obs(), income - cost - (8.0 if lost else 0.0), lost, False, {}


def make_network(n_in, n_out, norm=False):
    maybe = (lambda: torch.nn.LayerNorm(64)) if norm else torch.nn.Identity
    return torch.nn.Sequential(
        torch.nn.Linear(n_in, 64), maybe(), torch.nn.ReLU(),
        torch.nn.Linear(64, 64), maybe(), torch.nn.ReLU(),
        torch.nn.Linear(64, n_out),
    )  # fmt: skip


def make_memory(size, prioritised, rng, power=0.6):
    items, priorities = deque(maxlen=size), deque(maxlen=size)
    highest = 1.0

    def remember(item):
        items.append(item)
        priorities.append(highest)

    def recall(k, beta):
        if not prioritised:
            return [items[i] for i in rng.integers(len(items), size=k)], np.ones(k), None
        p = np.asarray(priorities) ** power
        p /= p.sum()
        picked = rng.choice(len(items), size=k, p=p)
        weights = (len(items) * p[picked]) ** -beta
        return [items[i] for i in picked], weights / weights.max(), picked

    def reprioritise(picked, errors):
        nonlocal highest
        if picked is not None:
            for i, e in zip(picked, errors, strict=False):
                priorities[i] = float(e) + 1e-3
            highest = max(highest, float(errors.max()))

    return remember, recall, reprioritise, lambda: len(items)


def make_window(n, gamma, remember):
    """Gathers n rewards; gives (s, a, R, s', steps that R spans, alive)"""
    recent = deque()

    def flush_one(s_next, alive):
        total = sum(gamma**i * r for i, (_, _, r) in enumerate(recent))
        s, a, _ = recent[0]
        remember((s, a, total, s_next, len(recent), alive))
        recent.popleft()

    def feed(s, a, r, s_next, terminated, truncated):
        recent.append((s, a, r))
        if len(recent) == n:
            flush_one(s_next, 0.0 if terminated else 1.0)
        if terminated or truncated:
            while recent:
                flush_one(s_next, 0.0 if terminated else 1.0)

    return feed


def make_actor(net, n_actions, rng, decay_steps):
    def epsilon(step):
        return max(0.03, 1.0 - step / decay_steps)

    @torch.no_grad()
    def act(obs, step):
        if rng.random() < epsilon(step):
            return int(rng.integers(n_actions))
        return int(net(torch.from_numpy(obs)).argmax())

    return act


def make_learner(online, recall, reprioritise, *, gamma, fault, variant, lr=1e-3, batch=48, warmup=400):
    target = copy.deepcopy(online)
    for p in target.parameters():
        p.requires_grad_(False)
    adam = torch.optim.Adam(online.parameters(), lr=lr)
    updates, since_reset = 0, 0
    copy_every = 900 if variant == "rare_copy" else 150

    def new_episode():
        nonlocal since_reset
        since_reset = 0

    def bootstrap(s_next):
        with torch.no_grad():
            chooser, judge = (target, online) if fault == "roles_swapped" else (online, target)
            best = chooser(s_next).argmax(1, keepdim=True)
            return judge(s_next).gather(1, best).squeeze(1)

    def learn(progress):
        nonlocal updates, since_reset
        updates, since_reset = updates + 1, since_reset + 1
        counted = since_reset if fault == "warmup_restarts" else updates
        adam.param_groups[0]["lr"] = lr * min(1.0, counted / warmup)

        rows, weights, picked = recall(batch, beta=0.4 + 0.6 * progress)
        s, a, ret, s_next, span, alive = (np.asarray(c) for c in zip(*rows, strict=False))
        s, s_next = torch.from_numpy(s), torch.from_numpy(s_next)
        a = torch.from_numpy(a).unsqueeze(1)
        ret, span, alive = (torch.as_tensor(c, dtype=torch.float32) for c in (ret, span, alive))
        discount = gamma if fault == "gamma_once" else gamma**span
        goal = ret + discount * alive * bootstrap(s_next)

        q = online(s)
        taken = q.max(1).values if fault == "max_for_taken" else q.gather(1, a).squeeze(1)
        losses = F.smooth_l1_loss(taken, goal, reduction="none")
        loss = (losses * torch.as_tensor(weights, dtype=torch.float32)).mean()
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(online.parameters(), 10.0)
        adam.step()
        reprioritise(picked, (taken - goal).abs().detach().numpy())

        if variant == "one_step":
            with torch.no_grad():
                for old, new in zip(target.parameters(), online.parameters(), strict=False):
                    old.lerp_(new, 0.01)
        elif updates % copy_every == 0:
            target.load_state_dict(online.state_dict())
        return loss.item()

    return learn, new_episode


def train(seed, steps, fault, variant):
    random.seed(seed)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gym.wrappers.TimeLimit(Warehouse(free=fault == "free_orders"), max_episode_steps=60)
    gamma = 0.95
    online = make_network(5, len(ORDERS), norm=variant == "rare_copy")
    remember, recall, reprioritise, size = make_memory(6000, variant == "prioritised", rng)
    feed = make_window(1 if variant == "one_step" else 3, gamma, remember)
    acting = copy.deepcopy(online) if fault == "stale_actor" else online
    act = make_actor(acting, len(ORDERS), rng, decay_steps=0.5 * steps)
    learn, new_episode = make_learner(online, recall, reprioritise, gamma=gamma, fault=fault, variant=variant)

    history, score = [], 0.0
    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        action = act(obs, step)
        obs_next, reward, terminated, truncated, _ = env.step(action)
        feed(obs, action, reward, obs_next, terminated, truncated)
        obs, score = obs_next, score + reward
        loss = learn(step / steps) if size() >= 300 else float("nan")
        if terminated or truncated:
            history.append(score)
            if len(history) % 50 == 0:
                print(f"{step:6d} episode {len(history):4d} profit {np.mean(history[-50:]):7.2f} loss {loss:.4f}")
            obs, _ = env.reset()
            score = 0.0
            new_episode()
    return history


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--steps", type=int, default=12_000)
    cli.add_argument("--fault", default="", choices=["", *FAULTS])
    cli.add_argument("--variant", default="", choices=list(HEALTHY))
    opts = cli.parse_args()
    torch.set_num_threads(1)
    t0 = time.time()
    h = train(opts.seed, opts.steps, opts.fault, opts.variant)
    n = max(1, len(h) // 10)
    print(f"first tenth {np.mean(h[:n]):.2f} last tenth {np.mean(h[-n:]):.2f} ({time.time() - t0:.1f} s)")
