"""Double DQN with a dueling network on a small docking task: agent, ring buffer and trainer classes."""

import argparse
import copy
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium.wrappers import TimeLimit
from torch import nn

FAULTS = {
    "plain_list": ["weights", "broken", "the heads sit in a plain list: neither optimizer nor target sees them"],
    "spent_pairs": ["targets", "broken", "the pairs for the soft update are an iterator, used up the first time"],
    "empty_rows": ["returns", "broken", "batches are drawn from the whole capacity, rows not yet written included"],
    "all_columns": ["shapes", "broken", "values are picked by columns: each row is pulled to every other row's target"],
    "decay_per_update": ["rates", "broken", "the decay meant for each episode is applied at each update"],
    "dead_thruster": ["goal", "not proven", "integer division makes every thrust zero: no action has any effect"],
}
HEALTHY = {
    "": "plain: one update every second step, soft target",
    "bursts": "no update for 300 steps, then 150 in a row; target copied every 150 updates",
    "three_step": "three-step returns with the discount kept in each row",
    "whole_vector": "layer norm, AdamW, and a loss on whole vectors whose targets differ in one place only",
}


class Docking(gym.Env):
    """A capsule drifts on a line and must come to rest at the dock; three thrusts."""

    observation_space = gym.spaces.Box(-5.0, 5.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, power=0.02, dead=False):
        self.power, self.dead = power, dead

    def _obs(self):
        return np.array([self.x, 10.0 * self.v, 10.0 * self.wind], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(0.4, 0.9) * self.np_random.choice([-1.0, 1.0])
        self.v = self.np_random.uniform(-0.04, 0.04)
        self.wind = self.np_random.uniform(-0.006, 0.006)
        return self._obs(), {}

    def step(self, action):
        thrust = self.power * (action // 3 if self.dead else action - 1)
        self.v += thrust + self.wind + self.np_random.normal(0, 0.002)
        self.x += self.v
        docked = abs(self.x) < 0.06 and abs(self.v) < 0.03
        lost = abs(self.x) > 1.2
        reward = 5.0 * docked - 5.0 * lost - 0.05 - 0.02 * (thrust != 0)
        return self._obs(), float(reward), bool(docked or lost), False, {}


class Dueling(nn.Module):
    def __init__(self, n_obs, n_act, hidden=64, norm=False, plain=False):
        super().__init__()
        between = [nn.LayerNorm(hidden)] if norm else []
        self.body = nn.Sequential(nn.Linear(n_obs, hidden), *between, nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        heads = [nn.Linear(hidden, 1), nn.Linear(hidden, n_act)]
        self.heads = heads if plain else nn.ModuleList(heads)

    def forward(self, obs):
        features = self.body(obs)
        value, edge = (head(features) for head in self.heads)
        return value + edge - edge.mean(-1, keepdim=True)


class Ring:
    def __init__(self, capacity, n_obs, seed, whole=False):
        self.rng, self.capacity, self.whole = np.random.default_rng(seed), capacity, whole
        self.obs = np.zeros((capacity, n_obs), np.float32)
        self.after = np.zeros((capacity, n_obs), np.float32)
        self.action = np.zeros(capacity, np.int64)
        self.reward = np.zeros(capacity, np.float32)
        self.discount = np.zeros(capacity, np.float32)  # what the value of the state after is worth; zero at a true end
        self.count = 0

    def put(self, obs, action, reward, after, discount):
        i = self.count % self.capacity
        self.obs[i], self.action[i], self.reward[i], self.after[i], self.discount[i] = (
            obs,
            action,
            reward,
            after,
            discount,
        )
        self.count += 1

    def draw(self, n):
        rows = self.rng.integers(self.capacity if self.whole else min(self.count, self.capacity), size=n)
        columns = (self.obs, self.action, self.reward, self.after, self.discount)
        return [torch.from_numpy(column[rows]) for column in columns]


class Agent:
    def __init__(self, n_obs, n_act, fault, variant, lr=1e-3, tau=0.01):
        self.fault, self.variant, self.tau, self.n_act = fault, variant, tau, n_act
        self.net = Dueling(n_obs, n_act, norm=variant == "whole_vector", plain=fault == "plain_list")
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        if variant == "whole_vector":
            self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=lr, weight_decay=1e-2)
        else:
            self.optimizer = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.decay = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.999)
        self.pairs = zip(self.target.parameters(), self.net.parameters(), strict=True)
        if fault != "spent_pairs":
            self.pairs = list(self.pairs)
        self.updates = 0

    @torch.no_grad()
    def act(self, obs, epsilon, rng):
        if rng.random() < epsilon:
            return int(rng.integers(self.n_act))
        return int(self.net(torch.from_numpy(obs)).argmax())

    def loss(self, obs, action, reward, after, discount):
        with torch.no_grad():
            best = self.net(after).argmax(-1, keepdim=True)
            goal = reward + discount * self.target(after).gather(-1, best).squeeze(-1)
        q = self.net(obs)
        if self.variant == "whole_vector":
            wanted = q.detach().clone()
            wanted[torch.arange(len(action)), action] = goal
            return F.huber_loss(q, wanted, reduction="sum") / len(action)
        if self.fault == "all_columns":
            chosen = q[:, action]
        else:
            chosen = q.gather(-1, action[:, None]).squeeze(-1)
        error = chosen - goal
        return torch.where(error.abs() < 1.0, 0.5 * error**2, error.abs() - 0.5).mean()

    def update(self, batch):
        loss = self.loss(*batch)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 10.0)
        self.optimizer.step()
        self.updates += 1
        if self.fault == "decay_per_update":
            self.decay.step()
        if self.variant == "bursts":
            if self.updates % 150 == 0:
                self.target.load_state_dict(self.net.state_dict())
        else:
            with torch.no_grad():
                for slow, fast in self.pairs:
                    slow.lerp_(fast, self.tau)
        return loss.item()


