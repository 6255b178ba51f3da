"""Stable-Baselines3 on the tasks of learning.py, at the settings that its zoo of tuned ones has for them.

The numbers are those of rl-baselines3-zoo's hyperparams files (ppo.yml, dqn.yml, sac.yml); where a run here is much shorter than
the zoo's, what only fits the long one is said in `CHANGED`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Scores = np.ndarray[Any, Any]

CHANGED = {
    "sac_hopper": "learning_starts 100 (SB3's default): the zoo's 10,000 would leave no step of the 10,000 to learn in",
}
EPISODES = 100
EVALUATION_EPISODES = 10


def train_peer(task: str, seed: int, steps: int, evaluate_every: int, folder: Path) -> dict[str, Any]:
    """Mean returns of the last policy and, where evaluations were asked for, of the one that evaluated best."""
    import torch
    from stable_baselines3.common.callbacks import EvalCallback

    torch.set_num_threads(1)
    model, evaluation_env = PEERS[task](seed)
    callback = None
    if evaluate_every:
        copies = model.n_envs
        callback = EvalCallback(
            evaluation_env, best_model_save_path=str(folder), n_eval_episodes=EVALUATION_EPISODES, verbose=0,
            eval_freq=max(1, evaluate_every // copies), deterministic=True,
        )  # fmt: skip
    began = time.process_time()
    model.learn(steps, callback=callback)
    cpu = time.process_time() - began
    final = _play(model, evaluation_env, seed)
    kept = final
    if (folder / "best_model.zip").exists():
        kept = _play(type(model).load(folder / "best_model"), evaluation_env, seed)
    return {"final": float(final.mean()), "kept": float(kept.mean()), "cpu_seconds": round(cpu, 1)}


def _play(model: Any, env: Any, seed: int) -> Scores:
    from stable_baselines3.common.evaluation import evaluate_policy

    if hasattr(env, "training"):  # VecNormalize: play with what training has seen, by the environment's own rewards
        env.obs_rms, env.training, env.norm_reward = model.get_env().obs_rms, False, False
    env.seed(10_000 + seed)
    returns, _ = evaluate_policy(model, env, EPISODES, deterministic=True, return_episode_rewards=True, warn=False)
    return np.array(returns)


def _vector(env_id: str, count: int, seed: int) -> Any:
    from stable_baselines3.common.env_util import make_vec_env

    return make_vec_env(env_id, count, seed=seed)


def _ppo_cartpole(seed: int) -> tuple[Any, Any]:
    from stable_baselines3 import PPO

    env = _vector("CartPole-v1", 8, seed)
    model = PPO(
        "MlpPolicy", env, n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20, ent_coef=0.0,
        learning_rate=lambda left: 0.001 * left, clip_range=lambda left: 0.2 * left, seed=seed, device="cpu",
    )  # fmt: skip
    return model, _vector("CartPole-v1", 1, seed + 1)


def _dqn_cartpole(seed: int) -> tuple[Any, Any]:
    from stable_baselines3 import DQN

    model = DQN(
        "MlpPolicy", _vector("CartPole-v1", 1, seed), learning_rate=2.3e-3, batch_size=64, buffer_size=100_000,
        learning_starts=1_000, gamma=0.99, target_update_interval=10, train_freq=256, gradient_steps=128,
        exploration_fraction=0.16, exploration_final_eps=0.04, policy_kwargs={"net_arch": [256, 256]}, seed=seed, device="cpu",
    )  # fmt: skip
    return model, _vector("CartPole-v1", 1, seed + 1)


def _sac_pendulum(seed: int) -> tuple[Any, Any]:
    from stable_baselines3 import SAC

    model = SAC("MlpPolicy", _vector("Pendulum-v1", 1, seed), learning_rate=1e-3, seed=seed, device="cpu")
    return model, _vector("Pendulum-v1", 1, seed + 1)


def _a2c_cartpole(seed: int) -> tuple[Any, Any]:
    """SB3 has no REINFORCE; its A2C is the nearest relative."""
    from stable_baselines3 import A2C

    model = A2C("MlpPolicy", _vector("CartPole-v1", 8, seed), ent_coef=0.0, seed=seed, device="cpu")
    return model, _vector("CartPole-v1", 1, seed + 1)


def _ppo_halfcheetah(seed: int) -> tuple[Any, Any]:
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecNormalize
    from torch import nn

    env = VecNormalize(_vector("HalfCheetah-v5", 1, seed), gamma=0.98)
    model = PPO(
        "MlpPolicy", env, batch_size=64, n_steps=512, gamma=0.98, learning_rate=2.0633e-05, ent_coef=0.000401762,
        clip_range=0.1, n_epochs=20, gae_lambda=0.92, max_grad_norm=0.8, vf_coef=0.58096, seed=seed, device="cpu",
        policy_kwargs={
            "log_std_init": -2, "ortho_init": False, "activation_fn": nn.ReLU,
            "net_arch": {"pi": [256, 256], "vf": [256, 256]},
        },
    )  # fmt: skip
    return model, VecNormalize(_vector("HalfCheetah-v5", 1, seed + 1), gamma=0.98, training=False, norm_reward=False)


def _sac_hopper(seed: int) -> tuple[Any, Any]:
    from stable_baselines3 import SAC

    model = SAC("MlpPolicy", _vector("Hopper-v5", 1, seed), learning_starts=100, seed=seed, device="cpu")
    return model, _vector("Hopper-v5", 1, seed + 1)


PEERS: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "cartpole": _ppo_cartpole,
    "dqn_cartpole": _dqn_cartpole,
    "sac_pendulum": _sac_pendulum,
    "reinforce_cartpole": _a2c_cartpole,
    "ppo_halfcheetah": _ppo_halfcheetah,
    "sac_hopper": _sac_hopper,
}
