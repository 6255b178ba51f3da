"""Actors: everything that chooses actions, learned or not, behind one method.

    actor.act(observation, generator, mode) -> Acted(action, raw, log_prob)

`observation` is a batch as a vector environment gives it, `action` a batch as it takes it. `mode` is "sampled" or
"deterministic". An actor holds no random state of its own: the same observation, generator state and mode give the same
action.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from .heads import Head
from .networks import PolicyNetwork
from .normalization import ObservationNormalizer
from .spaces import ActionLayout, ObservationLayout

Array = np.ndarray[Any, Any]
Mode = Literal["sampled", "deterministic"]


@dataclass(frozen=True)
class Acted:
    action: Any
    """What the environment is given."""
    raw: Array | None = None
    """The flat row that the head drew, before bounds and types: what a learner stores."""
    log_prob: Array | None = None
    """Of the raw action; None where the actor has no probabilities, or was asked for its deterministic action."""


class Actor(Protocol):
    def act(self, observation: Any, generator: np.random.Generator, mode: Mode) -> Acted: ...


class NetworkActor:
    """A network with its layouts and its normaliser: what training improves and what a checkpoint restores."""

    def __init__(
        self,
        network: PolicyNetwork,
        observations: ObservationLayout,
        actions: ActionLayout,
        normalizer: ObservationNormalizer | None,
    ) -> None:
        self.network = network
        self.observations = observations
        self.actions = actions
        self.normalizer = normalizer

    @property
    def head(self) -> Head:
        return self.network.head

    def named_tensors(self) -> list[tuple[str, Tensor]]:
        """All that decides how it acts: the network's parameters, and what its head keeps beside them."""
        return list(self.network.state_dict().items())

    def seen(self, observation: Any) -> Any:
        """What it acts on, of a batch that its environment shows: all of it."""
        return observation

    def read(self, observation: Any) -> Array:
        """The row that the network sees: flattened, then normalised by the moments as they stand."""
        rows = self.observations.flatten(self.seen(observation))
        return rows if self.normalizer is None else self.normalizer.apply(rows)

    def __call__(self, observation: Any) -> Any:
        """The deterministic actions for a batch of observations, or the one action for a single observation."""
        single = self.observations.is_single(observation)
        batch = self.observations.batch_of_one(observation) if single else observation
        actions = self.act(batch, np.random.default_rng(0), "deterministic").action
        return self.actions.first(actions) if single else actions

    def act(self, observation: Any, generator: np.random.Generator, mode: Mode) -> Acted:
        return self.act_on_rows(self.read(observation), generator, mode)

    def act_on_rows(
        self, rows: Array, generator: np.random.Generator, mode: Mode, *, with_log_prob: bool = True
    ) -> Acted:
        log_prob = None
        with torch.inference_mode():
            device = next(self.network.parameters()).device
            params = self.network.policy_params(torch.from_numpy(rows).to(device))
            if mode == "deterministic":
                raw = self.network.head.mode(params)
            else:
                raw = self.network.head.sample(params, generator)
                if with_log_prob:
                    log_prob = self.network.head.log_prob_and_entropy(params, raw)[0].cpu().numpy()
            flat = raw.cpu().numpy()
        return Acted(self.actions.to_environment(flat), flat, log_prob)


class RandomActor:
    """Uniform over the action space: the policy that knows nothing."""

    def __init__(self, action_space: gym.Space[Any]) -> None:
        self.actions = ActionLayout(action_space)

    def act(self, observation: Any, generator: np.random.Generator, mode: Mode) -> Acted:
        raw = self.actions.sample_uniform(_batch_size(observation), generator)
        return Acted(self.actions.to_environment(raw), raw)


class RuleActor:
    """A hand-written rule on a batch of observations: a dispatcher, a pacer, a constant."""

    def __init__(self, rule: Callable[[Any], Any]) -> None:
        self.rule = rule

    def act(self, observation: Any, generator: np.random.Generator, mode: Mode) -> Acted:
        return Acted(self.rule(observation))


def _batch_size(observation: Any) -> int:
    while isinstance(observation, (dict, tuple)):
        observation = next(iter(observation.values())) if isinstance(observation, dict) else observation[0]
    return len(observation)
