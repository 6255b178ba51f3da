"""Actors: everything that chooses actions, learned or not, behind one method.

    actor.act(observation, generator, mode, memory) -> Acted(action, raw, log_prob, memory)

`observation` is a batch as a vector environment gives it, `action` a batch as it takes it. `mode` is "sampled" or
"deterministic". An actor holds no state of its own, random or remembered: the same observation, generator state, mode and memory
give the same action. What a recurrent policy remembers is given back at the next step; None is the memory of instances that have
seen nothing, and a row of zeros that of one whose episode begins. Other actors have no memory and give None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from ..errors import UsageError
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
    memory: Array | None = None
    """[N, H] what a recurrent policy remembers now."""


class Actor(Protocol):
    def act(
        self, observation: Any, generator: np.random.Generator, mode: Mode, memory: Array | None = None
    ) -> Acted: ...


class CompiledActing(Protocol):
    def act(
        self, rows: Array, generator: np.random.Generator, mode: str, with_log_prob: bool
    ) -> tuple[Array, Array | None]:
        """Raw actions and, of sampled ones, their log-probabilities."""
        ...


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
        self.compiled: CompiledActing | None = None
        """Acts in machine code, where there is such a backend for this network (compiled/acting.py)."""
        self._called_with: Array | None = None
        self._some_weight = next(network.parameters())

    @property
    def device(self) -> torch.device:
        return self._some_weight.device

    @property
    def memory_size(self) -> int:
        """Numbers that it remembers of each instance; 0 where it has no memory."""
        return 0 if self.network.memory is None else self.network.memory.width

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
        """The deterministic actions for a batch of observations, or the one action for a single observation.

        Of a recurrent policy, each call is the next step of the same episodes; `reset` begins new ones.
        """
        single = self.observations.is_single(observation)
        batch = self.observations.batch_of_one(observation) if single else observation
        self.observations.require_possible(batch)
        rows = self.read(batch)
        if self._called_with is not None and len(self._called_with) != len(rows):
            raise UsageError(
                f"This policy remembers {len(self._called_with)} episodes side by side and was now shown {len(rows)} observations. Call "
                "policy.reset() where new episodes begin, or use one load_policy() for each group."
            )
        acted = self.act_on_rows(rows, np.random.default_rng(0), "deterministic", memory=self._called_with)
        self._called_with = acted.memory
        return self.actions.first(acted.action) if single else acted.action

    def reset(self, ended: Array | None = None) -> None:
        """Forget what calls have shown of an episode, as before the first one: everything, or only where `ended` is true [N]. A policy
        without a memory has nothing to forget."""
        if ended is None or self._called_with is None:
            self._called_with = None
        else:
            self._called_with[np.asarray(ended, bool)] = 0

    def act(self, observation: Any, generator: np.random.Generator, mode: Mode, memory: Array | None = None) -> Acted:
        return self.act_on_rows(self.read(observation), generator, mode, memory=memory)

    def act_on_rows(
        self,
        rows: Array,
        generator: np.random.Generator,
        mode: Mode,
        *,
        with_log_prob: bool = True,
        memory: Array | None = None,
    ) -> Acted:
        if self.compiled is not None:
            flat, log_prob = self.compiled.act(rows, generator, mode, with_log_prob)
            return Acted(self.actions.to_environment(flat), flat, log_prob)
        log_prob = remembered = None
        with torch.inference_mode():
            seen = torch.from_numpy(rows).to(self.device)
            if self.network.memory is None:
                params = self.network.policy_params(seen)
            else:
                held = (
                    self.network.memory.empty(len(rows)) if memory is None else torch.from_numpy(memory).to(self.device)
                )
                params, held = self.network.recall(seen, held)
                remembered = held.cpu().numpy()
            if mode == "deterministic":
                raw = self.network.head.mode(params)
            else:
                raw = self.network.head.sample(params, generator)
                if with_log_prob:
                    log_prob = self.network.head.log_prob_and_entropy(params, raw)[0].cpu().numpy()
            flat = raw.cpu().numpy()
        return Acted(self.actions.to_environment(flat), flat, log_prob, remembered)


class RandomActor:
    """Uniform over the action space: the policy that knows nothing."""

    def __init__(self, action_space: gym.Space[Any]) -> None:
        self.actions = ActionLayout(action_space)

    def act(self, observation: Any, generator: np.random.Generator, mode: Mode, memory: Array | None = None) -> Acted:
        raw = self.actions.sample_uniform(_batch_size(observation), generator)
        return Acted(self.actions.to_environment(raw), raw)


class RuleActor:
    """A hand-written rule on a batch of observations: a dispatcher, a pacer, a constant."""

    def __init__(self, rule: Callable[[Any], Any]) -> None:
        self.rule = rule

    def act(self, observation: Any, generator: np.random.Generator, mode: Mode, memory: Array | None = None) -> Acted:
        return Acted(self.rule(observation))


def _batch_size(observation: Any) -> int:
    while isinstance(observation, (dict, tuple)):
        observation = next(iter(observation.values())) if isinstance(observation, dict) else observation[0]
    return len(observation)
