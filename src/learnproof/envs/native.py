"""Environments whose kernels compiled code may call without Python in between: what they are, and in which form they hand themselves over.

    begin_rows(settings, rows, *batch.begin)                  an episode in each of these rows
    step_rows(settings, rows, actions, *batch.step)           one step of each of them -> how many have ended
    measure_rows(rows, *batch.tallies, figures)               the metrics [M, N] of the episodes that ended in these rows

`rows` is a mask [N]; `settings` a record [1]. What every environment has besides, compiled code reads under the names of `Batch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from .kernel import kernel
from .vector import Array, BatchEnv


class Batch(NamedTuple):
    """The live arrays of N instances."""

    settings: Array
    begin: tuple[Array, ...]
    step: tuple[Array, ...]
    tallies: tuple[Array, ...]
    observation: Array
    reward: Array
    terminated: Array
    truncated: Array


@kernel
def measures_nothing(rows: Array, figures: Array) -> None:
    return


class NativeEnv(BatchEnv):
    begin_kernel: ClassVar[Callable[..., None]]
    step_kernel: ClassVar[Callable[..., int]]
    measure_kernel: ClassVar[Callable[..., None]] = staticmethod(measures_nothing)
    metrics: ClassVar[tuple[str, ...]] = ()
    """The names of what `measure_kernel` gives."""
    batch: Batch
    """Made once, by the subclass: its arrays are only ever written into."""

    def _begin(self, rows: Array) -> None:
        type(self).begin_kernel(self.batch.settings, rows, *self.batch.begin)

    def _advance(self, rows: Array, actions: Array) -> int:
        return type(self).step_kernel(self.batch.settings, rows, actions, *self.batch.step)

    def _metrics(self, rows: Array) -> dict[str, Array]:
        figures = np.zeros((len(self.metrics), self.num_envs))
        type(self).measure_kernel(rows, *self.batch.tallies, figures)
        return {name: figures[place].copy() for place, name in enumerate(self.metrics)}
