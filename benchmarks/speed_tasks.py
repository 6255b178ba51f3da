"""What speed.py measures: tasks whose settings are the same for everybody, and what their matrix products alone are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Product = tuple[int, int, int]
"""[m, k] times [k, n]."""


@dataclass(frozen=True)
class Task:
    environment: str
    steps: int
    gradient_steps: int
    """In so many steps."""
    settings: dict[str, Any]
    peer: Callable[[int], Any] | None
    """A model of Stable-Baselines3; None = the plain loop."""
    bars: dict[str, dict[str, float]]
    """backend -> other contender -> how many times as long that one takes."""
    warm_up: int
    """Steps after which everything has been compiled."""
    products: Callable[[], tuple[list[Product], list[Product]]] | None = None
    """Those of one step of acting, and of one gradient step."""
    flushed: bool = False
    """Whether the peer is measured once more with denormals flushed."""
    jitted: str = ""
    """Which settings of jax_ppo.py are the same, if any are."""
    goal: float | None = None
    """Where given, the time until the mean of the last 20 training episodes has reached it is measured too, and has the same bars."""


def layers(rows: int, *sizes: int) -> list[Product]:
    """A forward pass through linear layers of these sizes."""
    return [(rows, a, b) for a, b in pairwise(sizes)]


def backward(rows: int, *sizes: int) -> list[Product]:
    """Gradients of all weights, and of all inputs but the first layer's."""
    weights = [(a, rows, b) for a, b in pairwise(sizes)]
    inputs = [(rows, b, a) for a, b in pairwise(sizes[1:])]
    return weights + inputs


def through(rows: int, *sizes: int) -> list[Product]:
    """Gradients of the inputs alone."""
    return [(rows, b, a) for a, b in pairwise(sizes)]


def sac_products() -> tuple[list[Product], list[Product]]:
    rows, actor, critic = 256, (3, 256, 256, 2), (4, 256, 256, 1)
    fitted = 2 * (layers(rows, *critic) + layers(rows, *critic) + backward(rows, *critic))  # targets, values, gradients
    climbed = 2 * (layers(rows, *critic) + through(rows, *critic)) + backward(rows, *actor)
    return layers(1, *actor), 2 * layers(rows, *actor) + fitted + climbed


def dqn_products() -> tuple[list[Product], list[Product]]:
    rows, network = 64, (4, 256, 256, 2)
    return layers(1, *network), 2 * layers(rows, *network) + backward(rows, *network)


def allocation_products() -> tuple[list[Product], list[Product]]:
    """Of the default networks for 5 agents and 10 slots: 110 numbers seen, 15 done, 20 parameters of their distributions."""
    rows, policy, value = 64, (110, 256, 256, 128, 20), (110, 256, 256, 128, 1)
    both = [*layers(rows, *policy), *layers(rows, *value), *backward(rows, *policy), *backward(rows, *value)]
    return layers(4, *policy), both


def sac_peer(seed: int) -> Any:
    from stable_baselines3 import SAC

    return SAC("MlpPolicy", "Pendulum-v1", learning_rate=1e-3, learning_starts=100, buffer_size=20_000, seed=seed, device="cpu")  # fmt: skip


def dqn_peer(seed: int) -> Any:
    from stable_baselines3 import DQN

    return DQN(
        "MlpPolicy", "CartPole-v1", learning_rate=2.3e-3, batch_size=64, buffer_size=100_000, learning_starts=1_000,
        target_update_interval=10, train_freq=256, gradient_steps=128, exploration_fraction=0.16, exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]}, seed=seed, device="cpu",
    )  # fmt: skip


def zoo_ppo_peer(seed: int) -> Any:
    from sb3_peers import PEERS

    return PEERS["cartpole"](seed)[0]


def allocation_peer(seed: int) -> Any:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    from plain_allocation import PlainTaskAllocation

    env = make_vec_env(lambda: PlainTaskAllocation(), n_envs=4, seed=seed)
    return PPO(
        "MlpPolicy", env, seed=seed, device="cpu", n_steps=2048, batch_size=64, n_epochs=10, gamma=0.99, gae_lambda=0.95,
        ent_coef=0.01, learning_rate=lambda left: 3e-4 * (0.1 + 0.9 * left),
        policy_kwargs={"net_arch": {"pi": [256, 256, 128], "vf": [256, 256, 128]}, "activation_fn": torch.nn.ReLU},
    )  # fmt: skip


