"""Acting without torch: a policy tower, its head's draw, the log-probability.

    policy = CompiledPolicy(net, actor.head)
    raw, log_prob = policy.act(rows, generator, "sampled", with_log_prob=True)

Random numbers are drawn as the heads themselves draw them (policies/heads.py), part by part from the same generator, so that both backends
act alike but for rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..policies.heads import BetaHead, GaussianHead, Head, ProductHead
from .heads import draw, likeliest, log_prob_and_entropy, softplus
from .kernel import kernel
from .network import Net, Room, make_room
from .towers import forward

Array = np.ndarray[Any, Any]
ROWS_AT_ONCE = 256
"""What a tower reads in one go: activations of more rows than this leave the cache."""


class CompiledPolicy:
    def __init__(self, net: Net, head: Head) -> None:
        self.net = net
        self.parts = _parts_of(head)
        self.room = make_room(net, 1)

    def act(
        self, rows: Array, generator: np.random.Generator, mode: str, with_log_prob: bool
    ) -> tuple[Array, Array | None]:
        """Raw actions [N, A] and, of sampled ones, their log-probabilities [N]."""
        action = np.empty((len(rows), len(self.net.bounds)), np.float32)
        params = policy_params(self.net, rows, self.room_for(len(rows)))
        if mode == "deterministic":
            choose(self.net, params, action)
            return action, None
        noise = self._noise_for(params, generator)
        log_prob = np.empty(len(rows) if with_log_prob else 0, np.float32)
        sample(self.net, params, noise, action, log_prob)
        return action, log_prob if with_log_prob else None

    def room_for(self, rows: int) -> Room:
        if rows > len(self.room.fed):
            self.room = make_room(self.net, rows)
        return self.room

    @property
    def noise_is_known_before(self) -> bool:
        """Whether what a draw needs can be had before the network has spoken: not for a Beta, nor for parts that take turns."""
        return len(self.parts) == 1 and not isinstance(self.parts[0][0], BetaHead)

    def noise(self, steps: int, rows: int, generator: np.random.Generator) -> Array:
        """[T, N, A] for so many steps, the same numbers as step by step."""
        assert self.noise_is_known_before
        return _draws(self.parts[0][0], (steps, rows), generator)

    def _noise_for(self, params: Array, generator: np.random.Generator) -> Array:
        """[N, A]: of each part of the head what it would ask its generator for."""
        rows = len(params)
        first = 0
        if self.noise_is_known_before:
            return _draws(self.parts[0][0], (rows,), generator)
        noise = np.empty((rows, len(self.net.bounds)), np.float32)
        for part, columns in self.parts:
            if isinstance(part, BetaHead):
                shapes = beta_shapes(params, first, 2 * part.n_actions)
                drawn = generator.beta(shapes[:, : part.n_actions], shapes[:, part.n_actions :]).astype(np.float32)
            else:
                drawn = _draws(part, (rows,), generator)
            noise[:, columns] = drawn
            first += part.n_params
        return noise


def _parts_of(head: Head) -> list[tuple[Head, list[int]]]:
    if not isinstance(head, ProductHead):
        return [(head, list(range(head.n_actions)))]
    found: list[tuple[Head, list[int]]] = []
    for part, columns in zip(head.heads, head.columns, strict=True):
        assert isinstance(part, Head)
        found.append((part, columns.tolist()))
    return found


def _draws(part: Head, rows: tuple[int, ...], generator: np.random.Generator) -> Array:
    shape = (*rows, part.n_actions)
    if isinstance(part, GaussianHead):
        return generator.standard_normal(shape, dtype=np.float32)
    return generator.random(shape, dtype=np.float32)


@kernel
def policy_params(net: Net, rows: Array, room: Room) -> Array:
    """[N, P]: what the policy's tower says; a view of the room."""
    own = room.own[: rows.shape[0]]
    for row in range(own.shape[0]):
        for column in range(own.shape[1]):
            own[row, column] = rows[row, column]
    return forward(net.vector, net.policy, net.tanh, own, room.policy)


@kernel
def values_of(net: Net, rows: Array, room: Room) -> Array:
    """[R]: what the value's tower says of any number of rows."""
    at_once = room.fed.shape[0]
    said = np.empty(rows.shape[0], net.vector.dtype)
    for first in range(0, rows.shape[0], at_once):
        count = min(at_once, rows.shape[0] - first)
        fed = room.fed[:count]
        fed[:] = rows[first : first + count]
        values = forward(net.vector, net.value, net.tanh, fed, room.value)
        for place in range(count):
            said[first + place] = values[place, 0]
    return said


@kernel
def sample(net: Net, params: Array, noise: Array, action: Array, log_prob: Array) -> None:
    """`log_prob` has no rows where it is not asked for."""
    chances = np.empty_like(params)
    for row in range(params.shape[0]):
        draw(params, row, noise, net.dimensions, net.bounds, net.vector, action)
        if log_prob.shape[0]:
            log_prob[row] = log_prob_and_entropy(
                params, row, action, row, net.dimensions, net.bounds, net.vector, chances
            )[0]


@kernel
def choose(net: Net, params: Array, action: Array) -> None:
    for row in range(params.shape[0]):
        likeliest(params, row, net.dimensions, net.bounds, action)


@kernel
def said_of(net: Net, rows: Array, action: Array, room: Room) -> tuple[Array, Array]:
    """[R] log-probabilities of these actions, and values."""
    at_once = room.fed.shape[0]
    log_prob = np.empty(rows.shape[0], net.vector.dtype)
    for first in range(0, rows.shape[0], at_once):
        count = min(at_once, rows.shape[0] - first)
        params = policy_params(net, rows[first : first + count], room)
        chances = np.empty_like(params)
        for place in range(count):
            row = first + place
            log_prob[row] = log_prob_and_entropy(
                params, place, action, row, net.dimensions, net.bounds, net.vector, chances
            )[0]
    return log_prob, values_of(net, rows, room)


@kernel
def beta_shapes(params: Array, first: int, count: int) -> Array:
    """1 + softplus of some parameters, [N, count]."""
    shapes = np.empty((params.shape[0], count))
    for row in range(params.shape[0]):
        for place in range(count):
            shapes[row, place] = 1.0 + softplus(params[row, first + place] + 0.0)
    return shapes
