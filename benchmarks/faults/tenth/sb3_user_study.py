"""Can a small agent hold a cart in its lane under gusts of side wind? PPO (default) or DQN from Stable-Baselines3.

Own environment, an observation wrapper, a features extractor, callbacks, and two small subclasses of the algorithms.
"""
# ruff: noqa: E402

FAULTS = {
    "thaw_missed": ["weights", "broken", "the extractor is to be unfrozen at a step count that is never hit exactly"],
    "orphan_head": [
        "weights",
        "broken",
        "the action head is replaced after the optimizer was built, so it never trains",
    ],
    "horizon_per_env": [
        "rates",
        "broken",
        "the decay counts the steps of one environment: learning rate zero after 1/8",
    ],
    "no_sync": ["targets", "broken", "the DQN subclass overrides _on_step without the target update"],
    "limit_as_end": [
        "returns",
        "broken",
        "the replay buffer is told not to handle time limits, so they count as terminal",
    ],
    "clip_max": ["signs", "broken", "the clipped surrogate takes the larger of the two terms"],
    "pixel_scale": ["goal", "not proven", "the observation wrapper divides by 255 as if the state were an image"],
}
HEALTHY = {
    "": "plain: stock PPO with a custom extractor and a linear decay",
    "dqn": "DQN subclass with its own exploration curve in _on_step",
    "lean": "PPO subclass with its own shorter train()",
    "thaw": "the features extractor is frozen at first and released after 3500 steps",
}

import argparse

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.utils import polyak_update

N_ENVS = 8
LIMIT = 100
USES_DQN = {"no_sync", "limit_as_end"}


