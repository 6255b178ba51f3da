"""A user's script around Stable-Baselines3: an own parking task, a features extractor, callbacks."""

import argparse
import time

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EveryNTimesteps
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

FAULTS = {
    "extractor_detached": ["weights", "broken", "the custom features extractor returns detached features"],
    "target_hardly_moves": ["targets", "broken", "DQN: a soft tau of 0.005 together with an interval of 1000 steps"],
    "limit_as_end": ["returns", "broken", "an old wrapper reports the time limit as terminated, not truncated"],
    "gate_axis": ["shapes", "broken", "the extractor's softmax gate runs along the batch, not along the features"],
    "rate_sized_per_env": ["rates", "broken", "the linear decay is sized in one environment's steps and is 0 early"],
    "progress_farmed": [
        "goal",
        "not proven",
        "coming nearer is paid, moving off is free: the car rocks and never parks",
    ],
}
HEALTHY = {
    "": "PPO with eight environments, a gated extractor shared by actor and critic, a linear rate",
    "dqn": "DQN with the same extractor, a target copied every 300 steps",
    "sac": "SAC on the continuous form of the task, an extractor for the actor and one for the critics",
    "ppo_frozen": "PPO whose extractor is random and frozen on purpose; AdamW with weight decay, clipped values",
}
ALGO_OF = {"dqn": "dqn", "sac": "sac", "target_hardly_moves": "dqn"}
SHARE = {"ppo": 1.0, "dqn": 0.5, "sac": 0.12}


