"""Courier: fetch a parcel on a 5x5 grid, bring it to the depot. Double DQN, dueling heads, 3-step returns.

No agent class here: networks are plain ModuleDicts and everything else is a function of them.
"""

import argparse
import copy
import random
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn

FAULTS = {
    "nstep_gamma_once": ["returns", "broken", "the bootstrap after n rewards is discounted by gamma, not by gamma**n"],
    "window_spans_reset": [
        "returns",
        "broken",
        "the n-step window is not emptied at the end of an episode: rewards of the next one are added",
    ],
    "evaluated_online": [
        "targets",
        "broken",
        "the chosen next action is evaluated by the online net, the target network is never used",
    ],
    "sync_rebinds": [
        "targets",
        "broken",
        "sync() rebinds its local name instead of copying weights: the target stays at its initial weights",
    ],
    "mean_over_batch": [
        "shapes",
        "broken",
        "the dueling mean is taken over the whole batch instead of over the actions",
    ],
    "outer_pick": [
        "shapes",
        "broken",
        "q[:, actions] instead of gather: an (N, N) matrix is regressed on (N,) targets",
    ],
    "decay_per_update": [
        "rates",
        "broken",
        "a learning rate decay meant per episode is stepped at every gradient update: no rate is left early on",
    ],
    "parcel_pays_again": [
        "goal",
        "not proven",
        "the pick-up bonus is paid on every visit of the parcel's cell, so delivering is not worth it",
    ],
}
HEALTHY = {
    "": "plain",
    "boltzmann": "explores by a softmax over Q values with a falling temperature instead of epsilon-greedy",
    "rare_sync": "the target network is copied only every 1200 updates",
    "accumulate": "each batch is processed as two micro-batches, the gradients of which are accumulated",
    "shadow": "a moving average of the weights is kept beside the network and never used in training",
}

SIZE, LIMIT = 5, 40
GAMMA, N_STEP, BATCH, CAPACITY = 0.97, 3, 64, 20_000
MOVES = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)])


