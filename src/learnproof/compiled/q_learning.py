"""DQN's gradient steps, as many as the target network serves for, in one call.

target = reward + discount * Q_target(s', a*)     a* = argmax Q(s', .) if double, else argmax Q_target(s', .)
loss   = mean of weight * huber(Q(s, a) - target), whose derivative is the error cut off at 1
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .adam import Moments, Stride, clipped_step
from .kernel import finite, kernel
from .towers import backward, forward, last_place

Array = np.ndarray[Any, Any]


class QNet(NamedTuple):
    vector: Array
    gradient: Array
    target: Array
    """The target network's flat vector."""
    layers: Array
    """[L, 4] of both (towers.py)."""
    tanh: bool


class Drawn(NamedTuple):
    """Transitions of one minibatch after the other."""

    observation: Array
    action: Array
    reward: Array
    terminated: Array
    next_observation: Array
    discount: Array
    weight: Array


class QRoom(NamedTuple):
    """For one minibatch."""

    work: Array
    pulls: Array
    next_work: Array
    chooser_work: Array


class QTold(NamedTuple):
    """Of each row of `Drawn`."""

    value: Array
    target: Array


@kernel
def descend_q(
    net: QNet,
    moments: Moments,
    drawn: Drawn,
    size: int,
    first: int,
    last: int,
    double: bool,
    stride: Stride,
    steps: int,
    room: QRoom,
    told: QTold,
    losses: Array,
    norms: Array,
) -> float:
    """A gradient step on each of the minibatches `first` to `last` - 1; `steps` were taken before. Gives what the last gradient was multiplied
    by, nan where one was not finite."""
    scale = 1.0
    for number in range(first, last):
        losses[number] = differentiate_q(net, drawn, number * size, size, double, room, told)
        norms[number], scale = clipped_step(net.vector, net.gradient, moments, steps + number - first + 1, stride)
        if not finite(norms[number]):
            return math.nan
    return scale


@kernel
def differentiate_q(net: QNet, drawn: Drawn, start: int, size: int, double: bool, room: QRoom, told: QTold) -> float:
    """d loss / d parameter of the minibatch that begins at row `start`, written over `net.gradient`; gives the loss."""
    following = drawn.next_observation[start : start + size]
    worth = forward(net.target, net.layers, net.tanh, following, room.next_work)
    chooser = forward(net.vector, net.layers, net.tanh, following, room.chooser_work) if double else worth
    fed = drawn.observation[start : start + size]
    values = forward(net.vector, net.layers, net.tanh, fed, room.work)
    pulls = last_place(room.pulls, net.layers, size)
    pulls[:] = 0
    loss = 0.0
    for place in range(size):
        row = start + place
        goes_on = 0.0 if drawn.terminated[row] else 1.0
        future = worth[place, largest_of(chooser, place)]
        told.target[row] = drawn.reward[row] + drawn.discount[row] * goes_on * future
        action = int(drawn.action[row, 0])
        told.value[row] = values[place, action]
        error = told.value[row] - told.target[row]
        pull = min(max(error, -1.0), 1.0)
        pulls[place, action] = pull * drawn.weight[row] / size
        loss += pull * (error - 0.5 * pull) * drawn.weight[row] / size
    backward(net.vector, net.layers, net.tanh, fed, room.work, room.pulls, net.gradient)
    return loss


@kernel
def largest_of(values: Array, row: int) -> int:
    best = 0
    for column in range(1, values.shape[1]):
        if values[row, column] > values[row, best]:
            best = column
    return best
