"""How a policy with a memory learns from a rollout [T, N]: what it remembered at each step, and the sequences it is trained on.

    told = remember(network, rollout, to_tensor)          # one walk through the rollout, with the weights that acted
    table = SequenceTable(rollout, told, length, to_tensor)
    for part in table.shuffled(generator, 64):             # a minibatch: whole sequences, about 64 rows
        part.index, part.sequences()

Each environment's column is cut every `length` steps. A sequence starts with what was remembered when the policy acted, forgets it
where an episode begins inside, and is trained through no step before its first. Rows that stand for no step (valid is False) are read
like the others and never chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..policies.networks import ActorCritic
from ..policies.recurrent import Sequences
from .learner import Array, Rollout

ToTensor = Callable[[Array], Tensor]


@dataclass(frozen=True)
class Told:
    """What a walk through a rollout tells."""

    memory: Tensor
    """[T, N, H]: what was remembered before each step."""
    value: Array
    """[T, N]"""
    last_value: Array
    """[N]"""
    final_value: Array
    """[T, N]: of the observations that time limits hid, seen with what was remembered after the episode's last step; else 0."""


def episode_begins(rollout: Rollout) -> Array:
    """[T + 1, N]: nothing is remembered before this step. The first row is False: `rollout.memory` says what was remembered there."""
    begins = np.zeros((len(rollout.valid) + 1, rollout.valid.shape[1]), bool)
    begins[1:] = rollout.terminated | rollout.truncated | ~rollout.valid
    return begins


def remember(network: ActorCritic, rollout: Rollout, to_tensor: ToTensor) -> Told:
    """Step by step, as the policy acted: rounding is the same too."""
    assert network.memory is not None
    steps, envs = rollout.valid.shape
    ended = torch.from_numpy(episode_begins(rollout))
    with torch.inference_mode():
        memory = network.memory.empty(envs) if rollout.memory is None else to_tensor(rollout.memory)
        before, after, values = [], [], []
        for t in range(steps + 1):
            row = rollout.observation[t] if t < steps else rollout.last_observation
            memory = memory.masked_fill(ended[t].to(memory.device).unsqueeze(1), 0.0)
            before.append(memory)
            fed, memory = network.look(to_tensor(row), memory)
            after.append(memory)
            values.append(network.values_of(fed))
        value = torch.stack(values).cpu().numpy()
        final_value = np.zeros(steps * envs, np.float32)
        if len(rollout.final_rows):
            held = torch.stack(after[:-1]).flatten(0, 1)[torch.from_numpy(rollout.final_rows).to(memory.device)]
            fed, _ = network.look(to_tensor(rollout.final_observation), held)
            final_value[rollout.final_rows] = network.values_of(fed).cpu().numpy()
        remembered = torch.stack(before[:-1])
    return Told(remembered.clone(), value[:-1], value[-1], final_value.reshape(steps, envs))


class SequenceTable:
    def __init__(self, rollout: Rollout, told: Told, length: int, to_tensor: ToTensor) -> None:
        steps, self.envs = rollout.valid.shape
        self.length = min(length, steps)
        first = np.arange(0, steps, self.length)
        time = np.arange(self.length)[:, None] + np.repeat(first, self.envs)
        """[L, Q]: the step of the rollout at each place; sequence c * N + n starts in column n at step c * L."""
        column = np.tile(np.arange(self.envs), len(first))
        inside = time < steps
        row = np.where(inside, time, steps - 1) * self.envs + column
        counts = inside & rollout.valid.ravel()[row]
        kept = np.flatnonzero(counts.any(0))
        """Sequences without a single step are left out."""
        self.row, self.counts = row[:, kept], counts[:, kept]
        self.place = np.full(steps * self.envs, -1)
        self.place[self.row[self.counts]] = np.flatnonzero(self.counts.ravel())
        """The place l * Q + q of each row that counts."""
        rows = np.flatnonzero(rollout.valid.ravel())
        self.position = np.full(steps * self.envs, -1)
        self.position[rows] = np.arange(len(rows))
        """The row's place among the valid ones, in which experience lies."""
        self.observation = to_tensor(rollout.observation.reshape(steps * self.envs, -1))
        self.memory = told.memory.flatten(0, 1)[torch.from_numpy(self.row[0]).to(told.memory.device)]
        self.begins = to_tensor(episode_begins(rollout)[:-1].reshape(-1)[self.row])
        self.to_tensor = to_tensor

    def __len__(self) -> int:
        return len(self.row[0])

    def minibatches(self, rows: int) -> int:
        """How many an epoch has, of about so many rows."""
        return -(-len(self) // self._together(rows))

    def shuffled(self, generator: np.random.Generator, rows: int) -> list[SequenceBatch]:
        order, together = generator.permutation(len(self)), self._together(rows)
        return [SequenceBatch(self, order[i : i + together]) for i in range(0, len(self), together)]

    def of_rows(self, rows: Array) -> Sequences:
        """Whole sequences in which these rows of the rollout lie; they are chosen, in their order."""
        step, sequence = np.divmod(self.place[rows], len(self))
        picked, which = np.unique(sequence, return_inverse=True)
        return self.take(picked, step * len(picked) + which)

    def take(self, picked: Array, chosen: Array) -> Sequences:
        which = self.to_tensor(picked)
        row = self.to_tensor(self.row[:, picked].ravel())
        return Sequences(
            rows=self.observation.index_select(0, row).view(self.length, len(picked), -1),
            memory=self.memory.index_select(0, which),
            begins=self.begins.index_select(1, which),
            chosen=self.to_tensor(chosen),
        )

    def _together(self, rows: int) -> int:
        sequences: int = max(1, rows // self.length)
        return sequences


@dataclass(frozen=True)
class SequenceBatch:
    table: SequenceTable
    picked: Array
    """[S]: which sequences."""

    @property
    def index(self) -> Array:
        """[B]: their rows, as they lie among the valid ones."""
        table = self.table
        found: Array = table.position[table.row[:, self.picked][table.counts[:, self.picked]]]
        return found

    def sequences(self) -> Sequences:
        return self.table.take(self.picked, np.flatnonzero(self.table.counts[:, self.picked].ravel()))
