"""The PettingZoo form: each agent observes, acts and is rewarded by itself. Needs the extra "multiagent".

An agent observes [its own features, the slots (beginning with the one that its accept action concerns), its row of the
collaboration matrix, the mean of the team's features]; `state()` is the joint observation, for a central critic. With
view="compact" it observes what it does where env.per_agent trains it (views.py), which does not grow with the team.
Rewards are "shared" (everybody gets the team's) or "individual" (each its own part; the parts sum to the team's).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from gymnasium.spaces import Box

from ...errors import MissingExtra, UsageError
from .layout import observation_parts
from .rules import ACTIONS_PER_AGENT, AllocationRules
from .single import TaskAllocation, TaskAllocationV0, TaskAllocationV1
from .views import AgentViews

try:
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise MissingExtra("pettingzoo", "multiagent", "The PettingZoo form of task allocation") from error

Array = np.ndarray[Any, Any]

FORMS: dict[str, type[TaskAllocation]] = {"v0": TaskAllocationV0, "v1": TaskAllocationV1}


class TaskAllocationParallel(ParallelEnv):  # type: ignore[misc]
    """One team as a PettingZoo parallel environment."""

    def __init__(
        self,
        version: Literal["v0", "v1"] = "v1",
        reward: Literal["shared", "individual"] = "shared",
        view: Literal["whole", "compact"] = "whole",
        **arguments: Any,
    ) -> None:
        if version not in FORMS:
            raise UsageError(f"There is no version {version!r} of task allocation; known are {', '.join(FORMS)}.")
        if reward not in ("shared", "individual"):
            raise UsageError(f"reward = {reward!r}: agents are paid 'shared' or 'individual'.")
        if view not in ("whole", "compact"):
            raise UsageError(f"view = {view!r}: agents see 'whole' or 'compact' observations.")
        self.metadata = {"name": f"task_allocation_{version}", "render_modes": [], "is_parallelizable": True}
        self.render_mode = None
        self._team = FORMS[version](**arguments)
        self._individual = reward == "individual"
        self._compact = AgentViews(self.rules) if view == "compact" else None
        self.possible_agents = [f"agent_{index}" for index in range(self.rules.n_agents)]
        self.agents: list[str] = []
        self._joint = np.zeros(self.rules.observation_size, np.float32)
        high = self._views(self.rules.observation_bounds()).max(axis=0)
        self._observation_spaces = {name: Box(np.zeros_like(high), high) for name in self.possible_agents}
        self._action_spaces = {name: Box(0.0, 1.0, (ACTIONS_PER_AGENT,), np.float32) for name in self.possible_agents}

    @property
    def rules(self) -> AllocationRules:
        return self._team.rules

    @property
    def state_space(self) -> Box:
        space = self._team.observation_space
        assert isinstance(space, Box)
        return space

    def observation_space(self, agent: str) -> Box:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Box:
        return self._action_spaces[agent]

    def state(self) -> Array:
        return self._joint.copy()

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, dict[str, Any]]]:
        self._joint, _ = self._team.reset(seed=seed)
        self.agents = list(self.possible_agents)
        return self._by_agent(self._views(self._joint)), {name: {} for name in self.agents}

    def step(
        self, actions: dict[str, Array]
    ) -> tuple[dict[str, Array], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        missing = [name for name in self.agents if name not in actions]
        if missing or not self.agents:
            raise UsageError(
                f"No action was given for {', '.join(missing)}; every agent acts in each step."
                if self.agents
                else "The episode is over: call reset() before the next step()."
            )
        joint_action = np.concatenate([np.asarray(actions[name], np.float32).reshape(-1) for name in self.agents])
        self._joint, reward, _, truncated, info = self._team.step(joint_action)
        paid = self._team.agent_rewards if self._individual else np.full(len(self.agents), reward)
        names = self.agents
        self.agents = [] if truncated else list(names)
        return (
            self._by_agent(self._views(self._joint)),
            {name: float(value) for name, value in zip(names, paid, strict=True)},
            dict.fromkeys(names, False),
            dict.fromkeys(names, truncated),
            {name: dict(info) for name in names},
        )

    def _by_agent(self, views: Array) -> dict[str, Array]:
        return dict(zip(self.possible_agents, views, strict=True))

    def _views(self, joint: Array) -> Array:
        """[n_agents, size of one agent's observation]"""
        if self._compact is not None:
            compact: Array = self._compact.of(joint[None])[0][0]
            return compact
        parts = observation_parts(joint[None], self.rules)
        agents, slots, matrix = parts.agents[0], parts.slots[0], parts.matrix[0]
        team = agents.mean(axis=0)
        return np.stack(
            [
                np.concatenate(
                    [agents[i], np.roll(slots, -self.rules.slot_before(i), axis=0).reshape(-1), matrix[i], team]
                )
                for i in range(self.rules.n_agents)
            ]
        )
