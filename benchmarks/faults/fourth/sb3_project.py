"""A trolley on a track is driven to a mark and kept there: SB3 with own wrappers, extractor and callback."""

import argparse
import copy
import time

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn
from torch.nn import functional as F

FAULTS = {
    "new_optimizer": ["weights", "broken", "a callback's new optimizer leaves the features extractor out"],
    "own_exploration": ["targets", "broken", "an overridden DQN._on_step() forgets the target network's update"],
    "timeout_is_end": ["returns", "broken", "DQN's replay memory stores time limits as terminal states"],
    "entropy_sign": ["signs", "broken", "own train() of A2C adds the entropy to the loss: it is pushed down"],
    "best_alias": ["rates", "broken", "the best weights are kept without a copy: restoring them does nothing"],
    "deadband": ["goal", "not proven", "the motor's dead band is in N, commands are in kN: none has an effect"],
}
HEALTHY = {
    "": "PPO",
    "dqn": "DQN with a target network that is copied every 500 steps",
    "a2c": "A2C with an own train() (Huber value loss)",
    "sac": "SAC on fixed random features, frozen on purpose",
}
ALGORITHM = {"own_exploration": "dqn", "timeout_is_end": "dqn", "entropy_sign": "a2c"}
STEPS = {"": 45_000, "dqn": 10_000, "a2c": 45_000, "sac": 3_500}


