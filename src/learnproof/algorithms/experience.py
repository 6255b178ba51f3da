"""A rollout made ready for gradient steps: columns of rows, taken in any order and cut into minibatches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..policies.recurrent import Sequences
from .surrogate import Asked

ADVANTAGE_EPSILON = 1e-8


@dataclass
class Experience:
    """One row per valid transition, [B, ...]."""

    row: Tensor
    observation: Tensor
    action: Tensor
    old_log_prob: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor
    weight: Tensor | None = None
    """How much each row's action counts: its importance, where another policy acted."""
    sequences: Sequences | None = None
    """Of a minibatch for a network with a memory: how it reads these rows."""

    @property
    def read(self) -> Tensor | Sequences:
        """What the network is given."""
        return self.observation if self.sequences is None else self.sequences

    def take(self, index: Tensor) -> Experience:
        return self._of_each(lambda column: column.index_select(0, index))

    def stretch(self, start: int, stop: int) -> Experience:
        return self._of_each(lambda column: column[start:stop])

    def _of_each(self, part: Callable[[Tensor], Tensor]) -> Experience:
        columns = {name: getattr(self, name) for name in self.__dataclass_fields__}
        changed: dict[str, Any] = {name: None if c is None else part(c) for name, c in columns.items()}
        return Experience(**changed)

    @property
    def asked(self) -> Asked:
        return Asked(self.old_log_prob, self.advantage, self.value, self.target, self.weight)

    def __len__(self) -> int:
        return len(self.row)


def normalised(advantage: Tensor, size: int) -> Tensor:
    """Mean 0 and deviation 1 in each minibatch of `size` rows; the last one may be smaller."""
    whole = len(advantage) - len(advantage) % size
    parts = [advantage[:whole].view(-1, size), advantage[whole:].view(1, -1)]
    for position, part in enumerate(parts):
        if len(part) and part.shape[1] > 1:  # the deviation of one sample is not a number
            spread = part.std(1, keepdim=True) + ADVANTAGE_EPSILON
            parts[position] = (part - part.mean(1, keepdim=True)) / spread
    return torch.cat([part.flatten() for part in parts])
