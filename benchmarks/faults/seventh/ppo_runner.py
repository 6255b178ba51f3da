"""Proximal policy optimisation on Acrobot: Config, RolloutBuffer, Agent and Runner."""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

FAULTS = {
    "critic_rebuilt": [
        "weights",
        "broken",
        "the critic is built anew with another gain after the optimizer was made: the optimizer holds the old one",
    ],
    "normed_returns": [
        "returns",
        "broken",
        "advantages are normalised before the values are added back: the value targets have lost their scale",
    ],
    "old_is_new": [
        "signs",
        "broken",
        "the old log-probabilities are taken from the present policy: the ratio is always one, nothing is clipped",
    ],
    "flatten_order": [
        "shapes",
        "broken",
        "advantages and returns are flattened environment by environment, all else step by step",
    ],
    "anneal_per_minibatch": [
        "rates",
        "broken",
        "a rate annealed over iterations is moved at each minibatch: it is zero after a few iterations",
    ],
    "alive_bonus": ["goal", "not proven", "each step pays one: the swing-up is worth putting off for ever"],
}
HEALTHY = {
    "": "plain: 8 environments, GAE with bootstrap at time limits, 4 epochs, rate annealed linearly",
    "obs_norm": "observations are normalised by running statistics that move during training",
    "accumulate": "each minibatch is split in four, the losses are divided by four and one step is made",
    "two_optimizers": "actor and critic have their own optimizers; the critic has a higher rate and weight decay",
}


