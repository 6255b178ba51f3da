"""Trains a little ferry to dock at a jetty (placed at random) with Stable-Baselines3.

Own pieces: the environment, a feature wrapper, a VecEnv wrapper that rescales rewards, a features extractor,
a learning-rate schedule, a logging callback, and small subclasses where the defaults did not fit.
"""

import argparse
import random
from collections import deque

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnvWrapper
from stable_baselines3.td3.policies import TD3Policy
from torch import nn

FAULTS = {
    "swapped_extractor": ["weights", "broken", "PPO: features extractor replaced after the optimizer was built"],
    "functional_dropout": ["shapes", "broken", "PPO: F.dropout without training flag, active in rollouts as well"],
    "shifted_starts": [
        "returns",
        "broken",
        "PPO: own rollout buffer masks with the start flag of the same step, not the next",
    ],
    "lr_dies": ["rates", "broken", "PPO: schedule counts rollouts as if they were all steps, rate is 0 after a tenth"],
    "shared_target": ["targets", "broken", "DQN: the target network uses the online network's features extractor"],
    "timeout_stripped": [
        "returns",
        "broken",
        "A2C: the VecEnv wrapper drops the time-limit flag, time limits become terminal",
    ],
    "stale_alpha": ["weights", "broken", "SAC: temperature tensor replaced after its optimizer was built"],
    "same_twin": ["signs", "broken", "TD3: both critics are the same network"],
}
HEALTHY = {
    "": "plain",
    "a2c": "A2C with RMSprop, rewards always negative",
    "dqn": "DQN whose target network is copied every 1000 steps only",
    "sac": "SAC with a learnt temperature and one gradient step per two environment steps",
    "td3": "TD3: the actor moves at every second critic update only",
}
ALGO_OF_FAULT = {"shared_target": "dqn", "timeout_stripped": "a2c", "stale_alpha": "sac", "same_twin": "td3"}
DEFAULT_STEPS = {"ppo": 50_000, "a2c": 60_000, "dqn": 24_000, "sac": 6_000, "td3": 8_000}


