"""Small environments whose every number is known, and ones that break their contract at a chosen step."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Clock(gym.Env):
    """Observation [episode, t]; reward t; ends after `length` steps, by termination in even episodes, by time in odd."""

    def __init__(self, length: int = 3) -> None:
        self.observation_space = spaces.Box(-1, 1e6, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.length = length
        self.episode = -1
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.episode += 1
        self.t = 0
        return self._look(), {}

    def step(self, action):
        self.t += 1
        ended = self.t >= self.length
        by_time = self.episode % 2 == 1
        return self._look(), float(self.t), ended and not by_time, ended and by_time, {"t": self.t}

    def _look(self):
        return np.array([self.episode, self.t], np.float32)


class Faulty(gym.Env):
    """Keeps its contract until step `at`, then breaks it in the way named by `fault`."""

    def __init__(self, fault: str = "none", at: int = 5) -> None:
        self.observation_space = spaces.Box(-10, 10, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.fault = fault
        self.at = at
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        observation: Any = np.ones(3, np.float32)
        reward: Any = 1.0
        if self.steps >= self.at:
            match self.fault:
                case "nan observation":
                    observation[1] = np.nan
                case "inf observation":
                    observation[2] = np.inf
                case "nan reward":
                    reward = float("nan")
                case "inf reward":
                    reward = float("inf")
                case "shape":
                    observation = np.ones(4, np.float32)
                case "dtype":
                    observation = np.ones(3, np.float64)
                case "text":
                    observation = np.array(["a", "b", "c"])
                case "reward text":
                    reward = "high"
                case "raises":
                    raise ZeroDivisionError("the simulator fell over")
        return observation, reward, False, self.steps % 10 == 0, {}


class Lever(gym.Env):
    """MultiDiscrete actions: reward 1 when both levers match the two shown symbols. Ten steps an episode."""

    def __init__(self) -> None:
        self.observation_space = spaces.MultiDiscrete([3, 4])
        self.action_space = spaces.MultiDiscrete([3, 4])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.t = 0
        return self._show(), {}

    def step(self, action):
        reward = float((np.asarray(action) == self.symbols).mean())
        self.t += 1
        return self._show(), reward, False, self.t >= 10, {}

    def _show(self):
        self.symbols = self.np_random.integers(0, [3, 4]).astype(np.int64)
        return self.symbols.copy()


class Pantry(gym.Env):
    """Dict observations and Dict actions: choose the fuller shelf, and pour as much as the gauge says."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "shelves": spaces.Box(0, 1, (2,), np.float32),
                "gauge": spaces.Discrete(3),
                "lamp": spaces.MultiBinary(2),
            }
        )
        self.action_space = spaces.Dict({"shelf": spaces.Discrete(2), "pour": spaces.Box(-1, 1, (1,), np.float32)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.t = 0
        return self._show(), {}

    def step(self, action):
        right_shelf = int(action["shelf"]) == int(np.argmax(self.seen["shelves"]))
        wanted = (self.seen["gauge"] - 1) * 0.5
        reward = float(right_shelf) - abs(float(action["pour"][0]) - wanted)
        self.t += 1
        return self._show(), reward, False, self.t >= 10, {}

    def _show(self):
        self.seen = {
            "shelves": self.np_random.random(2).astype(np.float32),
            "gauge": np.int64(self.np_random.integers(0, 3)),
            "lamp": self.np_random.integers(0, 2, 2).astype(np.int8),
        }
        return self.seen


def register_toys() -> None:
    for name, kind in (("Clock", Clock), ("Faulty", Faulty), ("Lever", Lever), ("Pantry", Pantry)):
        if f"toy/{name}-v0" not in gym.registry:
            gym.register(f"toy/{name}-v0", kind)


class Corridor(gym.vector.VectorEnv):
    """N walkers on nine cells; the right end pays 1, every step costs a little, 30 steps are the limit. It can be saved."""

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
        self.single_observation_space = gym.spaces.Box(-1, 1, (9,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        self.at, self.age = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)

    def reset(self, *, seed=None, options=None):
        self.at[:], self.age[:] = 0, 0
        return self.seen(), {}

    def seen(self):
        return np.eye(9, dtype=np.float32)[self.at]

    def step(self, action):
        self.at = np.clip(self.at + np.where(action == 1, 1, -1), 0, 8)
        self.age += 1
        terminated = self.at == 8
        truncated = (self.age >= 30) & ~terminated
        reward = np.where(terminated, 1.0, -0.01)
        infos = {}
        ended = terminated | truncated
        if ended.any():
            infos = {"final_obs": self.seen(), "_final_obs": ended, "final_info": {}}
            self.at[ended], self.age[ended] = 0, 0
        return self.seen(), reward, terminated, truncated, infos

    def snapshot(self):
        return {"at": self.at.copy(), "age": self.age.copy()}

    def restore(self, arrays):
        self.at, self.age = arrays["at"].copy(), arrays["age"].copy()


class Beam(gym.vector.VectorEnv):
    """N carts on a beam, a continuous push each; a step costs the square of the distance from the middle. Twelve steps, cut by time."""

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
        self.single_observation_space = gym.spaces.Box(-4, 4, (2,), np.float32)
        self.single_action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        self.random = np.random.default_rng(0)
        self.at, self.age = np.zeros(num_envs), np.zeros(num_envs, np.int64)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
            self.at = np.array([np.random.default_rng(s).uniform(-1, 1) for s in seeds])
            self.random = np.random.default_rng(seeds[0])
        else:
            self.at = self.random.uniform(-1, 1, self.num_envs)
        self.age[:] = 0
        return self.seen(), {}

    def seen(self):
        return np.stack([self.at, self.age / 12], axis=1).astype(np.float32)

    def step(self, action):
        self.at = np.clip(self.at + 0.4 * action[:, 0], -2, 2)
        self.age += 1
        reward = -(self.at**2)
        truncated = self.age >= 12
        infos = {}
        if truncated.any():
            infos = {"final_obs": self.seen(), "_final_obs": truncated, "final_info": {}}
            self.at[truncated], self.age[truncated] = self.random.uniform(-1, 1, truncated.sum()), 0
        return self.seen(), reward, np.zeros(self.num_envs, bool), truncated, infos


class Dive(gym.vector.VectorEnv):
    """N divers, `depth` levels: at each level one of two actions goes on and costs a little, the other ends the dive. Only the bottom pays, and
    chance finds it once in 2**depth dives. It can be saved, and begins lower where it is told to be easier."""

    def __init__(self, num_envs, depth=12):
        self.num_envs, self.depth = num_envs, depth
        self.start = 0
        self.metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
        self.single_observation_space = gym.spaces.Box(0, 1, (depth + 1,), np.float32)
        self.single_action_space = gym.spaces.Discrete(2)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        self.right = np.random.default_rng(1).integers(0, 2, depth)
        self.at = np.zeros(num_envs, np.int64)

    def set_difficulty(self, level):
        self.start = round((1 - level) * self.depth)

    def reset(self, *, seed=None, options=None):
        self.at[:] = self.start
        return self.seen(), {}

    def seen(self):
        return np.eye(self.depth + 1, dtype=np.float32)[self.at]

    def step(self, action):
        goes_on = action == self.right[self.at]
        self.at = self.at + goes_on
        bottom = self.at == self.depth
        reward = np.where(bottom, 1.0, np.where(goes_on, -0.01, 0.0))
        terminated = bottom | ~goes_on
        infos = {}
        if terminated.any():
            infos = {"final_obs": self.seen(), "_final_obs": terminated, "final_info": {}}
            self.at[terminated] = self.start
        return self.seen(), reward, terminated, np.zeros(self.num_envs, bool), infos

    def snapshot(self):
        return {"at": self.at.copy()}

    def restore(self, arrays):
        self.at = arrays["at"].copy()
