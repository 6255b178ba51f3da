"""Small teams whose numbers are known, as PettingZoo parallel environments. They do not need pettingzoo itself."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces


class Team:
    """What the toys share: `n` agents with the same spaces, an episode of `steps` steps."""

    metadata: ClassVar[dict[str, Any]] = {"name": "team", "render_modes": []}
    steps = 8

    def __init__(self, n: int = 3) -> None:
        self.possible_agents = [f"worker_{i}" for i in range(n)]
        self.agents: list[str] = []
        self.random = np.random.default_rng(0)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.time = 0
        self.draw()
        return self.views(), {agent: {} for agent in self.agents}

    def draw(self) -> None:
        pass

    def close(self) -> None:
        pass


class Matching(Team):
    """Each agent sees a symbol of its own and is paid for naming it. In a team of n, chance earns n / 3 of n points a step.

    What an agent is paid depends on itself alone: paid by the team, it hears much of what others did.
    """

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def draw(self) -> None:
        self.symbols = self.random.integers(0, 3, len(self.possible_agents))

    def views(self) -> dict[str, Any]:
        return {a: int(s) for a, s in zip(self.possible_agents, self.symbols, strict=True) if a in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        right = {a: float(actions[a] == s) for a, s in self.views().items()}
        self.time += 1
        over = self.time >= self.steps
        self.draw()
        views, names = self.views(), list(self.agents)
        if over:
            self.agents = []
        share = float(np.mean(list(right.values())))
        return (
            views,
            right,
            dict.fromkeys(names, False),
            dict.fromkeys(names, over),
            {a: {"share_right": share} for a in names},
        )


class Leaving(Team):
    """Agent i leaves after i + 1 steps (terminated), the last one when the time is up (truncated). An agent sees [step, its number];
    it is paid its number + 1 for each step. The team earns 1 + 2 + 3, 2 + 3, 3, ..., 3."""

    steps = 5

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 10, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def views(self) -> dict[str, Any]:
        return {a: np.array([self.time, self.possible_agents.index(a)], np.float32) for a in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        assert set(actions) == set(self.agents), "only who is there acts"
        self.time += 1
        number = {a: self.possible_agents.index(a) for a in self.agents}
        last = len(self.possible_agents) - 1
        over = {a: i != last and self.time > i for a, i in number.items()}
        cut = {a: i == last and self.time >= self.steps for a, i in number.items()}
        views = self.views()
        self.agents = [a for a in self.agents if not (over[a] or cut[a])]
        return views, {a: float(i + 1) for a, i in number.items()}, over, cut, {a: {} for a in number}


class Stated(Leaving):
    """The same with a state of its own."""

    state_space = spaces.Box(0, 10, (1,), np.float32)

    def state(self) -> Any:
        return np.array([self.time], np.float32)


def make_matching(n: int = 3) -> Matching:
    return Matching(n)
