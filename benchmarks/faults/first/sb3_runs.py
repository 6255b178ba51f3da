"""Stable-Baselines3 as it is: PPO and DQN on CartPole, SAC on a small reaching task."""

import argparse
import copy
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.utils import set_random_seed
from torch import nn

FAULTS = {
    "head_replaced": ["weights", "broken", "ppo: action head replaced after the optimizer was made (accelerate #2665)"],
    "entropy_negative": ["signs", "broken", "ppo: the entropy coefficient has the wrong sign (SB3 #130)"],
    "rate_runs_out": ["rates", "broken", "ppo: the learning rate reaches 0 after an eighth (open-instruct #537)"],
    "starts_shifted": ["returns", "broken", "ppo: GAE reads the episode start of the same step (SB3 #110)"],
    "blind": ["goal", "not proven", "ppo: the observation is all zeros"],
    "pays_to_fall": ["goal", "not proven", "ppo: the reward's sign is turned"],
    "tau_zero": ["targets", "broken", "dqn: the target update mixes in nothing of the online network (AgileRL #462)"],
    "timeout_terminal": ["returns", "broken", "dqn: truncations are stored as terminal (SB3 #658)"],
    "target_is_online": ["targets", "broken", "sac: the target critic is the critic itself (SB3 #198)"],
    "stale_temperature": ["weights", "broken", "sac: the optimizer holds the old temperature tensor (SB3 #392)"],
}
HEALTHY = {
    "": "plain",
    "decayed": "ppo: AdamW with weight decay",
    "averaged": "ppo: a callback keeps a moving average of the policy",
    "frozen_extractor": "ppo: random features, frozen on purpose",
    "rare_target": "dqn: target network copied every 2000 steps",
    "fixed_temperature": "sac: the temperature is a constant, not learnt",
    "always_negative": "sac: every reward is negative",
}
ALGO_OF = {
    "tau_zero": "dqn",
    "timeout_terminal": "dqn",
    "rare_target": "dqn",
    "target_is_online": "sac",
    "stale_temperature": "sac",
    "fixed_temperature": "sac",
    "always_negative": "sac",
}
STEPS = {"ppo": 24_576, "dqn": 20_000, "sac": 2_500}


class Reach(gym.Env):
    """Move a point onto a mark in the square; near it the episode ends."""

    def __init__(self, always_negative=False):
        self.bonus = 0.0 if always_negative else 2.0
        self.observation_space = gym.spaces.Box(-2.0, 2.0, (4,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.point, self.mark = self.np_random.uniform(-1.0, 1.0, (2, 2))
        return self.view(), {}

    def view(self):
        return np.concatenate([self.point, self.mark - self.point]).astype(np.float32)

    def step(self, action):
        self.point = np.clip(self.point + 0.15 * np.asarray(action), -1.0, 1.0)
        distance = float(np.linalg.norm(self.mark - self.point))
        near = distance < 0.15
        return self.view(), -0.3 * distance + self.bonus * near - 0.01, near, False, {}


class ShiftedBuffer(RolloutBuffer):
    def compute_returns_and_advantage(self, last_values, dones):
        after = last_values.clone().cpu().numpy().flatten()
        running = 0.0
        for t in reversed(range(self.buffer_size)):
            going_on = 1.0 - self.episode_starts[t].astype(np.float32)
            following = after if t == self.buffer_size - 1 else self.values[t + 1]
            delta = self.rewards[t] + self.gamma * following * going_on - self.values[t]
            running = delta + self.gamma * self.gae_lambda * going_on * running
            self.advantages[t] = running
        self.returns = self.advantages + self.values


class SharedTargetSAC(SAC):
    def _create_aliases(self):
        super()._create_aliases()
        self.critic_target = self.critic


class KeepAverage(BaseCallback):
    def _on_training_start(self):
        self.slow = copy.deepcopy(self.model.policy)

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.model.policy.parameters(), strict=True):
                slow.lerp_(fast, 0.2)


class Progress(BaseCallback):
    def __init__(self, every):
        super().__init__()
        self.every, self.returns, self.told = every, [], 0

    def _on_step(self):
        self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        if self.num_timesteps >= self.told + self.every and self.returns:
            self.told = self.num_timesteps
            print(f"{self.num_timesteps} steps: mean return of the last 20 episodes {np.mean(self.returns[-20:]):.2f}")
        return True


def make_ppo(seed, fault, variant):
    def wrap(env):
        if fault == "blind":
            env = gym.wrappers.TransformObservation(env, np.zeros_like, env.observation_space)
        if fault == "pays_to_fall":
            env = gym.wrappers.TransformReward(env, lambda r: -r)
        return env

    extra = {}
    if variant == "decayed":
        extra = {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": 1e-3}}
    if variant == "frozen_extractor":
        extra = {"net_arch": [128, 64]}
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=8, seed=seed, wrapper_class=wrap),
        n_steps=128,
        batch_size=128,
        n_epochs=8,
        learning_rate=(lambda left: 1e-3 * max(0.0, 8.0 * left - 7.0)) if fault == "rate_runs_out" else 1e-3,
        gamma=0.98,
        gae_lambda=0.9,
        ent_coef=-0.01 if fault == "entropy_negative" else 0.005,
        rollout_buffer_class=ShiftedBuffer if fault == "starts_shifted" else None,
        policy_kwargs=extra,
        seed=seed,
        device="cpu",
    )
    if fault == "head_replaced":
        old = model.policy.action_net
        model.policy.action_net = nn.Linear(old.in_features, old.out_features)
    if variant == "frozen_extractor":
        for network in (model.policy.mlp_extractor.policy_net, model.policy.mlp_extractor.value_net):
            network[0].requires_grad_(False)
    return model


