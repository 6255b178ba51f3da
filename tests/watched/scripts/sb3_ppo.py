# ruff: noqa: NPY002
"""Stable-Baselines3 PPO on four CartPoles."""

import argparse
import hashlib
import json
import random

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env


class Bookkeeping(BaseCallback):
    """Counts vector steps and notes the return of each finished episode."""

    def __init__(self):
        super().__init__()
        self.vector_steps = 0
        self.returns = []
        self.rollouts = 0

    def _on_step(self):
        self.vector_steps += 1
        self.returns += [float(info["episode"]["r"]) for info in self.locals["infos"] if "episode" in info]
        return True

    def _on_rollout_end(self):
        self.rollouts += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6144)
    args = parser.parse_args()
    torch.set_num_threads(1)

    venv = make_vec_env("CartPole-v1", n_envs=4, seed=args.seed)
    model = PPO(
        "MlpPolicy",
        venv,
        n_steps=128,
        batch_size=128,
        n_epochs=4,
        learning_rate=1e-3,
        ent_coef=0.01,
        vf_coef=0.5,
        clip_range=0.2,
        gamma=0.99,
        gae_lambda=0.95,
        seed=args.seed,
        device="cpu",
    )
    notes = Bookkeeping()
    model.learn(args.steps, callback=notes)
    print("mean return of the last 20 episodes:", np.mean(notes.returns[-20:]))

    optimizer = model.policy.optimizer
    sha = hashlib.sha256()
    for name, tensor in sorted(model.policy.state_dict().items()):
        sha.update(name.encode() + tensor.numpy().tobytes())
    sha.update(repr((torch.rand(1).item(), np.random.rand(), random.random())).encode())
    minibatches = 128 * 4 // 128
    facts = {
        "optimizer_steps": {"adam": model._n_updates * minibatches},
        "owned": {"adam": len(list(model.policy.parameters()))},
        "learning_rate": {"adam": optimizer.param_groups[0]["lr"]},
        "episodes": len(notes.returns),
        "episode_returns": notes.returns,
        "env_steps": notes.vector_steps,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip": 0.2,
        "entropy_coefficient": 0.01,
        "value_coefficient": 0.5,
        "updates": notes.rollouts,
        "updates_per_rollout": 4 * minibatches,
    }
    print(json.dumps({"weights_sha256": sha.hexdigest(), "facts": facts}))


if __name__ == "__main__":
    main()
