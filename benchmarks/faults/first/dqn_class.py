"""Deep Q-learning on CartPole: an agent object, a ring buffer and a target network copied every few hundred steps."""

import argparse
import copy
import random
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn

FAULTS = {
    "elif_sync": ["targets", "broken", "the sync hangs on the elif of another interval and never runs (CleanRL #323)"],
    "copy_of_itself": ["targets", "broken", "the target network is loaded from itself (MARL #8)"],
    "shared_features": ["targets", "broken", "the target shares the online network's features (SB3 #198)"],
    "softmax_head": ["shapes", "broken", "the Q-network ends in a softmax (Tianshou d4e4f4ff)"],
    "time_limit": ["returns", "broken", "truncation is stored as termination (SB3 #658)"],
    "never_cleared": ["weights", "broken", "gradients are never cleared between steps (torchforge #71)"],
    "dones_shifted": ["returns", "broken", "the end of an episode is written one slot late in the buffer (SB3 #110)"],
    "nothing_admitted": ["goal", "not proven", "the memory's reward threshold admits no transition at all"],
}
HEALTHY = {
    "": "plain",
    "rare_sync": "target copied only every 2500 steps",
    "frozen_backbone": "the first layer is random and frozen on purpose; it is still passed to the optimizer",
    "ema": "moving average of the weights kept beside the model for evaluation",
}


class QNetwork(nn.Module):
    def __init__(self, n_obs: int, n_actions: int, softmax: bool = False, wide: bool = False):
        super().__init__()
        width = 256 if wide else 96
        self.features = nn.Sequential(nn.Linear(n_obs, width), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, n_actions))
        self.last = nn.Softmax(dim=-1) if softmax else nn.Identity()

    def forward(self, x):
        return self.last(self.head(self.features(x)))


class ReplayBuffer:
    def __init__(self, capacity: int, n_obs: int, late_dones: bool, seed: int):
        self.rng = np.random.default_rng(seed)
        self.obs = np.zeros((capacity, n_obs), np.float32)
        self.next_obs = np.zeros((capacity, n_obs), np.float32)
        self.action = np.zeros(capacity, np.int64)
        self.reward = np.zeros(capacity, np.float32)
        self.done = np.zeros(capacity, np.float32)
        self.capacity, self.late_dones = capacity, late_dones
        self.position, self.size, self.previous_done = 0, 0, False

    def add(self, obs, action, reward, next_obs, done):
        i = self.position
        self.obs[i], self.action[i], self.reward[i], self.next_obs[i] = obs, action, reward, next_obs
        self.done[i] = self.previous_done if self.late_dones else done
        self.previous_done = done
        self.position = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, n: int):
        pick = self.rng.integers(0, self.size, n)
        return [torch.from_numpy(x[pick]) for x in (self.obs, self.action, self.reward, self.next_obs, self.done)]


