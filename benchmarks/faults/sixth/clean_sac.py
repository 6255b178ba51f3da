"""Soft actor-critic in one file on a small task of its own: a puck is steered over ice to a landing spot."""

import argparse
import math
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

FAULTS = {
    "qf2_left_out": ["weights", "broken", "the critics' optimizer holds the first critic only; the second never moves"],
    "crossed_target": ["targets", "broken", "the second target follows the first critic"],
    "entropy_unmasked": ["returns", "broken", "the entropy term of the next state is not masked at terminal steps"],
    "temperature_sign": ["signs", "broken", "the temperature's loss has lost its minus: alpha moves the wrong way"],
    "logprob_averaged": ["shapes", "broken", "log-probs are averaged over the action's dimensions, not summed"],
    "free_exit": [
        "goal",
        "not proven",
        "leaving the ice ends the episode unpunished, so the puck flees from the step cost",
    ],
}
HEALTHY = {
    "": "plain: policy updated every second step, twice; learnt temperature",
    "fixed_temperature": "alpha is a constant, the critics have a Huber loss",
    "fourier_frozen": "observations pass through fixed random features that nobody trains; rewards are scaled by 0.5",
    "own_critic_optimizers": "one optimizer per critic, rate warm-up, targets copied whole every 100 steps",
}
LOG_STD_MAX, LOG_STD_MIN = 2, -5


@dataclass
class Config:
    gamma: float = 0.97
    tau: float = 0.01
    batch_size: int = 128
    learning_starts: int = 600
    policy_lr: float = 1e-3
    q_lr: float = 2e-3
    policy_frequency: int = 2
    alpha: float = 0.05


