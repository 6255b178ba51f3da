# ruff: noqa: NPY002
"""Stable-Baselines3 SAC on Pendulum."""

import argparse
import hashlib
import json
import random

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=9)
parser.add_argument("--steps", type=int, default=600)
args = parser.parse_args()
torch.set_num_threads(1)

TAU, GAMMA, START = 0.02, 0.98, 150
steps, returns = [0], []


class Notes(BaseCallback):
    def _on_step(self) -> bool:
        steps[0] += 1
        returns.extend(float(info["episode"]["r"]) for info in self.locals["infos"] if "episode" in info)
        return True


model = SAC(
    "MlpPolicy",
    gym.make("Pendulum-v1"),
    learning_rate=1e-3,
    buffer_size=10_000,
    learning_starts=START,
    batch_size=64,
    tau=TAU,
    gamma=GAMMA,
    ent_coef="auto",
    policy_kwargs={"net_arch": [64, 64]},
    seed=args.seed,
    device="cpu",
)
model.learn(args.steps, callback=Notes())
print(f"{len(returns)} episodes, the last returned {returns[-1]:.2f}")

sha = hashlib.sha256()
for name, tensor in sorted(model.policy.state_dict().items()):
    sha.update(name.encode())
    sha.update(tensor.numpy().tobytes())
sha.update(model.log_ent_coef.detach().numpy().tobytes())
sha.update(repr((torch.rand(1).item(), np.random.rand(), random.random())).encode())

updates = model._n_updates
facts = {
    "optimizer_steps": {"actor": updates, "critic": updates, "temperature": updates},
    "owned": {
        "actor": len(list(model.actor.parameters())),
        "critic": len(list(model.critic.parameters())),
        "temperature": 1,
    },
    "learning_rate": {"actor": 1e-3, "critic": 1e-3, "temperature": 1e-3},
    "episodes": len(returns),
    "episode_returns": returns,
    "env_steps": steps[0],
    "target_updates": updates,
    "tau": TAU,
    "gamma": GAMMA,
    "batch": 64,
}
print(json.dumps({"weights_sha256": sha.hexdigest(), "facts": facts}))
