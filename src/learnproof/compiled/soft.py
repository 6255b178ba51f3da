"""SAC's gradient steps for continuous actions: critics, actor, temperature and target in one call (algorithms/sac.py has the formulas)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..policies.heads import HALF_LOG_TWO_PI
from ..policies.soft import LOG_STD_HIGHEST, LOG_STD_LOWEST
from .adam import Moments, Stride, clipped_step
from .heads import softplus
from .kernel import finite, kernel
from .q_learning import Drawn
from .towers import backward, forward, last_place, to_input

Array = np.ndarray[Any, Any]
LOG_TWO = math.log(2)


class SoftNet(NamedTuple):
    """An actor, its twin critics, what follows these, and the log of the temperature."""

    actor: Array
    actor_gradient: Array
    policy: Array
    """[L, 4] (towers.py)."""
    critics: Array
    critics_gradient: Array
    target: Array
    first: Array
    second: Array
    log_alpha: Array
    """[1]."""
    log_alpha_gradient: Array
    tanh: bool
    middle: Array
    stretch: Array
    """[A] the middle of the bounds, and half their width."""


class SoftMoments(NamedTuple):
    actor: Moments
    critics: Moments
    log_alpha: Moments


class SoftPace(NamedTuple):
    size: int
    stride: Stride
    tuned: bool
    """Whether the temperature is."""
    target_entropy: float
    tau: float
    """How far the target moves towards the critics after each step."""
    steps: int
    """Gradient steps taken so far."""


class SoftRoom(NamedTuple):
    """For one minibatch."""

    policy: Array
    policy_pulls: Array
    first: Array
    first_pulls: Array
    second: Array
    second_pulls: Array
    judged: Array
    """[B, D + A]: what the critics read."""
    to_judged: Array
    to_other: Array
    u: Array
    """[B, A]: actions before they are squashed."""
    unit: Array
    """[B, A]: after it."""
    log_prob: Array


class SoftTold(NamedTuple):
    """Of each row of `Drawn`; of each minibatch."""

    value: Array
    target: Array
    critic_loss: Array
    actor_loss: Array
    entropy: Array
    norm: Array


@kernel
def descend_soft(
    net: SoftNet,
    moments: SoftMoments,
    drawn: Drawn,
    noise: Array,
    first: int,
    last: int,
    pace: SoftPace,
    room: SoftRoom,
    told: SoftTold,
) -> tuple[float, float]:
    """A gradient step on each of the minibatches `first` to `last` - 1. `noise` [M, 2, B, A] is normal, for the next and for the present
    observations of each. Gives what the last gradients of the critics and of the actor were multiplied by; nan where one was not finite."""
    critic_scale = actor_scale = 1.0
    for number in range(first, last):
        steps = pace.steps + number - first + 1
        alpha = math.exp(net.log_alpha[0])
        aim(net, drawn, number, noise[number, 0], alpha, pace.size, room, told.target)
        told.critic_loss[number] = differentiate_critics(net, drawn, number, pace.size, room, told)
        told.norm[number], critic_scale = clipped_step(
            net.critics, net.critics_gradient, moments.critics, steps, pace.stride
        )
        told.actor_loss[number] = differentiate_actor(net, drawn, number, noise[number, 1], alpha, pace.size, room)
        norm, actor_scale = clipped_step(net.actor, net.actor_gradient, moments.actor, steps, pace.stride)
        if not finite(told.norm[number]):
            return math.nan, actor_scale
        if not finite(norm):
            return critic_scale, math.nan
        log_prob = 0.0
        for place in range(pace.size):
            log_prob += room.log_prob[place]
        told.entropy[number] = -log_prob / pace.size
        if pace.tuned:
            net.log_alpha_gradient[0] = told.entropy[number] - pace.target_entropy
            clipped_step(net.log_alpha, net.log_alpha_gradient, moments.log_alpha, steps, pace.stride)
        follow(net.target, net.critics, pace.tau)
    return critic_scale, actor_scale


@kernel
def follow(target: Array, source: Array, tau: float) -> None:
    share = target.dtype.type(tau)
    for place in range(target.shape[0]):
        target[place] += share * (source[place] - target[place])


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
