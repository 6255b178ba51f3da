"""Proximal policy optimisation on CartPole (200-step limit), with a rollout buffer and a vector of environments."""

import argparse
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn
from torch.distributions import Categorical

FAULTS = {
    "trunk_left_out": [
        "weights",
        "broken",
        "the optimizer is given the two heads only, so the feature layers stay as they were drawn",
    ],
    "old_last_value": [
        "returns",
        "broken",
        "the rollout is closed with the value of the last observation acted upon, not of the one that followed it",
    ],
    "next_step_reset": [
        "returns",
        "broken",
        "the vector keeps Gymnasium's default autoreset, so each episode's end is joined to the next by a false step",
    ],
    "value_column": [
        "shapes",
        "broken",
        "the critic's (B, 1) output is compared with (B,) returns, so each value is fitted to the mean of all returns",
    ],
    "max_surrogate": [
        "signs",
        "broken",
        "the larger of the clipped and the plain surrogate is maximised, as if they were losses; big steps go unheld",
    ],
    "decay_per_minibatch": [
        "rates",
        "broken",
        "the decay is sized in rollouts but stepped at every minibatch: the rate is zero after a few rollouts",
    ],
    "reset_view": [
        "goal",
        "not proven",
        "the scaling wrapper hands out the observation it kept at the reset, so nothing moves during an episode",
    ],
}
HEALTHY = {
    "": "plain: shared trunk, GAE, clipped surrogate, linear decay, values bootstrapped at the time limit",
    "micro": "the gradients of four micro-batches, each divided by four, add up to one step; the rate climbs from zero",
    "random_features": "a wide random trunk frozen on purpose, AdamW with weight decay on the heads",
    "reward_norm": "rewards divided by the running deviation of the discounted return, as VecNormalize does",
}


@dataclass
class Config:
    seed: int = 0
    fault: str = ""
    num_rollouts: int = 146
    num_envs: int = 8
    num_steps: int = 128
    time_limit: int = 200
    epochs: int = 6
    minibatch_size: int = 256
    micro_batches: int = 1
    lr: float = 1e-3
    warmup_rollouts: int = 0
    weight_decay: float = 0.0
    gamma: float = 0.98
    lam: float = 0.95
    clip: float = 0.2
    ent_coef: float = 0.002
    vf_coef: float = 0.02
    max_grad_norm: float = 0.5
    width: int = 64
    spread: float = 1.5
    freeze_trunk: bool = False
    normalize_reward: bool = False


VARIANTS = {
    "": {},
    "micro": {"micro_batches": 4, "warmup_rollouts": 10},
    "random_features": {"freeze_trunk": True, "width": 256, "spread": 2.5, "weight_decay": 1e-3},
    "reward_norm": {"normalize_reward": True, "vf_coef": 0.5},
}


class ScaleObservation(gym.Wrapper):
    """Divides each component by its usual size, so that all of them are of order one."""

    SCALE = np.array([2.4, 2.0, 0.21, 2.0], dtype=np.float32)

    def __init__(self, env: gym.Env, fault: str):
        super().__init__(env)
        self.fault = fault

    def reset(self, **kwargs):
        obs, info = self.env.reset(**kwargs)
        self.obs = obs / self.SCALE
        return self.obs, info

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self.fault == "reset_view":
            obs = obs / self.SCALE
        else:
            self.obs = obs / self.SCALE
        return self.obs, reward, terminated, truncated, info


def make_env(cfg: Config):
    return lambda: ScaleObservation(gym.make("CartPole-v1", max_episode_steps=cfg.time_limit), cfg.fault)


def make_envs(cfg: Config) -> SyncVectorEnv:
    kwargs = {} if cfg.fault == "next_step_reset" else {"autoreset_mode": AutoresetMode.SAME_STEP}
    return SyncVectorEnv([make_env(cfg) for _ in range(cfg.num_envs)], **kwargs)


