"""MountainCar: an engine too weak for the hill gathers speed in the valley first. Gymnasium's MountainCar-v0.

State: position x, speed v. -1 for each step until the goal is reached, so that nothing tells of it before it was reached once.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Discrete
from pydantic import Field, model_validator

from ..kernel import kernel
from ..random_streams import uniform_between
from ..vector import Array
from .batch import ClassicRules, ClassicSingle, ClassicVector, drawn_at


class MountainCarRules(ClassicRules):
    title: ClassVar[str] = "MountainCar"

    episode_steps: int = Field(200, ge=1, le=1_000_000_000)
    goal_position: float = 0.5
    goal_velocity: float = 0.0
    """The least speed at which the goal counts."""
    force: float = Field(0.001, ge=0)
    """Choices 0, 1 and 2 push by minus this, not at all, and by this."""
    gravity: float = Field(0.0025, ge=0)
    position_low: float = -1.2
    position_high: float = 0.6
    speed_limit: float = Field(0.07, gt=0)
    start_low: float = -0.6
    start_high: float = -0.4
    """Position at reset, uniform between the two, at rest."""

    @model_validator(mode="after")
    def _ranges_are_ordered(self) -> MountainCarRules:
        if self.start_low > self.start_high or self.position_low >= self.position_high:
            raise ValueError("start_low exceeds start_high, or position_low reaches position_high")
        return self

    def observation_bounds(self) -> Array:
        return np.array([self.position_high, self.speed_limit], np.float32)

    def observation_lows(self) -> Array:
        return np.array([self.position_low, -self.speed_limit], np.float32)


@kernel
def move(rules: Any, state: Array, choice: int) -> None:
    """v' = (choice - 1) force - gravity cos(3 x); the left wall takes all speed."""
    position, speed = state[0], state[1]
    speed += (choice - 1) * rules.force + math.cos(3 * position) * (-rules.gravity)
    speed = min(max(speed, -rules.speed_limit), rules.speed_limit)
    position = min(max(position + speed, rules.position_low), rules.position_high)
    if position == rules.position_low and speed < 0:
        speed = 0.0
    state[0], state[1] = position, speed


@kernel
def is_there(rules: Any, state: Array) -> bool:
    return bool(state[0] >= rules.goal_position and state[1] >= rules.goal_velocity)


@kernel
def begin_rows(settings: Array, rows: Array, state: Array, steps: Array, streams: Array, observation: Array) -> None:
    rules = settings[0]
    for row in range(rows.shape[0]):
        if rows[row]:
            steps[row] = 0
            state[row, 0] = uniform_between(streams[row], rules.start_low, rules.start_high)
            state[row, 1] = 0.0
            observation[row] = state[row]


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
        terminated[row] = is_there(rules, state[row])
        truncated[row] = steps[row] >= rules.episode_steps
        reward[row] = -1.0
        observation[row] = state[row]
        ended += terminated[row] or truncated[row]
    return ended


class MountainCarVector(ClassicVector):
    """learnproof/MountainCar-v0, many at once."""

    rules_type = MountainCarRules
    state_names = ("position", "speed")
    begin_kernel = staticmethod(begin_rows)
    step_kernel = staticmethod(step_rows)

    def _action_space(self) -> Discrete:
        return Discrete(3)


class MountainCar(ClassicSingle):
    """learnproof/MountainCar-v0."""

    metadata: dict[str, Any] = drawn_at(30)
    batch_type = MountainCarVector
    twin_id = "MountainCar-v0"
