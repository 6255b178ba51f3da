"""An actor-critic of two MLP towers as arrays that kernels take, and the room that they work in.

`Net` holds views of the flat vectors that the torch module's parameters and gradients alias: whoever changes one changes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from ..policies.flat import FlatParameters
from ..policies.heads import BernoulliHead, BetaHead, CategoricalHead, GaussianHead, Head, ProductHead
from ..policies.networks import MLP, ActorCritic
from .heads import BERNOULLI, BETA, CATEGORICAL, GAUSSIAN
from .towers import room

Array = np.ndarray[Any, Any]


class Net(NamedTuple):
    vector: Array
    gradient: Array
    policy: Array
    """[L, 4] where its layers lie (towers.py)."""
    value: Array
    tanh: bool
    policy_size: int
    """Columns of an observation that the policy reads, the first ones."""
    dimensions: Array
    """[K, 4] its head (heads.py)."""
    bounds: Array
    parts: Array
    """[P, 2] the lines of `dimensions` that each part of a composed head has, from and up to."""


class Room(NamedTuple):
    """For up to `rows` rows at once."""

    fed: Array
    """[rows, D] observations."""
    own: Array
    """[rows, policy_size]: what the policy reads of them."""
    taken: Array
    """[rows, A]: actions."""
    policy: Array
    policy_pulls: Array
    value: Array
    value_pulls: Array


class Told(NamedTuple):
    """Of each row of a minibatch: what the network said, and what the loss pulls at. [rows]"""

    log_prob: Array
    entropy: Array
    value: Array
    advantage: Array
    """As the loss used it."""
    to_log_prob: Array
    to_value: Array


def network_arrays(flat: FlatParameters, network: ActorCritic) -> Net:
    assert isinstance(network.policy, MLP)
    assert isinstance(network.value, MLP)
    dimensions, bounds, parts = head_table(network.head, flat)
    return Net(
        vector=flat.vector.detach().numpy(),
        gradient=flat.gradient.numpy(),
        policy=layer_table(flat, network.policy),
        value=layer_table(flat, network.value),
        tanh=not network.policy.uses_relu,
        policy_size=network.policy_size,
        dimensions=dimensions,
        bounds=bounds,
        parts=parts,
    )


def make_room(net: Net, rows: int) -> Room:
    real = net.vector.dtype
    size = int(net.value[0, 3])
    fed = np.empty((rows, size), real)
    own = fed if net.policy_size == size else np.empty((rows, net.policy_size), real)
    taken = np.empty((rows, len(net.bounds)), real)
    policy, value = room(net.policy, rows), room(net.value, rows)
    return Room(
        fed, own, taken, np.empty(policy, real), np.empty(policy, real), np.empty(value, real), np.empty(value, real)
    )


def make_told(net: Net, rows: int) -> Told:
    return Told(*(np.empty(rows, net.vector.dtype) for _ in Told._fields))


def layer_table(flat: FlatParameters, tower: MLP) -> Array:
    """[L, 4]: the places of a tower's weights and biases, its hidden layers first."""
    starts = starts_of(flat)
    layers = [*tower.layers, *([] if tower.out is None else [tower.out])]
    lines = []
    for layer in layers:
        assert isinstance(layer, nn.Linear)
        lines.append((starts[id(layer.weight)], starts[id(layer.bias)], layer.out_features, layer.in_features))
    return np.array(lines, np.int64)


def starts_of(flat: FlatParameters) -> dict[int, int]:
    """Where each parameter's numbers begin, by the parameter's identity."""
    return {id(p): s.start for s, p in zip(flat.stretches, flat.module.parameters(), strict=True)}


def head_table(head: Head, flat: FlatParameters) -> tuple[Array, Array, Array]:
    """The lines of `dimensions` and `bounds` (heads.py), and which of the first belong to which part."""
    parts: list[tuple[Head, Sequence[int]]] = [(head, range(head.n_actions))]
    if isinstance(head, ProductHead):
        parts = list(zip(head.heads, (columns.tolist() for columns in head.columns), strict=True))  # type: ignore[arg-type]
    starts = starts_of(flat)
    lines: list[tuple[int, int, int, int]] = []
    bounds = np.tile(np.array([0.0, 1.0]), (head.n_actions, 1))
    ends: list[tuple[int, int]] = []
    first = 0
    for part, columns in parts:
        before = len(lines)
        match part:
            case CategoricalHead():
                places = first + np.concatenate([[0], np.cumsum(part.sizes)[:-1]])
                lines += [(CATEGORICAL, c, int(p), n) for c, p, n in zip(columns, places, part.sizes, strict=True)]
            case BernoulliHead():
                lines += [(BERNOULLI, column, first + i, 0) for i, column in enumerate(columns)]
            case GaussianHead():
                start = starts[id(part.log_std)]
                lines += [(GAUSSIAN, column, first + i, start + i) for i, column in enumerate(columns)]
            case BetaHead():
                count = part.n_actions
                lines += [(BETA, column, first + i, first + count + i) for i, column in enumerate(columns)]
        if isinstance(part, (BernoulliHead, BetaHead)):
            bounds[list(columns)] = np.stack([part.low.cpu().numpy(), part.span.cpu().numpy()], axis=1)
        first += part.n_params
        ends.append((before, len(lines)))
    return np.array(lines, np.int64), bounds, np.array(ends, np.int64)