class Courier(gym.Env):
    observation_space = gym.spaces.Box(-1.0, 1.0, (7,), np.float32)
    action_space = gym.spaces.Discrete(4)

    def __init__(self, pay_again=False):
        self.pay_again = pay_again

    def _vector(self):
        scale = SIZE - 1
        return np.array(
            [
                *(self.me / scale),
                *((self.parcel - self.me) / scale),
                *((self.depot - self.me) / scale),
                float(self.loaded),
            ],
            dtype=np.float32,
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        cells = self.np_random.permutation(SIZE * SIZE)[:3]
        self.me, self.parcel, self.depot = (np.array(divmod(int(c), SIZE)) for c in cells)
        self.loaded = False
        return self._vector(), {}

    def step(self, action):
        self.me = np.clip(self.me + MOVES[int(action)], 0, SIZE - 1)
        reward, done = -0.02, False
        if (self.me == self.parcel).all() and (self.pay_again or not self.loaded):
            self.loaded = True
            reward += 0.5
        if self.loaded and (self.me == self.depot).all():
            reward, done = reward + 1.0, True
        return self._vector(), reward, done, False, {"is_success": done}


def make_net(width=64):
    return nn.ModuleDict(
        {
            "trunk": nn.Sequential(nn.Linear(7, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
            "value": nn.Linear(width, 1),
            "gain": nn.Linear(width, 4),
        }
    )


def q_values(net, x, fault=""):
    z = net["trunk"](x)
    value, gain = net["value"](z), net["gain"](z)
    if fault == "mean_over_batch":
        return value + gain - gain.mean()
    return value + gain - gain.mean(dim=1, keepdim=True)


def sync(online, target, fault=""):
    if fault == "sync_rebinds":
        target = copy.deepcopy(online)
    else:
        target.load_state_dict(online.state_dict())


def choose(net, obs, progress, rng, variant, fault):
    """Exploration fades over the first 40 % of the run."""
    left = max(0.0, 1.0 - progress / 0.4)
    epsilon = 0.04 + 0.96 * left
    if variant != "boltzmann" and rng.random() < epsilon:
        return int(rng.integers(4))
    with torch.no_grad():
        q = q_values(net, torch.from_numpy(obs)[None], fault)[0]
        if variant == "boltzmann":
            heat = 0.02 + 0.5 * left
            return int(torch.multinomial(torch.softmax(q / heat, dim=0), 1))
        return int(q.argmax())


def push(memory, item):
    if len(memory["rows"]) < CAPACITY:
        memory["rows"].append(item)
    else:
        memory["rows"][memory["at"]] = item
    memory["at"] = (memory["at"] + 1) % CAPACITY


def draw(memory, rng):
    rows = [memory["rows"][i] for i in rng.integers(0, len(memory["rows"]), BATCH)]
    obs, action, total, last, discount = zip(*rows, strict=True)
    return (
        torch.from_numpy(np.stack(obs)),
        torch.tensor(action),
        torch.tensor(total, dtype=torch.float32),
        torch.from_numpy(np.stack(last)),
        torch.tensor(discount, dtype=torch.float32),
    )


def fold(memory, window, last, terminated, over, fault):
    """Turn the pending (obs, action, reward) window into n-step transitions.

    Inside an episode only the oldest entry is complete; at its end all of them are, with fewer rewards each.
    The discount that is left for the bootstrap is stored with the transition (0 after a real terminal state;
    a time limit still bootstraps from the last observation).
    """
    while window:
        obs, action, _ = window[0]
        total = sum(GAMMA**i * reward for i, (_, _, reward) in enumerate(window))
        discount = GAMMA if fault == "nstep_gamma_once" else GAMMA ** len(window)
        push(memory, (obs, action, total, last, 0.0 if terminated else discount))
        window.popleft()
        if not over or fault == "window_spans_reset":
            break


def td_loss(online, target, batch, fault):
    obs, action, total, last, discount = batch
    with torch.no_grad():
        best = q_values(online, last, fault).argmax(dim=1, keepdim=True)
        judge = online if fault == "evaluated_online" else target
        goal = total + discount * q_values(judge, last, fault).gather(1, best).squeeze(1)
    q = q_values(online, obs, fault)
    if fault == "outer_pick":
        picked = q[:, action]
    else:
        picked = q.gather(1, action[:, None]).squeeze(1)
    return (picked - goal).pow(2).mean()


def learn(online, target, optimizer, batch, variant, fault):
    optimizer.zero_grad()
    if variant == "accumulate":
        for part in zip(*(t.chunk(2) for t in batch), strict=True):
            loss = td_loss(online, target, part, fault)
            (loss / 2).backward()
    else:
        loss = td_loss(online, target, batch, fault)
        loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), 5.0)
    optimizer.step()
    return loss.item()


def average_into(shadow, online, keep=0.995):
    with torch.no_grad():
        for s, p in zip(shadow.parameters(), online.parameters(), strict=True):
            s.mul_(keep).add_(p, alpha=1 - keep)


def train(steps, seed, fault, variant):
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)

    env = gym.wrappers.TimeLimit(Courier(pay_again=fault == "parcel_pays_again"), max_episode_steps=LIMIT)
    online = make_net()
    target = copy.deepcopy(online)
    shadow = copy.deepcopy(online) if variant == "shadow" else None
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.999)  # one notch per episode
    sync_every = 1200 if variant == "rare_sync" else 200

    memory, window = {"rows": [], "at": 0}, deque(maxlen=N_STEP)
    scores, score, updates, loss = [], 0.0, 0, float("nan")
    obs, _ = env.reset(seed=seed)
    for t in range(steps):
        action = choose(online, obs, t / steps, rng, variant, fault)
        following, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        score += reward
        window.append((obs, action, reward))
        if len(window) == N_STEP or over:
            fold(memory, window, following, terminated, over, fault)
        obs = following
        if over:
            scores.append(score)
            score = 0.0
            obs, _ = env.reset()
            if updates and fault != "decay_per_update":
                decay.step()
        if t >= 1000 and t % 2 == 0:
            loss = learn(online, target, optimizer, draw(memory, rng), variant, fault)
            updates += 1
            if fault == "decay_per_update":
                decay.step()
            if updates % sync_every == 0:
                sync(online, target, fault)
            if shadow is not None:
                average_into(shadow, online)
        if (t + 1) % 2000 == 0:
            print(f"t={t + 1} games={len(scores)} score={np.mean(scores[-50:]):.3f} loss={loss:.4f}")
    return scores


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--steps", type=int, default=14_000)
    cli.add_argument("--fault", default="", choices=["", *FAULTS])
    cli.add_argument("--variant", default="", choices=list(HEALTHY))
    a = cli.parse_args()
    result = train(a.steps, a.seed, a.fault, a.variant)
    k = max(1, len(result) // 5)
    print(f"first fifth {np.mean(result[:k]):.3f} | last fifth {np.mean(result[-k:]):.3f}")
