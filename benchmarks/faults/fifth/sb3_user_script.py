"""A user's script around Stable-Baselines3: wrappers, callbacks, normalised environments and small subclasses."""

import argparse
import math
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

FAULTS = {
    "never_thawed": ["weights", "broken", "a body frozen at first thaws at a step count, but calls are counted: never"],
    "step_hook_lost": ["targets", "broken", "a subclass's _on_step leaves out super's: the target is never synced"],
    "ends_folded": ["returns", "broken", "a wrapper reports every fall as a truncation: values go on beyond the fall"],
    "old_values": ["signs", "broken", "an own train() fits the values to the rollout's old values, not to the returns"],
    "schedule_backwards": ["rates", "broken", "the schedule takes what remains for what is done: rate 0 for 70 %"],
    "sticky_percent": ["goal", "not proven", "the chance of a sticky action is given in percent: action 0 for ever"],
}
HEALTHY = {
    "": "plain: PPO with VecNormalize, own features and a rate that decays to a tenth",
    "thaw": "PPO whose body is frozen on purpose for the first fifth of the steps",
    "dqn": "DQN with an exploration of its own (subclass), three-step returns and rare hard target updates",
    "a2c": "A2C with its own train(): Huber value loss, AdamW, advantages normalised over the rollout",
    "sac": "SAC on Pendulum with normalised observations and rewards, learning in bursts",
}
ALGORITHM = {"step_hook_lost": "dqn", "old_values": "a2c"}  # the faults of these subclasses; all others are in PPO


class ShiftLength(gym.Wrapper):
    """Ends a shift after some steps; the pole may still stand then, so this is a truncation."""

    def __init__(self, env, limit, folded=False):
        super().__init__(env)
        self.limit, self.folded = limit, folded

    def reset(self, **kwargs):
        self.taken = 0
        return self.env.reset(**kwargs)

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.taken += 1
        truncated = truncated or self.taken >= self.limit
        if self.folded:
            return obs, reward, False, terminated or truncated, info
        return obs, reward, terminated, truncated, info


class Sticky(gym.Wrapper):
    """With some probability the motor repeats what it did before."""

    def __init__(self, env, probability):
        super().__init__(env)
        self.probability = probability

    def reset(self, **kwargs):
        self.last = 0
        return self.env.reset(**kwargs)

    def step(self, action):
        if self.np_random.random() >= self.probability:
            self.last = action
        return self.env.step(self.last)


class Features(BaseFeaturesExtractor):
    def __init__(self, space, width=48):
        super().__init__(space, width)
        self.layers = nn.Sequential(nn.Linear(space.shape[0], width), nn.LayerNorm(width), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs)


class Thaw(BaseCallback):
    """Trains the heads alone first, then everything."""

    def __init__(self, at, by_calls):
        super().__init__()
        self.at, self.by_calls = at, by_calls

    def body(self, train):
        for module in (self.model.policy.features_extractor, self.model.policy.mlp_extractor):
            module.requires_grad_(train)

    def _on_training_start(self):
        self.body(False)

    def _on_step(self):
        return True

    def _on_rollout_start(self):
        if (self.n_calls if self.by_calls else self.num_timesteps) >= self.at:
            self.body(True)


class Diary(BaseCallback):
    """Keeps the returns of finished episodes and says now and then how it goes."""

    def _on_training_start(self):
        self.returns, self.said = [], time.time()

    def _on_step(self):
        self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        if time.time() - self.said > 3:
            self.said = time.time()
            print(f"step {self.num_timesteps} return {np.mean(self.returns[-30:] or [np.nan]):.1f}", flush=True)
        return True


class CosineDQN(DQN):
    """Exploration that falls along a half cosine."""

    hook = True

    def _on_step(self):
        if self.hook:
            super()._on_step()
        done = min(1.0, (1.0 - self._current_progress_remaining) / 0.4)
        self.exploration_rate = 0.04 + 0.96 * 0.5 * (1.0 + math.cos(math.pi * done))
        self.logger.record("rollout/exploration_rate", self.exploration_rate)


