"""From a Gymnasium id to a vector environment that can be trained on, with errors that teach.

    source = RegisteredEnvironment(settings.env)     # or GivenEnvironment(vector_env, evaluation_env)
    env = source.training(n_envs)
    env = source.evaluation(n_envs)

Shipped environments run as one native batch; others as instances stepped one after the other (or in processes of their
own), each behind CheckedEnv. Where env.per_agent is set, rows are the agents of teams (team_making.py).
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from ..config import EnvSettings
from ..errors import LearnproofError, SettingsError, UnknownEnvironment, UsageError, did_you_mean
from . import register_environments
from .contract import CheckedEnv

AnyVectorEnv = VectorEnv[Any, Any, Any]
T = TypeVar("T")


class EnvironmentSource(Protocol):
    """Where a run's environments come from; `evaluation` is None where no second one can be had."""

    name: str
    ours: bool
    """Made here, and so closed here; what a caller made is the caller's to close."""

    def training(self, n_envs: int) -> AnyVectorEnv: ...

    def evaluation(self, n_envs: int) -> AnyVectorEnv | None: ...


class RegisteredEnvironment:
    """Any environment that Gymnasium knows by id."""

    ours = True

    def __init__(self, settings: EnvSettings) -> None:
        self.settings = settings
        self.name = settings.id
        self.spec = find_spec(settings.id)
        self._kwargs: dict[str, Any] = dict(settings.kwargs)

    def training(self, n_envs: int) -> AnyVectorEnv:
        how = self.settings.vectorization
        shipped = self.spec.namespace == "learnproof"
        if how == "native" and self.spec.vector_entry_point is None:
            raise SettingsError(f"{self.name} has no native vector form: set env.vectorization to auto, sync or async.")
        if how == "native" or (how == "auto" and shipped):
            return self._teach(lambda: gym.make_vec(self.spec, n_envs, "vector_entry_point", **self._kwargs))
        if how == "async":
            return self._teach(lambda: AsyncVectorEnv([self._single] * n_envs, autoreset_mode=AutoresetMode.SAME_STEP))
        return self._teach(lambda: SyncVectorEnv([self._single] * n_envs, autoreset_mode=AutoresetMode.SAME_STEP))

    def evaluation(self, n_envs: int) -> AnyVectorEnv:
        return self.training(n_envs)

    def single(self, render_mode: str | None = None) -> gym.Env[Any, Any]:
        """One instance by itself, for somebody who watches it."""
        drawn = {} if render_mode is None else {"render_mode": render_mode}
        return self._teach(lambda: self._single(**drawn))

    def _single(self, **more: Any) -> gym.Env[Any, Any]:
        if multiprocessing.parent_process() is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches workers too; the run, not they, decides
        env = gym.make(self.spec, disable_env_checker=True, **self._kwargs, **more)
        return CheckedEnv(env, self.settings.cast_observations)

    def _teach(self, make: Callable[[], T]) -> T:
        try:
            return make()
        except LearnproofError:
            raise
        except TypeError as error:
            if "argument" not in str(error):
                raise
            given = ", ".join(f"{k}={v!r}" for k, v in self.settings.kwargs.items()) or "none"
            raise SettingsError(f"{self.name} does not take the arguments in env.kwargs ({given}): {error}.") from error
        except gym.error.DependencyNotInstalled as error:
            raise UsageError(f"{self.name} needs a package that is not installed: {error}") from error


@dataclass
class GivenEnvironment:
    """Vector environments that the caller made; the second one, if given, is used to evaluate and to prove."""

    train_env: AnyVectorEnv
    evaluation_env: AnyVectorEnv | None = None
    name: str = ""
    ours: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            spec = getattr(self.train_env, "spec", None)
            self.name = spec.id if spec is not None else type(self.train_env).__name__

    def training(self, n_envs: int) -> AnyVectorEnv:
        return self.train_env

    def evaluation(self, n_envs: int) -> AnyVectorEnv | None:
        return self.evaluation_env


def find_spec(env_id: str) -> gym.envs.registration.EnvSpec:
    register_environments()
    if not env_id:
        raise UnknownEnvironment(
            "No environment was named. Try: learnproof train CartPole-v1, or `learnproof envs` for those that ship."
        )
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            sys.path.insert(0, os.getcwd())  # a module beside the user is meant as much as an installed one
            try:
                importlib.import_module(module)
            finally:
                sys.path.remove(os.getcwd())
        return gym.spec(name)
    except (gym.error.UnregisteredEnv, gym.error.Error, ImportError) as error:
        hint = did_you_mean(env_id, gym.registry.keys())
        raise UnknownEnvironment(
            f"There is no environment {env_id!r}.{hint} `learnproof envs` lists those that ship; any Gymnasium id works "
            f"once its package is installed (module:Id imports a module first). Gymnasium says: {_first_line(error)}"
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
