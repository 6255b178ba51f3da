"""A2C from Stable-Baselines3 steering a boat through gates on a river.

Everything of ours around the library: environment, wrapper, features extractor, rollout buffer, callbacks, loss.
"""

import argparse
import time

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import A2C
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn
from torch.nn import functional as F

FAULTS = {
    "plain_list": [
        "weights",
        "broken",
        "the branches of the features extractor are kept in a plain list: the optimizer never hears of them",
    ],
    "late_mask": [
        "returns",
        "broken",
        "our GAE masks by the episode start of the same step, not of the next one",
    ],
    "actions_column": [
        "shapes",
        "broken",
        "the stored actions are not flattened: each log-probability is taken for all actions of the batch",
    ],
    "entropy_paid": ["signs", "broken", "the minus of the entropy term is lost: certainty is rewarded"],
    "decay_per_step": [
        "rates",
        "broken",
        "the callback decays the rate at each environment step, not at each rollout: it is dead soon after the start",
    ],
    "middle_of_river": [
        "goal",
        "not proven",
        "the shaping wrapper pays for being in the middle of the river and forgets the gates",
    ],
}
HEALTHY = {
    "": "plain: own extractor with two branches, Huber value loss, rate decayed by a callback after each rollout",
    "vecnormalize": "observations and rewards go through VecNormalize",
    "random_features": "the extractor is wide, random and frozen on purpose; the heads above it learn",
    "two_rollouts": "gradients of two rollouts are accumulated before a step is made",
}


class RiverEnv(gym.Env):
    """Drifting downstream at a steady pace; the rudder pushes sideways, gusts push too. A gate every 12 steps."""

    GATE_EVERY = 12

    def __init__(self):
        self.observation_space = spaces.Box(-3.0, 3.0, shape=(6,), dtype=np.float32)
        self.action_space = spaces.Discrete(3)

    def _get_obs(self):
        return np.array(
            [self.y, 3 * self.vy, 10 * self.gust, self.ahead / self.GATE_EVERY, self.gates[0], self.gates[1]],
            dtype=np.float32,
        )

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.y, self.vy, self.gust = self.np_random.uniform(-0.3, 0.3), 0.0, 0.0
        self.gates = list(self.np_random.uniform(-0.7, 0.7, size=2))
        self.ahead = self.GATE_EVERY
        return self._get_obs(), {}

    def step(self, action):
        self.gust = 0.9 * self.gust + 0.01 * self.np_random.standard_normal()
        self.vy = 0.85 * self.vy + 0.04 * (int(action) - 1) + 0.3 * self.gust
        self.y += self.vy
        self.ahead -= 1
        reward, passed = 0.0, False
        if self.ahead == 0:
            passed = abs(self.y - self.gates[0]) < 0.2
            reward = 1.0 if passed else -0.5
            self.gates = [self.gates[1], self.np_random.uniform(-0.7, 0.7)]
            self.ahead = self.GATE_EVERY
        aground = abs(self.y) > 1.0
        if aground:
            reward = -1.0
        return self._get_obs(), reward, bool(aground), False, {"passed": passed}


class Shaping(gym.Wrapper):
    def __init__(self, env, middle_only=False):
        super().__init__(env)
        self.middle_only = middle_only

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self.middle_only:
            reward = 0.1 * (1.0 - abs(float(obs[0]))) - (1.0 if terminated else 0.0)
        else:
            reward = reward - 0.05 * abs(float(obs[0] - obs[4])) + 0.02
        return obs, reward, terminated, truncated, info


class TwoBranchExtractor(BaseFeaturesExtractor):
    """One branch for the boat, one for the gates"""

    def __init__(self, observation_space, width=32, registered=True):
        super().__init__(observation_space, features_dim=2 * width)
        branches = [nn.Sequential(nn.Linear(3, width), nn.Tanh()), nn.Sequential(nn.Linear(6, width), nn.Tanh())]
        self.branches = nn.ModuleList(branches) if registered else branches

    def forward(self, obs):
        boat, gates = self.branches
        return th.cat([boat(obs[:, :3]), gates(obs)], dim=1)


class GaeBuffer(RolloutBuffer):
    shifted = False

    def compute_returns_and_advantage(self, last_values, dones):
        next_values = last_values.clone().cpu().numpy().flatten()
        next_starts = dones.astype(np.float32)
        gae = np.zeros(self.n_envs, dtype=np.float32)
        for step in reversed(range(self.buffer_size)):
            alive = 1.0 - (self.episode_starts[step] if self.shifted else next_starts)
            delta = self.rewards[step] + self.gamma * alive * next_values - self.values[step]
            gae = delta + self.gamma * self.gae_lambda * alive * gae
            self.advantages[step] = gae
            next_values, next_starts = self.values[step], self.episode_starts[step]
        self.returns = self.advantages + self.values