class IceRink(gym.Env):
    """State: offset to the spot, velocity. The episode ends when the puck rests on the spot or leaves the rink."""

    def __init__(self, exit_fine: float = 8.0) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.exit_fine = exit_fine

    def _obs(self) -> np.ndarray:
        return np.concatenate([self.spot - self.pos, self.pos, 4.0 * self.vel]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos, self.spot = self.np_random.uniform(-0.8, 0.8, (2, 2))
        self.vel = np.zeros(2)
        return self._obs(), {}

    def step(self, action):
        self.vel = 0.9 * self.vel + 0.04 * np.clip(action, -1, 1)
        self.pos = self.pos + self.vel
        distance = math.hypot(*(self.spot - self.pos))
        rests = distance < 0.15 and math.hypot(*self.vel) < 0.12
        out = bool(np.abs(self.pos).max() > 1.2)
        reward = -0.1 - 0.2 * distance + 3.0 * rests - self.exit_fine * out
        return self._obs(), reward, rests or out, False, {"is_success": rests}


class ReplayBuffer:
    def __init__(self, size, n_obs, n_act):
        self.store = {
            "obs": np.zeros((size, n_obs), np.float32),
            "next_obs": np.zeros((size, n_obs), np.float32),
            "actions": np.zeros((size, n_act), np.float32),
            "rewards": np.zeros(size, np.float32),
            "dones": np.zeros(size, np.float32),
        }
        self.size, self.pos, self.full = size, 0, False

    def add(self, **row):
        for key, value in row.items():
            self.store[key][self.pos] = value
        self.pos = (self.pos + 1) % self.size
        self.full |= self.pos == 0

    def sample(self, n):
        idx = rng.integers(0, self.size if self.full else self.pos, n)
        return {key: torch.from_numpy(column[idx]) for key, column in self.store.items()}


class FixedFourier(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.register_buffer("freq", 1.2 * torch.randn(n_in, n_out // 2, generator=torch.Generator().manual_seed(7)))

    def forward(self, x):
        z = x @ self.freq
        return torch.cat([x, z.sin(), z.cos()], -1)


class SoftQNetwork(nn.Module):
    def __init__(self, n_obs, n_act, fourier):
        super().__init__()
        self.lift = FixedFourier(n_obs, 32) if fourier else nn.Identity()
        self.fc1 = nn.Linear(n_obs + 32 * fourier + n_act, 96)
        self.fc2 = nn.Linear(96, 96)
        self.fc3 = nn.Linear(96, 1)

    def forward(self, x, a):
        x = F.relu(self.fc1(torch.cat([self.lift(x), a], 1)))
        return self.fc3(F.relu(self.fc2(x)))


class Actor(nn.Module):
    def __init__(self, n_obs, n_act, fourier):
        super().__init__()
        self.lift = FixedFourier(n_obs, 32) if fourier else nn.Identity()
        self.fc1 = nn.Linear(n_obs + 32 * fourier, 96)
        self.fc2 = nn.Linear(96, 96)
        self.fc_mean = nn.Linear(96, n_act)
        self.fc_logstd = nn.Linear(96, n_act)

    def forward(self, x):
        x = F.relu(self.fc2(F.relu(self.fc1(self.lift(x)))))
        log_std = torch.tanh(self.fc_logstd(x))
        return self.fc_mean(x), LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (log_std + 1)

    def get_action(self, x):
        mean, log_std = self(x)
        normal = torch.distributions.Normal(mean, log_std.exp())
        x_t = normal.rsample()
        y_t = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t) - torch.log(1 - y_t.pow(2) + 1e-6)
        if args.fault == "logprob_averaged":
            return y_t, log_prob.mean(1, keepdim=True)
        return y_t, log_prob.sum(1, keepdim=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args, cfg = parser.parse_args(), Config()
    torch.set_num_threads(1)
    rng = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)

    env = gym.wrappers.TimeLimit(IceRink(exit_fine=0.0 if args.fault == "free_exit" else 8.0), 50)
    env = gym.wrappers.RecordEpisodeStatistics(env)
    env.action_space.seed(args.seed)
    dims = (env.observation_space.shape[0], env.action_space.shape[0], args.variant == "fourier_frozen")
    actor, qf1, qf2, qf1_target, qf2_target = Actor(*dims), *(SoftQNetwork(*dims) for _ in range(4))
    qf1_target.load_state_dict(qf1.state_dict())
    qf2_target.load_state_dict(qf2.state_dict())
    if args.variant == "own_critic_optimizers":
        q_optimizers = [optim.Adam(q.parameters(), lr=cfg.q_lr) for q in (qf1, qf2)]
    elif args.fault == "qf2_left_out":
        q_optimizers = [optim.Adam(qf1.parameters(), lr=cfg.q_lr)]
    else:
        q_optimizers = [optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=cfg.q_lr)]
    actor_optimizer = optim.Adam(actor.parameters(), lr=cfg.policy_lr)
    target_entropy = -float(env.action_space.shape[0])
    log_alpha = torch.tensor([math.log(0.2)], requires_grad=True)
    a_optimizer = optim.Adam([log_alpha], lr=cfg.q_lr)
    alpha = cfg.alpha if args.variant == "fixed_temperature" else log_alpha.exp().item()
    reward_scale = 0.5 if args.variant == "fourier_frozen" else 1.0
    q_loss_fn = F.smooth_l1_loss if args.variant == "fixed_temperature" else F.mse_loss

    rb = ReplayBuffer(20_000, dims[0], dims[1])
    history, successes, shown = [], [], time.time()
    obs, _ = env.reset(seed=args.seed)
    for global_step in range(args.steps):
        if global_step < cfg.learning_starts:
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action = actor.get_action(torch.from_numpy(obs).unsqueeze(0))[0][0].numpy()
        next_obs, reward, terminated, truncated, info = env.step(action)
        rb.add(obs=obs, next_obs=next_obs, actions=action, rewards=reward_scale * reward, dones=terminated)
        obs = next_obs
        if terminated or truncated:
            history.append(float(info["episode"]["r"]))
            successes.append(info["is_success"])
            obs, _ = env.reset()
        if global_step < cfg.learning_starts:
            continue

        data = rb.sample(cfg.batch_size)
        alive = 1 - data["dones"]
        with torch.no_grad():
            next_act, next_logp = actor.get_action(data["next_obs"])
            min_next = torch.min(qf1_target(data["next_obs"], next_act), qf2_target(data["next_obs"], next_act))
            next_q = data["rewards"] + alive * cfg.gamma * (min_next - alpha * next_logp).view(-1)
            if args.fault == "entropy_unmasked":
                next_q = data["rewards"] + cfg.gamma * (alive * min_next.view(-1) - alpha * next_logp.view(-1))
        qf1_loss = q_loss_fn(qf1(data["obs"], data["actions"]).view(-1), next_q)
        qf2_loss = q_loss_fn(qf2(data["obs"], data["actions"]).view(-1), next_q)
        for q_optimizer in q_optimizers:
            if args.variant == "own_critic_optimizers":
                q_optimizer.param_groups[0]["lr"] = cfg.q_lr * min(1.0, (global_step - cfg.learning_starts) / 500)
            q_optimizer.zero_grad()
        (qf1_loss + qf2_loss).backward()
        for q_optimizer in q_optimizers:
            q_optimizer.step()

        if global_step % cfg.policy_frequency == 0:
            for _ in range(cfg.policy_frequency):  # compensate for the delay
                pi, log_pi = actor.get_action(data["obs"])
                min_qf_pi = torch.min(qf1(data["obs"], pi), qf2(data["obs"], pi))
                actor_loss = (alpha * log_pi - min_qf_pi).mean()
                actor_optimizer.zero_grad()
                actor_loss.backward()
                actor_optimizer.step()
                if args.variant != "fixed_temperature":
                    sign = 1.0 if args.fault == "temperature_sign" else -1.0
                    alpha_loss = sign * (log_alpha.exp() * (log_pi.detach() + target_entropy)).mean()
                    a_optimizer.zero_grad()
                    alpha_loss.backward()
                    a_optimizer.step()
                    alpha = log_alpha.exp().item()

        if args.variant != "own_critic_optimizers":
            followed = (qf1, qf1) if args.fault == "crossed_target" else (qf1, qf2)
            for q, target in zip(followed, (qf1_target, qf2_target), strict=True):
                for param, slow in zip(q.parameters(), target.parameters(), strict=True):
                    slow.data.copy_(cfg.tau * param.data + (1 - cfg.tau) * slow.data)
        elif global_step % 100 == 0:
            qf1_target.load_state_dict(qf1.state_dict())
            qf2_target.load_state_dict(qf2.state_dict())

        if time.time() - shown > 3 and history:
            shown = time.time()
            print(
                f"step {global_step} return {np.mean(history[-20:]):.2f} rested {np.mean(successes[-20:]):.2f} "
                f"qf1 {qf1_loss.item():.3f} qf2 {qf2_loss.item():.3f} alpha {alpha:.4f}",
                flush=True,
            )
    n = max(1, len(history) // 10)
    print(f"first tenth {np.mean(history[:n]):.2f}, last tenth {np.mean(history[-n:]):.2f}")