class Parking(gym.Env):
    """A car on a line has to come to rest in its bay."""

    def __init__(self, continuous: bool = False, farmed: bool = False) -> None:
        self.continuous, self.farmed = continuous, farmed
        self.observation_space = gym.spaces.Box(-5.0, 5.0, (4,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else gym.spaces.Discrete(5)

    def _obs(self) -> np.ndarray:
        gap = self.bay - self.x
        return np.array([gap, np.sign(gap) * np.sqrt(abs(gap)), self.x, 5.0 * self.v], np.float32).clip(-5, 5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.v = self.np_random.uniform(-1.0, 1.0), 0.0
        self.bay = self.x + self.np_random.choice([-1.0, 1.0]) * self.np_random.uniform(0.5, 1.2)
        return self._obs(), {}

    def step(self, action):
        push = float(np.clip(action[0], -1, 1)) if self.continuous else (int(action) - 2) / 2
        before = abs(self.bay - self.x)
        self.v = 0.92 * self.v + 0.03 * push
        self.x = self.x + self.v
        after = abs(self.bay - self.x)
        parked = after < 0.08 and abs(self.v) < 0.03
        if self.farmed:
            reward = 5.0 * max(0.0, before - after) + 0.5 * parked
        else:
            reward = -0.05 - 0.1 * min(after, 2.0) + 2.0 * parked
        return self._obs(), reward, bool(parked), False, {"is_success": bool(parked)}


class LegacyTimeLimit(gym.Wrapper):
    """Keeps the old meaning of done."""

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or truncated, False, info


gym.register("Parking-v0", entry_point=Parking)


class GatedExtractor(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim: int = 48, fault: str = "", frozen: bool = False) -> None:
        super().__init__(observation_space, features_dim)
        n_input = int(np.prod(observation_space.shape))
        self.body = th.nn.Sequential(th.nn.Linear(n_input, features_dim), th.nn.Tanh())
        self.gate = th.nn.Linear(n_input, features_dim)
        self.fault, self.gate_dim = fault, 0 if fault == "gate_axis" else 1
        if frozen:
            self.requires_grad_(False)

    def forward(self, observations: th.Tensor) -> th.Tensor:
        gate = th.softmax(self.gate(observations), dim=self.gate_dim)
        features = self.body(observations) * (1.0 + gate * gate.shape[self.gate_dim])
        if self.fault == "extractor_detached":
            return features.detach()
        return features


class LinearRate:
    """Linear decay; Stable-Baselines3 hands over the share of the run that remains."""

    def __init__(self, start: float, total_steps: int, decay_steps: int) -> None:
        self.start, self.total_steps, self.decay_steps = start, total_steps, decay_steps

    def __call__(self, progress_remaining: float) -> float:
        steps_done = (1.0 - progress_remaining) * self.total_steps
        return self.start * max(0.0, 1.0 - steps_done / self.decay_steps)


class EpisodeLog(BaseCallback):
    def __init__(self) -> None:
        super().__init__()
        self.returns, self.parked, self.shown = [], [], time.monotonic()

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.returns.append(info["episode"]["r"])
                self.parked.append(info["is_success"])
        if time.monotonic() - self.shown > 3 and self.returns:
            self.shown = time.monotonic()
            print(
                f"{self.num_timesteps} steps, {len(self.returns)} episodes, return {np.mean(self.returns[-50:]):.2f}, "
                f"parked {np.mean(self.parked[-50:]):.2f}, rate {self.model.policy.optimizer.param_groups[0]['lr']:.1e}"
                if hasattr(self.model.policy, "optimizer")
                else f"{self.num_timesteps} steps, {len(self.returns)} episodes, return "
                f"{np.mean(self.returns[-50:]):.2f}, parked {np.mean(self.parked[-50:]):.2f}",
                flush=True,
            )
        return True


class GreedyCheck(BaseCallback):
    """Now and then a few episodes without exploration, in an environment apart."""

    def __init__(self, env: gym.Env, episodes: int = 5) -> None:
        super().__init__()
        self.eval_env, self.episodes, self.results = env, episodes, []

    def _on_step(self) -> bool:
        parked = 0
        for _ in range(self.episodes):
            (obs, _), over = self.eval_env.reset(), False
            while not over:
                action, _ = self.model.predict(obs, deterministic=True)
                obs, _, terminated, truncated, info = self.eval_env.step(action)
                over = terminated or truncated
            parked += info["is_success"]
        self.results.append(parked / self.episodes)
        return True


def make_env(algo: str, fault: str) -> gym.Env:
    env = gym.make("Parking-v0", continuous=algo == "sac", farmed=fault == "progress_farmed")
    env = TimeLimit(env, max_episode_steps=60)
    if fault == "limit_as_end":
        env = LegacyTimeLimit(env)
    return env


def build(algo: str, args: argparse.Namespace, total: int):
    frozen = args.variant == "ppo_frozen"
    policy_kwargs = {
        "features_extractor_class": GatedExtractor,
        "features_extractor_kwargs": {"fault": args.fault, "frozen": frozen},
        "net_arch": [48],
    }
    if algo == "dqn":
        soft = args.fault == "target_hardly_moves"
        return DQN(
            "MlpPolicy",
            Monitor(make_env(algo, args.fault)),
            learning_rate=1e-3,
            learning_starts=500,
            batch_size=64,
            buffer_size=15_000,
            gamma=0.97,
            train_freq=2,
            tau=0.005 if soft else 1.0,
            target_update_interval=1000 if soft else 300,
            exploration_fraction=0.4,
            policy_kwargs=policy_kwargs,
            seed=args.seed,
        )
    if algo == "sac":
        return SAC(
            "MlpPolicy",
            Monitor(make_env(algo, args.fault)),
            learning_rate=2e-3,
            learning_starts=400,
            batch_size=128,
            buffer_size=15_000,
            gamma=0.97,
            tau=0.02,
            policy_kwargs=policy_kwargs,
            seed=args.seed,
        )
    n_envs = 8
    if frozen:
        policy_kwargs |= {"optimizer_class": th.optim.AdamW, "optimizer_kwargs": {"weight_decay": 1e-3, "eps": 1e-5}}
    return PPO(
        "MlpPolicy",
        VecMonitor(DummyVecEnv([lambda: make_env(algo, args.fault)] * n_envs)),
        learning_rate=LinearRate(1.5e-3, total, total // n_envs if args.fault == "rate_sized_per_env" else total),
        n_steps=128,
        batch_size=128,
        n_epochs=8,
        gamma=0.97,
        ent_coef=0.003,
        clip_range_vf=0.3 if frozen else None,
        policy_kwargs=policy_kwargs,
        seed=args.seed,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20_000, help="for PPO; DQN and SAC take a share of it")
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    th.set_num_threads(1)
    algo = ALGO_OF.get(args.fault or args.variant, "ppo")
    total_steps = int(SHARE[algo] * args.steps)
    model = build(algo, args, total_steps)
    log, greedy = EpisodeLog(), GreedyCheck(make_env(algo, args.fault))
    callbacks = CallbackList([log, EveryNTimesteps(max(1, total_steps // 5), greedy)])
    model.learn(total_timesteps=total_steps, callback=callbacks)
    print("parked without exploration:", " ".join(f"{share:.1f}" for share in greedy.results))
    n = max(1, len(log.returns) // 10)
    print(f"first tenth {np.mean(log.returns[:n]):.2f}, last tenth {np.mean(log.returns[-n:]):.2f}")
