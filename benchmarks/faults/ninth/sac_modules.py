"""Soft actor-critic with a learned temperature, laid out like a small library.

The task: a puck on a tilted square table is pushed with a two-dimensional force into a pocket. The episode ends when it
drops in or falls off the table; otherwise it is cut after fifty steps. Early in the run the job is stopped, written to
a checkpoint and resumed in a fresh agent, as on a preemptible machine.
"""

import argparse
import copy
import io
import time
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

FAULTS = {
    "temperature_reloaded": ["weights", "broken", "after loading, the optimizer still holds the old temperature"],
    "second_target_stale": ["targets", "broken", "a copied line: both soft updates go into the first target critic"],
    "entropy_past_the_end": ["returns", "broken", "the next action's entropy bonus is outside the terminal mask"],
    "squashed_twice": ["shapes", "broken", "the Jacobian term takes the tanh of the action, which is squashed already"],
    "twins_are_one": ["signs", "broken", "the critic's forward evaluates its first network twice and never the second"],
    "gradient_left_behind": ["signs", "broken", "critic gradients are not cleared of what the actor loss left in them"],
    "distance_is_paid": ["goal", "not proven", "the reward is the distance to the pocket, so keeping away pays"],
}
HEALTHY = {
    "": "plain: twin critics, soft targets, temperature loss on alpha itself",
    "log_alpha": "the temperature loss uses log_alpha in place of alpha",
    "averaged": "averaged actor weights kept beside the model and tried at the end, AdamW with weight decay",
    "frozen": "the actor stands on a random first layer that is frozen on purpose; the critics train whole",
}


