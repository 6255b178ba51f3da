"""What an environment promises, checked where it is broken: shapes, dtypes, finite numbers, no surprise exceptions.

`CheckedEnv` looks at each single instance before Gymnasium copies its answer into a batch (copying would convert a wrong
dtype in silence). `check_batch` looks at what a vector environment returns. Both raise EnvironmentFault, before anything
of it has reached a network.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ..errors import EnvironmentFault

Array = np.ndarray[Any, Any]


class CheckedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """One instance whose every answer is compared with the spaces that it declared."""

    def __init__(self, env: gym.Env[Any, Any], cast_observations: bool) -> None:
        super().__init__(env)
        self.cast_observations = cast_observations
        self.episode = -1
        self.steps = 0
        self.steps_in_all = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.episode += 1
        self.steps = 0
        try:
            observation, info = self.env.reset(seed=seed, options=options)
        except Exception as error:
            raise self._raised(error, "reset") from error
        return self._checked(observation, self.env.observation_space, "observation", "reset"), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.steps_in_all += 1
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
        except Exception as error:
            raise self._raised(error, "step") from error
        observation = self._checked(observation, self.env.observation_space, "observation", "step")
        try:
            number = float(reward)
        except (TypeError, ValueError):
            raise self._fault(f"returned the reward {reward!r}, which is not one number", "step") from None
        return observation, number, bool(terminated), bool(truncated), info

    def _checked(self, value: Any, space: gym.Space[Any], name: str, call: str) -> Any:
        match space:
            case spaces.Dict():
                if not isinstance(value, dict) or set(value) != set(space.spaces):
                    keys = sorted(value) if isinstance(value, dict) else type(value).__name__
                    raise self._fault(f"returned {name} {keys}, its space has the keys {sorted(space.spaces)}", call)
                return {k: self._checked(value[k], inner, f"{name}[{k!r}]", call) for k, inner in space.spaces.items()}
            case spaces.Tuple():
                if not isinstance(value, tuple) or len(value) != len(space.spaces):
                    raise self._fault(
                        f"returned {name} {value!r:.80}, its space is a tuple of {len(space.spaces)}", call
                    )
                return tuple(
                    self._checked(value[i], inner, f"{name}[{i}]", call) for i, inner in enumerate(space.spaces)
                )
        array = np.asarray(value)
        if array.shape != (space.shape or ()):
            raise self._fault(f"returned {name} of shape {array.shape}, its space declares {space.shape}", call)
        if space.dtype is not None and array.dtype != space.dtype:
            self._check_dtype(array, space, name, call)
            return array.astype(space.dtype)
        return value

    def _check_dtype(self, array: Array, space: gym.Space[Any], name: str, call: str) -> None:
        if isinstance(space, spaces.Box):
            allowed = np.can_cast(array.dtype, space.dtype) or (
                self.cast_observations and np.can_cast(array.dtype, space.dtype, "same_kind")
            )
        else:
            allowed = np.issubdtype(array.dtype, np.integer) or array.dtype == bool
        if not allowed:
            raise self._fault(
                f"returned {name} of dtype {array.dtype}, its space declares {space.dtype}",
                call,
                "Convert it in the environment (.astype), or allow it with --env.cast-observations where both are floats.",
            )

    def _raised(self, error: Exception, call: str) -> EnvironmentFault:
        if isinstance(error, EnvironmentFault):
            return error
        return self._fault(
            f"raised {type(error).__name__}: {error}", call, "Its own traceback is shown beside this message."
        )

    def _fault(self, what: str, call: str, advice: str = "") -> EnvironmentFault:
        name = self.env.spec.id if self.env.spec else type(self.env.unwrapped).__name__
        place = f"step {self.steps} of" if call == "step" else "the reset of"
        place = f"{place} episode {self.episode} (step {self.steps_in_all} of this instance)"
        advice = advice or "Mend the environment, or wrap it so that it keeps its declared spaces."
        return EnvironmentFault(f"The environment {name} {what}, at {place}. No weights were changed by it. {advice}")


def check_finite(rows: Array, reward: Array | None, step: int, name: str) -> None:
    """Flattened observations [N, D] and rewards [N] hold no NaN and no Inf. The sum is a quick first look."""
    if not np.isfinite(rows.sum()) and not np.isfinite(rows).all():
        env, entry = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        raise EnvironmentFault(
            f"The environment {name} returned an observation with {rows[env, entry]} at entry {entry} of instance {env}, "
            f"at step {step} of training. No weights were changed by it. Likeliest cause: a division by zero or a logarithm "
            "of zero in the environment."
        )
    if reward is not None and not np.isfinite(reward).all():
        env = int(np.flatnonzero(~np.isfinite(reward))[0])
        raise EnvironmentFault(
            f"The environment {name} returned the reward {reward[env]} from instance {env}, at step {step} of training. "
            "No weights were changed by it. Likeliest cause: a division by zero or an overflow in the reward."
        )


def check_batch(env: gym.vector.VectorEnv[Any, Any, Any], answer: Any, step: int, name: str) -> None:
    """The answer of a vector environment has five parts of the declared sizes."""
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise EnvironmentFault(
            f"The environment {name} answered step {step} with {type(answer).__name__}, not five parts."
        )
    for what, part in zip(("rewards", "terminated", "truncated"), answer[1:4], strict=True):
        if np.shape(part) != (env.num_envs,):
            raise EnvironmentFault(
                f"The environment {name} returned {what} of shape {np.shape(part)} at step {step}; "
                f"with {env.num_envs} instances it must be ({env.num_envs},). No weights were changed by it."
            )
    _check_shapes(answer[0], env.single_observation_space, env.num_envs, "observations", step, name)


def _check_shapes(value: Any, space: gym.Space[Any], count: int, what: str, step: int, name: str) -> None:
    match space:
        case spaces.Dict():
            for key, inner in space.spaces.items():
                if not isinstance(value, dict) or key not in value:
                    raise EnvironmentFault(f"The environment {name} returned {what} without {key!r} at step {step}.")
                _check_shapes(value[key], inner, count, f"{what}[{key!r}]", step, name)
        case spaces.Tuple():
            for position, inner in enumerate(space.spaces):
                _check_shapes(value[position], inner, count, f"{what}[{position}]", step, name)
        case _:
            declared = (count, *(space.shape or ()))
            if np.shape(value) != declared:
                raise EnvironmentFault(
                    f"The environment {name} returned {what} of shape {np.shape(value)} at step {step}; its space declares "
                    f"{declared}. No weights were changed by it."
                )
