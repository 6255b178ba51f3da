"""From finished episodes to the rollout that a learner takes, and what the episodes' log-probabilities say of who acted.

Episodes end where they end, so they are laid end to end. PPO gets them in several columns of nearly equal length, so that sums over
time are short; a memory gets them in one, since it counts every row of a rollout as a step.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..algorithms.learner import Rollout
from ..algorithms.returns import truncated_importance
from ..policies.actor import NetworkActor
from ..policies.networks import ActorCritic
from ..policies.normalization import ObservationNormalizer
from ..policies.recurrent import Sequences
from .episode_results import ReadEpisode

Array = np.ndarray[Any, Any]
MOST_COLUMNS = 32
SAME_POLICY = 1e-4
"""Difference of two log-probabilities up to which they are one and the same: float32 rounding, as in proof/identity.py."""
OWN_UP_TO_KL = 0.05
"""Divergence per action up to which the policy that acted counts as the learning one or a near version of it; an update of
PPO moves a policy by 0.01 to 0.02."""
LARGEST_LOG_RATIO = 20.0


@dataclass(frozen=True)
class ImportanceStatistics:
    """Of the ratios pi / mu: how likely the learning policy takes the actions, over how likely the one that acted did."""

    mean: float
    """Before truncation. Whoever acted, at most 1 is expected, if the log-probabilities are those of the actions."""
    mean_error: float
    """Its standard error."""
    smallest: float
    largest: float
    truncated_share: float
    """Actions whose ratio is above 1, and is cut to it."""
    effective_share: float
    """Independent samples that the weighted ones are worth, over their number; 1 where the learning policy itself acted."""
    kl: float
    """Divergence of the learning policy from the one that acted, per action."""


@dataclass(frozen=True)
class Behaviour:
    """Who acted, as far as the log-probabilities tell."""

    log_prob: list[Array]
    """What the learning policy gives the actions of each episode."""
    same: bool
    """The log-probabilities given are the learning policy's own, but for rounding."""
    own: list[bool]
    """Of each episode, whether the learning policy or one near it acted."""
    statistics: ImportanceStatistics


