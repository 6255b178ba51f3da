"""Passes over a rollout's minibatches in one call: gather rows, both towers forwards, the loss's pull, backwards, clip, Adam."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .adam import Moments, Stride, clipped_step
from .heads import GAUSSIAN, MARKS, pull_params, tell
from .kernel import finite, kernel
from .network import Net, Room, Told
from .objectives import Goal, add_figures, pull_log_prob, pull_value
from .towers import backward, forward, last_place

Array = np.ndarray[Any, Any]
ADVANTAGE_EPSILON = 1e-8


class Rows(NamedTuple):
    """What a rollout's transitions were and are worth, one row each."""

    observation: Array
    action: Array
    old_log_prob: Array
    value: Array
    advantage: Array
    target: Array
    weight: Array
    """No rows where every action counts in full."""


class Pace(NamedTuple):
    minibatch_size: int
    normalise: bool
    stride: Stride
    steps: int
    """Gradient steps taken so far."""


@kernel
def descend(
    net: Net,
    moments: Moments,
    rows: Rows,
    orders: Array,
    first: int,
    last: int,
    goal: Goal,
    pace: Pace,
    room: Room,
    told: Told,
    sums: Array,
    norms: Array,
) -> float:
    """A gradient step on each of the minibatches `first` to `last` - 1, counted over passes: `orders` [E, R] has the rows of each pass.

    Figures are added to `sums` [E, 5], norms written into `norms` [E, minibatches]. Gives what the last gradient was multiplied by; nan where
    one was not finite: that step was not taken, and no other after it.
    """
    scale, size = 1.0, pace.minibatch_size
    for number in range(first, last):
        epoch, minibatch = divmod(number, norms.shape[1])
        picked = orders[epoch, minibatch * size : min(orders.shape[1], (minibatch + 1) * size)]
        differentiate(net, rows, picked, goal, pace.normalise, room, told, sums[epoch])
        taken = pace.steps + number - first + 1
        norms[epoch, minibatch], scale = clipped_step(net.vector, net.gradient, moments, taken, pace.stride)
        if not finite(norms[epoch, minibatch]):
            return math.nan
    return scale


@kernel
def differentiate(
    net: Net, rows: Rows, picked: Array, goal: Goal, normalise: bool, room: Room, told: Told, sums: Array
) -> None:
    """d loss / d parameter of one minibatch, written over `net.gradient`."""
    count = picked.shape[0]
    fed, own = room.fed[:count], room.own[:count]
    gather(rows.observation, picked, fed)
    if net.policy_size < fed.shape[1]:
        gather(rows.observation, picked, own)
    taken = room.taken[:count]
    gather(rows.action, picked, taken)
    params = forward(net.vector, net.policy, net.tanh, own, room.policy)
    values = forward(net.vector, net.value, net.tanh, fed, room.value)
    weigh(rows.advantage, picked, normalise, told.advantage)

    to_params = last_place(room.policy_pulls, net.policy, count)
    to_values = last_place(room.value_pulls, net.value, count)
    log_probs, entropies, to_log_probs = np.empty(count), np.empty(count), np.empty(count)
    marks = np.empty((net.dimensions.shape[0], MARKS, count))
    tell(params, taken, net.dimensions, net.bounds, net.vector, log_probs, entropies, to_params, marks)
    for place in range(count):
        row = picked[place]
        log_prob, entropy = log_probs[place], entropies[place]
        value, advantage = values[place, 0] + 0.0, told.advantage[place] + 0.0
        old_value, target = rows.value[row] + 0.0, rows.target[row] + 0.0
        weight = rows.weight[row] + 0.0 if rows.weight.shape[0] else 1.0
        log_ratio = log_prob - rows.old_log_prob[row]
        ratio = math.exp(log_ratio)
        to_log_probs[place] = pull_log_prob(goal, ratio, advantage, weight) / count
        to_value = pull_value(goal, value, old_value, target) / count
        to_values[place, 0] = to_value
        told.log_prob[place], told.entropy[place], told.value[place] = log_prob, entropy, value
        told.to_log_prob[place], told.to_value[place] = to_log_probs[place], to_value
        add_figures(goal, log_prob, entropy, value, log_ratio, ratio, advantage, old_value, target, weight, sums)

    for k in range(net.dimensions.shape[0]):
        if net.dimensions[k, 0] == GAUSSIAN:
            net.gradient[net.dimensions[k, 3]] = 0
    pull_params(
        params, taken, net.dimensions, net.bounds, net.vector, marks, to_log_probs, -goal.entropy_coefficient / count,
        to_params, net.gradient,
    )  # fmt: skip
    backward(net.vector, net.policy, net.tanh, own, room.policy, room.policy_pulls, net.gradient)
    backward(net.vector, net.value, net.tanh, fed, room.value, room.value_pulls, net.gradient)


@kernel
def gather(table: Array, picked: Array, into: Array) -> None:
    """As many columns as there is room for."""
    for place in range(picked.shape[0]):
        for column in range(into.shape[1]):
            into[place, column] = table[picked[place], column]


@kernel
def weigh(advantage: Array, picked: Array, normalise: bool, into: Array) -> None:
    """The minibatch's advantages; with mean 0 and deviation 1, where that is asked and there are two."""
    count = picked.shape[0]
    mean, spread = 0.0, 1.0
    if normalise and count > 1:
        for place in range(count):
            mean += advantage[picked[place]]
        mean /= count
        squares = 0.0
        for place in range(count):
            squares += (advantage[picked[place]] - mean) ** 2
        spread = math.sqrt(squares / (count - 1)) + ADVANTAGE_EPSILON
    for place in range(count):
        into[place] = (advantage[picked[place]] - mean) / spread
