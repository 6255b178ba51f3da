"""Acting of DQN and SAC without torch; random numbers are drawn as their heads draw them (policies/greedy.py, soft.py)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ..policies.greedy import EpsilonGreedyHead
from ..policies.heads import CategoricalHead
from ..policies.soft import SquashedGaussianHead
from .heads import draw_choice
from .kernel import kernel
from .q_learning import QNet
from .soft_arrays import SoftNet
from .soft_numbers import log_deviation
from .towers import forward, room

Array = np.ndarray[Any, Any]


class _Tower:
    """What a tower says of any number of rows."""

    def __init__(self, vector: Array, layers: Array, tanh: bool) -> None:
        self.vector, self.layers, self.tanh = vector, layers, tanh
        self.work = np.empty(0, vector.dtype)

    def __call__(self, rows: Array) -> Array:
        needed = room(self.layers, len(rows))
        if len(self.work) < needed:
            self.work = np.empty(needed, self.vector.dtype)
        said: Array = forward(self.vector, self.layers, self.tanh, np.ascontiguousarray(rows), self.work)
        return said


class CompiledGreedy:
    def __init__(self, net: QNet, head: EpsilonGreedyHead) -> None:
        self.head = head
        self.tower = _Tower(net.vector, net.layers, net.tanh)

    def act(
        self, rows: Array, generator: np.random.Generator, mode: str, with_log_prob: bool
    ) -> tuple[Array, Array | None]:
        best = self.tower(rows).argmax(axis=1).astype(np.float32)
        if mode == "deterministic":
            return best[:, None], None
        chosen, epsilon, choices = best.copy(), float(self.head.epsilon), self.head.n_params
        explores = generator.random(len(chosen)) < epsilon
        if explores.any():
            chosen[explores] = generator.integers(0, choices, np.count_nonzero(explores))
        if not with_log_prob:
            return chosen[:, None], None
        chance = np.where(chosen == best, 1 - epsilon + epsilon / choices, epsilon / choices)
        return chosen[:, None], np.log(np.maximum(chance, 1e-30)).astype(np.float32)


class CompiledSquashed:
    def __init__(self, net: SoftNet, head: SquashedGaussianHead) -> None:
        self.head = head
        self.middle, self.stretch = net.middle, net.stretch
        self.tower = _Tower(net.actor, net.policy, net.tanh)

    def act(
        self, rows: Array, generator: np.random.Generator, mode: str, with_log_prob: bool
    ) -> tuple[Array, Array | None]:
        shape = (len(rows), len(self.middle))
        params = self.tower(rows)
        action = np.empty(shape, np.float32)
        if mode == "deterministic":
            squash_draw(params, np.zeros(shape, np.float32), self.middle, self.stretch, action)
            return action, None
        if bool(self.head.uniform):
            action[:] = self.middle + self.stretch * generator.uniform(-1, 1, shape).astype(np.float32)
        else:
            noise = generator.standard_normal(shape, dtype=np.float32)
            squash_draw(params, noise, self.middle, self.stretch, action)
        if not with_log_prob:
            return action, None
        told = self.head.log_prob_and_entropy(torch.from_numpy(params), torch.from_numpy(action))[0]
        return action, told.numpy()


class CompiledChoices:
    def __init__(self, net: SoftNet, head: CategoricalHead) -> None:
        self.head = head
        self.tower = _Tower(net.actor, net.policy, net.tanh)

    def act(
        self, rows: Array, generator: np.random.Generator, mode: str, with_log_prob: bool
    ) -> tuple[Array, Array | None]:
        logits = self.tower(rows)
        if mode == "deterministic":
            return logits.argmax(axis=1).astype(np.float32)[:, None], None
        action = np.empty((len(rows), 1), np.float32)
        draw_choices(logits, generator.random((len(rows), 1), dtype=np.float32), action)
        if not with_log_prob:
            return action, None
        told = self.head.log_prob_and_entropy(torch.from_numpy(logits), torch.from_numpy(action))[0]
        return action, told.numpy()


@kernel
def draw_choices(logits: Array, noise: Array, action: Array) -> None:
    for row in range(logits.shape[0]):
        action[row, 0] = draw_choice(logits, row, 0, logits.shape[1], noise[row, 0])


@kernel
def squash_draw(params: Array, noise: Array, middle: Array, stretch: Array, action: Array) -> None:
    """middle + stretch tanh(mean + noise * deviation)."""
    actions = action.shape[1]
    for row in range(action.shape[0]):
        for column in range(actions):
            deviation = math.exp(log_deviation(params, row, column, actions))
            u = params[row, column] + deviation * noise[row, column]
            action[row, column] = middle[column] + stretch[column] * math.tanh(u)
