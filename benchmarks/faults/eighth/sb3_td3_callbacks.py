"""My greenhouse with stable-baselines3: TD3 with a Huber critic, own feature extractor, wrappers and callback."""

import argparse
import math
import time

import gymnasium as gym
import numpy as np
import torch as th
import torch.nn as nn
import torch.nn.functional as F
from stable_baselines3 import TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

FAULTS = {
    "layers_in_a_list": [
        "weights",
        "broken",
        "the extractor keeps its layers in a plain list, so no optimizer and no target update knows of them",
    ],
    "test_freezes_actor": [
        "weights",
        "broken",
        "the callback switches off the actor's gradients for its first test and never switches them on again",
    ],
    "polyak_swapped": [
        "targets",
        "broken",
        "source and target of the critics' soft update are swapped: the learning critics are pulled to the old ones",
    ],
    "min_over_all": [
        "shapes",
        "broken",
        "the smaller of two critics is taken without a dimension: one number, the worst of the batch, for all rows",
    ],
    "reward_clipped_away": [
        "goal",
        "not proven",
        "a wrapper copied from elsewhere clips rewards to [0, 1], and here every reward is a cost",
    ],
}
HEALTHY = {
    "": "plain: TD3, Huber critics, own extractor, time limit with bootstrap, negative rewards",
    "normalised": "VecNormalize for observations and rewards, layer norm in the extractor, AMSGrad",
    "in_bursts": "twenty updates after every twenty steps, rate warmed up from zero, slower and rarer target updates",
}


class Greenhouse(gym.Env):
    """Heating and misting act on warmth and moisture; the weather pulls back; too far off and the plants die."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-5.0, 5.0, (5,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _obs(self):
        return np.array([self.warm, self.moist, self.wish, self.outside, self.dry], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.warm, self.moist = self.np_random.uniform(-1.0, 1.0, 2)
        self.wish = self.np_random.uniform(-0.5, 0.5)
        self.outside, self.dry = self.np_random.uniform(-1.5, 0.5), self.np_random.uniform(-1.0, 0.0)
        self.hour = 0
        return self._obs(), {}

    def step(self, action):
        heat, mist = float(action[0]), float(action[1])
        self.hour += 1
        weather = self.outside + 0.3 * math.sin(self.hour / 6)
        self.warm += 0.08 * (weather - self.warm) + 0.25 * heat - 0.08 * mist
        self.moist += 0.06 * (self.dry - self.moist) + 0.22 * mist - 0.06 * heat
        off = abs(self.warm - self.wish) + 0.7 * abs(self.moist)
        dead = abs(self.warm - self.wish) > 2.0 or abs(self.moist) > 2.0
        reward = -off - 0.02 * (heat**2 + mist**2) - (10.0 if dead else 0.0)
        return self._obs(), reward, dead, False, {}


class ShowTrend(gym.ObservationWrapper):
    """Adds how warmth and moisture changed since the last observation."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-5.0, 5.0, (7,), np.float32)

    def reset(self, **kwargs):
        self.before = None
        return super().reset(**kwargs)

    def observation(self, obs):
        trend = np.zeros(2, np.float32) if self.before is None else obs[:2] - self.before
        self.before = obs[:2].copy()
        return np.concatenate([obs, trend * 4.0]).astype(np.float32)


class ClipReward(gym.RewardWrapper):
    def __init__(self, env, low, high):
        super().__init__(env)
        self.low, self.high = low, high

    def reward(self, reward):
        return float(np.clip(reward, self.low, self.high))


class PlantFeatures(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=48, norm=False, as_list=False):
        super().__init__(observation_space, features_dim)
        layers = [nn.Linear(observation_space.shape[0], 64), nn.ReLU(), nn.Linear(64, features_dim), nn.ReLU()]
        if norm:
            layers.insert(1, nn.LayerNorm(64))
        self.layers = layers if as_list else nn.ModuleList(layers)

    def forward(self, obs):
        for layer in self.layers:
            obs = layer(obs)
        return obs


