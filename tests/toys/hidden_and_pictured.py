"""Tasks that a plain network cannot solve, or reads only as pictures: one that hides its cue, one that is an image.

Both are batch-first and can be saved. What an instance shows follows from its seed and the number of its episode.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space


class Seeded(gym.vector.VectorEnv):
    """N instances; a subclass has `draw(generator, i)`, `seen()`, `move(action)` -> reward, terminated, and the names of its state."""

    state: tuple[str, ...] = ()
    limit = 30

    def __init__(self, num_envs, observation_space, action_space, mode=AutoresetMode.SAME_STEP):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": mode}
        self.mode = mode
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.seeds, self.episode, self.age = (np.zeros(num_envs, np.int64) for _ in range(3))
        self.over = np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None):
        if options is not None and "reset_mask" in options:
            self._begin(options["reset_mask"])
            return self.seen(), {}
        if seed is not None:
            self.seeds[:] = seed if not isinstance(seed, int) else seed + np.arange(self.num_envs)
            self.episode[:] = -1
        self._begin(np.ones(self.num_envs, bool))
        return self.seen(), {}

    def _begin(self, which):
        self.episode[which] += 1
        self.age[which] = 0
        self.over[which] = False
        for i in np.flatnonzero(which):
            self.draw(np.random.default_rng([int(self.seeds[i]), int(self.episode[i])]), i)

    def step(self, action):
        asleep = self.over.copy()
        self.age += 1
        reward, terminated = self.move(np.asarray(action))
        truncated = (self.age >= self.limit) & ~terminated
        infos = {}
        if self.mode is AutoresetMode.NEXT_STEP and asleep.any():
            reward, terminated, truncated = (np.where(asleep, 0, x) for x in (reward, terminated, truncated))
            terminated, truncated = terminated.astype(bool), truncated.astype(bool)
            self._begin(asleep)
        ended = terminated | truncated
        self.over |= ended
        if self.mode is AutoresetMode.SAME_STEP and ended.any():
            infos = {"final_obs": self.seen(), "_final_obs": ended, "final_info": {}}
            self._begin(ended)
        return self.seen(), reward, terminated, truncated, infos

    def snapshot(self):
        names = ("seeds", "episode", "age", "over", *self.state)
        return {name: getattr(self, name).copy() for name in names}

    def restore(self, arrays):
        for name, array in arrays.items():
            setattr(self, name, array.copy())


class Cue(Seeded):
    """Left or right is shown at the first step only; after `delay` blank steps a lamp asks for it: 1 if right, else -1.

    At the lamp both cues look the same, so that whoever does not remember wins half of the time, whatever it does. With
    `cut`, the episode goes on for ever after the answer and a time limit ends it.
    """

    state = ("cue",)

    def __init__(self, num_envs, delay=4, mode=AutoresetMode.SAME_STEP, cut=False):
        super().__init__(num_envs, spaces.Box(0, 1, (3,), np.float32), spaces.Discrete(2), mode)
        self.delay, self.cut = delay, cut
        self.limit = delay + 1
        self.cue = np.zeros(num_envs, np.int64)

    def draw(self, generator, i):
        self.cue[i] = generator.integers(2)

    def seen(self):
        shown = np.zeros((self.num_envs, 3), np.float32)
        first = self.age == 0
        shown[first, self.cue[first]] = 1
        shown[self.age == self.delay, 2] = 1
        return shown

    def move(self, action):
        asked = self.age == self.delay + 1
        reward = np.where(asked, np.where(action == self.cue, 1.0, -1.0), 0.0)
        return reward, asked & (not self.cut)


class Dots(Seeded):
    """A picture of bytes: a bright dot walks in four directions and is to reach the dim one, in the middle. Each step costs 0.05."""

    state = ("at",)
    ways = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])

    def __init__(self, num_envs, side=8, channels_first=False, mode=AutoresetMode.SAME_STEP):
        shape = (1, side, side) if channels_first else (side, side, 1)
        super().__init__(num_envs, spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(4), mode)
        self.side, self.shape, self.limit = side, shape, 2 * side
        self.at = np.zeros((num_envs, 2), np.int64)

    def draw(self, generator, i):
        self.at[i] = generator.integers(0, self.side // 2, 2) + generator.integers(0, 2, 2) * (self.side // 2 + 1)
        self.at[i] = np.minimum(self.at[i], self.side - 1)

    def seen(self):
        picture = np.zeros((self.num_envs, self.side, self.side), np.uint8)
        every = np.arange(self.num_envs)
        picture[:, self.side // 2, self.side // 2] = 128
        picture[every, self.at[:, 0], self.at[:, 1]] = 255
        return picture.reshape(self.num_envs, *self.shape)

    def move(self, action):
        self.at = np.clip(self.at + self.ways[action], 0, self.side - 1)
        there = (self.at == self.side // 2).all(1)
        return np.where(there, 1.0, -0.05), there
