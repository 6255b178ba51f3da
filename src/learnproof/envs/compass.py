"""Compass: a walker reaches a mark on a plain by steps in eight directions. The discrete reference task.

State: the way from the walker to the mark, (x, y), which is also the observation. A step pays what it brings nearer, and the mark
pays 1 more and ends the episode. In nearly every state one direction is the best, so that a policy that has learnt has made up its
mind: its entropy falls from log 8 = 2.08 towards 0.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode
from pydantic import Field, model_validator

from .classic_control.batch import ClassicRules, ClassicVector
from .kernel import kernel
from .random_streams import uniform_between
from .single import SingleEnv
from .vector import Array

DIRECTIONS = 8


class CompassRules(ClassicRules):
    title: ClassVar[str] = "Compass"

    episode_steps: int = Field(50, ge=1, le=1_000_000_000)
    step_length: float = Field(0.1, gt=0)
    reach: float = Field(0.1, gt=0)
    """The mark is reached within this distance."""
    nearest_start: float = Field(0.5, gt=0)
    farthest_start: float = Field(2.0, gt=0)
    """Distance of the mark at reset, uniform between the two, in any direction."""

    @model_validator(mode="after")
    def _starts_away_from_the_mark(self) -> CompassRules:
        if not self.reach < self.nearest_start <= self.farthest_start:
            raise ValueError("reach must be below nearest_start, and nearest_start not above farthest_start")
        return self

    def observation_bounds(self) -> Array:
        farthest = self.farthest_start + self.step_length * self.episode_steps
        return np.array([farthest, farthest], np.float32)


@kernel
def begin_rows(settings: Array, rows: Array, state: Array, steps: Array, streams: Array, observation: Array) -> None:
    rules = settings[0]
    for row in range(rows.shape[0]):
        if rows[row]:
            steps[row] = 0
            angle = uniform_between(streams[row], -math.pi, math.pi)
            distance = uniform_between(streams[row], rules.nearest_start, rules.farthest_start)
            state[row, 0], state[row, 1] = distance * math.cos(angle), distance * math.sin(angle)
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
    """Direction k of eight points at the angle k * 45 degrees."""
    ended = 0
    rules = settings[0]
    for row in range(rows.shape[0]):
        if not rows[row]:
            continue
        angle = actions[row] * (2 * math.pi / DIRECTIONS)
        before = math.hypot(state[row, 0], state[row, 1])
        state[row, 0] -= rules.step_length * math.cos(angle)
        state[row, 1] -= rules.step_length * math.sin(angle)
        after = math.hypot(state[row, 0], state[row, 1])
        steps[row] += 1
        terminated[row] = after <= rules.reach
        truncated[row] = steps[row] >= rules.episode_steps
        reward[row] = before - after + (1.0 if terminated[row] else 0.0)
        observation[row] = state[row]
        ended += terminated[row] or truncated[row]
    return ended


class CompassVector(ClassicVector):
    """learnproof/Compass-v0, many at once."""

    rules_type = CompassRules
    state_names = ("x", "y")
    begin_kernel = staticmethod(begin_rows)
    step_kernel = staticmethod(step_rows)

    def _action_space(self) -> Discrete:
        return Discrete(DIRECTIONS)


class Compass(SingleEnv[CompassVector]):
    """learnproof/Compass-v0."""

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        super().__init__(CompassVector(1, AutoresetMode.DISABLED, **arguments), render_mode)
