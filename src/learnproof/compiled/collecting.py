"""A whole rollout in one call, in environments that are kernels themselves: act, step, write down, begin anew.

These share the form of their kernels (envs/native.py), so that `rollout` is written once and compiled once for each of them, with that
environment's own kernels in it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from ..envs.native import Batch, NativeEnv
from .acting import sample
from .kernel import finite, kernel
from .network import Net, Room

Array = np.ndarray[Any, Any]


class Kept(NamedTuple):
    """What a rollout writes down, [T, N, ...]; of episodes that end, one line after the other, [T * N]."""

    observation: Array
    action: Array
    log_prob: Array
    reward: Array
    terminated: Array
    truncated: Array
    """Without those that terminated at the same step."""
    final_row: Array
    """t * N + n of each step that was cut by a time limit."""
    final_observation: Array
    ended_at: Array
    """t * N + n of each step at which an episode ended, in that order."""
    ended_return: Array
    ended_length: Array
    ended_figures: Array
    """[T * N, M]: its metrics."""


def make_kept(steps: int, count: int, size: int, width: int, figures: int) -> Kept:
    rows = steps * count
    return Kept(
        observation=np.empty((steps, count, size), np.float32),
        action=np.empty((steps, count, width), np.float32),
        log_prob=np.empty((steps, count), np.float32),
        reward=np.empty((steps, count)),
        terminated=np.empty((steps, count), np.bool_),
        truncated=np.empty((steps, count), np.bool_),
        final_row=np.empty(rows, np.int64),
        final_observation=np.empty((rows, size), np.float32),
        ended_at=np.empty(rows, np.int64),
        ended_return=np.empty(rows),
        ended_length=np.empty(rows, np.int64),
        ended_figures=np.empty((rows, figures)),
    )


def rollout_in(env: type[NativeEnv]) -> Callable[..., tuple[int, int, int]]:
    """`rollout` for this environment, compiled under a name of its own: under that it is kept on disk."""
    name = f"rollout_in_{env.step_kernel.__module__.rpartition('.')[2]}"
    if name not in _compiled:
        own = {"begin_rows": env.begin_kernel, "step_rows": env.step_kernel, "measure_rows": env.measure_kernel}
        function = FunctionType(rollout.__code__, {**rollout.__globals__, **own}, name)
        function.__qualname__ = name
        _compiled[name] = kernel(function)
    return _compiled[name]


_compiled: dict[str, Callable[..., tuple[int, int, int]]] = {}


def begin_rows(settings: Array, rows: Array, *arrays: Array) -> None:
    """The environment's own takes this place."""
    raise NotImplementedError


def step_rows(settings: Array, rows: Array, actions: Array, *arrays: Array) -> int:
    """The environment's own takes this place."""
    raise NotImplementedError


def measure_rows(rows: Array, *arrays: Array) -> None:
    """The environment's own takes this place."""
    raise NotImplementedError


def rollout(
    net: Net,
    batch: Batch,
    room: Room,
    generator: np.random.Generator,
    given: Array,
    low: Array,
    high: Array,
    returns: Array,
    lengths: Array,
    kept: Kept,
) -> tuple[int, int, int]:
    """As many steps as there is room for in `kept`. Gives how many were taken, how many episodes a time limit cut, how many ended: fewer steps
    where an action was not finite, which is then left in `given`.

    `given` is what the environment is handed: choices [N], counted from 0, or numbers [N, A], clipped to `low` and `high`. `returns` and
    `lengths` [N] are those of the episodes under way.
    """
    steps, count = kept.reward.shape
    everyone, over = np.ones(count, np.bool_), np.empty(count, np.bool_)
    figures = np.empty((kept.ended_figures.shape[1], count))
    cut = ended = 0
    for t in range(steps):
        kept.observation[t] = batch.observation
        sample(net, batch.observation, generator, room, kept.action[t], kept.log_prob[t])
        for n in range(count):
            if given.ndim == 1:
                given[n] = int(kept.action[t, n, 0])
            else:
                for column in range(given.shape[1]):
                    drawn = kept.action[t, n, column]
                    given[n, column] = min(max(drawn, low[column]), high[column])
                    if not finite(drawn):
                        given[n, column] = drawn
                        return t, cut, ended
        anybody = step_rows(batch.settings, everyone, given, *batch.step)
        for n in range(count):
            limit = batch.truncated[n] and not batch.terminated[n]
            kept.reward[t, n], kept.terminated[t, n], kept.truncated[t, n] = batch.reward[n], batch.terminated[n], limit
            returns[n] += batch.reward[n]
            lengths[n] += 1
            over[n] = batch.terminated[n] or batch.truncated[n]
        if not anybody:
            continue
        measure_rows(over, *batch.tallies, figures)
        for n in range(count):
            if kept.truncated[t, n]:
                kept.final_row[cut] = t * count + n
                kept.final_observation[cut] = batch.observation[n]
                cut += 1
            if over[n]:
                kept.ended_at[ended] = t * count + n
                kept.ended_return[ended], kept.ended_length[ended] = returns[n], lengths[n]
                kept.ended_figures[ended] = figures[:, n]
                ended += 1
                returns[n], lengths[n] = 0.0, 0
        begin_rows(batch.settings, over, *batch.begin)
    return steps, cut, ended
