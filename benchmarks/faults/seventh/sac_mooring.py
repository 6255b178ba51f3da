# ruff: noqa: NPY002
"""Soft actor-critic for bringing a small craft to its mooring and keeping it there.

Layout: ``MooringEnv`` (task), ``ReplayBuffer``, ``OffPolicyAlgorithm`` (abstract training loop) and ``SAC``.
"""

import abc
import argparse
import math
import time
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FAULTS = {
    "second_critic_left_out": [
        "weights",
        "broken",
        "the critic optimizer is given the first of the twin critics only: the second stays as it was drawn",
    ],
    "tau_inverted": [
        "targets",
        "broken",
        "tau and 1 - tau are exchanged in the soft update: the targets are the online critics, nearly",
    ],
    "next_obs_after_reset": [
        "returns",
        "broken",
        "the environment is reset before the transition is stored: its next observation is that of a new episode",
    ],
    "stored_scaled": [
        "shapes",
        "broken",
        "the action is stored in the units of the environment, while the actor speaks of -1 to 1",
    ],
    "entropy_plus": [
        "signs",
        "broken",
        "in the critics' target the log-probability is added: entropy is punished there",
    ],
    "delay_parity": [
        "rates",
        "broken",
        "the update counter moves twice per update, so that the delayed actor's turn never comes",
    ],
}
HEALTHY = {
    "": "plain: twin critics, learned temperature, actor updated twice at every second critic update",
    "layer_norm": "critics with layer norm and weight decay",
    "hard_copy": "the target critics are copied whole every 150 updates",
    "halved_batches": "the critic gradient is accumulated over two half batches, with a warm-up of all rates",
}


