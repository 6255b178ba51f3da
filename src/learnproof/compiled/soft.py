"""SAC's gradient steps: critics, actor, temperature and target in one call (algorithms/sac.py has the formulas).

What differs between numbers and choices is in soft_numbers.py and soft_choices.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .adam import clipped_step
from .kernel import finite, kernel
from .q_learning import Drawn
from .soft_arrays import SoftMoments, SoftNet, SoftPace, SoftRoom, SoftTold
from .soft_choices import aim_at_choices, differentiate_choice_critics, differentiate_chooser
from .soft_numbers import aim, differentiate_actor, differentiate_critics

Array = np.ndarray[Any, Any]


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
    observations of each; of choices nothing is drawn. Gives what the last gradients of the critics and of the actor were multiplied by; nan where one was not finite."""
    critic_scale = actor_scale = 1.0
    for number in range(first, last):
        steps = pace.steps + number - first + 1
        alpha = math.exp(net.log_alpha[0])
        if net.discrete:
            aim_at_choices(net, drawn, number, alpha, pace.size, room, told.target)
            told.critic_loss[number] = differentiate_choice_critics(net, drawn, number, pace.size, room, told)
        else:
            aim(net, drawn, number, noise[number, 0], alpha, pace.size, room, told.target)
            told.critic_loss[number] = differentiate_critics(net, drawn, number, pace.size, room, told)
        told.norm[number], critic_scale = clipped_step(
            net.critics, net.critics_gradient, moments.critics, steps, pace.stride
        )
        if net.discrete:
            told.actor_loss[number] = differentiate_chooser(net, drawn, number, alpha, pace.size, room)
        else:
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