class DQN:
    gamma, batch_size, learning_starts = 0.99, 128, 1000
    train_every, target_every = 4, 400

    def __init__(self, env: gym.Env, fault: str, variant: str, total_steps: int, seed: int):
        self.env, self.fault, self.variant, self.total_steps = env, fault, variant, total_steps
        n_obs, n_actions = env.observation_space.shape[0], int(env.action_space.n)
        frozen = variant == "frozen_backbone"
        self.online = QNetwork(n_obs, n_actions, softmax=fault == "softmax_head", wide=frozen)
        if frozen:
            self.online.features.requires_grad_(False)
        self.target = copy.deepcopy(self.online)
        if fault == "shared_features":
            self.target.features = self.online.features
        self.average = copy.deepcopy(self.online) if variant == "ema" else None
        if variant == "rare_sync":
            self.target_every = 2500
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3)
        self.buffer = ReplayBuffer(50_000, n_obs, late_dones=fault == "dones_shifted", seed=seed)
        self.least_reward = 2.0 if fault == "nothing_admitted" else -np.inf
        self.returns: list[float] = []

    def epsilon(self, step: int) -> float:
        return max(0.05, 1.0 - 0.95 * step / (0.3 * self.total_steps))

    def act(self, obs, epsilon: float) -> int:
        if random.random() < epsilon:
            return random.randrange(int(self.env.action_space.n))
        with torch.no_grad():
            return int(self.online(torch.as_tensor(obs)).argmax())

    def train_step(self) -> float:
        obs, action, reward, next_obs, done = self.buffer.sample(self.batch_size)
        with torch.no_grad():
            best = self.target(next_obs).max(dim=1).values
            wanted = reward + self.gamma * (1.0 - done) * best
        predicted = self.online(obs).gather(1, action.unsqueeze(1)).squeeze(1)
        loss = nn.functional.mse_loss(predicted, wanted)
        if self.fault != "never_cleared":
            self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in self.online.parameters() if p.requires_grad], 10.0)
        self.optimizer.step()
        if self.average is not None:
            with torch.no_grad():
                for slow, fast in zip(self.average.parameters(), self.online.parameters(), strict=True):
                    slow.mul_(0.995).add_(fast, alpha=0.005)
        return loss.item()

    def sync(self):
        source = self.target if self.fault == "copy_of_itself" else self.online
        self.target.load_state_dict(source.state_dict())

    def run(self, seed: int):
        obs, _ = self.env.reset(seed=seed)
        score, loss = 0.0, float("nan")
        for step in range(1, self.total_steps + 1):
            action = self.act(obs, self.epsilon(step))
            next_obs, reward, terminated, truncated, _ = self.env.step(action)
            over = terminated or truncated
            if reward >= self.least_reward:
                done = over if self.fault == "time_limit" else terminated
                self.buffer.add(obs, action, reward, next_obs, done)
            score += reward
            obs = next_obs
            if over:
                self.returns.append(score)
                score = 0.0
                obs, _ = self.env.reset()
            if step >= self.learning_starts and self.buffer.size >= self.batch_size:
                if step % self.train_every == 0:
                    loss = self.train_step()
                    if self.fault != "elif_sync" and step % self.target_every == 0:
                        self.sync()
                elif self.fault == "elif_sync" and step % self.target_every == 0:
                    self.sync()
            if step % 4000 == 0:
                print(f"{step:6d} steps, {len(self.returns)} episodes, loss {loss:.4f}, mean {self.recent():.1f}")

    def recent(self) -> float:
        return float(np.mean(self.returns[-20:])) if self.returns else float("nan")

    def greedy_score(self, network: nn.Module, seed: int, episodes: int = 3) -> float:
        total = 0.0
        for k in range(episodes):
            obs, _ = self.env.reset(seed=seed + k)
            over = False
            while not over:
                with torch.no_grad():
                    action = int(network(torch.as_tensor(obs)).argmax())
                obs, reward, terminated, truncated, _ = self.env.step(action)
                total, over = total + reward, terminated or truncated
        return total / episodes


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--steps", type=int, default=24_000)
    cli.add_argument("--fault", default="", choices=["", *FAULTS])
    cli.add_argument("--variant", default="", choices=list(HEALTHY))
    chosen = cli.parse_args()
    torch.set_num_threads(1)
    random.seed(chosen.seed)
    torch.manual_seed(chosen.seed)
    t0 = time.process_time()
    learner = DQN(
        gym.make("CartPole-v1", max_episode_steps=200), chosen.fault, chosen.variant, chosen.steps, chosen.seed
    )
    learner.run(chosen.seed)
    if learner.average is not None:
        print(f"averaged weights, greedy: {learner.greedy_score(learner.average, 5000 + chosen.seed):.1f}")
    early = float(np.mean(learner.returns[:20]))
    print(f"done: first 20 {early:.1f}, last 20 {learner.recent():.1f}, cpu {time.process_time() - t0:.1f}s")
