"""Environments for what is done with a trained policy: one of every kind of space, and ones that draw themselves."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Everything(gym.Env):
    """Every supported space on both sides, with starts, bounds and types that are easily got wrong. Reward 0, five steps."""

    def __init__(self, odd: bool = False) -> None:
        self.observation_space = spaces.Dict(
            {
                "picture": spaces.Box(0, 255, (2, 3), np.uint8),
                "gauge": spaces.Box(-np.inf, np.inf, (2,), np.float64),
                "kind": spaces.Discrete(3, start=5),
                "pair": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([[2, 3], [4, 2]]))),
                "count": spaces.Box(0, 9, (), np.uint32 if odd else np.int32),
            }
        )
        self.action_space = spaces.Dict(
            {
                "turn": spaces.Box(-2, 3, (2, 2), np.float64),
                "free": spaces.Box(-np.inf, np.inf, (1,), np.float32),
                "pick": spaces.Discrete(4, start=-1),
                "lamps": spaces.MultiBinary(3),
                "dials": spaces.MultiDiscrete([3, 2], start=[1, 0]),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.t += 1
        return self.observation_space.sample(), 0.0, False, self.t >= 5, {}


class Painter(gym.Env):
    """A dot that goes right until the edge; drawn by hand. `fault` breaks the drawing: text, a wrong shape, or an error."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, fault: str = "", length: int = 12) -> None:
        self.render_mode = render_mode
        self.fault = fault
        self.length = length
        self.observation_space = spaces.Box(0, 1, (3,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        return self._seen(), 1.0, self.t >= self.length, False, {}

    def render(self):
        match self.fault:
            case "shape":
                return np.zeros((4, 4), np.uint8)
            case "raises":
                raise RuntimeError("no display")
            case "missing":
                raise gym.error.DependencyNotInstalled("brushes are not installed")
        canvas = np.full((40, 60, 3), 255, np.uint8)
        canvas[15:25, 4 * self.t : 4 * self.t + 8] = (200, 30, 30)
        return canvas

    def _seen(self):
        return np.array([self.t / self.length, 0.5, 0.0], np.float32)


class Camera(gym.Env):
    """A picture of bytes, all of it noise but its brightness, which says the right button; `gauge` = a number beside it. Five steps."""

    def __init__(self, gauge: bool = False) -> None:
        picture = spaces.Box(0, 255, (8, 9, 2), np.uint8)
        number = spaces.Box(-1, 1, (1,), np.float32)
        self.gauge = gauge
        self.observation_space = spaces.Dict({"picture": picture, "number": number}) if gauge else picture
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def step(self, action):
        reward = float(action == self.right)
        self.t += 1
        return self._seen(), reward, False, self.t >= 5, {}

    def _seen(self):
        self.right = int(self.np_random.integers(3))
        picture = (self.np_random.integers(0, 86, (8, 9, 2)) + 85 * self.right).astype(np.uint8)
        return {"picture": picture, "number": np.zeros(1, np.float32)} if self.gauge else picture


def register_more_toys() -> None:
    for name, kind in (("Everything", Everything), ("Painter", Painter), ("Camera", Camera)):
        if f"toy/{name}-v0" not in gym.registry:
            gym.register(f"toy/{name}-v0", kind)
