"""Acting with a policy that is being trained: on a copy that stands still until a training call has ended.

Whoever collects may do so while the next call trains in its thread. The copy keeps every action's log-probability that of one whole
policy; where the copy is older than the policy that learns from the episode, importance weights carry the difference.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from ..errors import UsageError
from ..policies.actor import Mode, NetworkActor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Choice:
    action: Any
    """For the environment."""
    log_prob: Any
    """For EpisodeResult.log_probs; None in deterministic mode."""
    drawn: Any
    """For EpisodeResult.actions: the same as `action`, but where a gaussian policy drew beyond the bounds of a Box."""
    memory: Any = None
    """What a recurrent policy remembers now: for the next step of the same episode. None of one without a memory."""


class ActingCopy:
    """`policy` is replaced as a whole by `renew`, never changed."""

    def __init__(self, actor: NetworkActor, observation_space: gym.Space[Any], noise: np.random.Generator) -> None:
        self.space = observation_space
        self.noise = noise
        self.policy = frozen(actor)
        self._drawing = threading.Lock()

    def renew(self, actor: NetworkActor) -> None:
        self.policy = frozen(actor)

    def act(self, observation: Any, mode: Mode, memory: Array | None) -> Choice:
        """For one observation."""
        if not self.policy.observations.is_single(observation):
            raise UsageError(
                "act() takes one observation, and this is a batch of them: act_many() acts on a batch, as a vector environment gives it."
            )
        empty: Any = gym.vector.utils.create_empty_array(self.space, 1)
        batch = gym.vector.utils.concatenate(self.space, [observation], empty)
        chosen = self.act_many(batch, mode, None if memory is None else memory[None])
        log_prob = None if chosen.log_prob is None else float(chosen.log_prob[0])
        remembered = None if chosen.memory is None else chosen.memory[0]
        return Choice(_first(chosen.action), log_prob, _first(chosen.drawn), remembered)

    def act_many(self, observations: Any, mode: Mode, memory: Array | None) -> Choice:
        """For a batch, as a vector environment gives it."""
        actor = self.policy
        if actor.observations.is_single(observations):
            raise UsageError("act_many() takes a batch of observations, and this is one of them: act() acts on one.")
        actor.observations.require_possible(observations)
        with self._drawing:
            acted = actor.act(observations, self.noise, mode, memory)
        assert acted.raw is not None
        drawn = actor.actions.to_environment(acted.raw, within_bounds=False)
        return Choice(acted.action, acted.log_prob, drawn, acted.memory)


def frozen(actor: NetworkActor) -> NetworkActor:
    """A copy that no learner trains."""
    made = copy.deepcopy(actor)
    made.network.requires_grad_(False)
    made.reset()
    return made


def _first(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {key: _first(value) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_first(value) for value in batch)
    return batch[0]
