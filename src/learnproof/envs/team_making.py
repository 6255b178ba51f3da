"""From settings to the environments of a run: any Gymnasium id, or, with env.per_agent, teams whose rows are agents.

    source = environment_source(settings.env)

Teams come from a shipped environment that has the form, or from a function that makes a PettingZoo parallel environment: the id is
then module:function, and env.kwargs are its arguments.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from ..config import EnvSettings
from ..errors import LearnproofError, SettingsError, UnknownEnvironment
from . import shipped_environments
from .agents import AgentRows, OneTeam
from .making import RegisteredEnvironment


def environment_source(settings: EnvSettings) -> RegisteredEnvironment | TeamEnvironment:
    if settings.per_agent:
        if settings.vectorization not in ("auto", "native"):
            raise SettingsError(
                f"env.vectorization = {settings.vectorization!r} does not apply to teams whose agents decide one by one: leave it at auto."
            )
        return TeamEnvironment(settings)
    if settings.rewards != EnvSettings().rewards:
        raise SettingsError(
            f"env.rewards = {settings.rewards!r} says what single agents are paid, and here one policy decides for all: set "
            "env.per_agent, or leave it out."
        )
    return RegisteredEnvironment(settings)


class TeamEnvironment:
    """Teams whose rows are agents."""

    ours = True

    def __init__(self, settings: EnvSettings) -> None:
        self.settings = settings
        self.name = settings.id
        self._shipped = {one.id: one.agents_entry_point for one in shipped_environments()}.get(settings.id)
        self._make = _load(self._shipped or settings.id)

    def training(self, n_envs: int) -> AgentRows:
        arguments: dict[str, Any] = dict(self.settings.kwargs)
        try:
            if self._shipped is not None:
                made = self._make(n_envs, rewards=self.settings.rewards, **arguments)
                assert isinstance(made, AgentRows)
                return made
            from .parallel_agents import ParallelAgents

            return ParallelAgents(lambda: self._make(**arguments), n_envs, self.settings.rewards, self.name)
        except LearnproofError:
            raise
        except TypeError as error:
            if "argument" not in str(error):
                raise
            given = ", ".join(f"{k}={v!r}" for k, v in arguments.items()) or "none"
            raise SettingsError(f"{self.name} does not take the arguments in env.kwargs ({given}): {error}.") from error

    def evaluation(self, n_envs: int) -> AgentRows:
        return self.training(n_envs)

    def single(self, render_mode: str | None = None) -> OneTeam:
        """One team by itself, for somebody who watches it."""
        if render_mode is None or self._shipped is not None:
            return OneTeam(self.training(1))
        from .parallel_agents import ParallelAgents

        arguments: dict[str, Any] = {**self.settings.kwargs, "render_mode": render_mode}
        return OneTeam(ParallelAgents(lambda: self._make(**arguments), 1, self.settings.rewards, self.name))


def _load(name: str) -> Callable[..., Any]:
    """The function (or class) module:function; a module beside the user is meant as much as an installed one."""
    module, _, attribute = name.rpartition(":")
    forms = (
        f"With env.per_agent, env.id is one of {', '.join(one.id for one in shipped_environments() if one.agents_entry_point)}, or module:function of a "
        "function that makes a PettingZoo parallel environment, e.g. pettingzoo.mpe.simple_spread_v3:parallel_env."
    )
    if not module:
        raise UnknownEnvironment(f"{name!r} has no form in which agents decide one by one. {forms}")
    try:
        sys.path.insert(0, os.getcwd())
        try:
            found = getattr(importlib.import_module(module), attribute)
        finally:
            sys.path.remove(os.getcwd())
    except (ImportError, AttributeError) as error:
        raise UnknownEnvironment(f"There is no {attribute!r} in a module {module!r} ({error}). {forms}") from None
    if not callable(found) or inspect.ismodule(found):
        raise UnknownEnvironment(f"{name!r} is a {type(found).__name__} and makes nothing. {forms}")
    made: Callable[..., Any] = found
    return made
