"""What the classic environments share: the arrays of N instances, the form of their kernels, and drawing by Gymnasium's renderers.

Every environment has two kernels over the batch (envs/native.py), with the same arguments:

    begin_rows(settings, rows, state, steps, streams, observation)
    step_rows(settings, rows, actions, state, steps, observation, reward, terminated, truncated) -> how many have ended

    settings  record [1]   the rules (Rules.as_record)       rows     bool [N]       the instances concerned
    state     float64 [N, S]  positions and speeds           steps    int64 [N]      of the present episode
    actions   int64 [N] choices, or float32 [N, A]           streams  uint64 [N, 4]  random_streams.py

A time limit is told as Gymnasium's TimeLimit tells it: `truncated` at the last step, whether or not it is also `terminated`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from pydantic import Field

from ...errors import UsageError
from ..native import Batch, NativeEnv
from ..rules import Rules, make_rules
from ..single import SingleEnv
from ..vector import Array


class ClassicRules(Rules):
    """What all of them have."""

    episode_steps: int = Field(500, ge=1, le=1_000_000_000)
    """Steps after which an episode is truncated."""

    @abstractmethod
    def observation_bounds(self) -> Array:
        """[D]: the largest value of each number of an observation; the least is its opposite, unless `observation_lows` says so."""

    def observation_lows(self) -> Array:
        lows: Array = -self.observation_bounds()
        return lows


class ClassicVector(NativeEnv):
    """N instances; the arguments are the fields of their rules."""

    rules_type: ClassVar[type[ClassicRules]]
    state_names: ClassVar[tuple[str, ...]]
    """The columns of the state."""

    def __init__(
        self, num_envs: int = 1, autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP, **arguments: Any
    ) -> None:
        self.rules: ClassicRules = make_rules(self.rules_type, arguments)
        space = Box(self.rules.observation_lows(), self.rules.observation_bounds(), dtype=np.float32)
        super().__init__(num_envs, space, self._action_space(), autoreset_mode)
        self._physical = np.zeros((num_envs, len(self.state_names)))
        self._steps = np.zeros(num_envs, np.int64)
        place = self._physical, self._steps
        answers = self._observation, self._reward, self._terminated, self._truncated
        self.batch = Batch(
            self.rules.as_record(), (*place, self._streams, self._observation), (*place, *answers), (), *answers
        )

    @abstractmethod
    def _action_space(self) -> Box | Discrete: ...

    @property
    def state(self) -> Array:
        """[N, S]: positions and speeds, in the order of `state_names`."""
        return self._physical.copy()

    def _state(self) -> dict[str, Array]:
        return {"state": self._physical, "steps": self._steps}

    def _settings(self) -> dict[str, float]:
        return self.rules.as_numbers()

    def _faults(self, state: Mapping[str, Array]) -> str:
        if not np.isfinite(state["state"]).all():
            return "a position or a speed is not a finite number"
        wrong = (state["steps"] < 0) | (state["steps"] > self.rules.episode_steps)
        if wrong.any():
            return f"a step is {state['steps'][wrong][0]}, outside 0..{self.rules.episode_steps}"
        return ""


class ClassicSingle(SingleEnv[ClassicVector]):
    """One instance, drawn by Gymnasium's own environment of the same name, which is handed the state."""

    batch_type: ClassVar[type[ClassicVector]]
    twin_id: ClassVar[str]
    """Gymnasium's own."""

    def __init__(self, render_mode: str | None = None, **arguments: Any) -> None:
        super().__init__(self.batch_type(1, AutoresetMode.DISABLED, **arguments), render_mode)
        self._painter: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        answer = super().reset(seed=seed, options=options)
        self._draw_for_a_person()
        return answer

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        answer = super().step(action)
        self._draw_for_a_person()
        return answer

    def render(self) -> Any:
        if self.render_mode is None:
            raise UsageError(
                "Made without a render_mode, this cannot be drawn: gymnasium.make(..., render_mode='rgb_array')."
            )
        if self._painter is None:
            self._painter = gym.make(self.twin_id, render_mode=self.render_mode).unwrapped
        self._painter.state = self._batch.state[0]
        self._pose(self._painter)
        return self._painter.render()

    def _pose(self, painter: Any) -> None:
        """What the painter wants to know besides the state."""

    def _draw_for_a_person(self) -> None:
        if self.render_mode == "human":
            self.render()

    def close(self) -> None:
        if self._painter is not None:
            self._painter.close()
            self._painter = None


def drawn_at(fps: int) -> dict[str, Any]:
    return {"render_modes": ["human", "rgb_array"], "render_fps": fps}