class Trolley(gym.Env):
    """Position 0..100 m, speed in m/s, mark 20..80 m; reward is minus the distance, and leaving the track costs 20."""

    def __init__(self, continuous=False, deadband=0.05):
        self.observation_space = gym.spaces.Box(-200.0, 200.0, (3,), np.float32)
        self.continuous, self.deadband = continuous, deadband
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else gym.spaces.Discrete(3)

    def _obs(self):
        return np.array([self.position, self.speed, self.mark], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.mark = self.np_random.uniform(20, 80, size=2)
        self.speed = self.np_random.uniform(-2, 2)
        return self._obs(), {}

    def step(self, action):
        force = float(action[0]) if self.continuous else float(action) - 1.0  # kN
        if abs(force) < self.deadband:
            force = 0.0
        self.speed = float(np.clip(0.9 * self.speed + 1.5 * force + self.np_random.normal(0, 0.05), -10, 10))
        self.position += self.speed
        off = not 0.0 <= self.position <= 100.0
        reward = -abs(self.position - self.mark) / 50.0 - (20.0 if off else 0.0)
        return self._obs(), reward, off, False, {}


class ScaledObservation(gym.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-5.0, 5.0, (3,), np.float32)

    def observation(self, obs):
        position, speed, mark = obs
        return np.clip(np.array([position / 50 - 1, speed / 5, (mark - position) / 30], np.float32), -5, 5)


class TrackFeatures(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=32, frozen=False):
        super().__init__(observation_space, features_dim)
        self.net = nn.Sequential(nn.Linear(observation_space.shape[0], features_dim), nn.Tanh())
        if frozen:
            for parameter in self.parameters():
                parameter.requires_grad_(False)

    def forward(self, observations):
        return self.net(observations)


class HuberA2C(A2C):
    def train(self):
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        for data in self.rollout_buffer.get(batch_size=None):
            values, log_prob, entropy = self.policy.evaluate_actions(data.observations, data.actions.long().flatten())
            advantages = (data.advantages - data.advantages.mean()) / (data.advantages.std() + 1e-8)
            policy_loss = -(advantages * log_prob).mean()
            value_loss = F.smooth_l1_loss(values.flatten(), data.returns)
            entropy_loss = entropy.mean() if self.entropy_as_loss else -entropy.mean()
            loss = policy_loss + self.ent_coef * entropy_loss + self.vf_coef * value_loss
            self.policy.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
        self._n_updates += 1


class CosineDQN(DQN):
    """Exploration falls along a cosine instead of a line."""

    keep_parent_step = True

    def _on_step(self):
        if self.keep_parent_step:
            super()._on_step()
        done = min(1.0, 2.5 * (1.0 - self._current_progress_remaining))
        self.exploration_rate = 0.05 + 0.95 * 0.5 * (1.0 + float(np.cos(np.pi * done)))


class ProjectCallback(BaseCallback):
    """Progress lines, and the best policy, which is restored at the end."""

    def __init__(self, fault, on_policy):
        super().__init__()
        self.fault, self.on_policy = fault, on_policy
        self.returns, self.best, self.best_mean, self.shown = [], None, -np.inf, time.time()

    def _on_training_start(self):
        if self.on_policy:  # decoupled weight decay
            policy = self.model.policy
            parts = [policy]
            if self.fault == "new_optimizer":
                parts = [policy.mlp_extractor, policy.action_net, policy.value_net]
            parameters = [p for part in parts for p in part.parameters()]
            policy.optimizer = th.optim.AdamW(parameters, lr=self.model.lr_schedule(1.0), weight_decay=1e-4, eps=1e-5)

    def _on_rollout_start(self):
        mean, weights = np.mean(self.returns[-40:] or [-np.inf]), self.model.policy.state_dict()
        if self.on_policy and len(self.returns) >= 40 and mean > self.best_mean:
            self.best_mean, self.best = mean, weights if self.fault == "best_alias" else copy.deepcopy(weights)

    def _on_step(self):
        self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        if time.time() - self.shown > 2.0 and self.returns:
            self.shown = time.time()
            print(f"step {self.num_timesteps} return {np.mean(self.returns[-40:]):.2f}", flush=True)
        return True

    def _on_training_end(self):
        if self.best is not None:
            self.model.policy.load_state_dict(self.best)


def schedule(start, end):
    return lambda remaining: end + (start - end) * remaining


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="environment steps; 0: as many as the algorithm needs")
    parser.add_argument("--fault", choices=["", *FAULTS], default="")
    parser.add_argument("--variant", choices=list(HEALTHY), default="")
    args = parser.parse_args()
    algorithm = ALGORITHM.get(args.fault, args.variant)

    def make():
        env = Trolley(algorithm == "sac", deadband=50.0 if args.fault == "deadband" else 0.05)
        return Monitor(ScaledObservation(TimeLimit(env, 80)))

    extractor = {"features_dim": 64, "frozen": True} if algorithm == "sac" else {"features_dim": 32}
    custom = {"features_extractor_class": TrackFeatures, "features_extractor_kwargs": extractor, "net_arch": [64, 64]}
    common = {"policy_kwargs": custom, "gamma": 0.97, "seed": args.seed, "device": "cpu"}
    env = make_vec_env(make, n_envs=8 if algorithm in ("", "a2c") else 1, seed=args.seed)
    if algorithm == "":
        model = PPO("MlpPolicy", env, schedule(1e-3, 1e-4), n_steps=128, batch_size=128, n_epochs=6, **common)
    elif algorithm == "a2c":
        model = HuberA2C("MlpPolicy", env, schedule(1.5e-3, 3e-4), n_steps=10, ent_coef=0.01, **common)
        model.entropy_as_loss = args.fault == "entropy_sign"
    elif algorithm == "dqn":
        memory = {"handle_timeout_termination": args.fault != "timeout_is_end"}
        common |= {"learning_starts": 500, "train_freq": 4, "gradient_steps": 2, "target_update_interval": 500}
        model = CosineDQN("MlpPolicy", env, schedule(1e-3, 2e-4), replay_buffer_kwargs=memory, **common)
        model.keep_parent_step = args.fault != "own_exploration"
    else:
        model = SAC("MlpPolicy", env, schedule(2e-3, 5e-4), learning_starts=400, train_freq=2, **common)
    callback = ProjectCallback(args.fault, on_policy=algorithm in ("", "a2c"))
    model.learn(args.steps or STEPS[algorithm], callback=callback)
    tenth = max(1, len(callback.returns) // 10)
    first, last = np.mean(callback.returns[:tenth]), np.mean(callback.returns[-tenth:])
    print(f"return: first tenth {first:.2f}, last tenth {last:.2f}")
    mean, spread = evaluate_policy(model, make_vec_env(make, seed=args.seed + 100), n_eval_episodes=10)
    print(f"final policy without exploration: {mean:.2f} +- {spread:.2f}")


if __name__ == "__main__":
    main()
