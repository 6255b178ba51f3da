"""PPO for a pair of coupled water tanks, 8 environments side by side."""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import nn
from torch.distributions import Normal

FAULTS = {
    "default_autoreset": [
        "returns",
        "broken",
        "written for same-step autoreset but run with Gymnasium's default next-step one: the dead step between two episodes is stored as a transition",
    ],
    "ratio_is_one": [
        "signs",
        "broken",
        "the old log-probs are recomputed with the current policy, so that the ratio is always 1 and the clip never acts",
    ],
    "stale_value_loss": [
        "weights",
        "broken",
        "the value loss is written with the values of the rollout: the value head never gets a gradient",
    ],
    "flatten_order": [
        "shapes",
        "broken",
        "advantages are flattened env-major, everything else time-major: each sample has another one's advantage",
    ],
    "clip_after_step": [
        "rates",
        "broken",
        "gradients are clipped after the optimizer's step, so the clipping does nothing",
    ],
    "anneal_overrun": [
        "rates",
        "broken",
        "the rate is annealed over the number of iterations but counted in minibatches: 0 after a sixteenth of the run",
    ],
    "done_shift": [
        "returns",
        "broken",
        "GAE reads the done flag of the following step, so it cuts one step too early and leaks across the real border",
    ],
    "min_of_negated": [
        "signs",
        "broken",
        "the surrogate is negated before the min: the optimistic branch is taken, not the pessimistic one",
    ],
}
HEALTHY = {
    "": "plain",
    "next_step_masked": "uses next-step autoreset and leaves the dead steps out of the batch",
    "kl_stop": "an iteration's epochs stop early once the policy has moved far enough",
    "warmup": "the learning rate rises from 0 over the first 60 updates before it is annealed",
    "scaled_values": "the value head predicts standardised returns, which are scaled back for GAE",
}