class PuckTable(gym.Env):
    def __init__(self, pay_distance: bool = False):
        self.observation_space = gym.spaces.Box(-3.0, 3.0, (6,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.pay_distance = pay_distance

    def _observe(self) -> np.ndarray:
        return np.concatenate([self.pos, 5.0 * self.vel, self.pocket - self.pos]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = self.np_random.uniform(-0.8, 0.8, 2)
        self.vel = np.zeros(2)
        self.pocket = self.np_random.uniform(-0.8, 0.8, 2)
        return self._observe(), {}

    def step(self, action):
        force = np.clip(action, -1.0, 1.0)
        tilt = 0.012 * self.pos  # the table is highest in the middle
        self.vel = 0.85 * self.vel + 0.035 * force + tilt + self.np_random.normal(0.0, 0.008, 2)
        self.pos = self.pos + self.vel
        distance = float(np.linalg.norm(self.pocket - self.pos))
        fallen = bool(np.abs(self.pos).max() > 1.0)
        pocketed = distance < 0.12
        reward = (distance if self.pay_distance else -distance) + 10.0 * pocketed - 20.0 * fallen
        return self._observe(), reward, fallen or pocketed, False, {}


class Batch(NamedTuple):
    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    terminal: Tensor


class ReplayBuffer:
    def __init__(self, capacity: int, obs_dim: int, act_dim: int, seed: int):
        self.capacity, self.cursor, self.full = capacity, 0, False
        self.store = Batch(
            torch.zeros(capacity, obs_dim),
            torch.zeros(capacity, act_dim),
            torch.zeros(capacity, 1),
            torch.zeros(capacity, obs_dim),
            torch.zeros(capacity, 1),
        )
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.capacity if self.full else self.cursor

    def add(self, *fields) -> None:
        for column, value in zip(self.store, fields, strict=True):
            column[self.cursor] = torch.as_tensor(value, dtype=torch.float32)
        self.cursor = (self.cursor + 1) % self.capacity
        self.full = self.full or self.cursor == 0

    def sample(self, batch_size: int) -> Batch:
        index = torch.randint(len(self), (batch_size,), generator=self.generator)
        return Batch(*(column[index] for column in self.store))


def mlp(n_in: int, n_out: int, hidden: int, freeze_first: bool = False) -> nn.Sequential:
    first = nn.Linear(n_in, hidden).requires_grad_(not freeze_first)
    return nn.Sequential(first, nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, n_out))


class Actor(nn.Module):
    def __init__(self, obs_dim: int, act_dim: int, hidden: int, fault: str = "", freeze_first: bool = False):
        super().__init__()
        self.fault = fault
        self.body = mlp(obs_dim, 2 * act_dim, hidden, freeze_first)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.body(obs).chunk(2, dim=-1)
        return mean, -5.0 + 3.5 * (torch.tanh(log_std) + 1.0)

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self(obs)
        normal = torch.distributions.Normal(mean, log_std.exp())
        raw = normal.rsample()
        action = torch.tanh(raw)
        squashed = torch.tanh(action) if self.fault == "squashed_twice" else action
        log_prob = normal.log_prob(raw) - torch.log(1.0 - squashed.pow(2) + 1e-6)
        return action, log_prob.sum(dim=-1, keepdim=True)

    @torch.no_grad()
    def act(self, obs: np.ndarray, deterministic: bool = False) -> np.ndarray:
        obs = torch.from_numpy(obs)
        action = torch.tanh(self(obs)[0]) if deterministic else self.sample(obs)[0]
        return action.numpy()


class Critic(nn.Module):
    def __init__(self, obs_dim: int, act_dim: int, hidden: int, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.q1 = mlp(obs_dim + act_dim, 1, hidden)
        self.q2 = mlp(obs_dim + act_dim, 1, hidden)

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.cat([obs, action], dim=-1)
        if self.fault == "twins_are_one":
            return self.q1(x), self.q1(x)
        return self.q1(x), self.q2(x)


def soft_update(source: nn.Module, target: nn.Module, tau: float) -> None:
    with torch.no_grad():
        for s, t in zip(source.parameters(), target.parameters(), strict=True):
            t.mul_(1.0 - tau).add_(s, alpha=tau)


class Agent:
    def __init__(self, obs_dim: int, act_dim: int, fault: str, variant: str, hidden: int = 64, lr: float = 1e-3):
        self.fault, self.variant = fault, variant
        self.gamma, self.tau, self.target_entropy = 0.97, 0.01, -float(act_dim)
        self.actor = Actor(obs_dim, act_dim, hidden, fault, freeze_first=variant == "frozen")
        self.critic = Critic(obs_dim, act_dim, hidden, fault)
        self.critic_target = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.actor_optimizer = self._optimizer(self.actor, lr)
        self.critic_optimizer = self._optimizer(self.critic, lr)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=lr)
        self.actor_average = copy.deepcopy(self.actor).requires_grad_(False) if variant == "averaged" else None

    def _optimizer(self, module: nn.Module, lr: float) -> torch.optim.Optimizer:
        params = [p for p in module.parameters() if p.requires_grad]
        if self.variant == "averaged":
            return torch.optim.AdamW(params, lr=lr, weight_decay=1e-3)
        return torch.optim.Adam(params, lr=lr)

    @property
    def alpha(self) -> Tensor:
        return self.log_alpha.exp()

    def update_critic(self, batch: Batch) -> float:
        with torch.no_grad():
            next_action, next_log_prob = self.actor.sample(batch.next_obs)
            next_q = torch.min(*self.critic_target(batch.next_obs, next_action))
            going_on = 1.0 - batch.terminal
            if self.fault == "entropy_past_the_end":
                backup = batch.reward + self.gamma * (going_on * next_q - self.alpha * next_log_prob)
            else:
                backup = batch.reward + self.gamma * going_on * (next_q - self.alpha * next_log_prob)
        q1, q2 = self.critic(batch.obs, batch.action)
        loss = F.mse_loss(q1, backup) + F.mse_loss(q2, backup)
        if self.fault != "gradient_left_behind":
            self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        if self.fault == "gradient_left_behind":
            self.critic_optimizer.zero_grad()
        return loss.item()

    def update_actor_and_alpha(self, batch: Batch) -> float:
        action, log_prob = self.actor.sample(batch.obs)
        q = torch.min(*self.critic(batch.obs, action))
        actor_loss = (self.alpha.detach() * log_prob - q).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()

        weight = self.log_alpha if self.variant == "log_alpha" else self.alpha
        alpha_loss = -(weight * (log_prob.detach() + self.target_entropy)).mean()
        self.alpha_optimizer.zero_grad()
        alpha_loss.backward()
        self.alpha_optimizer.step()
        return -log_prob.mean().item()

    def update(self, batch: Batch) -> dict[str, float]:
        critic_loss = self.update_critic(batch)
        entropy = self.update_actor_and_alpha(batch)
        soft_update(self.critic.q1, self.critic_target.q1, self.tau)
        if self.fault == "second_target_stale":
            soft_update(self.critic.q2, self.critic_target.q1, self.tau)
        else:
            soft_update(self.critic.q2, self.critic_target.q2, self.tau)
        if self.actor_average is not None:
            soft_update(self.actor, self.actor_average, 0.005)
        return {"critic loss": critic_loss, "entropy": entropy, "alpha": self.alpha.item()}

    def _stateful(self) -> dict:
        return {name: part for name, part in vars(self).items() if hasattr(part, "state_dict")}

    def save(self, file) -> None:
        checkpoint = {name: part.state_dict() for name, part in self._stateful().items()}
        checkpoint["log_alpha"] = self.log_alpha.detach()
        torch.save(checkpoint, file)

    def load(self, file) -> None:
        checkpoint = torch.load(file)
        for name, part in self._stateful().items():
            part.load_state_dict(checkpoint[name])
        if self.fault == "temperature_reloaded":
            self.log_alpha = checkpoint["log_alpha"].requires_grad_()
        else:
            self.log_alpha.data.copy_(checkpoint["log_alpha"])


def resume(agent: Agent, obs_dim: int, act_dim: int) -> Agent:
    file = io.BytesIO()
    agent.save(file)
    file.seek(0)
    fresh = Agent(obs_dim, act_dim, agent.fault, agent.variant)
    fresh.load(file)
    return fresh


def play(actor: Actor, env: gym.Env, episodes: int, seed: int) -> float:
    total = 0.0
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(actor.act(obs, deterministic=True))
            total += reward
            over = terminated or truncated
    return total / episodes


def train(seed: int, fault: str, variant: str, steps: int = 7000, warmup: int = 500, batch_size: int = 128) -> list:
    torch.manual_seed(seed)
    env = gym.wrappers.TimeLimit(PuckTable(pay_distance=fault == "distance_is_paid"), max_episode_steps=50)
    env.action_space.seed(seed)
    obs_dim, act_dim = env.observation_space.shape[0], env.action_space.shape[0]
    agent = Agent(obs_dim, act_dim, fault, variant)
    buffer = ReplayBuffer(20_000, obs_dim, act_dim, seed)
    returns, score, log = [], 0.0, {}
    obs, _ = env.reset(seed=seed)
    for step in range(1, steps + 1):
        action = env.action_space.sample() if step <= warmup else agent.actor.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(obs, action, reward, next_obs, float(terminated))
        score += reward
        obs = next_obs
        if terminated or truncated:
            returns.append(score)
            score = 0.0
            obs, _ = env.reset()
        if step > warmup:
            log = agent.update(buffer.sample(batch_size))
        if step == 1500:
            agent = resume(agent, obs_dim, act_dim)
        if step % 500 == 0:
            details = "  ".join(f"{key} {value:.3f}" for key, value in log.items())
            print(f"step {step:5d}  return {np.mean(returns[-10:]):7.2f}  {details}")
    if agent.actor_average is not None:
        print(f"averaged actor: {play(agent.actor_average, env, 10, seed=9000):.2f}")
    print(f"mean action: {play(agent.actor, env, 10, seed=9000):.2f}")
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    returns = train(args.seed, args.fault, args.variant)
    spent = time.process_time() - began
    print(f"first 20: {np.mean(returns[:20]):.2f}, last 20: {np.mean(returns[-20:]):.2f}, cpu {spent:.1f} s")
