"""Teams seen as rows of agents: a vector environment with one row for each agent of each team.

    rows of team 0, rows of team 1, ...      row = team x team_size + agent

What a row shows has two parts: "own", what the agent itself sees and acts on, and "state", what is known of its whole team,
for a critic alone. So everything that works row by row (a policy, a rollout, advantages, a gradient step) works for agents
that share one network. What counts episodes and steps asks for teams: `team_reward`, `team_ended`, `n_teams`.

A team begins anew in the step in which its last agent ends (same-step autoreset). An agent that ends before its team does sits out until
then: its row is `absent`, belongs to no episode and teaches nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ..errors import UsageError

Array = np.ndarray[Any, Any]
AgentRewards = Literal["individual", "shared"]

OWN, STATE = "own", "state"


class AgentRows(VectorEnv[Any, Any, Any], ABC):
    """`n_teams` teams of `team_size` agents each, all with the same spaces."""

    metric: str = "return"
    """What a team's performance means: "return", or the name of a per-episode metric."""
    action_heads: tuple[str, ...] | None = None
    """For each number of one agent's action, the distribution that fits it, where the environment knows."""
    team_reward: Array
    """[n_teams]: what each team earned in the last step, whatever its agents were paid."""
    team_ended: Array
    """[n_teams]: whose episode ended in the last step."""
    absent: Array
    """[rows]: agents that sit out the coming step, because they ended before their team."""

    def __init__(
        self,
        n_teams: int,
        agents: Sequence[str],
        own_space: gym.Space[Any],
        state_space: gym.Space[Any],
        action_space: gym.Space[Any],
    ) -> None:
        if n_teams < 1:
            raise UsageError(f"{n_teams} teams were asked for: there is at least one.")
        self.n_teams = n_teams
        self.agents = tuple(agents)
        self.team_size = len(self.agents)
        self.num_envs = n_teams * self.team_size
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}
        self.own_space = own_space
        self.single_observation_space = spaces.Dict({OWN: own_space, STATE: state_space})
        self.single_action_space = action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(action_space, self.num_envs)
        self.team_reward = np.zeros(n_teams)
        self.team_ended = np.zeros(n_teams, bool)
        self.absent = np.zeros(self.num_envs, bool)

    @abstractmethod
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every team. A whole number seeds team i with seed + i; a sequence has one for each team."""

    def team_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.n_teams
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + team for team in range(self.n_teams)]
        if len(seed) != self.n_teams:
            raise UsageError(
                f"{len(seed)} seeds were given for {self.n_teams} teams; give one for each team, or one int."
            )
        return list(seed)


def agent_rows(env: VectorEnv[Any, Any, Any]) -> AgentRows | None:
    """The environment, where its rows are agents; None where each row is an instance by itself."""
    inner = env.unwrapped
    return inner if isinstance(inner, AgentRows) else None


def episodes_at_once(env: VectorEnv[Any, Any, Any]) -> int:
    """How many episodes are under way side by side, and so how many environment steps one step() is."""
    rows = agent_rows(env)
    return env.num_envs if rows is None else rows.n_teams


class OneTeam(gym.Env[Any, Any]):
    """One team in the form of a single environment, for somebody who watches it: an observation is that of all its agents."""

    def __init__(self, rows: AgentRows) -> None:
        self.rows = rows
        self.metadata = rows.metadata
        self.observation_space = rows.observation_space
        self.action_space = rows.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.rows.reset(seed=None if seed is None else [seed])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, _, truncated, infos = self.rows.step(action)
        info = {}
        if self.rows.team_ended[0]:
            observation = infos["final_obs"]
            info = {k: float(v[0]) for k, v in infos["final_info"].items() if not k.startswith("_")}
        ended, cut = bool(self.rows.team_ended[0]), bool(np.any(truncated))
        return observation, float(self.rows.team_reward[0]), ended and not cut, ended and cut, info

    def render(self) -> Any:
        return self.rows.render()

    def close(self) -> None:
        self.rows.close()