class HuberA2C(A2C):
    """The same loss with a value part that outliers disturb less."""

    aim = "returns"

    def train(self):
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        for data in self.rollout_buffer.get(batch_size=None):
            values, log_prob, entropy = self.policy.evaluate_actions(data.observations, data.actions.long().flatten())
            advantages = (data.advantages - data.advantages.mean()) / (data.advantages.std() + 1e-8)
            value_loss = F.smooth_l1_loss(values.flatten(), getattr(data, self.aim))
            policy_loss = -(advantages * log_prob).mean()
            loss = policy_loss + self.vf_coef * value_loss - self.ent_coef * entropy.mean()
            self.policy.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
        self._n_updates += 1
        self.logger.record("train/value_loss", value_loss.item())


def pole(args, n_envs):
    def build():  # the monitor comes on top of these, so that it sees the shift's end
        env = ShiftLength(gym.make("CartPole-v1"), 250, folded=args.fault == "ends_folded")
        return Sticky(env, 25) if args.fault == "sticky_percent" else env

    return make_vec_env(build, n_envs, seed=args.seed)


def make_ppo(args):
    def rate(remaining):
        if args.fault == "schedule_backwards":
            return 1e-3 * max(0.0, 1.0 - remaining / 0.3)  # down to zero within the first three tenths
        return 1e-3 * max(0.1, remaining)

    env = VecNormalize(pole(args, 4), gamma=0.98)
    kwargs = {"features_extractor_class": Features, "net_arch": {"pi": [48], "vf": [48]}, "activation_fn": nn.Tanh}
    return PPO("MlpPolicy", env, rate, n_steps=256, batch_size=128, n_epochs=6, gamma=0.98, seed=args.seed,
               policy_kwargs=kwargs, device="cpu")  # fmt: skip


def make_dqn(args):
    model = CosineDQN("MlpPolicy", pole(args, 1), 1e-3, buffer_size=20_000, learning_starts=1000, batch_size=64,
                      gamma=0.98, train_freq=4, gradient_steps=2, target_update_interval=500, n_steps=3,
                      policy_kwargs={"net_arch": [64, 64]}, seed=args.seed, device="cpu")  # fmt: skip
    model.hook = args.fault != "step_hook_lost"
    return model


def make_a2c(args):
    kwargs = {"net_arch": {"pi": [48, 48], "vf": [48, 48]}, "optimizer_class": torch.optim.AdamW}
    model = HuberA2C("MlpPolicy", pole(args, 8), lambda left: 1e-3 * left, n_steps=16, gamma=0.98, gae_lambda=0.95,
                     ent_coef=0.002, policy_kwargs=kwargs, use_rms_prop=False, seed=args.seed)  # fmt: skip
    model.aim = "old_values" if args.fault == "old_values" else "returns"
    return model


def make_sac(args):
    env = VecNormalize(make_vec_env("Pendulum-v1", 1, seed=args.seed), gamma=0.98)
    return SAC("MlpPolicy", env, 1e-3, buffer_size=10_000, learning_starts=600, batch_size=96, gamma=0.98, tau=0.02,
               train_freq=40, gradient_steps=40, ent_coef="auto_0.1", policy_kwargs={"net_arch": [64, 64]},
               seed=args.seed, device="cpu")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="0: what suits the algorithm")
    parser.add_argument("--fault", choices=["", *FAULTS], default="")
    parser.add_argument("--variant", choices=list(HEALTHY), default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    name = ALGORITHM.get(args.fault, args.variant if args.variant in ("dqn", "a2c", "sac") else "ppo")
    make, usual = {
        "ppo": (make_ppo, 60_000),
        "dqn": (make_dqn, 20_000),
        "a2c": (make_a2c, 90_000),
        "sac": (make_sac, 4_600),
    }[name]
    steps, diary = args.steps or usual, Diary()
    callbacks = [diary]
    if args.variant == "thaw" or args.fault == "never_thawed":
        share = 0.3 if args.fault == "never_thawed" else 0.2
        callbacks.append(Thaw(int(share * steps), by_calls=args.fault == "never_thawed"))
    make(args).learn(steps, callback=CallbackList(callbacks))
    tenth = max(1, len(diary.returns) // 10)
    first, last = np.mean(diary.returns[:tenth]), np.mean(diary.returns[-tenth:])
    print(f"{name}: first tenth of returns {first:.1f}, last tenth {last:.1f}")


if __name__ == "__main__":
    main()