OFF_POLICY = {"env.n_envs": 1, "policy.hidden": (256, 256), "schedule.kind": "constant"}
ZOO_PPO = {
    "env.n_envs": 8, "policy.hidden": (64, 64), "policy.activation": "tanh", "schedule.final_fraction": 0.0, "ppo.n_steps": 32,
    "ppo.minibatch_size": 256, "ppo.epochs": 20, "ppo.learning_rate": 1e-3, "ppo.gamma": 0.98, "ppo.gae_lambda": 0.8,
    "ppo.entropy_coefficient": 0.0,
}  # fmt: skip
PLAIN_PPO = {
    **ZOO_PPO, "env.n_envs": 4, "ppo.n_steps": 128, "ppo.minibatch_size": 128, "ppo.epochs": 4, "ppo.learning_rate": 2.5e-4,
    "ppo.gamma": 0.99, "ppo.gae_lambda": 0.95, "ppo.entropy_coefficient": 0.01, "ppo.clip_range_value": 0.2,
}  # fmt: skip
TASKS = {
    "sac": Task(
        environment="Pendulum-v1",
        steps=4_000,
        gradient_steps=3_900,
        settings={
            **OFF_POLICY, "algorithm": "sac", "sac.learning_rate": 1e-3, "sac.learning_starts": 100, "sac.replay_size": 20_000,
        },
        peer=sac_peer,
        bars={"torch": {"peer": 1.2}, "compiled": {"peer": 2.0}},
        warm_up=600,
        products=sac_products,
    ),
    "dqn": Task(
        environment="CartPole-v1",
        steps=20_480,
        gradient_steps=(20_480 - 1_024) // 2,
        settings={
            **OFF_POLICY, "algorithm": "dqn", "dqn.learning_rate": 2.3e-3, "dqn.minibatch_size": 64, "dqn.replay_size": 100_000,
            "dqn.learning_starts": 1_000, "dqn.train_every": 256, "dqn.gradient_steps": 128, "dqn.target_every": 128,
            "dqn.double": False, "dqn.epsilon_fraction": 0.16, "dqn.epsilon_end": 0.04,
        },
        peer=dqn_peer,
        bars={"torch": {"peer": 1.2}, "compiled": {"peer": 3.0}},
        warm_up=1_536,
        products=dqn_products,
    ),
    "ppo_cartpole": Task(
        environment="learnproof/CartPole-v1",
        steps=99_840,
        gradient_steps=99_840 // 256 * 20,
        settings=ZOO_PPO,
        peer=zoo_ppo_peer,
        bars={"compiled": {"peer": 7.0, "jax": 0.9}},
        warm_up=512,
        jitted="ZOO",
        goal=475.0,
    ),
    "ppo_gymnasium": Task(
        environment="CartPole-v1",
        steps=49_920,
        gradient_steps=49_920 // 256 * 20,
        settings=ZOO_PPO,
        peer=zoo_ppo_peer,
        bars={"compiled": {"peer": 3.0}},
        warm_up=512,
    ),
    "ppo_plain": Task(
        environment="learnproof/CartPole-v1",
        steps=512_000,
        gradient_steps=1_000 * 16,
        settings=PLAIN_PPO,
        peer=None,
        bars={"compiled": {"peer": 22.0, "jax": 0.9}},
        warm_up=1_024,
        jitted="PLAIN",
        goal=475.0,
    ),
    "ppo_allocation": Task(
        environment="learnproof/TaskAllocation-v0",
        steps=12 * 8_192,
        gradient_steps=12 * 10 * 128,
        settings={},
        peer=allocation_peer,
        bars={"compiled": {"peer": 4.0}},
        warm_up=8_192,
        products=allocation_products,
        flushed=True,
    ),
}  # fmt: skip
