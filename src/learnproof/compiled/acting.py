"""Acting without torch: a policy tower, its head's draw, the log-probability.

    policy = CompiledPolicy(net)
    raw, log_prob = policy.act(rows, generator, "sampled", with_log_prob=True)

Random numbers are drawn as the heads themselves draw them (policies/heads.py), part by part from the same generator, so that both backends
act alike but for rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .heads import MARKS, draw, likeliest, make_noise, tell
from .kernel import kernel
from .network import Net, Room, make_room
from .towers import forward

Array = np.ndarray[Any, Any]
ROWS_AT_ONCE = 256
"""What a tower reads in one go: activations of more rows than this leave the cache."""


class CompiledPolicy:
    def __init__(self, net: Net) -> None:
        self.net = net
        self.room = make_room(net, 1)

    def act(
        self, rows: Array, generator: np.random.Generator, mode: str, with_log_prob: bool
    ) -> tuple[Array, Array | None]:
        """Raw actions [N, A] and, of sampled ones, their log-probabilities [N]."""
        action = np.empty((len(rows), len(self.net.bounds)), np.float32)
        if mode == "deterministic":
            choose(self.net, rows, self.room_for(len(rows)), action)
            return action, None
        log_prob = np.empty(len(rows) if with_log_prob else 0, np.float32)
        sample(self.net, rows, generator, self.room_for(len(rows)), action, log_prob)
        return action, log_prob if with_log_prob else None

    def room_for(self, rows: int) -> Room:
        if rows > len(self.room.fed):
            self.room = make_room(self.net, rows)
        return self.room


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
def sample(net: Net, rows: Array, generator: np.random.Generator, room: Room, action: Array, log_prob: Array) -> None:
    """`log_prob` has no rows where it is not asked for."""
    params = policy_params(net, rows, room)
    noise = np.empty(action.shape, np.float32)
    make_noise(params, generator, net.parts, net.dimensions, noise)
    for row in range(params.shape[0]):
        draw(params, row, noise, net.dimensions, net.bounds, net.vector, action)
    if log_prob.shape[0]:
        log_prob[:] = log_probs_of(net, params, action)


@kernel
def log_probs_of(net: Net, params: Array, action: Array) -> Array:
    """[N] float64."""
    count = params.shape[0]
    log_prob, entropy, chances = np.empty(count), np.empty(count), np.empty_like(params)
    marks = np.empty((net.dimensions.shape[0], MARKS, count))
    tell(params, action, net.dimensions, net.bounds, net.vector, log_prob, entropy, chances, marks)
    return log_prob


@kernel
def choose(net: Net, rows: Array, room: Room, action: Array) -> None:
    params = policy_params(net, rows, room)
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
        log_prob[first : first + count] = log_probs_of(net, params, action[first : first + count])
    return log_prob, values_of(net, rows, room)
