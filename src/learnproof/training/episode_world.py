"""What an engine knows of the environment that its episodes come from: the spaces, and perhaps one to play for the proof."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ..config import EngineSettings, EnvSettings
from ..envs.making import AnyVectorEnv, EnvironmentSource, GivenEnvironment, RegisteredEnvironment
from ..errors import UsageError
from ..policies.actor import NetworkActor
from ..policies.spaces import ActionLayout
from .assembly import actor_for_spaces

LONGEST_DESCRIPTION = 300


@dataclass(frozen=True)
class EpisodeWorld:
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    source: EnvironmentSource | None
    """Where the policies are played for the proof; None where they cannot be."""

    @classmethod
    def of(
        cls,
        settings: EngineSettings,
        observation_space: gym.Space[Any] | None,
        action_space: gym.Space[Any] | None,
        evaluation_env: str | AnyVectorEnv | None,
    ) -> EpisodeWorld:
        """The spaces are those given, else the environment's own, else what state_dim and action_dim say."""
        source = _source((settings.evaluation_env or None) if evaluation_env is None else evaluation_env)
        if source is not None:
            with borrowed(source) as env:
                own = env.single_observation_space, env.single_action_space
            for given, its in zip((observation_space, action_space), own, strict=True):
                if given is not None and given != its:
                    raise UsageError(
                        f"The engine's space is {given} and that of evaluation_env is {its}: it is another task."
                    )
            observation_space, action_space = own
        return cls(
            observation_space or spaces.Box(-np.inf, np.inf, (settings.state_dim,), np.float32),
            action_space or _actions(settings),
            source,
        )

    @property
    def action_heads(self) -> tuple[str, ...]:
        """For each number of a raw action: a Beta where its Box has bounds, so that what is drawn is what is done."""
        heads: list[str] = []
        for leaf in ActionLayout(self.action_space).leaves:
            if isinstance(leaf.space, spaces.Box):
                bounded = np.isfinite(leaf.space.low) & np.isfinite(leaf.space.high)
                heads += ["beta" if inside else "gaussian" for inside in bounded.ravel()]
            else:
                heads += ["" for _ in range(leaf.start, leaf.stop)]
        return tuple(heads)

    def actor(self, settings: EngineSettings) -> NetworkActor:
        """An untrained one."""
        return actor_for_spaces(settings.of_run(), self.observation_space, self.action_space, self.action_heads)

    @property
    def described(self) -> dict[str, str]:
        return {
            "observation_space": str(self.observation_space)[:LONGEST_DESCRIPTION],
            "action_space": str(self.action_space)[:LONGEST_DESCRIPTION],
        }


@contextmanager
def borrowed(source: EnvironmentSource) -> Iterator[AnyVectorEnv]:
    """A look at an environment of the source, closed afterwards where it was made for this."""
    env = source.evaluation(1)
    assert env is not None
    try:
        yield env
    finally:
        if source.ours:
            env.close()


def _source(env: Any) -> EnvironmentSource | None:
    if env is None:
        return None
    if isinstance(env, str):
        return RegisteredEnvironment(EnvSettings(id=env))
    if isinstance(env, gym.Env):
        raise UsageError(
            f"evaluation_env wants a Gymnasium id or a vector environment, and {type(env.unwrapped).__name__} is a single one. Give its id, "
            "or wrap another one: gymnasium.vector.SyncVectorEnv([lambda: make_env()])."
        )
    return GivenEnvironment(env, env)


def _actions(settings: EngineSettings) -> gym.Space[Any]:
    if settings.actions == "continuous":
        return spaces.Box(-1.0, 1.0, (settings.action_dim,), np.float32)
    return spaces.Discrete(settings.action_dim)
