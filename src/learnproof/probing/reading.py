"""Actions and values out of whatever a training function returned.

    a callable                      action = policy(observation)
    an object with predict          action, _ = policy.predict(observation, deterministic=True), as Stable-Baselines3 has it
    an object with act              learnproof's own actors
    a pair                          the policy and a function that gives the value of an observation

Values are read from the second of a pair, from a method `value`, and from the models of Stable-Baselines3 and of learnproof.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from ..errors import UsageError

Act = Callable[[np.ndarray], Any]
Value = Callable[[np.ndarray], float]


def read_policy(returned: Any, space: gym.Space[Any]) -> tuple[Act, Value | None]:
    """How to ask for an action and, where there is one, for a value."""
    policy, given = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    if policy is None:
        raise UsageError(
            "The training function returned nothing. Return what chooses the actions: a function from an observation to an "
            "action, or an object with predict(observation), as a Stable-Baselines3 model has it."
        )
    act = _act(policy)

    def checked(observation: np.ndarray) -> Any:
        action = act(observation)
        row = np.asarray(action)
        fits = row.size == 1 if isinstance(space, gym.spaces.Discrete) else row.size == int(np.prod(space.shape or ()))
        if not fits or not np.isfinite(row.astype(np.float64)).all():
            raise UsageError(
                f"For the observation {observation.tolist()} the policy gave {action!r}, which is no action of {space}. "
                "It is asked with one observation at a time, not with a batch."
            )
        if isinstance(space, gym.spaces.Discrete) and not 0 <= int(row.reshape(-1)[0]) < space.n:
            raise UsageError(
                f"For the observation {observation.tolist()} the policy gave {action!r}; {space} has no such."
            )
        return action

    return checked, given if given is not None else _value(policy)


def _act(policy: Any) -> Act:
    if hasattr(policy, "act_on_rows"):  # learnproof's own, which takes a batch
        return lambda observation: policy(observation[None])[0]
    if callable(getattr(policy, "predict", None)):
        return lambda observation: policy.predict(observation, deterministic=True)[0]
    if callable(policy):
        return lambda observation: policy(observation)
    raise UsageError(
        f"The training function returned a {type(policy).__name__}, which cannot be asked for an action. Return a function "
        "from an observation to an action, or an object with predict(observation)."
    )


def _value(policy: Any) -> Value | None:
    if callable(getattr(policy, "value", None)):
        return lambda observation: float(policy.value(observation))
    if hasattr(policy, "act_on_rows"):
        values = getattr(policy.network, "values", None)  # a policy that is trained through a critic has none
        return None if values is None else lambda observation: _number(values(_tensor(policy.read(observation[None]))))
    inner: Any = getattr(policy, "policy", None)
    if callable(getattr(inner, "predict_values", None)):
        return lambda observation: _number(inner.predict_values(_tensor(observation[None])))
    if callable(getattr(policy, "q_net", None)):
        return lambda observation: _number(policy.q_net(_tensor(observation[None])).max())
    return None


def _tensor(rows: np.ndarray) -> Any:
    import torch

    return torch.as_tensor(rows, dtype=torch.float32)


def _number(tensor: Any) -> float:
    return float(tensor.detach().reshape(-1)[0])