class Agent(nn.Module):
    def __init__(self, obs_dim: int, num_actions: int, width: int, spread: float):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs_dim, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor = nn.Linear(width, num_actions)
        self.critic = nn.Linear(width, 1)
        for layer in self.trunk[::2]:
            nn.init.orthogonal_(layer.weight, spread)
            nn.init.uniform_(layer.bias, -1.0, 1.0)
        nn.init.orthogonal_(self.actor.weight, 0.01)
        nn.init.orthogonal_(self.critic.weight, 1.0)

    def forward(self, obs: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        features = self.trunk(obs)
        return Categorical(logits=self.actor(features)), self.critic(features)


class RewardScaler:
    """Divides rewards by the standard deviation of the discounted return seen so far."""

    def __init__(self, num_envs: int, gamma: float):
        self.gamma, self.running = gamma, np.zeros(num_envs)
        self.count, self.total, self.squares = 0, 0.0, 0.0

    def __call__(self, reward: np.ndarray, ended: np.ndarray) -> np.ndarray:
        self.running = self.gamma * self.running + reward
        self.count += len(reward)
        self.total += self.running.sum()
        self.squares += (self.running**2).sum()
        self.running[ended] = 0.0
        variance = self.squares / self.count - (self.total / self.count) ** 2
        return reward / np.sqrt(variance + 1.0)


class RolloutBuffer:
    """One rollout of shape (num_steps, num_envs); `next_values` are those of the states truly reached."""

    def __init__(self, cfg: Config, obs_dim: int):
        shape = (cfg.num_steps, cfg.num_envs)
        self.cfg = cfg
        self.obs = torch.zeros(*shape, obs_dim)
        self.actions = torch.zeros(shape, dtype=torch.long)
        self.log_probs, self.rewards, self.values = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)
        self.terminated, self.ended, self.final_values = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)
        self.advantages, self.pos = torch.zeros(shape), 0

    def add(self, obs, action, log_prob, value, reward, terminated, truncated, final_value):
        t = self.pos
        self.obs[t], self.actions[t], self.log_probs[t], self.values[t] = obs, action, log_prob, value
        self.rewards[t] = torch.as_tensor(reward, dtype=torch.float32)
        self.terminated[t] = torch.as_tensor(terminated, dtype=torch.float32)
        self.ended[t] = torch.as_tensor(terminated | truncated, dtype=torch.float32)
        self.final_values[t] = final_value
        self.pos += 1

    def finish(self, last_values: torch.Tensor):
        gamma, lam = self.cfg.gamma, self.cfg.lam
        following = torch.cat([self.values[1:], last_values[None]])
        next_values = torch.where(self.ended.bool(), self.final_values, following)
        deltas = self.rewards + gamma * (1.0 - self.terminated) * next_values - self.values
        carry = torch.zeros(self.cfg.num_envs)
        for t in range(self.cfg.num_steps - 1, -1, -1):
            carry = deltas[t] + gamma * lam * (1.0 - self.ended[t]) * carry
            self.advantages[t] = carry
        self.returns = self.advantages + self.values
        self.pos = 0

    def minibatches(self, size: int):
        flat = [x.flatten(0, 1) for x in (self.obs, self.actions, self.log_probs, self.advantages, self.returns)]
        for index in torch.randperm(len(flat[0])).split(size):
            yield [x[index] for x in flat]


