"""Level control of a buffer tank with Stable-Baselines3 (PPO, or double DQN with --variant dqn)."""

import argparse
import copy
import time

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn
from torch.nn import functional as F

FAULTS = {
    "best_alias": ["rates", "broken", "best weights kept without a copy: restoring the best at the end does nothing"],
    "encoder_no_grad": ["weights", "broken", "the extractor runs its layers, not only the scaling, under no_grad"],
    "entropy_sign": ["signs", "broken", "overridden PPO.train() adds the entropy to the loss: it is minimised"],
    "shared_encoder": ["targets", "broken", "DQN: cached encoder shared by Q-network and target; each sync wipes it"],
    "q_broadcast": ["shapes", "broken", "DQN: next values are (N,), rewards (N,1): the target becomes (N,N)"],
    "reward_sign": ["goal", "not proven", "the reward wrapper pays the level error instead of charging it"],
}
HEALTHY = {
    "": "plain",
    "dqn": "double DQN with an overridden train() in place of PPO",
    "fourier": "the first layer of the extractor is a fixed random Fourier projection, never trained on purpose",
    "vecnorm": "VecNormalize scales observations and rewards",
}
ENCODER_CACHE = {}


class TankEnv(gym.Env):
    """Keep a tank at a set level (mm) by moving the inlet valve; over- or underflow trips the plant."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-1e4, 1e4, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level = self.np_random.uniform(300, 700)
        self.setpoint = self.np_random.uniform(250, 750)
        self.valve, self.outflow, self.t = 0.5, self.np_random.uniform(10, 20), 0
        return self._obs(), {}

    def _obs(self):
        return np.array([self.level, self.setpoint, self.valve * 100, self.outflow], dtype=np.float32)

    def step(self, action):
        self.valve = float(np.clip(self.valve + (int(action) - 1) * 0.15, 0, 1))
        self.outflow = float(np.clip(self.outflow + self.np_random.normal(0, 0.4), 8, 22))
        self.level += 40 * self.valve - self.outflow
        self.t += 1
        tripped = bool(self.level < 0 or self.level > 1000)
        return self._obs(), -abs(self.level - self.setpoint), tripped, self.t >= 80, {}


class PlantUnits(gym.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-5, 5, (5,), np.float32)

    def observation(self, obs):
        level, setpoint, valve, flow = obs
        scaled = [level / 500 - 1, setpoint / 500 - 1, valve / 50 - 1, flow / 7 - 2, (level - setpoint) / 200]
        return np.clip(np.array(scaled, dtype=np.float32), -5, 5)


class TrackingReward(gym.RewardWrapper):
    def __init__(self, env, fault):
        super().__init__(env)
        self.fault = fault

    def reward(self, reward):
        if self.fault == "reward_sign":
            return min(1.0, -reward / 250)
        return max(-1.0, 1 + reward / 125)  # 1 at the setpoint: staying in operation is worth something


class PlantEncoder(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=48, fault="", variant=""):
        super().__init__(observation_space, features_dim)
        self.fault, n = fault, observation_space.shape[0]
        self.register_buffer("scale", th.tensor([1.0, 1.0, 1.0, 1.0, 1.5]))
        self.fourier = nn.Linear(n, 64).requires_grad_(False) if variant == "fourier" else None
        if self.fourier is not None:
            n = self.fourier.weight.normal_(0, 0.7).shape[0]
        self.net = nn.Sequential(nn.Linear(n, 64), nn.Tanh(), nn.Linear(64, features_dim), nn.Tanh())
        if fault == "shared_encoder":
            self.net = ENCODER_CACHE.setdefault("net", self.net)

    def forward(self, obs):
        with th.no_grad():
            x = obs * self.scale
            if self.fourier is not None:
                x = th.sin(self.fourier(x))
            if self.fault == "encoder_no_grad":
                return self.net(x)
        return self.net(x)


class PlantPPO(PPO):
    def train(self):
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        clip, ent_coef = self.clip_range(self._current_progress_remaining), 0.01 * self._current_progress_remaining
        for _ in range(self.n_epochs):
            for data in self.rollout_buffer.get(self.batch_size):
                actions = data.actions.long().flatten()
                values, log_prob, entropy = self.policy.evaluate_actions(data.observations, actions)
                advantages = (data.advantages - data.advantages.mean()) / (data.advantages.std() + 1e-8)
                ratio = th.exp(log_prob - data.old_log_prob)
                policy_loss = -th.min(advantages * ratio, advantages * ratio.clamp(1 - clip, 1 + clip)).mean()
                value_loss = F.mse_loss(data.returns, values.flatten())
                entropy_loss = entropy.mean() if self.fault == "entropy_sign" else -entropy.mean()
                loss = policy_loss + ent_coef * entropy_loss + self.vf_coef * value_loss
                self.policy.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
                self.policy.optimizer.step()
            self._n_updates += 1


class DoubleDQN(DQN):
    def train(self, gradient_steps, batch_size=100):
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        for _ in range(gradient_steps):
            data = self.replay_buffer.sample(batch_size)
            with th.no_grad():
                best = self.q_net(data.next_observations).argmax(dim=1, keepdim=True)
                next_q = self.q_net_target(data.next_observations).gather(1, best)
                next_q = next_q.squeeze(1) if self.fault == "q_broadcast" else next_q
                target = data.rewards + (1 - data.dones) * self.gamma * next_q
            current = self.q_net(data.observations).gather(1, data.actions.long())
            loss = F.smooth_l1_loss(current, target)
            self.policy.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
        self._n_updates += gradient_steps


class ReportAndKeepBest(BaseCallback):
    def __init__(self, fault):
        super().__init__()
        self.fault, self.returns, self.best, self.best_mean, self.shown_at = fault, [], {}, -np.inf, time.time()

    def _on_step(self):
        for info in self.locals["infos"]:
            if "episode" in info:
                self.returns.append(info["episode"]["r"])
                if len(self.returns) % 20 == 0 and np.mean(self.returns[-20:]) > self.best_mean:
                    self.best_mean = np.mean(self.returns[-20:])
                    weights = self.model.policy.state_dict()
                    self.best = weights if self.fault == "best_alias" else copy.deepcopy(weights)
        if time.time() - self.shown_at > 3 and self.returns:
            self.shown_at = time.time()
            print(f"{self.num_timesteps:6d} steps  return {np.mean(self.returns[-20:]):.2f}", flush=True)
        return True

    def _on_training_end(self):
        if self.best:
            self.model.policy.load_state_dict(self.best)


def main(args):
    use_dqn = args.variant == "dqn" or args.fault in ("shared_encoder", "q_broadcast")
    env = DummyVecEnv([lambda: Monitor(TrackingReward(PlantUnits(TankEnv()), args.fault))] * (1 if use_dqn else 4))
    if args.variant == "vecnorm":
        env = VecNormalize(env, gamma=0.97)
    extractor = {"fault": args.fault, "variant": args.variant}
    kwargs = {"features_extractor_class": PlantEncoder, "features_extractor_kwargs": extractor, "net_arch": [48]}
    common = {"gamma": 0.97, "policy_kwargs": kwargs, "seed": args.seed, "device": "cpu"}
    if use_dqn:
        common |= {"buffer_size": 20_000, "learning_starts": 1000, "batch_size": 64, "exploration_fraction": 0.4}
        model = DoubleDQN("MlpPolicy", env, learning_rate=1e-3, train_freq=4, target_update_interval=500, **common)
    else:
        model = PlantPPO("MlpPolicy", env, learning_rate=7e-4, n_steps=256, batch_size=128, n_epochs=6, **common)
    model.fault = args.fault
    callback = ReportAndKeepBest(args.fault)
    model.learn(args.steps, callback=callback)
    env.training = False  # keeps VecNormalize's statistics as they are
    score, _ = evaluate_policy(model, env, n_eval_episodes=12)
    returns, tenth = callback.returns, max(1, len(callback.returns) // 10)
    print(f"final: first tenth {np.mean(returns[:tenth]):.2f}  last tenth {np.mean(returns[-tenth:]):.2f}")
    print(f"best weights restored, evaluation over 12 episodes: {score:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    main(parser.parse_args())