class TwinTanks(gym.Env):
    """Keep two leaking, connected tanks at random set points; overflow or running dry ends the episode."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-2.0, 2.0, (4,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _get_obs(self):
        return np.concatenate([self.level * 2 - 1, (self.wanted - self.level) * 2]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level = self.np_random.uniform(0.2, 0.8, 2)
        self.wanted = self.np_random.uniform(0.15, 0.85, 2)
        return self._get_obs(), {}

    def step(self, action):
        pump = np.clip(action, -1.0, 1.0)
        exchange = 0.05 * (self.level[1] - self.level[0])
        self.level = self.level + 0.08 * pump + np.array([exchange, -exchange]) - 0.015
        self.level = self.level + self.np_random.normal(0.0, 0.01, 2)
        spilled = bool((self.level < 0).any() or (self.level > 1).any())
        error = np.abs(self.level - self.wanted).sum()
        reward = 0.0 if spilled else float(max(0.0, 1.0 - 2.0 * error))
        return self._get_obs(), reward, spilled, False, {}


gym.register(id="TwinTanks-v0", entry_point=TwinTanks, max_episode_steps=60)


@dataclass
class Config:
    seed: int = 0
    total_steps: int = 72_000
    num_envs: int = 8
    horizon: int = 128
    epochs: int = 4
    minibatches: int = 4
    gamma: float = 0.97
    lam: float = 0.95
    lr: float = 1e-3
    clip: float = 0.2
    vf_coef: float = 0.5
    ent_coef: float = 0.001
    max_grad_norm: float = 0.5
    fault: str = ""
    variant: str = ""

    @property
    def iterations(self) -> int:
        return max(1, self.total_steps // (self.num_envs * self.horizon))


class SharedNet(nn.Module):
    def __init__(self, obs_dim: int, act_dim: int):
        super().__init__()
        self.torso = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.mu = nn.Linear(64, act_dim)
        self.v = nn.Linear(64, 1)
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.3))
        nn.init.orthogonal_(self.mu.weight, 0.01)
        nn.init.zeros_(self.mu.bias)

    def forward(self, obs: torch.Tensor) -> tuple[Normal, torch.Tensor]:
        z = self.torso(obs)
        return Normal(self.mu(z), self.log_std.exp().expand(*z.shape[:-1], -1)), self.v(z).squeeze(-1)


@dataclass
class Rollout:
    obs: np.ndarray
    actions: np.ndarray
    logp: np.ndarray
    values: np.ndarray
    rewards: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray
    done: np.ndarray
    valid: np.ndarray
    advantages: np.ndarray = field(default_factory=lambda: np.empty(0))
    returns: np.ndarray = field(default_factory=lambda: np.empty(0))


class Trainer:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        random.seed(cfg.seed)
        np.random.seed(cfg.seed)  # noqa: NPY002
        torch.manual_seed(cfg.seed)
        self.next_step = cfg.variant == "next_step_masked" or cfg.fault == "default_autoreset"
        mode = AutoresetMode.NEXT_STEP if self.next_step else AutoresetMode.SAME_STEP
        self.envs = gym.make_vec(
            "TwinTanks-v0", num_envs=cfg.num_envs, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
        )
        self.obs_dim = self.envs.single_observation_space.shape[0]
        self.act_dim = self.envs.single_action_space.shape[0]
        self.net = SharedNet(self.obs_dim, self.act_dim)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr, eps=1e-5)
        self.obs, _ = self.envs.reset(seed=cfg.seed)
        self.dead = np.zeros(cfg.num_envs, dtype=bool)  # envs whose coming step is only a reset
        self.running = np.zeros(cfg.num_envs)
        self.episodes: list[float] = []
        self.updates = 0
        self.v_mean, self.v_std = 0.0, 1.0

    # ---------------------------------------------------------------- acting
    @torch.no_grad()
    def value_of(self, obs: np.ndarray) -> np.ndarray:
        return self.net(torch.as_tensor(obs))[1].numpy() * self.v_std + self.v_mean

    def collect(self) -> Rollout:
        cfg = self.cfg
        shape = (cfg.horizon, cfg.num_envs)
        ro = Rollout(
            obs=np.zeros((*shape, self.obs_dim), np.float32),
            actions=np.zeros((*shape, self.act_dim), np.float32),
            logp=np.zeros(shape, np.float32),
            values=np.zeros(shape, np.float32),
            rewards=np.zeros(shape, np.float32),
            next_obs=np.zeros((*shape, self.obs_dim), np.float32),
            terminated=np.zeros(shape, bool),
            done=np.zeros(shape, bool),
            valid=np.ones(shape, bool),
        )
        for t in range(cfg.horizon):
            with torch.no_grad():
                dist, value = self.net(torch.as_tensor(self.obs))
                action = dist.sample()
                ro.logp[t] = dist.log_prob(action).sum(-1).numpy()
            ro.obs[t], ro.actions[t] = self.obs, action.numpy()
            ro.values[t] = value.numpy() * self.v_std + self.v_mean
            obs, reward, term, trunc, info = self.envs.step(action.numpy())
            done = term | trunc
            ro.rewards[t], ro.terminated[t], ro.done[t], ro.next_obs[t] = reward, term, done, obs
            if not self.next_step:  # obs already belongs to the new episode, the real last one is in info
                for i in np.flatnonzero(done):
                    ro.next_obs[t, i] = info["final_obs"][i]
            if cfg.variant == "next_step_masked":
                ro.valid[t] = ~self.dead
                self.dead = done
            self.running += reward
            for i in np.flatnonzero(done):
                self.episodes.append(float(self.running[i]))
                self.running[i] = 0.0
            self.obs = obs
        return ro

    # ---------------------------------------------------------------- GAE
    def add_advantages(self, ro: Rollout) -> None:
        cfg = self.cfg
        next_values = self.value_of(ro.next_obs)
        ended, dead_end = ro.done.astype(np.float32), ro.terminated.astype(np.float32)
        if cfg.fault == "done_shift":
            ended, dead_end = (np.concatenate([x[1:], x[-1:]]) for x in (ended, dead_end))
        adv = np.zeros_like(ro.rewards)
        carry = np.zeros(cfg.num_envs, np.float32)
        for t in range(cfg.horizon - 1, -1, -1):
            # a spill has no future, a time limit has: its last observation is still worth something
            delta = ro.rewards[t] + cfg.gamma * (1 - dead_end[t]) * next_values[t] - ro.values[t]
            carry = delta + cfg.gamma * cfg.lam * (1 - ended[t]) * carry
            adv[t] = carry
        ro.advantages, ro.returns = adv, adv + ro.values

    # ---------------------------------------------------------------- learning
    def set_lr(self, iteration: int) -> None:
        cfg = self.cfg
        count = self.updates if cfg.fault == "anneal_overrun" else iteration
        scale = max(0.0, 1.0 - count / cfg.iterations)
        if cfg.variant == "warmup":
            scale *= min(1.0, self.updates / 60)
        for group in self.opt.param_groups:
            group["lr"] = cfg.lr * scale

    def flat(self, ro: Rollout) -> dict[str, torch.Tensor]:
        def merge(x: np.ndarray) -> torch.Tensor:
            return torch.as_tensor(x.reshape(-1, *x.shape[2:]))

        data = {
            k: merge(getattr(ro, k)) for k in ("obs", "actions", "logp", "values", "advantages", "returns", "valid")
        }
        if self.cfg.fault == "flatten_order":
            data["advantages"] = torch.as_tensor(ro.advantages.swapaxes(0, 1).reshape(-1))
        keep = data.pop("valid")
        return {k: x[keep] for k, x in data.items()}

    def improve(self, ro: Rollout, iteration: int) -> float:
        cfg = self.cfg
        data = self.flat(ro)
        if cfg.variant == "scaled_values":
            self.v_mean = 0.9 * self.v_mean + 0.1 * float(data["returns"].mean())
            self.v_std = 0.9 * self.v_std + 0.1 * float(data["returns"].std())
        size = len(data["obs"])
        total = 0.0
        for _ in range(cfg.epochs):
            moved = 0.0
            for rows in torch.randperm(size).chunk(cfg.minibatches):
                self.set_lr(iteration)
                mb = {k: x[rows] for k, x in data.items()}
                dist, value = self.net(mb["obs"])
                logp = dist.log_prob(mb["actions"]).sum(-1)
                old = logp.detach() if cfg.fault == "ratio_is_one" else mb["logp"]
                ratio = (logp - old).exp()
                adv = mb["advantages"]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                clipped = ratio.clamp(1 - cfg.clip, 1 + cfg.clip)
                if cfg.fault == "min_of_negated":
                    policy_loss = torch.min(-adv * ratio, -adv * clipped).mean()
                else:
                    policy_loss = -torch.min(adv * ratio, adv * clipped).mean()
                wanted = (mb["returns"] - self.v_mean) / self.v_std
                guess = mb["values"] if cfg.fault == "stale_value_loss" else value
                value_loss = 0.5 * (guess - wanted).pow(2).mean()
                entropy = dist.entropy().sum(-1).mean()
                loss = policy_loss + cfg.vf_coef * value_loss - cfg.ent_coef * entropy
                self.opt.zero_grad()
                loss.backward()
                if cfg.fault != "clip_after_step":
                    nn.utils.clip_grad_norm_(self.net.parameters(), cfg.max_grad_norm)
                self.opt.step()
                if cfg.fault == "clip_after_step":
                    nn.utils.clip_grad_norm_(self.net.parameters(), cfg.max_grad_norm)
                self.updates += 1
                total = float(loss.detach())
                moved += float((ratio.detach() - 1 - (logp.detach() - old)).mean()) / cfg.minibatches
            if cfg.variant == "kl_stop" and moved > 0.01:
                break
        return total

    def run(self) -> None:
        for iteration in range(self.cfg.iterations):
            ro = self.collect()
            self.add_advantages(ro)
            loss = self.improve(ro, iteration)
            if iteration % 10 == 0:
                recent = np.mean(self.episodes[-40:]) if self.episodes else float("nan")
                print(
                    f"iter {iteration:3d}  return {recent:7.2f}  loss {loss:+.4f}  std {self.net.log_std.exp().mean():.3f}"
                )
        self.envs.close()
        n = max(1, len(self.episodes) // 5)
        print(f"{len(self.episodes)} episodes, {np.mean(self.episodes[:n]):.2f} -> {np.mean(self.episodes[-n:]):.2f}")


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--steps", type=int, default=Config.total_steps)
    p.add_argument("--fault", default="", choices=["", *FAULTS])
    p.add_argument("--variant", default="", choices=list(HEALTHY))
    a = p.parse_args()
    torch.set_num_threads(1)
    Trainer(Config(seed=a.seed, total_steps=a.steps, fault=a.fault, variant=a.variant)).run()


if __name__ == "__main__":
    main()
