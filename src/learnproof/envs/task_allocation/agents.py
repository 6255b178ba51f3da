"""Task allocation with a row for each agent: many teams stepped by the same kernel, their agents by one shared policy.

The rules, the random streams and so the episodes are those of the joint form: the same seeds and actions give the same tasks,
rewards and metrics. Rewards are "individual" (each its own part; the parts sum to the team's) or "shared" (everybody gets the team's).
The state is "compact" (views.py) or "joint", the whole joint observation, which is large for large teams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium.spaces import Box

from ...errors import UsageError
from ..agents import OWN, STATE, AgentRewards, AgentRows
from .batch import TaskAllocationVector, TaskAllocationVectorV0, TaskAllocationVectorV1
from .rules import ACTIONS_PER_AGENT, AllocationRules
from .views import AgentViews

Array = np.ndarray[Any, Any]


class TaskAllocationAgents(AgentRows):
    """What both versions share; the other arguments are the fields of their rules."""

    batch_type: ClassVar[type[TaskAllocationVector]]

    def __init__(
        self,
        n_teams: int = 1,
        rewards: AgentRewards = "individual",
        state: Literal["compact", "joint"] = "compact",
        **arguments: Any,
    ) -> None:
        if rewards not in ("individual", "shared"):
            raise UsageError(f"rewards = {rewards!r}: agents are paid 'individual' or 'shared'.")
        if state not in ("compact", "joint"):
            raise UsageError(f"state = {state!r}: a critic sees a 'compact' state or the 'joint' observation.")
        self._teams = self.batch_type(max(1, n_teams), **arguments)
        self._individual = rewards == "individual"
        self._joint_state = state == "joint"
        self.views = AgentViews(self.rules)
        own_high, state_high = self.views.bounds()
        if self._joint_state:
            state_high = self.rules.observation_bounds()
        super().__init__(
            n_teams,
            [f"agent_{index}" for index in range(self.rules.n_agents)],
            Box(np.zeros_like(own_high), own_high),
            Box(np.zeros_like(state_high), state_high),
            Box(0.0, 1.0, (ACTIONS_PER_AGENT,), np.float32),
        )
        self.metric = self._teams.metric
        self.action_heads = self.rules.action_heads[:ACTIONS_PER_AGENT]

    @property
    def rules(self) -> AllocationRules:
        return self._teams.rules

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        if options:
            raise UsageError("Teams begin anew by themselves: reset() takes no options here.")
        joint, _ = self._teams.reset(seed=self.team_seeds(seed))
        return self._rows(joint), {}

    def step(self, actions: Array) -> tuple[dict[str, Array], Array, Array, Array, dict[str, Any]]:
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs, ACTIONS_PER_AGENT):
            raise UsageError(
                f"The actions have shape {actions.shape}, this environment takes {(self.num_envs, ACTIONS_PER_AGENT)}: one "
                "row for each agent of each team."
            )
        joint, reward, terminated, truncated, infos = self._teams.step(actions.reshape(self.n_teams, -1))
        self.team_reward = reward
        self.team_ended = terminated | truncated
        paid = self._teams.agent_rewards.reshape(-1) if self._individual else self._each(reward)
        rows_infos = self._of_ended(infos) if self.team_ended.any() else {}
        return self._rows(joint), paid, self._each(terminated), self._each(truncated), rows_infos

    def snapshot(self) -> dict[str, Array]:
        """The complete state, copied: that of the teams, since what agents see follows from it."""
        return self._teams.snapshot()

    def restore(self, snapshot: Mapping[str, Array]) -> dict[str, Array]:
        return self._rows(self._teams.restore(snapshot))

    def _rows(self, joint: Array) -> dict[str, Array]:
        own, state = self.views.of(joint)
        return {OWN: own.reshape(self.num_envs, -1), STATE: self._each(joint if self._joint_state else state)}

    def _each(self, of_teams: Array) -> Array:
        """[n_teams, ...] -> [rows, ...]: what holds for a team, for each of its agents."""
        repeated: Array = np.repeat(of_teams, self.team_size, axis=0)
        return repeated

    def _of_ended(self, infos: dict[str, Any]) -> dict[str, Any]:
        ended = self._each(self.team_ended)
        joint = np.zeros((self.n_teams, self.rules.observation_size), np.float32)
        for team in np.flatnonzero(self.team_ended):
            joint[team] = infos["final_obs"][team]
        return {
            "final_obs": self._rows(joint),
            "_final_obs": ended,
            "final_info": {name: self._each(value) for name, value in infos["final_info"].items()},
            "_final_info": ended.copy(),
        }


class TaskAllocationAgentsV0(TaskAllocationAgents):
    """learnproof/TaskAllocation-v0, agent by agent."""

    batch_type = TaskAllocationVectorV0


class TaskAllocationAgentsV1(TaskAllocationAgents):
    """learnproof/TaskAllocation-v1, agent by agent."""

    batch_type = TaskAllocationVectorV1
