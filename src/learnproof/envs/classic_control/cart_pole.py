"""CartPole: a cart is pushed left or right so that the pole on it stays upright. Gymnasium's CartPole-v1.

State: position x, speed x', angle θ (0 = upright), angular speed θ'. It ends where |x| or |θ| passes its limit.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Discrete
from pydantic import Field

from ..kernel import kernel
from ..random_streams import uniform_between
from ..vector import Array
from .batch import ClassicRules, ClassicSingle, ClassicVector, drawn_at


class CartPoleRules(ClassicRules):
    title: ClassVar[str] = "CartPole"

    sutton_barto_reward: bool = False
    """0 for each step and -1 for the last, instead of 1 for each."""
    gravity: float = Field(9.8, ge=0)
    cart_mass: float = Field(1.0, gt=0)
    pole_mass: float = Field(0.1, gt=0)
    pole_half_length: float = Field(0.5, gt=0)
    force: float = Field(10.0, gt=0)
    """Of a push, in newtons."""
    step_seconds: float = Field(0.02, gt=0)
    position_limit: float = Field(2.4, gt=0)
    angle_limit: float = Field(12 * 2 * math.pi / 360, gt=0)
    """In radians."""
    start_range: float = Field(0.05, ge=0)
    """Each number of the state at reset, uniform within this distance of 0."""

    def observation_bounds(self) -> Array:
        """Twice the limits, so that the observation that ends an episode is inside."""
        bounds = [2 * self.position_limit, np.inf, 2 * self.angle_limit, np.inf]
        return np.array(bounds, np.float32)


@kernel
def accelerations(rules: Any, angle: float, angular_speed: float, force: float) -> tuple[float, float]:
    """With M = m_cart + m_pole and half the pole's length l (https://coneural.org/florian/papers/05_cart_pole.pdf):

    p   = (F + m_pole l θ'² sin θ) / M
    θ'' = (g sin θ - p cos θ) / (l (4/3 - m_pole cos² θ / M))
    x'' = p - m_pole l θ'' cos θ / M
    """
    cosine, sine = math.cos(angle), math.sin(angle)
    mass = rules.pole_mass + rules.cart_mass
    pole_moment = rules.pole_mass * rules.pole_half_length
    push = (force + pole_moment * (angular_speed * angular_speed) * sine) / mass
    angular = (rules.gravity * sine - cosine * push) / (
        rules.pole_half_length * (4.0 / 3.0 - rules.pole_mass * (cosine * cosine) / mass)
    )
    return push - pole_moment * angular * cosine / mass, angular


@kernel
def move(rules: Any, state: Array, choice: int) -> None:
    """Euler: each number goes on by what it was worth before the step."""
    x, speed, angle, angular_speed = state[0], state[1], state[2], state[3]
    force = rules.force if choice == 1 else -rules.force
    acceleration, angular = accelerations(rules, angle, angular_speed, force)
    state[0] = x + rules.step_seconds * speed
    state[1] = speed + rules.step_seconds * acceleration
    state[2] = angle + rules.step_seconds * angular_speed
    state[3] = angular_speed + rules.step_seconds * angular


@kernel
def has_fallen(rules: Any, state: Array) -> bool:
    return bool(abs(state[0]) > rules.position_limit or abs(state[2]) > rules.angle_limit)


@kernel
def begin_rows(settings: Array, rows: Array, state: Array, steps: Array, streams: Array, observation: Array) -> None:
    rules = settings[0]
    for row in range(rows.shape[0]):
        if rows[row]:
            steps[row] = 0
            for column in range(4):
                state[row, column] = uniform_between(streams[row], -rules.start_range, rules.start_range)
                observation[row, column] = state[row, column]


@kernel
def step_rows(
    settings: Array,
    rows: Array,
    actions: Array,
    state: Array,
    steps: Array,
    observation: Array,
    reward: Array,
    terminated: Array,
    truncated: Array,
) -> int:
    ended = 0
    rules = settings[0]
    for row in range(rows.shape[0]):
        if not rows[row]:
            continue
        move(rules, state[row], actions[row])
        steps[row] += 1
        terminated[row] = has_fallen(rules, state[row])
        truncated[row] = steps[row] >= rules.episode_steps
        if rules.sutton_barto_reward:
            reward[row] = -1.0 if terminated[row] else 0.0
        else:
            reward[row] = 1.0
        observation[row] = state[row]
        ended += terminated[row] or truncated[row]
    return ended


class CartPoleVector(ClassicVector):
    """learnproof/CartPole-v1, many at once."""

    rules_type = CartPoleRules
    state_names = ("position", "speed", "angle", "angular_speed")
    begin_kernel = staticmethod(begin_rows)
    step_kernel = staticmethod(step_rows)

    def _action_space(self) -> Discrete:
        return Discrete(2)


class CartPole(ClassicSingle):
    """learnproof/CartPole-v1."""

    metadata: dict[str, Any] = drawn_at(50)
    batch_type = CartPoleVector
    twin_id = "CartPole-v1"
