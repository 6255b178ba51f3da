"""SAC's parts for continuous actions: a Gaussian squashed by tanh, critics that read the action beside the observation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..policies.heads import HALF_LOG_TWO_PI
from ..policies.soft import LOG_STD_HIGHEST, LOG_STD_LOWEST
from .heads import softplus
from .kernel import kernel
from .q_learning import Drawn
from .soft_arrays import SoftNet, SoftRoom, SoftTold
from .towers import backward, forward, last_place, to_input

Array = np.ndarray[Any, Any]
LOG_TWO = math.log(2)


# ---------------------------------------------------------------------- the policy


@kernel
def log_deviation(params: Array, row: int, column: int, actions: int) -> float:
    raw: float = params[row, actions + column] + 0.0
    return min(max(raw, LOG_STD_LOWEST), LOG_STD_HIGHEST)


@kernel
def draw_squashed(params: Array, noise: Array, room: SoftRoom) -> None:
    """u = mean + noise * deviation, tanh of it, and log pi = Σ -noise²/2 - log_std - log(2π)/2 - log(1 - tanh²(u))."""
    actions = room.u.shape[1]
    for row in range(params.shape[0]):
        log_prob = 0.0
        for column in range(actions):
            log_std = log_deviation(params, row, column, actions)
            drawn = noise[row, column] + 0.0
            u = params[row, column] + math.exp(log_std) * drawn
            room.u[row, column], room.unit[row, column] = u, math.tanh(u)
            slope = 2.0 * (LOG_TWO - u - softplus(-2.0 * u))
            log_prob -= 0.5 * drawn * drawn + log_std + HALF_LOG_TWO_PI + slope
        room.log_prob[row] = log_prob


@kernel
def put_beside(observation: Array, start: int, actions: Array, into: Array) -> None:
    """[B, D + A] from rows of observations and actions in -1..1."""
    size = observation.shape[1]
    for row in range(into.shape[0]):
        for column in range(size):
            into[row, column] = observation[start + row, column]
        for column in range(actions.shape[1]):
            into[row, size + column] = actions[row, column]


# ---------------------------------------------------------------------- critics


@kernel
def aim(
    net: SoftNet, drawn: Drawn, number: int, noise: Array, alpha: float, size: int, room: SoftRoom, target: Array
) -> None:
    """reward + discount (min of both target critics - alpha log pi), of an action that the policy would draw next."""
    start = number * size
    following = drawn.next_observation[start : start + size]
    draw_squashed(forward(net.actor, net.policy, net.tanh, following, room.policy), noise, room)
    put_beside(drawn.next_observation, start, room.unit, room.judged)
    one = forward(net.target, net.first, net.tanh, room.judged, room.first)
    other = forward(net.target, net.second, net.tanh, room.judged, room.second)
    for place in range(size):
        row = start + place
        goes_on = 0.0 if drawn.terminated[row] else 1.0
        worth = min(one[place, 0], other[place, 0]) - alpha * room.log_prob[place]
        target[row] = drawn.reward[row] + drawn.discount[row] * goes_on * worth


@kernel
def differentiate_critics(net: SoftNet, drawn: Drawn, number: int, size: int, room: SoftRoom, told: SoftTold) -> float:
    start, count = number * size, net.middle.shape[0]
    for place in range(size):
        for column in range(count):
            taken = drawn.action[start + place, column]
            room.unit[place, column] = (taken - net.middle[column]) / net.stretch[column]
    put_beside(drawn.observation, start, room.unit, room.judged)
    one = forward(net.critics, net.first, net.tanh, room.judged, room.first)
    other = forward(net.critics, net.second, net.tanh, room.judged, room.second)
    to_one, to_other = last_place(room.first_pulls, net.first, size), last_place(room.second_pulls, net.second, size)
    loss = 0.0
    for place in range(size):
        row = start + place
        told.value[row] = one[place, 0]
        share = drawn.weight[row] / size
        off, off_other = one[place, 0] - told.target[row], other[place, 0] - told.target[row]
        to_one[place, 0], to_other[place, 0] = off * share, off_other * share
        loss += 0.5 * share * (off * off + off_other * off_other)
    backward(net.critics, net.first, net.tanh, room.judged, room.first, room.first_pulls, net.critics_gradient)
    backward(net.critics, net.second, net.tanh, room.judged, room.second, room.second_pulls, net.critics_gradient)
    return loss


# ---------------------------------------------------------------------- actor


@kernel
def differentiate_actor(
    net: SoftNet, drawn: Drawn, number: int, noise: Array, alpha: float, size: int, room: SoftRoom
) -> float:
    """Up the smaller critic, and up the entropy: d log pi / d u = 2 tanh(u), d log pi / d log_std = -1 besides."""
    start, actions = number * size, net.middle.shape[0]
    fed = drawn.observation[start : start + size]
    params = forward(net.actor, net.policy, net.tanh, fed, room.policy)
    draw_squashed(params, noise, room)
    put_beside(drawn.observation, start, room.unit, room.judged)
    one = forward(net.critics, net.first, net.tanh, room.judged, room.first)
    other = forward(net.critics, net.second, net.tanh, room.judged, room.second)
    to_one, to_other = last_place(room.first_pulls, net.first, size), last_place(room.second_pulls, net.second, size)
    loss = 0.0
    for place in range(size):
        lower = one[place, 0] <= other[place, 0]
        to_one[place, 0] = -1.0 / size if lower else 0.0
        to_other[place, 0] = 0.0 if lower else -1.0 / size
        loss += (alpha * room.log_prob[place] - min(one[place, 0], other[place, 0])) / size
    to_input(net.critics, net.first, net.tanh, size, room.first, room.first_pulls, room.to_judged)
    to_input(net.critics, net.second, net.tanh, size, room.second, room.second_pulls, room.to_other)
    to_params = last_place(room.policy_pulls, net.policy, size)
    seen = fed.shape[1]
    for place in range(size):
        for column in range(actions):
            to_unit = room.to_judged[place, seen + column] + room.to_other[place, seen + column]
            unit = room.unit[place, column] + 0.0
            to_u = to_unit * (1.0 - unit * unit) + alpha / size * 2.0 * unit
            raw = params[place, actions + column]
            free = 1.0 if LOG_STD_LOWEST < raw < LOG_STD_HIGHEST else 0.0
            deviation = math.exp(log_deviation(params, place, column, actions))
            to_params[place, column] = to_u
            to_params[place, actions + column] = (to_u * noise[place, column] * deviation - alpha / size) * free
    backward(net.actor, net.policy, net.tanh, fed, room.policy, room.policy_pulls, net.actor_gradient)
    return loss