class HuberTD3(TD3):
    """TD3 whose critics have a Huber loss; the target update can be made rarer than the actor's."""

    fault = ""
    target_every = 2

    def bootstrap(self, batch):
        with th.no_grad():
            jitter = th.randn_like(batch.actions) * self.target_policy_noise
            jitter = jitter.clamp(-self.target_noise_clip, self.target_noise_clip)
            action = (self.actor_target(batch.next_observations) + jitter).clamp(-1.0, 1.0)
            both = th.cat(self.critic_target(batch.next_observations, action), dim=1)
            worst = both.min() if self.fault == "min_over_all" else both.min(dim=1, keepdim=True).values
            return batch.rewards + self.gamma * (1.0 - batch.dones) * worst

    def one_critic_step(self, batch):
        goal = self.bootstrap(batch)
        loss = sum(F.smooth_l1_loss(q, goal) for q in self.critic(batch.observations, batch.actions))
        self.critic.optimizer.zero_grad()
        loss.backward()
        self.critic.optimizer.step()
        return loss.item()

    def one_actor_step(self, batch):
        loss = -self.critic.q1_forward(batch.observations, self.actor(batch.observations)).mean()
        self.actor.optimizer.zero_grad()
        loss.backward()
        self.actor.optimizer.step()

    def follow(self):
        pair = self.critic, self.critic_target
        new, old = reversed(pair) if self.fault == "polyak_swapped" else pair
        polyak_update(new.parameters(), old.parameters(), self.tau)
        polyak_update(self.actor.parameters(), self.actor_target.parameters(), self.tau)

    def train(self, gradient_steps, batch_size=100):
        self.policy.set_training_mode(True)
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer])
        losses = []
        for _ in range(gradient_steps):
            self._n_updates += 1
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            losses.append(self.one_critic_step(batch))
            if self._n_updates % self.policy_delay == 0:
                self.one_actor_step(batch)
            if self._n_updates % self.target_every == 0:
                self.follow()
        self.logger.record("train/critic_loss", float(np.mean(losses)))


class TestEvery(BaseCallback):
    """Plays a few episodes without exploration and prints what the house looked like."""

    def __init__(self, env, every, fault):
        super().__init__()
        self.env, self.every, self.fault = env, every, fault

    def _on_step(self):
        if self.n_calls % self.every == 0:
            if self.fault == "test_freezes_actor":
                self.model.actor.requires_grad_(False)
            print(f"{self.num_timesteps:6d} steps, no noise: {np.mean([self.play() for _ in range(5)]):7.2f}")
        return True

    def play(self):
        normaliser = self.model.get_vec_normalize_env()
        obs, total, over = self.env.reset()[0], 0.0, False
        while not over:
            shown = obs if normaliser is None else normaliser.normalize_obs(obs)
            action, _ = self.model.predict(shown, deterministic=True)
            obs, reward, terminated, truncated, _ = self.env.step(action)
            total, over = total + reward, terminated or truncated
        return total


def build(fault):
    env = ShowTrend(gym.wrappers.TimeLimit(Greenhouse(), max_episode_steps=40))
    if fault == "reward_clipped_away":
        env = ClipReward(env, 0.0, 1.0)
    return Monitor(env)


def train(seed, steps, fault, variant):
    house = build(fault)
    venv = DummyVecEnv([lambda: house])
    if variant == "normalised":
        venv = VecNormalize(venv, gamma=0.95)
    bursts = variant == "in_bursts"
    policy_kwargs = {
        "features_extractor_class": PlantFeatures,
        "features_extractor_kwargs": {"norm": variant == "normalised", "as_list": fault == "layers_in_a_list"},
        "net_arch": [64],
        "optimizer_kwargs": {"amsgrad": variant == "normalised"},
    }
    model = HuberTD3(
        "MlpPolicy", venv, seed=seed, gamma=0.95, batch_size=96, buffer_size=20_000, learning_starts=400,
        learning_rate=(lambda left: 1e-3 * min(1.0, (1.0 - left) / 0.2)) if bursts else 1e-3,
        train_freq=20 if bursts else 1, gradient_steps=20 if bursts else 1, tau=0.02 if bursts else 0.01,
        action_noise=NormalActionNoise(np.zeros(2), 0.15 * np.ones(2)), policy_kwargs=policy_kwargs, device="cpu",
    )  # fmt: skip
    model.fault, model.target_every = fault, 8 if bursts else 2
    model.learn(steps, callback=TestEvery(build(""), every=2500, fault=fault))
    return house.get_episode_rewards()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6500)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    th.set_num_threads(1)
    t0 = time.time()
    scores = train(args.seed, args.steps, args.fault, args.variant)
    print(f"first 15: {np.mean(scores[:15]):.2f}, last 15: {np.mean(scores[-15:]):.2f}, {time.time() - t0:.1f} s")