class PPO:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        self.envs = make_envs(cfg)
        obs_dim = self.envs.single_observation_space.shape[0]
        self.agent = Agent(obs_dim, int(self.envs.single_action_space.n), cfg.width, cfg.spread)
        if cfg.freeze_trunk:
            self.agent.trunk.requires_grad_(False)
        params = [p for p in self.agent.parameters() if p.requires_grad]
        if cfg.fault == "trunk_left_out":
            params = [*self.agent.actor.parameters(), *self.agent.critic.parameters()]
        self.optimizer = torch.optim.AdamW(params, lr=cfg.lr, eps=1e-5, weight_decay=cfg.weight_decay)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.rate)
        self.buffer = RolloutBuffer(cfg, obs_dim)
        self.scaler = RewardScaler(cfg.num_envs, cfg.gamma) if cfg.normalize_reward else None
        self.last_obs = torch.as_tensor(self.envs.reset(seed=cfg.seed)[0])
        self.running, self.history = np.zeros(cfg.num_envs), []

    def rate(self, n: int) -> float:
        warmup = self.cfg.warmup_rollouts
        return n / warmup if n < warmup else max(0.0, 1.0 - n / self.cfg.num_rollouts)

    @torch.no_grad()
    def collect(self):
        for _ in range(self.cfg.num_steps):
            obs = self.last_obs
            dist, value = self.agent(obs)
            action = dist.sample()
            next_obs, reward, terminated, truncated, infos = self.envs.step(action.numpy())
            ended = terminated | truncated
            self.running += reward
            self.history.extend(self.running[ended])
            self.running[ended] = 0.0
            final_value = torch.zeros(self.cfg.num_envs)
            if truncated.any():
                reached = infos.get("final_obs", next_obs)
                for i in np.flatnonzero(truncated & ~terminated):
                    final_value[i] = self.agent(torch.as_tensor(reached[i]))[1].item()
            if self.scaler is not None:
                reward = self.scaler(reward, ended)
            choice = (action, dist.log_prob(action), value.squeeze(-1))
            self.buffer.add(obs, *choice, reward, terminated, truncated, final_value)
            self.last_obs = torch.as_tensor(next_obs)
        closing = obs if self.cfg.fault == "old_last_value" else self.last_obs
        self.buffer.finish(self.agent(closing)[1].squeeze(-1))

    def loss(self, obs, actions, old_log_probs, advantages, returns):
        cfg = self.cfg
        dist, values = self.agent(obs)
        values = values if cfg.fault == "value_column" else values.squeeze(-1)
        ratio = (dist.log_prob(actions) - old_log_probs).exp()
        plain = ratio * advantages
        clipped = ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * advantages
        pick = torch.max if cfg.fault == "max_surrogate" else torch.min
        policy_loss = -pick(plain, clipped).mean()
        value_loss = 0.5 * (values - returns).pow(2).mean()
        entropy = dist.entropy().mean()
        return policy_loss + cfg.vf_coef * value_loss - cfg.ent_coef * entropy, value_loss.item(), entropy.item()

    def learn_from_buffer(self):
        cfg = self.cfg
        for _ in range(cfg.epochs):
            for obs, actions, log_probs, advantages, returns in self.buffer.minibatches(cfg.minibatch_size):
                advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
                self.optimizer.zero_grad()
                batch = (obs, actions, log_probs, advantages, returns)
                # the parts are equal, so the mean of their means is the mean of the minibatch
                for part in zip(*(x.chunk(cfg.micro_batches) for x in batch), strict=True):
                    loss, value_loss, entropy = self.loss(*part)
                    (loss / cfg.micro_batches).backward()
                nn.utils.clip_grad_norm_(self.agent.parameters(), cfg.max_grad_norm)
                self.optimizer.step()
                if cfg.fault == "decay_per_minibatch":
                    self.scheduler.step()
        if cfg.fault != "decay_per_minibatch":
            self.scheduler.step()
        return value_loss, entropy

    def train(self) -> list[float]:
        for rollout in range(1, self.cfg.num_rollouts + 1):
            self.collect()
            value_loss, entropy = self.learn_from_buffer()
            if rollout % 10 == 0:
                steps = rollout * self.cfg.num_envs * self.cfg.num_steps
                recent, lr = np.mean(self.history[-40:]), self.scheduler.get_last_lr()[0]
                print(f"{steps=:6d} return={recent:6.1f} {value_loss=:7.3f} {entropy=:.3f} {lr=:.2e}", flush=True)
        return self.history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    start = time.time()
    history = PPO(Config(seed=args.seed, fault=args.fault, **VARIANTS[args.variant])).train()
    print(f"first 50: {np.mean(history[:50]):.1f}, last 50: {np.mean(history[-50:]):.1f}, {time.time() - start:.1f} s")