class Ferry(gym.Env):
    """A boat on a line with momentum and current. Drive to the jetty and stay there; leaving the bay is fatal."""

    def __init__(self, discrete=True, limit=40):
        self.discrete, self.limit = discrete, limit
        self.observation_space = spaces.Box(-10.0, 10.0, (4,), np.float32)
        self.action_space = spaces.Discrete(3) if discrete else spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _obs(self):
        return np.array([self.x, self.v, self.jetty, self.current], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.v, self.t = float(self.np_random.uniform(-1.5, 1.5)), 0.0, 0
        self.jetty = float(self.np_random.uniform(-1.5, 1.5))
        self.current = float(self.np_random.uniform(-0.04, 0.04))
        return self._obs(), {}

    def step(self, action):
        push = float(action) - 1.0 if self.discrete else float(np.clip(action, -1, 1)[0])
        self.v = 0.85 * self.v + 0.12 * push + self.current
        self.x += self.v
        self.t += 1
        lost = abs(self.x) > 3.0
        reward = -abs(self.x - self.jetty) - (60.0 if lost else 0.0)
        return self._obs(), reward, lost, (self.t >= self.limit) and not lost, {}


class AddOffset(gym.ObservationWrapper):
    """Appends the signed distance to the jetty."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = spaces.Box(-20.0, 20.0, (5,), np.float32)

    def observation(self, observation):
        return np.append(observation, observation[2] - observation[0]).astype(np.float32)


class ScaleReward(VecEnvWrapper):
    """Rewards times a constant; keeps the last episode returns (unscaled, from the monitor) for the log."""

    def __init__(self, venv, scale, fault=""):
        super().__init__(venv)
        self.scale, self.fault = scale, fault
        self.recent = deque(maxlen=50)

    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        obs, rewards, dones, infos = self.venv.step_wait()
        clean = []
        for info in infos:
            if "episode" in info:
                self.recent.append(info["episode"]["r"])
            keep = {k: info[k] for k in ("episode", "terminal_observation", "TimeLimit.truncated") if k in info}
            if self.fault == "timeout_stripped":
                keep.pop("TimeLimit.truncated", None)
            clean.append(keep)
        return obs, rewards * self.scale, dones, clean


class FerryFeatures(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=32, fault=""):
        super().__init__(observation_space, features_dim)
        self.fault = fault
        self.register_buffer("unit", th.tensor([0.5, 2.0, 0.5, 20.0, 0.5]))
        self.body = nn.Sequential(
            nn.Linear(observation_space.shape[0], 64), nn.Tanh(), nn.Linear(64, features_dim), nn.Tanh()
        )

    def forward(self, observations):
        out = self.body(observations * self.unit)
        if self.fault == "functional_dropout":
            out = nn.functional.dropout(out, 0.25)
        return out


class FloatBuffer(RolloutBuffer):
    """The stock buffer with GAE in double precision."""

    shift = True

    def compute_returns_and_advantage(self, last_values, dones):
        values = np.concatenate([self.values, last_values.cpu().numpy().reshape(1, -1)]).astype(np.float64)
        starts = np.concatenate([self.episode_starts, dones.astype(np.float64).reshape(1, -1)])
        running = np.zeros(self.n_envs)
        for step in reversed(range(self.buffer_size)):
            alive = 1.0 - starts[step + 1 if self.shift else step]
            delta = self.rewards[step] + self.gamma * values[step + 1] * alive - values[step]
            running = delta + self.gamma * self.gae_lambda * alive * running
            self.advantages[step] = running
        self.returns = self.advantages + self.values


class UnshiftedBuffer(FloatBuffer):
    shift = False


class CopyDQN(DQN):
    """DQN with a plain hard copy of the target every `target_update_interval` steps."""

    def _on_step(self):
        self._n_calls += 1
        if self._n_calls % max(self.target_update_interval // self.n_envs, 1) == 0:
            with th.no_grad():
                for p, q in zip(self.q_net.parameters(), self.q_net_target.parameters(), strict=True):
                    q.copy_(p)
        self.exploration_rate = self.exploration_schedule(self._current_progress_remaining)
        self.logger.record("rollout/exploration_rate", self.exploration_rate)


class OrthoTD3Policy(TD3Policy):
    """Critic heads with orthogonal initialisation and a small last layer."""

    twin = True

    def make_critic(self, features_extractor=None):
        critic = super().make_critic(features_extractor)
        for head in (critic.qf0, critic.qf1):
            for layer in head:
                if isinstance(layer, nn.Linear):
                    nn.init.orthogonal_(layer.weight, gain=0.1 if layer.out_features == 1 else 2**0.5)
                    nn.init.zeros_(layer.bias)
        critic.q_networks = [critic.qf0, critic.qf1 if self.twin else critic.qf0]
        return critic


class SingleTD3Policy(OrthoTD3Policy):
    twin = False


class ReturnLog(BaseCallback):
    """Collects episode returns, prints now and then."""

    def __init__(self, every):
        super().__init__()
        self.every, self.returns, self._next = every, [], every

    def _on_step(self):
        for info in self.locals["infos"]:
            if "episode" in info:
                self.returns.append(float(info["episode"]["r"]))
        if self.num_timesteps >= self._next:
            self._next += self.every
            recent = self.training_env.recent
            print(
                f"{self.num_timesteps:7d} steps, {len(self.returns):5d} episodes, return {np.mean(recent):8.2f}",
                flush=True,
            )
        return True


def linear(start, fault=""):
    """Linear decay of the learning rate; progress goes from 1 to 0."""

    def schedule(progress):
        if fault == "lr_dies":
            return start * max(0.0, 1.0 - 10.0 * (1.0 - progress))
        return start * (0.1 + 0.9 * progress)

    return schedule


def build(algo, env, seed, fault):
    features = {"features_extractor_class": FerryFeatures, "features_extractor_kwargs": {"fault": fault}}
    common = {"seed": seed, "device": "cpu", "gamma": 0.97}
    if algo == "ppo":
        model = PPO(
            "MlpPolicy", env, learning_rate=linear(1e-3, fault), n_steps=64, batch_size=128, n_epochs=6, ent_coef=0.005,
            rollout_buffer_class=UnshiftedBuffer if fault == "shifted_starts" else FloatBuffer,
            policy_kwargs=dict(net_arch=[32], **features), **common,
        )  # fmt: skip
        if fault == "swapped_extractor":
            fresh = FerryFeatures(env.observation_space)
            model.policy.features_extractor = fresh
            model.policy.pi_features_extractor = model.policy.vf_features_extractor = fresh
        return model
    if algo == "a2c":
        return A2C("MlpPolicy", env, learning_rate=linear(1e-3), n_steps=8, gae_lambda=0.95, ent_coef=0.005,
                   policy_kwargs=dict(net_arch=[32], **features), **common)  # fmt: skip
    if algo == "dqn":
        model = CopyDQN(
            "MlpPolicy", env, learning_rate=linear(1e-3), buffer_size=20_000, learning_starts=800, batch_size=64,
            train_freq=4, gradient_steps=1, target_update_interval=1000, exploration_fraction=0.3,
            policy_kwargs=dict(net_arch=[64], **features), **common,
        )  # fmt: skip
        if fault == "shared_target":
            model.q_net_target.features_extractor = model.q_net.features_extractor
        return model
    if algo == "sac":
        model = SAC(
            "MlpPolicy", env, learning_rate=linear(1e-3), buffer_size=20_000, learning_starts=400, batch_size=64,
            train_freq=2, gradient_steps=1, ent_coef="auto_0.2", tau=0.02, policy_kwargs=dict(net_arch=[64], **features), **common,
        )  # fmt: skip
        if fault == "stale_alpha":
            # 0.2 explored too long, start lower
            model.log_ent_coef = th.log(th.ones(1) * 0.1).requires_grad_(True)
        return model
    return TD3(
        SingleTD3Policy if fault == "same_twin" else OrthoTD3Policy, env, learning_rate=linear(1e-3), buffer_size=20_000,
        learning_starts=400, batch_size=64, train_freq=2, gradient_steps=1, tau=0.02,
        action_noise=NormalActionNoise(np.zeros(1), 0.2 * np.ones(1)), policy_kwargs=dict(net_arch=[64], **features), **common,
    )  # fmt: skip


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--steps", type=int, default=0, help="environment steps, 0: default of the algorithm")
    cli.add_argument("--fault", default="")
    cli.add_argument("--variant", default="")
    args = cli.parse_args()
    algo = ALGO_OF_FAULT.get(args.fault) or args.variant or "ppo"
    steps = args.steps or DEFAULT_STEPS[algo]
    random.seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002
    th.manual_seed(args.seed)
    th.set_num_threads(1)

    n_envs = 8 if algo in ("ppo", "a2c") else 1
    env_kwargs = {"discrete": algo not in ("sac", "td3")}
    env = make_vec_env(Ferry, n_envs=n_envs, seed=args.seed, wrapper_class=AddOffset, env_kwargs=env_kwargs)
    env = ScaleReward(env, 0.1, args.fault)
    model = build(algo, env, args.seed, args.fault)
    log = ReturnLog(every=max(1, steps // 10))
    model.learn(total_timesteps=steps, callback=log)
    k = max(1, len(log.returns) // 5)
    print(
        f"{algo}: mean return, first fifth {np.mean(log.returns[:k]):.2f}, last fifth {np.mean(log.returns[-k:]):.2f}"
    )


if __name__ == "__main__":
    main()