class Trainer:
    def __init__(self, args, gamma=0.98, batch=64, capacity=15_000):
        self.args, self.gamma, self.batch = args, gamma, batch
        self.env = TimeLimit(Docking(dead=args.fault == "dead_thruster"), 80)
        self.rng = np.random.default_rng(args.seed)
        self.agent = Agent(3, 3, args.fault, args.variant)
        self.ring = Ring(capacity, 3, args.seed + 1, whole=args.fault == "empty_rows")
        self.n = 3 if args.variant == "three_step" else 1
        self.window, self.returns, self.loss = deque(), [], 0.0

    def remember(self, obs, action, reward, after, terminated, over):
        """Rows of up to n steps; at the end of an episode the shorter ones follow."""
        self.window.append((obs, action, reward))
        while len(self.window) >= self.n or (over and self.window):
            total = sum(self.gamma**k * step[2] for k, step in enumerate(self.window))
            discount = 0.0 if terminated else self.gamma ** len(self.window)
            first = self.window.popleft()
            self.ring.put(first[0], first[1], total, after, discount)

    def learn(self, step):
        if step < 1000:
            return
        every, number = (300, 150) if self.args.variant == "bursts" else (2, 1)
        if step % every == 0:
            for _ in range(number):
                self.loss = self.agent.update(self.ring.draw(self.batch))

    def run(self):
        obs, _ = self.env.reset(seed=self.args.seed)
        total, said = 0.0, time.time()
        for step in range(self.args.steps):
            epsilon = max(0.05, 1.0 - step / (0.4 * self.args.steps))
            action = self.agent.act(obs, epsilon, self.rng)
            after, reward, terminated, truncated, _ = self.env.step(action)
            self.remember(obs, action, reward, after, terminated, terminated or truncated)
            obs, total = after, total + reward
            if terminated or truncated:
                self.returns.append(total)
                obs, total = self.env.reset()[0], 0.0
                if self.args.fault != "decay_per_update" and self.agent.updates:
                    self.agent.decay.step()
            self.learn(step)
            if time.time() - said > 3:
                said, recent = time.time(), np.mean(self.returns[-50:])
                print(f"step {step} return {recent:.2f} epsilon {epsilon:.2f} loss {self.loss:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=24_000)
    parser.add_argument("--fault", choices=["", *FAULTS], default="")
    parser.add_argument("--variant", choices=list(HEALTHY), default="")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    trainer = Trainer(args)
    trainer.run()
    tenth = max(1, len(trainer.returns) // 10)
    first, last = np.mean(trainer.returns[:tenth]), np.mean(trainer.returns[-tenth:])
    print(f"{len(trainer.returns)} episodes; mean return of the first tenth {first:.2f}, of the last tenth {last:.2f}")


if __name__ == "__main__":
    main()