class MooringEnv(gym.Env):
    """Double integrator with drag and a steady current; the mooring is the origin, drifting far off ends the episode."""

    max_thrust = 3.0
    dt = 0.15

    def __init__(self, horizon: int = 40):
        super().__init__()
        self.horizon = horizon
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float32)
        self.action_space = gym.spaces.Box(-self.max_thrust, self.max_thrust, (2,), np.float32)

    def _observe(self) -> np.ndarray:
        return np.concatenate([self.pos, self.vel, self.current]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        angle = self.np_random.uniform(0, 2 * math.pi)
        self.pos = self.np_random.uniform(1.0, 2.0) * np.array([math.cos(angle), math.sin(angle)])
        self.vel = self.np_random.normal(0.0, 0.2, 2)
        self.current = self.np_random.uniform(-0.5, 0.5, 2)
        self.t = 0
        return self._observe(), {}

    def step(self, action):
        thrust = np.clip(action, -self.max_thrust, self.max_thrust)
        self.vel = self.vel + self.dt * (thrust - 0.4 * self.vel + self.current)
        self.pos = self.pos + self.dt * self.vel
        self.t += 1
        distance = float(np.hypot(*self.pos))
        speed = float(np.hypot(*self.vel))
        moored = distance < 0.25 and speed < 0.5
        lost = distance > 4.0
        reward = -0.3 * distance - 0.02 * float(thrust @ thrust) + 0.5 * moored - 10.0 * lost
        return self._observe(), reward, lost, self.t >= self.horizon, {"moored": moored}


class Batch(NamedTuple):
    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    next_obs: torch.Tensor
    not_done: torch.Tensor


class ReplayBuffer:
    def __init__(self, obs_dim: int, act_dim: int, capacity: int):
        self.obs = np.empty((capacity, obs_dim), np.float32)
        self.action = np.empty((capacity, act_dim), np.float32)
        self.reward = np.empty((capacity, 1), np.float32)
        self.next_obs = np.empty((capacity, obs_dim), np.float32)
        self.not_done = np.empty((capacity, 1), np.float32)
        self.capacity, self.idx, self.full = capacity, 0, False

    def __len__(self) -> int:
        return self.capacity if self.full else self.idx

    def add(self, obs, action, reward, next_obs, terminated) -> None:
        self.obs[self.idx] = obs
        self.action[self.idx] = action
        self.reward[self.idx] = reward
        self.next_obs[self.idx] = next_obs
        self.not_done[self.idx] = not terminated
        self.idx = (self.idx + 1) % self.capacity
        self.full = self.full or self.idx == 0

    def sample(self, n: int) -> Batch:
        ids = np.random.randint(0, len(self), size=n)
        columns = (self.obs, self.action, self.reward, self.next_obs, self.not_done)
        return Batch(*(torch.as_tensor(c[ids]) for c in columns))


class SquashedGaussianActor(nn.Module):
    def __init__(self, obs_dim: int, act_dim: int, hidden: int):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.mu = nn.Linear(hidden, act_dim)
        self.log_std = nn.Linear(hidden, act_dim)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.trunk(obs)
        mu, log_std = self.mu(h), self.log_std(h).clamp(-5.0, 1.0)
        noise = torch.randn_like(mu)
        u = mu + noise * log_std.exp()
        log_prob = (-0.5 * noise.pow(2) - log_std - 0.5 * math.log(2 * math.pi)).sum(-1, keepdim=True)
        log_prob = log_prob - (2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1, keepdim=True)
        return torch.tanh(u), log_prob


class Critic(nn.Module):
    def __init__(self, obs_dim: int, act_dim: int, hidden: int, layer_norm: bool):
        super().__init__()
        norm = nn.LayerNorm if layer_norm else (lambda width: nn.Identity())
        self.net = nn.Sequential(
            nn.Linear(obs_dim + act_dim, hidden),
            norm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            norm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat([obs, action], dim=-1))


class OffPolicyAlgorithm(abc.ABC):
    """Interaction with the environment; subclasses say how to act and how to update."""

    def __init__(self, env: gym.Env, cfg: argparse.Namespace):
        self.env, self.cfg = env, cfg
        self.obs_dim = env.observation_space.shape[0]
        self.act_dim = env.action_space.shape[0]
        self.scale = float(env.action_space.high[0])
        self.buffer = ReplayBuffer(self.obs_dim, self.act_dim, capacity=cfg.steps)

    @abc.abstractmethod
    def select_action(self, obs: np.ndarray) -> np.ndarray: ...

    @abc.abstractmethod
    def update(self) -> dict[str, float]: ...

    def train(self):
        returns, episode_return = [], 0.0
        metrics: dict[str, float] = {}
        obs, _ = self.env.reset(seed=self.cfg.seed)
        for step in range(1, self.cfg.steps + 1):
            if step <= self.cfg.random_steps:
                action = np.random.uniform(-1.0, 1.0, self.act_dim).astype(np.float32)
            else:
                action = self.select_action(obs)
            next_obs, reward, terminated, truncated, _ = self.env.step(action * self.scale)
            episode_return += reward
            over = terminated or truncated
            if over and self.cfg.fault == "next_obs_after_reset":
                next_obs, _ = self.env.reset()
            stored = action * self.scale if self.cfg.fault == "stored_scaled" else action
            self.buffer.add(obs, stored, reward, next_obs, terminated)
            obs = next_obs
            if over:
                returns.append(episode_return)
                episode_return = 0.0
                if self.cfg.fault != "next_obs_after_reset":
                    obs, _ = self.env.reset()
            if step > self.cfg.random_steps:
                metrics = self.update()
            if step % 1000 == 0:
                shown = " ".join(f"{k}={v:.3f}" for k, v in metrics.items())
                print(f"[{step:6d}] return={np.mean(returns[-10:]):.2f} {shown}")
        return returns


class SAC(OffPolicyAlgorithm):
    def __init__(self, env: gym.Env, cfg: argparse.Namespace):
        super().__init__(env, cfg)
        dims = (self.obs_dim, self.act_dim, cfg.hidden)
        layer_norm = cfg.variant == "layer_norm"
        self.actor = SquashedGaussianActor(*dims)
        self.q1, self.q2 = Critic(*dims, layer_norm), Critic(*dims, layer_norm)
        self.q1_target, self.q2_target = Critic(*dims, layer_norm), Critic(*dims, layer_norm)
        self.q1_target.load_state_dict(self.q1.state_dict())
        self.q2_target.load_state_dict(self.q2.state_dict())
        self.log_alpha = torch.tensor(math.log(0.1), requires_grad=True)
        self.target_entropy = -float(self.act_dim)

        critic_params = list(self.q1.parameters())
        if cfg.fault != "second_critic_left_out":
            critic_params += list(self.q2.parameters())
        self.actor_optim = torch.optim.Adam(self.actor.parameters(), lr=cfg.lr)
        self.critic_optim = torch.optim.AdamW(critic_params, lr=cfg.lr, weight_decay=1e-3 if layer_norm else 0.0)
        self.alpha_optim = torch.optim.Adam([self.log_alpha], lr=cfg.lr)
        self.num_updates = 0

    @property
    def alpha(self) -> torch.Tensor:
        return self.log_alpha.exp()

    @torch.no_grad()
    def select_action(self, obs: np.ndarray) -> np.ndarray:
        action, _ = self.actor(torch.as_tensor(obs).unsqueeze(0))
        return action[0].numpy()

    def critic_loss(self, batch: Batch) -> torch.Tensor:
        with torch.no_grad():
            next_action, next_log_prob = self.actor(batch.next_obs)
            next_q = torch.min(self.q1_target(batch.next_obs, next_action), self.q2_target(batch.next_obs, next_action))
            if self.cfg.fault == "entropy_plus":
                next_v = next_q + self.alpha * next_log_prob
            else:
                next_v = next_q - self.alpha * next_log_prob
            target = batch.reward + self.cfg.gamma * batch.not_done * next_v
        q1, q2 = self.q1(batch.obs, batch.action), self.q2(batch.obs, batch.action)
        return F.mse_loss(q1, target) + F.mse_loss(q2, target)

    def update_critic(self, batch: Batch) -> float:
        self.critic_optim.zero_grad()
        if self.cfg.variant == "halved_batches":
            half = self.cfg.batch_size // 2
            loss = 0.0
            for part in (Batch(*(c[:half] for c in batch)), Batch(*(c[half:] for c in batch))):
                piece = 0.5 * self.critic_loss(part)
                piece.backward()
                loss += piece.item()
        else:
            total = self.critic_loss(batch)
            total.backward()
            loss = total.item()
        self.critic_optim.step()
        return loss

    def update_actor(self, batch: Batch) -> tuple[float, float]:
        action, log_prob = self.actor(batch.obs)
        q = torch.min(self.q1(batch.obs, action), self.q2(batch.obs, action))
        actor_loss = (self.alpha.detach() * log_prob - q).mean()
        self.actor_optim.zero_grad()
        actor_loss.backward()
        self.actor_optim.step()

        alpha_loss = -(self.log_alpha * (log_prob.detach() + self.target_entropy)).mean()
        self.alpha_optim.zero_grad()
        alpha_loss.backward()
        self.alpha_optim.step()
        return actor_loss.item(), -log_prob.mean().item()

    @torch.no_grad()
    def update_targets(self) -> None:
        if self.cfg.variant == "hard_copy":
            if self.num_updates % 150 == 0:
                self.q1_target.load_state_dict(self.q1.state_dict())
                self.q2_target.load_state_dict(self.q2.state_dict())
            return
        tau = self.cfg.tau
        if self.cfg.fault == "tau_inverted":
            tau = 1.0 - tau
        for net, slow in ((self.q1, self.q1_target), (self.q2, self.q2_target)):
            for p, p_slow in zip(net.parameters(), slow.parameters(), strict=False):
                p_slow.mul_(1.0 - tau).add_(tau * p)

    def update(self) -> dict[str, float]:
        self.num_updates += 1
        if self.cfg.variant == "halved_batches":
            for optim in (self.actor_optim, self.critic_optim, self.alpha_optim):
                optim.param_groups[0]["lr"] = self.cfg.lr * min(1.0, self.num_updates / 500)
        batch = self.buffer.sample(self.cfg.batch_size)
        critic_loss = self.update_critic(batch)
        metrics = {"critic_loss": critic_loss, "alpha": self.alpha.item()}
        if self.num_updates % self.cfg.actor_delay == 0:
            for _ in range(self.cfg.actor_delay):
                metrics["actor_loss"], metrics["entropy"] = self.update_actor(batch)
        self.update_targets()
        if self.cfg.fault == "delay_parity":
            self.num_updates += 1
        return metrics


def main():
    parser = argparse.ArgumentParser(description="SAC")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=7000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--gamma", type=float, default=0.97)
    parser.add_argument("--tau", type=float, default=0.01)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--random-steps", type=int, default=600)
    parser.add_argument("--actor-delay", type=int, default=2)
    cfg = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    np.random.seed(cfg.seed)
    began = time.time()
    returns = SAC(MooringEnv(), cfg).train()
    tenth = max(1, len(returns) // 10)
    print(
        f"first tenth {np.mean(returns[:tenth]):.2f} last tenth {np.mean(returns[-tenth:]):.2f} "
        f"episodes {len(returns)} seconds {time.time() - began:.1f}"
    )


if __name__ == "__main__":
    main()