class WindyLane(gym.Env):
    """Offset, drift and wind; steer left, not at all, or right. Off the lane is the end."""

    def __init__(self):
        self.observation_space = spaces.Box(-5.0, 5.0, (3,), np.float32)
        self.action_space = spaces.Discrete(3)

    def _obs(self):
        return np.array([self.offset, self.drift, self.wind], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.offset = self.np_random.uniform(-0.4, 0.4)
        self.drift = self.np_random.uniform(-0.03, 0.03)
        self.wind = self.np_random.normal(0.0, 0.5)
        return self._obs(), {}

    def step(self, action):
        self.wind = 0.95 * self.wind + 0.15 * self.np_random.normal()
        self.drift = 0.97 * self.drift + 0.02 * (int(action) - 1) + 0.012 * self.wind
        self.offset += self.drift
        off = abs(self.offset) > 1.0
        return self._obs(), 0.0 if off else 1.0 - abs(self.offset), off, False, {}


class ScaleState(gym.ObservationWrapper):
    """Bring offset, drift and wind to about the same size."""

    def __init__(self, env, divisor):
        super().__init__(env)
        self.divisor = np.asarray(divisor, dtype=np.float32)
        self.observation_space = spaces.Box(-50.0, 50.0, (3,), np.float32)

    def observation(self, observation):
        return observation / self.divisor


class LaneFeatures(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=32):
        super().__init__(observation_space, features_dim)
        self.layers = th.nn.Sequential(th.nn.Linear(observation_space.shape[0], features_dim), th.nn.Tanh())

    def forward(self, observations):
        return self.layers(observations)


class LanePPO(PPO):
    """PPO with a train() that I can read: no value clipping, no KL stop, no logging."""

    pick = staticmethod(th.min)

    def train(self):
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        eps = self.clip_range(self._current_progress_remaining)
        for _ in range(self.n_epochs):
            for data in self.rollout_buffer.get(self.batch_size):
                v, logp, ent = self.policy.evaluate_actions(data.observations, data.actions.long().flatten())
                adv = (data.advantages - data.advantages.mean()) / (data.advantages.std() + 1e-8)
                ratio = (logp - data.old_log_prob).exp()
                gain = self.pick(ratio * adv, ratio.clamp(1 - eps, 1 + eps) * adv).mean()
                error = (data.returns - v.flatten()).square().mean()
                self.policy.optimizer.zero_grad()
                (-gain + self.vf_coef * error - self.ent_coef * ent.mean()).backward()
                th.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
                self.policy.optimizer.step()
        self._n_updates += self.n_epochs


class OptimisticPPO(LanePPO):
    pick = staticmethod(th.max)


class CurvedDQN(DQN):
    """Exploration that falls as a curve rather than a line."""

    def _on_step(self):
        self._n_calls += 1
        done = 1.0 - self._current_progress_remaining
        self.exploration_rate = max(0.05, (1.0 - done) ** 6)
        self.sync()

    def sync(self):
        if self._n_calls % self.target_update_interval == 0:
            polyak_update(self.q_net.parameters(), self.q_net_target.parameters(), self.tau)


class UnsyncedDQN(CurvedDQN):
    def sync(self):
        pass


class Progress(BaseCallback):
    def __init__(self, every):
        super().__init__()
        self.every, self.next = every, every

    def _on_step(self):
        if self.num_timesteps >= self.next and self.model.ep_info_buffer:
            self.next += self.every
            mean = np.mean([info["r"] for info in self.model.ep_info_buffer])
            rate = self.model.policy.optimizer.param_groups[0]["lr"]
            print(f"steps {self.num_timesteps:6d}  return {mean:6.2f}  lr {rate:.2e}", flush=True)
        return True


class Thaw(BaseCallback):
    """Let the heads settle before the extractor moves."""

    def __init__(self, at, exact):
        super().__init__()
        self.at, self.exact = at, exact

    def _on_training_start(self):
        self.model.policy.features_extractor.requires_grad_(False)

    def _on_rollout_start(self):
        due = self.num_timesteps == self.at if self.exact else self.num_timesteps >= self.at
        if due:
            self.model.policy.features_extractor.requires_grad_(True)

    def _on_step(self):
        return True


class TimidStart(BaseCallback):
    """Begin with nearly even action probabilities."""

    def __init__(self, replace):
        super().__init__()
        self.replace = replace

    def _on_training_start(self):
        policy = self.model.policy
        if self.replace:
            policy.action_net = th.nn.Linear(policy.action_net.in_features, policy.action_net.out_features)
        th.nn.init.orthogonal_(policy.action_net.weight, gain=0.1)
        th.nn.init.zeros_(policy.action_net.bias)

    def _on_step(self):
        return True


def linear_decay(start, total, horizon):
    def rate(progress_remaining):
        taken = (1.0 - progress_remaining) * total
        return start * max(0.0, 1.0 - taken / horizon)

    return rate


def make_lane(divisor):
    return gym.wrappers.TimeLimit(ScaleState(WindyLane(), divisor), LIMIT)


def build_ppo(args, envs):
    kind = {"clip_max": OptimisticPPO}.get(args.fault, LanePPO if args.variant == "lean" else PPO)
    total = args.steps or 60_000
    horizon = total // N_ENVS if args.fault == "horizon_per_env" else total
    model = kind(
        "MlpPolicy",
        envs,
        n_steps=128,
        batch_size=128,
        n_epochs=6,
        gamma=0.98,
        ent_coef=0.003,
        learning_rate=linear_decay(1e-3, total, horizon),
        policy_kwargs={"features_extractor_class": LaneFeatures, "net_arch": [32]},
        seed=args.seed,
        device="cpu",
    )
    extras = [TimidStart(replace=args.fault == "orphan_head")]
    if args.variant == "thaw" or args.fault == "thaw_missed":
        extras.append(Thaw(3500, exact=args.fault == "thaw_missed"))
    return model, extras, total


def build_dqn(args, envs):
    kind = UnsyncedDQN if args.fault == "no_sync" else CurvedDQN
    model = kind(
        "MlpPolicy",
        envs,
        learning_rate=1e-3,
        buffer_size=20_000,
        learning_starts=500,
        batch_size=64,
        train_freq=2,
        target_update_interval=200,
        gamma=0.98,
        policy_kwargs={"features_extractor_class": LaneFeatures, "net_arch": [64]},
        replay_buffer_kwargs={"handle_timeout_termination": args.fault != "limit_as_end"},
        seed=args.seed,
        device="cpu",
    )
    return model, [], args.steps or 13_000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    parser.add_argument("--steps", type=int, default=0, help="0: what suits the algorithm")
    args = parser.parse_args()
    th.set_num_threads(1)

    dqn = args.variant == "dqn" or args.fault in USES_DQN
    divisor = 255.0 if args.fault == "pixel_scale" else [0.5, 0.1, 0.5]
    envs = make_vec_env(lambda: make_lane(divisor), n_envs=1 if dqn else N_ENVS, seed=args.seed)
    model, extras, total = (build_dqn if dqn else build_ppo)(args, envs)
    model.set_logger(Logger(folder=None, output_formats=[]))
    model.learn(total, callback=CallbackList([Progress(total // 10), *extras]))
    last = [info["r"] for info in list(model.ep_info_buffer)[-20:]]
    print(f"{type(model).__name__}: mean return of the last {len(last)} episodes {np.mean(last):.2f}")


if __name__ == "__main__":
    main()
