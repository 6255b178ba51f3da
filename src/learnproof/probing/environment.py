"""A rung as a Gymnasium environment, with discrete actions or, for learners that need them, with continuous ones."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from .rungs import Rung


class ProbeEnv(gym.Env[np.ndarray, Any]):
    """Plays a rung's table. Continuous actions are one number in [-1, 1], cut into as many equal parts as there are actions."""

    def __init__(self, rung: Rung, seed: int, continuous: bool = False) -> None:
        self.rung = rung
        self.continuous = continuous
        width = len(next(iter(rung.observations.values())))
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (width,), np.float32)
        if continuous:
            self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        else:
            self.action_space = gym.spaces.Discrete(rung.actions)
        self._state = ""
        self._np_random = np.random.default_rng(seed)
        self.action_space.seed(seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        starts = self.rung.starts
        self._state = str(self.np_random.choice(list(starts), p=list(starts.values())))
        return self.observe(self._state), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        outcomes = self.rung.moves[self._state][self.choice(action)]
        chances = [outcome.probability for outcome in outcomes]
        outcome = outcomes[int(self.np_random.choice(len(outcomes), p=chances))]
        self._state = outcome.then
        ended, cut = outcome.end == "terminated", outcome.end == "truncated"
        return self.observe(outcome.then), outcome.reward, ended, cut, {}

    def observe(self, state: str) -> np.ndarray:
        return np.array(self.rung.observations[state], np.float32)

    def choice(self, action: Any) -> int:
        """Which of the rung's actions this is."""
        if not self.continuous:
            return int(np.asarray(action).reshape(-1)[0])
        place = (float(np.asarray(action).reshape(-1)[0]) + 1.0) / 2.0
        return int(np.clip(np.floor(place * self.rung.actions), 0, self.rung.actions - 1))