def behaviour_of(actor: NetworkActor, episodes: Sequence[ReadEpisode]) -> Behaviour | None:
    """None where an episode came without log-probabilities."""
    given = [episode.log_prob for episode in episodes if episode.log_prob is not None]
    if len(given) < len(episodes):
        return None
    ends = np.cumsum([len(episode) for episode in episodes])[:-1]
    action = np.concatenate([episode.action for episode in episodes])
    device = actor.device
    with torch.inference_mode():
        params = _policy_params(actor, episodes, device)
        told = actor.head.log_prob_and_entropy(params, torch.from_numpy(action).to(device))[0]
    log_prob = told.cpu().numpy().astype(np.float64)
    theirs = np.concatenate(given)
    log_ratio = np.clip(log_prob - theirs, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    ratio = np.exp(log_ratio)
    divergence = ratio - 1 - log_ratio
    difference = np.abs(log_prob - theirs) / np.maximum(1.0, np.abs(theirs))
    weight = truncated_importance(log_prob, theirs)
    return Behaviour(
        log_prob=np.split(log_prob, ends),
        same=bool(difference.max() <= SAME_POLICY),
        own=[float(part.mean()) <= OWN_UP_TO_KL for part in np.split(divergence, ends)],
        statistics=ImportanceStatistics(
            mean=float(ratio.mean()),
            mean_error=float(ratio.std(ddof=1) / np.sqrt(len(ratio))) if len(ratio) > 1 else 0.0,
            smallest=float(ratio.min()),
            largest=float(ratio.max()),
            truncated_share=float(np.mean(log_ratio > SAME_POLICY)),
            effective_share=float(weight.sum() ** 2 / (weight**2).sum() / len(weight)),
            kl=float(divergence.mean()),
        ),
    )


def _policy_params(actor: NetworkActor, episodes: Sequence[ReadEpisode], device: torch.device) -> Tensor:
    """Of every step, one episode after the other; with a memory, each from an empty one."""
    if actor.network.memory is None:
        rows = _read(actor.normalizer, np.concatenate([episode.observation for episode in episodes]))
        return actor.network.policy_params(torch.from_numpy(rows).to(device))
    assert isinstance(actor.network, ActorCritic)
    laid = _Laid(episodes, MOST_COLUMNS)
    parts = [_read(actor.normalizer, episode.observation) for episode in episodes]
    begins = laid.out([np.arange(len(episode)) == 0 for episode in episodes], bool)
    chosen = [
        (start + np.arange(len(e))) * laid.columns + n for (start, n), e in zip(laid.places, episodes, strict=True)
    ]
    return actor.network.policy_params(
        Sequences(
            rows=torch.from_numpy(laid.out(parts, parts[0].dtype)).to(device),
            memory=actor.network.memory.empty(laid.columns),
            begins=torch.from_numpy(begins).to(device),
            chosen=torch.from_numpy(np.concatenate(chosen)).to(device),
        )
    )


def rollout_for_gradients(
    episodes: Sequence[ReadEpisode],
    behaviour: Behaviour,
    normalizer: ObservationNormalizer | None,
    reward_scale: float,
) -> Rollout:
    """In columns, rows as the network reads them; with importance, where another policy acted."""
    laid = _Laid(episodes, MOST_COLUMNS)
    theirs = laid.out([episode.log_prob for episode in episodes], np.float32)
    rollout = laid.rollout(normalizer, reward_scale)
    if behaviour.same:
        rollout.log_prob = theirs
        return rollout
    rollout.log_prob = laid.out(behaviour.log_prob, np.float32)
    rollout.behaviour_log_prob = theirs
    rollout.importance = truncated_importance(rollout.log_prob, theirs)
    return rollout


def rollout_for_memory(episodes: Sequence[ReadEpisode], reward_scale: float) -> Rollout:
    """In one column, rows as they were given: a memory normalises what it gives."""
    return _Laid(episodes, 1).rollout(None, reward_scale)


def one_column(episodes: Sequence[ReadEpisode]) -> tuple[Array, Array]:
    """All rewards and all ends, [T, 1]: what a reward scaler reads."""
    reward = np.concatenate([episode.reward for episode in episodes])[:, None]
    ended = np.zeros(reward.shape, bool)
    ended[np.cumsum([len(episode) for episode in episodes]) - 1] = True
    return reward, ended


class _Laid:
    """Episodes end to end in at most `columns` columns: the longest first, each into the shortest column so far."""

    def __init__(self, episodes: Sequence[ReadEpisode], columns: int) -> None:
        self.episodes = episodes
        self.columns = min(columns, len(episodes))
        self.places = [(0, 0)] * len(episodes)
        heap = [(0, column) for column in range(self.columns)]
        order = list(range(len(episodes)))
        if columns > 1:
            order.sort(key=lambda i: -len(episodes[i]))
        for i in order:
            height, column = heapq.heappop(heap)
            self.places[i] = (height, column)
            heapq.heappush(heap, (height + len(episodes[i]), column))
        self.height = max(height for height, _ in heap)

    def out(self, parts: Sequence[Array | None], dtype: Any) -> Array:
        """[T, N, ...]: one part [L, ...] for each episode; zeros below the end of a column."""
        first = parts[0]
        assert first is not None
        table = np.zeros((self.height, self.columns, *first.shape[1:]), dtype)
        for (start, column), part in zip(self.places, parts, strict=True):
            assert part is not None
            table[start : start + len(part), column] = part
        return table

    def rollout(self, normalizer: ObservationNormalizer | None, reward_scale: float) -> Rollout:
        episodes = self.episodes
        rows = [_read(normalizer, episode.observation) for episode in episodes]
        size, row_type = rows[0].shape[1], rows[0].dtype
        terminated = np.zeros((self.height, self.columns), bool)
        truncated = np.zeros_like(terminated)
        last = np.zeros((self.columns, size), row_type)
        final_rows, final_observation = [], []
        for (start, column), episode in zip(self.places, episodes, strict=True):
            end = start + len(episode) - 1
            terminated[end, column] = episode.terminated
            truncated[end, column] = not episode.terminated
            if not episode.terminated:
                final_rows.append(end * self.columns + column)
                final_observation.append(_read(normalizer, episode.final_observation[None])[0])
            if end == self.height - 1:
                last[column] = _read(normalizer, episode.final_observation[None])[0]
        return Rollout(
            observation=self.out(rows, row_type),
            action=self.out([episode.action for episode in episodes], np.float32),
            log_prob=np.zeros(terminated.shape, np.float32),
            reward=self.out([episode.reward for episode in episodes], np.float64),
            reward_scale=reward_scale,
            terminated=terminated,
            truncated=truncated,
            valid=self.out([np.ones(len(episode), bool) for episode in episodes], bool),
            last_observation=last,
            final_rows=np.array(final_rows, np.int64),
            final_observation=np.array(final_observation, row_type).reshape(-1, size),
        )


def _read(normalizer: ObservationNormalizer | None, rows: Array) -> Array:
    return rows if normalizer is None else normalizer.apply(rows)