class ShiftedGaeBuffer(GaeBuffer):
    shifted = True


class HuberA2C(A2C):
    """A2C with a Huber loss for the values"""

    fault = ""
    accumulate = 1

    def train(self):
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        for data in self.rollout_buffer.get(batch_size=None):
            actions = data.actions.long()
            if self.fault != "actions_column":
                actions = actions.flatten()
            values, log_prob, entropy = self.policy.evaluate_actions(data.observations, actions)
            advantages = (data.advantages - data.advantages.mean()) / (data.advantages.std() + 1e-8)
            policy_loss = -(advantages * log_prob).mean()
            value_loss = F.smooth_l1_loss(values.flatten(), data.returns)
            entropy_loss = entropy.mean() if self.fault == "entropy_paid" else -entropy.mean()
            loss = policy_loss + self.ent_coef * entropy_loss + self.vf_coef * value_loss

            if self._n_updates % self.accumulate == 0:
                self.policy.optimizer.zero_grad()
            (loss / self.accumulate).backward()
            if (self._n_updates + 1) % self.accumulate == 0:
                th.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
                self.policy.optimizer.step()
        self._n_updates += 1
        self.logger.record("train/policy_loss", policy_loss.item())
        self.logger.record("train/value_loss", value_loss.item())
        self.logger.record("train/entropy", entropy.mean().item())


class Decay:
    """A learning rate that a callback can lower"""

    def __init__(self, start, factor):
        self.rate, self.factor = start, factor

    def lower(self):
        self.rate *= self.factor

    def __call__(self, progress_remaining):
        return self.rate


class DecayCallback(BaseCallback):
    def __init__(self, decay, every_step=False):
        super().__init__()
        self.decay, self.every_step = decay, every_step

    def _on_step(self):
        if self.every_step:
            self.decay.lower()
        return True

    def _on_rollout_end(self):
        if not self.every_step:
            self.decay.lower()


class EpisodeLog(BaseCallback):
    def __init__(self):
        super().__init__()
        self.returns, self.gates = [], 0

    def _on_step(self):
        for info in self.locals["infos"]:
            self.gates += info["passed"]
            if "episode" in info:
                self.returns.append(info["episode"]["r"])
        if self.n_calls % 2500 == 0:
            print(f"{self.num_timesteps:7d} steps  return {np.mean(self.returns[-40:]):.2f}  gates so far {self.gates}")
        return True


def make_env(seed, fault):
    def build():
        env = gym.wrappers.TimeLimit(Shaping(RiverEnv(), middle_only=fault == "middle_of_river"), 120)
        env.reset(seed=seed)
        return Monitor(env)

    return build


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=130_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    th.set_num_threads(1)
    started = time.time()

    venv = DummyVecEnv([make_env(1000 * args.seed + i, args.fault) for i in range(8)])
    if args.variant == "vecnormalize":
        venv = VecNormalize(venv, gamma=0.97)

    rate = Decay(1.5e-3, 0.998)
    model = HuberA2C(
        "MlpPolicy",
        venv,
        learning_rate=rate,
        n_steps=16,
        gamma=0.97,
        gae_lambda=0.95,
        ent_coef=0.01,
        vf_coef=0.5,
        use_rms_prop=False,
        rollout_buffer_class=ShiftedGaeBuffer if args.fault == "late_mask" else GaeBuffer,
        policy_kwargs={
            "features_extractor_class": TwoBranchExtractor,
            "features_extractor_kwargs": {
                "width": 96 if args.variant == "random_features" else 32,
                "registered": args.fault != "plain_list",
            },
            "net_arch": {"pi": [32], "vf": [64]},
        },
        seed=args.seed,
        device="cpu",
    )
    model.fault = args.fault
    if args.variant == "two_rollouts":
        model.accumulate = 2
    if args.variant == "random_features":
        model.policy.features_extractor.requires_grad_(False)

    log = EpisodeLog()
    model.learn(args.steps, callback=CallbackList([log, DecayCallback(rate, args.fault == "decay_per_step")]))

    tenth = max(1, len(log.returns) // 10)
    print(
        f"first tenth {np.mean(log.returns[:tenth]):.2f} last tenth {np.mean(log.returns[-tenth:]):.2f} "
        f"episodes {len(log.returns)} seconds {time.time() - started:.1f}"
    )


if __name__ == "__main__":
    main()
