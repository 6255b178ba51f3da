"""Any PettingZoo parallel environment as rows of agents: n teams, stepped one after the other.

    train_env = ParallelAgents(make_env, 8)                   # make_env() gives a new ParallelEnv each time
    learnproof.train(train_env, evaluation_env=ParallelAgents(make_env, 10), steps=100_000)

All agents must have the same spaces: they share one network. What a critic sees is `state()` where the environment has it, else the observations of
all agents and who of them is there. A team's reward is the sum of what its agents were given in the step; with rewards = "shared" each
agent that acted is paid that sum. Agents may end before their team; until it begins anew their last observation stands in for them.

An environment may name what measures a team (`metric`); its value is read from the infos of the last step. Otherwise it is the return.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from ..errors import EnvironmentFault, LearnproofError, UnsupportedSpace, UsageError
from .agents import OWN, STATE, AgentRewards, AgentRows

Array = np.ndarray[Any, Any]


class ParallelAgents(AgentRows):
    def __init__(
        self, make_env: Callable[[], Any], n_teams: int = 1, rewards: AgentRewards = "individual", name: str = ""
    ) -> None:
        if rewards not in ("individual", "shared"):
            raise UsageError(f"rewards = {rewards!r}: agents are paid 'individual' or 'shared'.")
        self.envs = [_checked_env(make_env()) for _ in range(max(1, n_teams))]
        first = self.envs[0]
        self.name = name or str(getattr(first, "metadata", {}).get("name") or type(first).__name__)
        agents = list(first.possible_agents)
        own, action = _shared_space(first, agents, "observation_space"), _shared_space(first, agents, "action_space")
        self._shared_rewards = rewards == "shared"
        self._state_space = _own_state_space(first)
        whole = self._state_space or spaces.Dict(
            {"present": spaces.MultiBinary(len(agents)), "views": spaces.Tuple([own] * len(agents))}
        )
        super().__init__(n_teams, agents, own, whole, action)
        self.metric = getattr(first, "metric", "return")
        self.action_heads = getattr(first, "action_heads", None)
        self.metadata = {**self.metadata, "render_modes": list(first.metadata.get("render_modes") or [])}
        self._views: list[dict[str, Any]] = [{} for _ in self.envs]
        """What each agent of each team saw last."""
        self._present: list[list[str]] = [[] for _ in self.envs]

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if options:
            raise UsageError("Teams begin anew by themselves: reset() takes no options here.")
        for team, own_seed in enumerate(self.team_seeds(seed)):
            self._begin(team, own_seed)
        return self._observed(), {}

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        reward = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, bool)
        truncated = np.zeros(self.num_envs, bool)
        self.team_reward = np.zeros(self.n_teams)
        self.team_ended = np.zeros(self.n_teams, bool)
        singles = list(gym.vector.utils.iterate(self.action_space, actions))
        metrics: list[dict[str, float]] = [{} for _ in self.envs]
        for team in range(self.n_teams):
            first = team * self.team_size
            rows = slice(first, first + self.team_size)
            metrics[team] = self._step_team(team, singles[rows], reward[rows], terminated[rows], truncated[rows])
        ended = terminated | truncated
        infos: dict[str, Any] = {}
        if ended.any():
            infos = {"final_obs": self._observed(), "_final_obs": ended, **self._final_info(metrics)}
        for over in np.flatnonzero(self.team_ended):
            self._begin(int(over), None)
        return self._observed(), reward, terminated, truncated, infos

    def render(self) -> Any:
        return self.envs[0].render()

    def close_extras(self, **kwargs: Any) -> None:
        for env in self.envs:
            env.close()

    # ------------------------------------------------------------------ one team

    def _begin(self, team: int, seed: int | None) -> None:
        env = self.envs[team]
        views, _ = self._answer(lambda: env.reset(seed=seed), "reset", 2)
        present = [agent for agent in self.agents if agent in env.agents and agent in views]
        if not present:
            raise EnvironmentFault(
                f"The environment {self.name} began an episode without agents. Its reset() must give them."
            )
        stand_in = views[present[0]]
        self._views[team] = {agent: views.get(agent, stand_in) for agent in self.agents}
        self._set_present(team, present)

    def _step_team(
        self, team: int, actions: Sequence[Any], reward: Array, terminated: Array, truncated: Array
    ) -> dict[str, float]:
        env, acting = self.envs[team], self._present[team]
        index = {agent: position for position, agent in enumerate(self.agents)}
        chosen = {agent: actions[index[agent]] for agent in acting}
        views, paid, over, cut, infos = self._answer(lambda: env.step(chosen), "step", 5)
        total = 0.0
        staying = []
        for agent in acting:
            row = index[agent]
            if agent not in paid or agent not in over or agent not in cut or agent not in views:
                raise EnvironmentFault(
                    f"The environment {self.name} told nothing of {agent!r}, which had acted: observation, reward, termination and "
                    "truncation of a step must name every agent that took part in it."
                )
            reward[row] = float(paid[agent])
            terminated[row], truncated[row] = bool(over[agent]), bool(cut[agent])
            total += reward[row]
            self._views[team][agent] = views[agent]
            if not (terminated[row] or truncated[row]):
                staying.append(agent)
                if agent not in env.agents:
                    raise EnvironmentFault(
                        f"The environment {self.name} took {agent!r} out of its agents without saying that it terminated or was "
                        "truncated: what follows for it cannot be valued. One of the two must be true in its last step."
                    )
        if self._shared_rewards:
            reward[[index[agent] for agent in acting]] = total
        self.team_reward[team] = total
        joined = [agent for agent in env.agents if agent not in acting and agent in views and agent not in over]
        for agent in joined:
            self._views[team][agent] = views[agent]
        self.team_ended[team] = not staying and not joined
        self._set_present(team, [agent for agent in self.agents if agent in staying or agent in joined])
        return _numbers(infos, acting) if self.team_ended[team] else {}

    def _set_present(self, team: int, present: list[str]) -> None:
        self._present[team] = present
        first = team * self.team_size
        self.absent[first : first + self.team_size] = [agent not in present for agent in self.agents]

    def _answer(self, call: Callable[[], Any], name: str, parts: int) -> Any:
        try:
            answer = call()
        except LearnproofError:
            raise
        except Exception as error:
            raise EnvironmentFault(
                f"The environment {self.name} raised {type(error).__name__} in {name}(): {error}. Its own traceback is shown "
                "beside this message."
            ) from error
        if not isinstance(answer, tuple) or len(answer) != parts:
            raise EnvironmentFault(
                f"The environment {self.name} answered {name}() with {type(answer).__name__}, not {parts} parts."
            )
        return answer

    # ------------------------------------------------------------------ all of them

    def _observed(self) -> dict[str, Any]:
        own = [self._views[team][agent] for team in range(self.n_teams) for agent in self.agents]
        try:
            states = _batch(self._whole_space, [self._state_of(team) for team in range(self.n_teams)])
            return {OWN: _batch(self.own_space, own), STATE: _repeated(states, self.team_size)}
        except (ValueError, TypeError, LookupError) as error:
            raise EnvironmentFault(
                f"The environment {self.name} gave an observation or a state that does not fit its space ({error}); the space of an "
                f"agent is {self.own_space}. No weights were changed by it. Mend the environment so that it keeps its declared spaces."
            ) from error

    @property
    def _whole_space(self) -> gym.Space[Any]:
        assert isinstance(self.single_observation_space, spaces.Dict)
        return self.single_observation_space.spaces[STATE]

    def _state_of(self, team: int) -> Any:
        if self._state_space is not None:
            return np.asarray(self.envs[team].state(), self._state_space.dtype)
        present = np.array([agent in self._present[team] for agent in self.agents], np.int8)
        return {"present": present, "views": tuple(self._views[team][agent] for agent in self.agents)}

    def _final_info(self, metrics: list[dict[str, float]]) -> dict[str, Any]:
        names = sorted({name for own in metrics for name in own})
        info: dict[str, Array] = {}
        for name in names:
            info[name] = np.repeat([own.get(name, 0.0) for own in metrics], self.team_size)
            info[f"_{name}"] = np.repeat([name in own for own in metrics], self.team_size)
        return {"final_info": info, "_final_info": np.repeat(self.team_ended, self.team_size)}


def _batch(space: gym.Space[Any], singles: list[Any]) -> Any:
    empty: Any = create_empty_array(space, len(singles))
    return concatenate(space, singles, empty)


def _repeated(batch: Any, times: int) -> Any:
    """What holds for a team, for each of its agents."""
    if isinstance(batch, dict):
        return {key: _repeated(part, times) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_repeated(part, times) for part in batch)
    return np.repeat(batch, times, axis=0)


def _checked_env(env: Any) -> Any:
    if hasattr(env, "agent_selection") or not hasattr(env, "possible_agents"):
        raise UsageError(
            f"make_env gave a {type(env).__name__}, which is no PettingZoo parallel environment: agents must act at the same time and be "
            "listed in possible_agents. pettingzoo.utils.aec_to_parallel turns the other kind into one."
        )
    return env


def _shared_space(env: Any, agents: Sequence[str], kind: str) -> gym.Space[Any]:
    if not agents:
        raise UsageError(f"{type(env).__name__} has no possible_agents: there is nobody to train.")
    of = getattr(env, kind)
    first: gym.Space[Any] = of(agents[0])
    for agent in agents[1:]:
        if of(agent) != first:
            raise UnsupportedSpace(
                f"{agents[0]!r} has the {kind} {first} and {agent!r} has {of(agent)}: agents that share one network need the same "
                "spaces. Pad them to one size first (SuperSuit's pad_observations_v0 and pad_action_space_v0)."
            )
    return first


def _own_state_space(env: Any) -> gym.Space[Any] | None:
    """Of state(), where the environment has one."""
    try:
        env.reset(seed=0)
        state = np.asarray(env.state())
    except (NotImplementedError, AttributeError):
        return None
    declared = getattr(env, "state_space", None)
    if isinstance(declared, spaces.Box) and declared.shape == state.shape:
        return declared
    return spaces.Box(-np.inf, np.inf, state.shape, np.float32)


def _numbers(infos: Mapping[str, Mapping[str, Any]], agents: Sequence[str]) -> dict[str, float]:
    """What the infos of the last step tell in numbers; where several agents tell of one thing, the first one's."""
    found: dict[str, float] = {}
    for agent in agents:
        for key, value in infos.get(agent, {}).items():
            if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
                found.setdefault(key, float(value))
    return found
