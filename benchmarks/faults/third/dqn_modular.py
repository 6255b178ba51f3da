"""Double DQN on CartPole (200-step limit): replay memory, epsilon schedule, agent and a training function."""

import argparse
import copy
import random
import time
from collections import deque, namedtuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

FAULTS = {
    "sync_by_reference": ["targets", "broken", "the target sync binds the online network itself instead of copying it"],
    "timeout_is_done": ["returns", "broken", "the 200-step time limit is stored as a terminal state"],
    "missing_squeeze": ["shapes", "broken", "Q is (N,1) and the target (N,), so the TD error is an (N,N) matrix"],
    "late_head": ["weights", "broken", "the output layer is replaced after the optimizer took the parameters"],
    "schedule_units": ["rates", "broken", "learning-rate decay sized in episodes but stepped once per update"],
    "stale_sensor": ["goal", "not proven", "the observation wrapper keeps returning the observation of the reset"],
}
HEALTHY = {
    "": "plain",
    "rare_sync": "target network copied only every 2000 environment steps",
    "random_features": "the first layer is a fixed random projection, frozen on purpose (wider, not in the optimizer)",
    "failure_cost": "the agent trains on 0 per step and -1 for falling: its rewards are never positive",
    "accumulate": "each update is two half batches with accumulated gradients, each loss halved",
}

Transition = namedtuple("Transition", "state action reward next_state done")


class ReplayMemory:
    def __init__(self, capacity):
        self.items = deque(maxlen=capacity)

    def push(self, *fields):
        self.items.append(Transition(*fields))

    def sample(self, batch_size):
        batch = Transition(*zip(*random.sample(self.items, batch_size), strict=True))
        return Transition(
            torch.from_numpy(np.stack(batch.state)),
            torch.tensor(batch.action).unsqueeze(1),
            torch.tensor(batch.reward, dtype=torch.float32),
            torch.from_numpy(np.stack(batch.next_state)),
            torch.tensor(batch.done, dtype=torch.float32),
        )

    def __len__(self):
        return len(self.items)


class EpsilonSchedule:
    def __init__(self, start, end, decay_steps):
        self.start, self.end, self.decay_steps = start, end, decay_steps

    def __call__(self, step):
        return self.end + (self.start - self.end) * max(0.0, 1.0 - step / self.decay_steps)


class Sensor(gym.ObservationWrapper):
    """Scales the four readings to about one."""

    scale = np.array([2.4, 2.0, 0.21, 2.0], dtype=np.float32)

    def __init__(self, env, cache=False):
        super().__init__(env)
        self.cache, self.reading = cache, None

    def reset(self, **kwargs):
        self.reading = None
        return super().reset(**kwargs)

    def observation(self, observation):
        if self.reading is None or not self.cache:
            self.reading = (observation / self.scale).astype(np.float32)
        return self.reading


class QNetwork(nn.Module):
    def __init__(self, n_obs, n_actions, hidden=64, width=64):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(n_obs, width), nn.ReLU())
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_actions)

    def forward(self, x):
        return self.head(self.body(self.features(x)))


class DQNAgent:
    def __init__(self, n_obs, n_actions, args, total_updates, gamma=0.98, lr=8e-4):
        self.args, self.gamma, self.n_actions = args, gamma, n_actions
        self.online = QNetwork(n_obs, n_actions, width=256 if args.variant == "random_features" else 64)
        if args.variant == "random_features":
            self.online.features.requires_grad_(False)
        if args.fault != "late_head":
            self.init_head()
        self.optimizer = torch.optim.Adam([p for p in self.online.parameters() if p.requires_grad], lr=lr)
        if args.fault == "late_head":
            self.init_head()
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        horizon = args.steps // 20 if args.fault == "schedule_units" else total_updates
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda k: max(0.0, 1.0 - k / horizon))

    def init_head(self):
        head = nn.Linear(self.online.head.in_features, self.n_actions)
        nn.init.orthogonal_(head.weight, gain=0.5)
        nn.init.zeros_(head.bias)
        self.online.head = head

    def act(self, state, epsilon):
        if random.random() < epsilon:
            return random.randrange(self.n_actions)
        with torch.no_grad():
            return int(self.online(torch.from_numpy(state).unsqueeze(0)).argmax())

    def td_loss(self, batch):
        q = self.online(batch.state).gather(1, batch.action)
        if self.args.fault != "missing_squeeze":
            q = q.squeeze(1)
        with torch.no_grad():
            choice = self.online(batch.next_state).argmax(1, keepdim=True)
            next_q = self.target(batch.next_state).gather(1, choice).squeeze(1)
            goal = batch.reward + self.gamma * (1.0 - batch.done) * next_q
        error = q - goal
        return torch.where(error.abs() < 1.0, 0.5 * error**2, error.abs() - 0.5).mean()

    def update(self, memory, batch_size=64):
        parts = 2 if self.args.variant == "accumulate" else 1
        self.optimizer.zero_grad()
        for _ in range(parts):
            loss = self.td_loss(memory.sample(batch_size // parts)) / parts
            loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.optimizer.step()
        self.scheduler.step()
        return loss.item() * parts

    def sync_target(self):
        if self.args.fault == "sync_by_reference":
            self.target = self.online
        else:
            self.target.load_state_dict(self.online.state_dict())


def train(args):
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    env = Sensor(gym.make("CartPole-v1", max_episode_steps=200), cache=args.fault == "stale_sensor")
    warmup, sync_every = 500, 2000 if args.variant == "rare_sync" else 250
    agent = DQNAgent(env.observation_space.shape[0], int(env.action_space.n), args, max(args.steps - warmup, 1))
    memory = ReplayMemory(20_000)
    epsilon = EpsilonSchedule(1.0, 0.05, decay_steps=0.4 * args.steps)
    returns, episode_return, loss, last_print = [], 0.0, float("nan"), time.time()
    state, _ = env.reset(seed=args.seed)
    for step in range(args.steps):
        action = agent.act(state, epsilon(step))
        next_state, reward, terminated, truncated, _ = env.step(action)
        episode_return += reward
        if args.variant == "failure_cost":
            reward = -1.0 if terminated else 0.0
        done = terminated or truncated if args.fault == "timeout_is_done" else terminated
        memory.push(state, action, reward, next_state, done)
        state = next_state
        if terminated or truncated:
            returns.append(episode_return)
            episode_return = 0.0
            state, _ = env.reset()
        if len(memory) >= warmup:
            loss = agent.update(memory)
        if step % sync_every == 0:
            agent.sync_target()
        if time.time() - last_print > 3:
            last_print = time.time()
            print(
                f"step {step} episodes {len(returns)} return {np.mean(returns[-20:]):.1f} loss {loss:.4f}", flush=True
            )
    tenth = max(1, len(returns) // 10)
    print(f"first tenth {np.mean(returns[:tenth]):.1f}  last tenth {np.mean(returns[-tenth:]):.1f}  n {len(returns)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    train(parser.parse_args())


if __name__ == "__main__":
    main()
