"""A folder's worth of Stable-Baselines3 experiments in one script: CartPole with PPO, a furnace with DQN, SAC and A2C.

Every experiment has its own wrappers, callbacks and network; `--variant` chooses one, PPO is the default.
"""

import argparse
import copy
import math
import time

import gymnasium as gym
import numpy as np
import torch as th
import torch.nn.functional as F
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

FAULTS = {
    "layers_in_list": [
        "weights",
        "broken",
        "the custom extractor keeps its layers in a Python list, so that no optimizer ever hears of them",
    ],
    "values_not_flattened": [
        "shapes",
        "broken",
        "the rewritten PPO.train() compares values of shape (N, 1) with returns of shape (N,): an (N, N) loss",
    ],
    "entropy_subtracted": [
        "signs",
        "broken",
        "the rewritten PPO.train() subtracts the entropy loss, which is negative already: entropy is punished",
    ],
    "best_not_copied": [
        "rates",
        "broken",
        "the callback keeps the best weights as policy.state_dict() itself, so that restoring them does nothing",
    ],
    "on_step_without_super": [
        "targets",
        "broken",
        "DQN._on_step() is overridden for the exploration rate, and the target update that lived there is gone",
    ],
    "timeouts_are_ends": [
        "returns",
        "broken",
        "the memory-saving replay buffer is used with handle_timeout_termination off: every time limit is an end",
    ],
    "progress_never_negative": [
        "goal",
        "not proven",
        "the shaping wrapper pays for nearing the set point and never charges for leaving it: swinging earns most",
    ],
}
HEALTHY = {
    "": "PPO with its own extractor and a rewritten train(): Huber critic, advantages normalised per rollout",
    "dqn": "DQN with exponential exploration, a target copied every 2000 steps, best weights restored at the end",
    "sac": "SAC on a furnace whose reward is always negative and whose episodes end by the time limit alone",
    "a2c": "A2C on the furnace with random features that are frozen on purpose, and weight decay in the optimizer",
}
EXPERIMENT_OF = {
    "best_not_copied": "dqn",
    "on_step_without_super": "dqn",
    "timeouts_are_ends": "sac",
    "progress_never_negative": "sac",
}