@dataclass
class Config:
    env_id: str = "Acrobot-v1"
    seed: int = 0
    total_steps: int = 81_920
    num_envs: int = 8
    rollout_len: int = 128
    gamma: float = 0.99
    lam: float = 0.95
    lr: float = 1e-3
    critic_lr: float = 2e-3
    epochs: int = 4
    minibatches: int = 4
    clip: float = 0.2
    entropy_coef: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    hidden: int = 64
    fault: str = ""
    variant: str = ""

    @property
    def batch_size(self) -> int:
        return self.num_envs * self.rollout_len

    @property
    def num_iterations(self) -> int:
        return max(1, self.total_steps // self.batch_size)


class RunningMoments:
    """Mean and variance of a stream (Chan et al.)"""

    def __init__(self, shape: tuple[int, ...]):
        self.mean = np.zeros(shape, dtype=np.float64)
        self.var = np.ones(shape, dtype=np.float64)
        self.count = 1e-4

    def update(self, batch: np.ndarray) -> None:
        n = batch.shape[0]
        delta = batch.mean(0) - self.mean
        total = self.count + n
        m2 = self.var * self.count + batch.var(0) * n + delta**2 * self.count * n / total
        self.mean += delta * n / total
        self.var = m2 / total
        self.count = total

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return np.clip((batch - self.mean) / np.sqrt(self.var + 1e-8), -10, 10).astype(np.float32)


class RolloutBuffer:
    def __init__(self, cfg: Config, obs_dim: int):
        t, n = cfg.rollout_len, cfg.num_envs
        self.cfg = cfg
        self.obs = torch.zeros(t, n, obs_dim)
        self.actions = torch.zeros(t, n, dtype=torch.long)
        self.logps = torch.zeros(t, n)
        self.rewards = torch.zeros(t, n)
        self.values = torch.zeros(t, n)
        self.dones = torch.zeros(t, n)
        self.advantages = torch.zeros(t, n)
        self.returns = torch.zeros(t, n)
        self.ptr = 0

    def add(self, obs, action, logp, reward, value, done) -> None:
        i = self.ptr
        self.obs[i], self.actions[i], self.logps[i] = obs, action, logp
        self.rewards[i], self.values[i], self.dones[i] = reward, value, done
        self.ptr = (i + 1) % self.cfg.rollout_len

    def finish(self, last_value: Tensor) -> None:
        cfg = self.cfg
        running = torch.zeros(cfg.num_envs)
        next_value = last_value
        for t in range(cfg.rollout_len - 1, -1, -1):
            alive = 1.0 - self.dones[t]
            delta = self.rewards[t] + cfg.gamma * next_value * alive - self.values[t]
            running = delta + cfg.gamma * cfg.lam * alive * running
            self.advantages[t] = running
            next_value = self.values[t]
        if cfg.fault == "normed_returns":
            self.advantages = (self.advantages - self.advantages.mean()) / (self.advantages.std() + 1e-8)
        self.returns = self.advantages + self.values

    def minibatches(self):
        cfg = self.cfg
        obs = self.obs.flatten(0, 1)
        actions, logps = self.actions.flatten(), self.logps.flatten()
        advantages, returns = self.advantages.flatten(), self.returns.flatten()
        if cfg.fault == "flatten_order":
            advantages, returns = self.advantages.T.flatten(), self.returns.T.flatten()
        for idx in torch.randperm(cfg.batch_size).chunk(cfg.minibatches):
            adv = advantages[idx]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            yield obs[idx], actions[idx], logps[idx], adv, returns[idx]


def mlp(sizes: list[int], gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        last = i == len(sizes) - 2
        linear = nn.Linear(a, b)
        nn.init.orthogonal_(linear.weight, gain if last else 2**0.5)
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, nn.Tanh()]
    return nn.Sequential(*layers)


class Agent:
    def __init__(self, cfg: Config, obs_dim: int, num_actions: int):
        self.cfg = cfg
        self.actor = mlp([obs_dim, cfg.hidden, cfg.hidden, num_actions], gain=0.01)
        self.critic = mlp([obs_dim, cfg.hidden, cfg.hidden, 1], gain=1.0)
        if cfg.variant == "two_optimizers":
            self.optimizers = [
                torch.optim.Adam(self.actor.parameters(), lr=cfg.lr, eps=1e-5),
                torch.optim.AdamW(self.critic.parameters(), lr=cfg.critic_lr, weight_decay=1e-3),
            ]
        else:
            params = [*self.actor.parameters(), *self.critic.parameters()]
            self.optimizers = [torch.optim.Adam(params, lr=cfg.lr, eps=1e-5)]
        if cfg.fault == "critic_rebuilt":
            self.critic = mlp([obs_dim, cfg.hidden, cfg.hidden, 1], gain=0.1)
        self.base_lrs = [opt.param_groups[0]["lr"] for opt in self.optimizers]
        self.iteration = 0

    @torch.no_grad()
    def act(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dist = Categorical(logits=self.actor(obs))
        action = dist.sample()
        return action, dist.log_prob(action), self.critic(obs).squeeze(-1)

    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        return self.critic(obs).squeeze(-1)

    def anneal(self) -> None:
        frac = max(0.0, 1.0 - self.iteration / self.cfg.num_iterations)
        for opt, base in zip(self.optimizers, self.base_lrs, strict=False):
            opt.param_groups[0]["lr"] = base * frac
        self.iteration += 1

    def loss(self, obs, actions, old_logps, adv, returns) -> Tensor:
        cfg = self.cfg
        dist = Categorical(logits=self.actor(obs))
        logps = dist.log_prob(actions)
        if cfg.fault == "old_is_new":
            old_logps = logps.detach()
        ratio = torch.exp(logps - old_logps)
        plain = ratio * adv
        clipped = ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * adv
        surrogate = torch.minimum(plain, clipped)
        value_loss = 0.5 * (self.critic(obs).squeeze(-1) - returns).pow(2).mean()
        return -surrogate.mean() + cfg.value_coef * value_loss - cfg.entropy_coef * dist.entropy().mean()

    def update(self, buffer: RolloutBuffer) -> float:
        cfg = self.cfg
        pieces = 4 if cfg.variant == "accumulate" else 1
        if cfg.fault != "anneal_per_minibatch":
            self.anneal()
        losses = []
        for _ in range(cfg.epochs):
            for batch in buffer.minibatches():
                if cfg.fault == "anneal_per_minibatch":
                    self.anneal()
                for opt in self.optimizers:
                    opt.zero_grad()
                for part in zip(*(column.chunk(pieces) for column in batch), strict=False):
                    loss = self.loss(*part) / pieces
                    loss.backward()
                    losses.append(loss.item() * pieces)
                for net in (self.actor, self.critic):
                    nn.utils.clip_grad_norm_(net.parameters(), cfg.max_grad_norm)
                for opt in self.optimizers:
                    opt.step()
        return float(np.mean(losses))


class Runner:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        self.envs = gym.vector.SyncVectorEnv(
            [self._make_env for _ in range(cfg.num_envs)], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
        )
        obs_dim = int(np.prod(self.envs.single_observation_space.shape))
        self.moments = RunningMoments((obs_dim,)) if cfg.variant == "obs_norm" else None
        self.agent = Agent(cfg, obs_dim, int(self.envs.single_action_space.n))
        self.buffer = RolloutBuffer(cfg, obs_dim)
        self.returns: list[float] = []
        self.running_return = np.zeros(cfg.num_envs)

    def _make_env(self) -> gym.Env:
        env = gym.make(self.cfg.env_id, max_episode_steps=300)
        if self.cfg.fault == "alive_bonus":
            env = gym.wrappers.TransformReward(env, lambda r: 1.0)
        return env

    def _prepare(self, raw: np.ndarray, learn: bool = False) -> Tensor:
        if self.moments is None:
            return torch.as_tensor(raw, dtype=torch.float32)
        if learn:
            self.moments.update(raw)
        return torch.from_numpy(self.moments(raw))

    def collect(self, obs: Tensor) -> Tensor:
        for _ in range(self.cfg.rollout_len):
            action, logp, value = self.agent.act(obs)
            raw, reward, terminated, truncated, infos = self.envs.step(action.numpy())
            self.running_return += reward
            done = np.logical_or(terminated, truncated)
            reward = torch.as_tensor(reward, dtype=torch.float32)
            for i in np.flatnonzero(done):
                self.returns.append(float(self.running_return[i]))
                self.running_return[i] = 0.0
                if truncated[i] and not terminated[i]:
                    final = self._prepare(infos["final_obs"][i][None])
                    reward[i] += self.cfg.gamma * self.agent.value(final)[0]
            self.buffer.add(obs, action, logp, reward, value, torch.as_tensor(done, dtype=torch.float32))
            obs = self._prepare(raw, learn=True)
        self.buffer.finish(self.agent.value(obs))
        return obs

    def run(self) -> list[float]:
        raw, _ = self.envs.reset(seed=self.cfg.seed)
        obs = self._prepare(raw, learn=True)
        for it in range(1, self.cfg.num_iterations + 1):
            obs = self.collect(obs)
            loss = self.agent.update(self.buffer)
            if it % 10 == 0:
                recent = np.mean(self.returns[-20:]) if self.returns else float("nan")
                print(f"iteration {it:4d} steps {it * self.cfg.batch_size:6d} return {recent:8.1f} loss {loss:9.3f}")
        return self.returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--steps", type=int, default=Config.total_steps)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    started = time.time()
    cfg = Config(seed=args.seed, total_steps=args.steps, fault=args.fault, variant=args.variant)
    returns = Runner(cfg).run()
    tenth = max(1, len(returns) // 10)
    print(
        f"episodes {len(returns)} first tenth {np.mean(returns[:tenth]):.2f} "
        f"last tenth {np.mean(returns[-tenth:]):.2f} seconds {time.time() - started:.1f}"
    )


if __name__ == "__main__":
    main()
