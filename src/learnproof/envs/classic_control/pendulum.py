"""Pendulum: a torque too weak to lift it at once swings a pendulum up and holds it there. Gymnasium's Pendulum-v1.

State: angle θ (0 = upright), speed θ'. It never ends but by its time limit.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box
from pydantic import Field

from ..kernel import kernel
from ..random_streams import uniform_between
from ..vector import Array
from .batch import ClassicRules, ClassicSingle, ClassicVector, drawn_at


class PendulumRules(ClassicRules):
    title: ClassVar[str] = "Pendulum"

    episode_steps: int = Field(200, ge=1, le=1_000_000_000)
    g: float = Field(10.0, ge=0)
    """Gravity."""
    mass: float = Field(1.0, gt=0)
    length: float = Field(1.0, gt=0)
    torque_limit: float = Field(2.0, gt=0)
    speed_limit: float = Field(8.0, gt=0)
    step_seconds: float = Field(0.05, gt=0)
    start_angle: float = Field(math.pi, ge=0)
    start_speed: float = Field(1.0, ge=0)
    """At reset, uniform within this distance of 0."""

    def observation_bounds(self) -> Array:
        return np.array([1, 1, self.speed_limit], np.float32)


@kernel
def from_upright(angle: float) -> float:
    """The same angle in [-π, π)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi


@kernel
def cost(state: Array, torque: float) -> float:
    """θ² + 0.1 θ'² + 0.001 u², of the state before the step."""
    angle, speed = from_upright(state[0]), float(state[1])
    return angle**2 + 0.1 * speed**2 + 0.001 * torque**2


@kernel
def move(rules: Any, state: Array, torque: float) -> None:
    """θ'' = 3 g / (2 l) sin θ + 3 u / (m l²); the angle goes on by the new speed."""
    acceleration = 3 * rules.g / (2 * rules.length) * math.sin(state[0]) + 3.0 / (rules.mass * rules.length**2) * torque
    speed = state[1] + acceleration * rules.step_seconds
    speed = min(max(speed, -rules.speed_limit), rules.speed_limit)
    state[0] += speed * rules.step_seconds
    state[1] = speed


@kernel
def observe(state: Array, observation: Array) -> None:
    observation[0], observation[1], observation[2] = math.cos(state[0]), math.sin(state[0]), state[1]


@kernel
def begin_rows(settings: Array, rows: Array, state: Array, steps: Array, streams: Array, observation: Array) -> None:
    rules = settings[0]
    for row in range(rows.shape[0]):
        if rows[row]:
            steps[row] = 0
            state[row, 0] = uniform_between(streams[row], -rules.start_angle, rules.start_angle)
            state[row, 1] = uniform_between(streams[row], -rules.start_speed, rules.start_speed)
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
        torque = min(max(float(actions[row, 0]), -rules.torque_limit), rules.torque_limit)
        reward[row] = -cost(state[row], torque)
        move(rules, state[row], torque)
        steps[row] += 1
        terminated[row] = False
        truncated[row] = steps[row] >= rules.episode_steps
        observe(state[row], observation[row])
        ended += truncated[row]
    return ended


class PendulumVector(ClassicVector):
    """learnproof/Pendulum-v1, many at once."""

    rules_type = PendulumRules
    state_names = ("angle", "speed")
    begin_kernel = staticmethod(begin_rows)
    step_kernel = staticmethod(step_rows)

    def _action_space(self) -> Box:
        assert isinstance(self.rules, PendulumRules)
        return Box(-self.rules.torque_limit, self.rules.torque_limit, (1,), np.float32)


class Pendulum(ClassicSingle):
    """learnproof/Pendulum-v1."""

    metadata: dict[str, Any] = drawn_at(30)
    batch_type = PendulumVector
    twin_id = "Pendulum-v1"
    _torque: float | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        self._torque = None
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        answer = super().step(action)
        space = self._batch.single_action_space
        assert isinstance(space, Box)
        self._torque = float(np.clip(np.ravel(action)[0], space.low[0], space.high[0]))
        return answer

    def _pose(self, painter: Any) -> None:
        painter.last_u = self._torque