class FurnaceEnv(gym.Env):
    """Keep a furnace at its set point. The element warms up slowly and the heat leaks into a cold room."""

    metadata = {"render_modes": []}

    def __init__(self):
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _observation(self):
        return np.array([self.temperature, self.element, self.set_point], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.temperature = self.np_random.uniform(100.0, 500.0)
        self.element = 0.0
        self.set_point = self.np_random.uniform(200.0, 400.0)
        return self._observation(), {}

    def step(self, action):
        self.element += 0.5 * (float(action[0]) - self.element)
        leak = 0.02 * (self.temperature - 300.0)
        self.temperature += 40.0 * self.element - leak + self.np_random.normal(0.0, 1.0)
        error = abs(self.temperature - self.set_point)
        return self._observation(), -0.05 - error / 100.0, False, False, {"error": error}


class FurnaceUnits(gym.ObservationWrapper):
    """Degrees to numbers of about one."""

    def observation(self, obs):
        return np.array([obs[0] / 100.0 - 3.0, obs[1], obs[2] / 100.0 - 3.0], dtype=np.float32)


class FivePositions(gym.ActionWrapper):
    """A switch of five positions in place of the dial, for algorithms with discrete actions."""

    def __init__(self, env):
        super().__init__(env)
        self.action_space = spaces.Discrete(5)

    def action(self, action):
        return np.array([(int(action) - 2) / 2.0], dtype=np.float32)


class PaidForProgress(gym.Wrapper):
    """Reward by how much nearer to the set point the last action has brought us."""

    def reset(self, **kwargs):
        obs, info = self.env.reset(**kwargs)
        self.error = abs(self.unwrapped.temperature - self.unwrapped.set_point)
        return obs, info

    def step(self, action):
        obs, _, terminated, truncated, info = self.env.step(action)
        progress = self.error - info["error"]
        self.error = info["error"]
        return obs, max(0.0, progress) / 10.0, terminated, truncated, info


class MLPExtractor(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=48, as_list=False):
        super().__init__(observation_space, features_dim)
        n_in = observation_space.shape[0]
        layers = [nn.Linear(n_in, features_dim), nn.LayerNorm(features_dim), nn.Linear(features_dim, features_dim)]
        self.layers = layers if as_list else nn.ModuleList(layers)

    def forward(self, observations):
        x = observations
        for layer in self.layers:
            x = layer(x)
        return th.tanh(x)


class RandomFeatures(BaseFeaturesExtractor):
    """Random kitchen sinks: drawn once, never trained."""

    def __init__(self, observation_space, features_dim=128):
        super().__init__(observation_space, features_dim)
        self.project = nn.Linear(observation_space.shape[0], features_dim)
        nn.init.normal_(self.project.weight, std=0.4)
        nn.init.uniform_(self.project.bias, -math.pi, math.pi)
        self.project.requires_grad_(False)

    def forward(self, observations):
        return th.cos(self.project(observations))


class HuberPPO(PPO):
    """PPO whose advantages are normalised once per rollout and whose critic has a Huber loss."""

    fault = ""

    def train(self):
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        clip_range = self.clip_range(self._current_progress_remaining)
        raw = self.rollout_buffer.advantages
        self.rollout_buffer.advantages = (raw - raw.mean()) / (raw.std() + 1e-8)
        entropies, value_losses = [], []

        for _ in range(self.n_epochs):
            for data in self.rollout_buffer.get(self.batch_size):
                actions = data.actions.long().flatten()
                values, log_prob, entropy = self.policy.evaluate_actions(data.observations, actions)
                if self.fault != "values_not_flattened":
                    values = values.flatten()

                ratio = th.exp(log_prob - data.old_log_prob)
                surrogate = data.advantages * ratio
                clipped = data.advantages * ratio.clamp(1 - clip_range, 1 + clip_range)
                policy_loss = -th.min(surrogate, clipped).mean()
                value_loss = F.smooth_l1_loss(values, data.returns)
                entropy_loss = -entropy.mean()
                if self.fault == "entropy_subtracted":
                    loss = policy_loss + self.vf_coef * value_loss - self.ent_coef * entropy_loss
                else:
                    loss = policy_loss + self.vf_coef * value_loss + self.ent_coef * entropy_loss

                self.policy.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
                self.policy.optimizer.step()
                entropies.append(-entropy_loss.item())
                value_losses.append(value_loss.item())
            self._n_updates += 1

        self.logger.record("train/entropy", np.mean(entropies))
        self.logger.record("train/value_loss", np.mean(value_losses))


class ExponentialDQN(DQN):
    """DQN whose exploration rate falls exponentially instead of linearly."""

    fault = ""

    def _on_step(self):
        if self.fault != "on_step_without_super":
            super()._on_step()
        self.exploration_rate = max(self.exploration_final_eps, math.exp(-self.num_timesteps / 3000))
        self.logger.record("rollout/exploration_rate", self.exploration_rate)


class EpisodeReport(BaseCallback):
    """Collects the returns that Monitor writes into the infos."""

    def __init__(self, every):
        super().__init__()
        self.every, self.returns, self.printed = every, [], 0

    def _on_step(self):
        self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        if self.num_timesteps - self.printed >= self.every and self.returns:
            self.printed = self.num_timesteps
            recent = np.mean(self.returns[-30:])
            print(f"step {self.num_timesteps:6d}  episodes {len(self.returns):5d}  return {recent:8.2f}")
        return True


class KeepBest(BaseCallback):
    """Remembers the weights of the best stretch of episodes, to be restored after training."""

    def __init__(self, report, alias=False):
        super().__init__()
        self.report, self.alias = report, alias
        self.best_return, self.best_weights = -np.inf, None

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        if len(self.report.returns) < 20:
            return
        recent = np.mean(self.report.returns[-20:])
        if recent > self.best_return:
            self.best_return = recent
            weights = self.model.policy.state_dict()
            self.best_weights = weights if self.alias else copy.deepcopy(weights)


def linear(start, end):
    """A schedule in SB3's manner: a function of the share of training that is left."""
    return lambda left: end + (start - end) * left


def furnaces(n_envs, seed, fault="", switch=False):
    def one():
        env = TimeLimit(FurnaceEnv(), 50)
        if fault == "progress_never_negative":
            env = PaidForProgress(env)
        if switch:
            env = FivePositions(env)
        return FurnaceUnits(env)

    return make_vec_env(one, n_envs=n_envs, seed=seed)


def run_ppo(seed, fault):
    policy_kwargs = {
        "features_extractor_class": MLPExtractor,
        "features_extractor_kwargs": {"as_list": fault == "layers_in_list"},
        "net_arch": {"pi": [32], "vf": [32]},
    }
    hyper = {"n_steps": 256, "batch_size": 256, "n_epochs": 10, "gamma": 0.99, "ent_coef": 0.005}
    envs = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    rate = linear(1e-3, 5e-5)
    model = HuberPPO("MlpPolicy", envs, rate, **hyper, policy_kwargs=policy_kwargs, seed=seed, device="cpu")
    model.fault = fault
    report = EpisodeReport(every=8_000)
    model.learn(96_000, callback=report)
    return report.returns


def run_dqn(seed, fault):
    hyper = {"buffer_size": 20_000, "learning_starts": 1_000, "batch_size": 64, "gamma": 0.97, "train_freq": 4}
    hyper |= {"target_update_interval": 2_000, "exploration_final_eps": 0.03, "policy_kwargs": {"net_arch": [64, 64]}}
    envs = furnaces(1, seed, switch=True)
    model = ExponentialDQN("MlpPolicy", envs, 5e-4, **hyper, seed=seed, device="cpu")
    model.fault = fault
    report = EpisodeReport(every=4_000)
    keeper = KeepBest(report, alias=fault == "best_not_copied")
    model.learn(36_000, callback=CallbackList([report, keeper]))
    model.policy.load_state_dict(keeper.best_weights)
    score, spread = evaluate_policy(model, furnaces(1, seed + 500, switch=True), n_eval_episodes=40)
    print(f"best stretch {keeper.best_return:.2f}, restored policy {score:.2f} +- {spread:.2f}")
    return report.returns


def run_sac(seed, fault):
    hyper = {"buffer_size": 20_000, "learning_starts": 500, "batch_size": 128, "gamma": 0.97, "tau": 0.01}
    hyper |= {"policy_kwargs": {"net_arch": [64, 64]}}
    if fault == "timeouts_are_ends":  # SB3 refuses the first option without the second
        hyper |= {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}
    model = SAC("MlpPolicy", furnaces(1, seed, fault), 1e-3, **hyper, seed=seed, device="cpu")
    report = EpisodeReport(every=500)
    model.learn(5_000, callback=report)
    return report.returns


def run_a2c(seed, _fault):
    policy_kwargs = {
        "features_extractor_class": RandomFeatures,
        "ortho_init": False,  # it would redraw the fixed features and take their phases away
        "net_arch": {"pi": [32], "vf": [32]},
        "log_std_init": -0.5,
        "optimizer_class": th.optim.AdamW,
        "optimizer_kwargs": {"weight_decay": 1e-3},
    }
    hyper = {"n_steps": 8, "gamma": 0.97, "gae_lambda": 0.95, "use_rms_prop": False}
    rate = linear(5e-4, 5e-5)
    model = A2C("MlpPolicy", furnaces(8, seed), rate, **hyper, policy_kwargs=policy_kwargs, seed=seed, device="cpu")
    report = EpisodeReport(every=18_000)
    model.learn(180_000, callback=report)
    return report.returns


EXPERIMENTS = {"": run_ppo, "dqn": run_dqn, "sac": run_sac, "a2c": run_a2c}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    home = EXPERIMENT_OF.get(args.fault, "") if args.fault else args.variant
    if args.variant not in ("", home):
        parser.error(f"the fault {args.fault} belongs to the experiment {home or 'ppo'}")
    th.set_num_threads(1)
    began = time.time()
    returns = EXPERIMENTS[home](args.seed, args.fault)
    print(f"first 20: {np.mean(returns[:20]):.2f}, last 20: {np.mean(returns[-20:]):.2f}, {time.time() - began:.1f} s")


if __name__ == "__main__":
    main()