def make_dqn(seed, fault, variant):
    keep = {"handle_timeout_termination": False} if fault == "timeout_terminal" else None
    return DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=1, seed=seed, env_kwargs={"max_episode_steps": 200}),
        learning_rate=1e-3,
        buffer_size=20_000,
        learning_starts=1000,
        batch_size=128,
        gamma=0.99,
        tau=0.0 if fault == "tau_zero" else 1.0,
        train_freq=4,
        gradient_steps=1,
        target_update_interval=2000 if variant == "rare_target" else 400,
        exploration_fraction=0.3,
        exploration_final_eps=0.05,
        replay_buffer_kwargs=keep,
        policy_kwargs={"net_arch": [96, 64]},
        seed=seed,
        device="cpu",
    )


def make_sac(seed, fault, variant):
    algorithm = SharedTargetSAC if fault == "target_is_online" else SAC
    env = Monitor(gym.wrappers.TimeLimit(Reach(variant == "always_negative"), max_episode_steps=40))
    model = algorithm(
        "MlpPolicy",
        env,
        learning_rate=2e-3,
        learning_starts=300,
        batch_size=64,
        gamma=0.95,
        tau=0.01,
        ent_coef=0.05 if variant == "fixed_temperature" else "auto_0.2",
        policy_kwargs={"net_arch": [64, 64]},
        seed=seed,
        device="cpu",
    )
    if fault == "stale_temperature":
        model.log_ent_coef = model.log_ent_coef.detach().clone().requires_grad_()
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", choices=["ppo", "dqn", "sac"], help="default: the one the fault or variant is about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    meant = ALGO_OF.get(args.fault or args.variant, "ppo") if args.fault or args.variant else args.algo or "ppo"
    if args.algo not in (None, meant):
        parser.error(f"{args.fault or args.variant} belongs to {meant}")
    torch.set_num_threads(1)
    set_random_seed(args.seed)
    steps = args.steps or STEPS[meant]
    clock = time.process_time()
    model = {"ppo": make_ppo, "dqn": make_dqn, "sac": make_sac}[meant](args.seed, args.fault, args.variant)
    progress = Progress(max(1, STEPS[meant] // 8))
    callbacks = [progress]
    if args.variant == "averaged":
        callbacks.append(KeepAverage())
    model.learn(steps, callback=callbacks)
    first, last = np.mean(progress.returns[:20]), np.mean(progress.returns[-20:])
    print(f"{meant} finished: first 20 {first:.2f}, last 20 {last:.2f}, cpu {time.process_time() - clock:.1f}s")


if __name__ == "__main__":
    main()
