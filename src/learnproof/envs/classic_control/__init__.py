"""Gymnasium's classic control as batches: the same spaces, dynamics, rewards, ends, time limits and starts, stepped by one kernel.

    gymnasium.make("learnproof/CartPole-v1")                      one instance
    gymnasium.make_vec("learnproof/CartPole-v1", num_envs=64)     many, one kernel

One file an environment: its numbers, its kernels with their formulas, its two forms. What they share is in batch.py.
"""

from __future__ import annotations

from .acrobot import Acrobot, AcrobotVector
from .cart_pole import CartPole, CartPoleVector
from .mountain_car import MountainCar, MountainCarVector
from .pendulum import Pendulum, PendulumVector

__all__ = [
    "Acrobot",
    "AcrobotVector",
    "CartPole",
    "CartPoleVector",
    "MountainCar",
    "MountainCarVector",
    "Pendulum",
    "PendulumVector",
]
