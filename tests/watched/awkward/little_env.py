"""A walk on a line of seven places: the right end pays, sixteen steps are all there is."""

import gymnasium
import numpy as np


class Line(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-3.0, 3.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, slip=0.1):
        self.slip = slip
        self.place = 0
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = 0, 0
        return self._seen(), {}

    def step(self, action):
        forward = (int(action) == 1) != (self.np_random.random() < self.slip)
        self.place += 1 if forward else -1
        self.steps += 1
        ended = abs(self.place) == 3
        return self._seen(), float(self.place == 3), ended, not ended and self.steps >= 16, {"place": self.place}

    def _seen(self):
        return np.array([self.place, self.steps / 16], np.float32)
