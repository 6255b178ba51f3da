"""Acrobot: two links hang from a joint; a torque between them swings the free end above a line. Gymnasium's Acrobot-v1.

State: angle θ1 of the first link (0 = down), angle θ2 of the second relative to it, and their speeds. -1 for each step until
the end is reached.
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

State = tuple[float, float, float, float]


class AcrobotRules(ClassicRules):
    title: ClassVar[str] = "Acrobot"

    gravity: float = Field(9.8, ge=0)
    first_length: float = Field(1.0, gt=0)
    first_mass: float = Field(1.0, gt=0)
    second_mass: float = Field(1.0, gt=0)
    first_center: float = Field(0.5, gt=0)
    second_center: float = Field(0.5, gt=0)
    """From a link's joint to its centre of mass."""
    inertia: float = Field(1.0, gt=0)
    """Of each link."""
    torque: float = Field(1.0, gt=0)
    """Choices 0, 1 and 2 apply minus this, nothing, and this."""
    first_speed_limit: float = Field(4 * math.pi, gt=0, le=1_000)
    second_speed_limit: float = Field(9 * math.pi, gt=0, le=1_000)
    step_seconds: float = Field(0.2, gt=0)
    goal_height: float = Field(1.0, ge=-2, le=2)
    """Above the joint, in lengths of a link."""
    start_range: float = Field(0.1, ge=0)
    """Each number of the state at reset, uniform within this distance of 0."""

    def observation_bounds(self) -> Array:
        return np.array([1, 1, 1, 1, self.first_speed_limit, self.second_speed_limit], np.float32)


@kernel
def slope(rules: Any, state: State, torque: float) -> State:
    """The state's derivative; the equations of Sutton and Barto's book, with a link's length l1, centres c and inertia I:

    d1  = m1 c1² + m2 (l1² + c2² + 2 l1 c2 cos θ2) + 2 I
    d2  = m2 (c2² + l1 c2 cos θ2) + I
    φ2  = m2 c2 g cos(θ1 + θ2 - π/2)
    φ1  = -m2 l1 c2 θ2'² sin θ2 - 2 m2 l1 c2 θ2' θ1' sin θ2 + (m1 c1 + m2 l1) g cos(θ1 - π/2) + φ2
    θ2'' = (τ + d2/d1 φ1 - m2 l1 c2 θ1'² sin θ2 - φ2) / (m2 c2² + I - d2²/d1)
    θ1'' = -(d2 θ2'' + φ1) / d1
    """
    first, second, first_speed, second_speed = state
    m1, m2, l1, c1, c2 = (
        rules.first_mass,
        rules.second_mass,
        rules.first_length,
        rules.first_center,
        rules.second_center,
    )
    inertia, g = rules.inertia, rules.gravity
    cosine, sine = math.cos(second), math.sin(second)
    d1 = m1 * c1**2 + m2 * (l1**2 + c2**2 + 2 * l1 * c2 * cosine) + inertia + inertia
    d2 = m2 * (c2**2 + l1 * c2 * cosine) + inertia
    phi2 = m2 * c2 * g * math.cos(first + second - math.pi / 2)
    phi1 = (
        -m2 * l1 * c2 * second_speed**2 * sine
        - 2 * m2 * l1 * c2 * second_speed * first_speed * sine
        + (m1 * c1 + m2 * l1) * g * math.cos(first - math.pi / 2)
        + phi2
    )
    second_acceleration = (torque + d2 / d1 * phi1 - m2 * l1 * c2 * first_speed**2 * sine - phi2) / (
        m2 * c2**2 + inertia - d2**2 / d1
    )
    return first_speed, second_speed, -(d2 * second_acceleration + phi1) / d1, second_acceleration


@kernel
def along(state: State, slopes: State, seconds: float) -> State:
    return (
        state[0] + seconds * slopes[0],
        state[1] + seconds * slopes[1],
        state[2] + seconds * slopes[2],
        state[3] + seconds * slopes[3],
    )


@kernel
def runge_kutta(rules: Any, state: State, torque: float) -> State:
    """Fourth order: s + h/6 (k1 + 2 k2 + 2 k3 + k4)."""
    seconds = rules.step_seconds
    k1 = slope(rules, state, torque)
    k2 = slope(rules, along(state, k1, seconds / 2.0), torque)
    k3 = slope(rules, along(state, k2, seconds / 2.0), torque)
    k4 = slope(rules, along(state, k3, seconds), torque)
    mixed = (
        k1[0] + 2 * k2[0] + 2 * k3[0] + k4[0],
        k1[1] + 2 * k2[1] + 2 * k3[1] + k4[1],
        k1[2] + 2 * k2[2] + 2 * k3[2] + k4[2],
        k1[3] + 2 * k2[3] + 2 * k3[3] + k4[3],
    )
    return along(state, mixed, seconds / 6.0)


@kernel
def wrapped(angle: float) -> float:
    """The same angle in [-π, π]."""
    while angle > math.pi:
        angle -= 2 * math.pi
    while angle < -math.pi:
        angle += 2 * math.pi
    return angle


@kernel
def move(rules: Any, state: Array, choice: int) -> None:
    moved = runge_kutta(rules, (state[0], state[1], state[2], state[3]), (choice - 1) * rules.torque)
    state[0] = wrapped(moved[0])
    state[1] = wrapped(moved[1])
    state[2] = min(max(moved[2], -rules.first_speed_limit), rules.first_speed_limit)
    state[3] = min(max(moved[3], -rules.second_speed_limit), rules.second_speed_limit)


@kernel
def end_height(state: Array) -> float:
    """Of the free end above the joint: -cos θ1 - cos(θ1 + θ2)."""
    return -math.cos(state[0]) - math.cos(state[1] + state[0])


@kernel
def observe(state: Array, observation: Array) -> None:
    observation[0], observation[1] = math.cos(state[0]), math.sin(state[0])
    observation[2], observation[3] = math.cos(state[1]), math.sin(state[1])
    observation[4], observation[5] = state[2], state[3]


@kernel
def begin_rows(settings: Array, rows: Array, state: Array, steps: Array, streams: Array, observation: Array) -> None:
    rules = settings[0]
    for row in range(rows.shape[0]):
        if rows[row]:
            steps[row] = 0
            for column in range(4):
                state[row, column] = uniform_between(streams[row], -rules.start_range, rules.start_range)
            observe(state[row], observation[row])


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
        terminated[row] = end_height(state[row]) > rules.goal_height
        truncated[row] = steps[row] >= rules.episode_steps
        reward[row] = 0.0 if terminated[row] else -1.0
        observe(state[row], observation[row])
        ended += terminated[row] or truncated[row]
    return ended


class AcrobotVector(ClassicVector):
    """learnproof/Acrobot-v1, many at once."""

    rules_type = AcrobotRules
    state_names = ("first_angle", "second_angle", "first_speed", "second_speed")
    begin_kernel = staticmethod(begin_rows)
    step_kernel = staticmethod(step_rows)

    def _action_space(self) -> Discrete:
        return Discrete(3)


class Acrobot(ClassicSingle):
    """learnproof/Acrobot-v1."""

    metadata: dict[str, Any] = drawn_at(15)
    batch_type = AcrobotVector
    twin_id = "Acrobot-v1"
