"""SAC's parts for discrete actions: critics value every choice at once, and what is expected is a sum over all of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .kernel import kernel
from .q_learning import Drawn
from .soft_arrays import SoftNet, SoftRoom, SoftTold
from .towers import backward, forward, last_place

Array = np.ndarray[Any, Any]


@kernel
def log_normaliser(logits: Array, row: int) -> float:
    """log Σ exp of a row."""
    largest = logits[row, 0] + 0.0
    for place in range(1, logits.shape[1]):
        largest = max(largest, logits[row, place] + 0.0)
    total = 0.0
    for place in range(logits.shape[1]):
        total += math.exp(logits[row, place] - largest)
    norm: float = largest + math.log(total)
    return norm


@kernel
def aim_at_choices(
    net: SoftNet, drawn: Drawn, number: int, alpha: float, size: int, room: SoftRoom, target: Array
) -> None:
    """reward + discount Σ p (min of both target critics - alpha log p)."""
    start = number * size
    following = drawn.next_observation[start : start + size]
    logits = forward(net.actor, net.policy, net.tanh, following, room.policy)
    one = forward(net.target, net.first, net.tanh, following, room.first)
    other = forward(net.target, net.second, net.tanh, following, room.second)
    for place in range(size):
        row, norm, worth = start + place, log_normaliser(logits, place), 0.0
        for choice in range(logits.shape[1]):
            log_prob = logits[place, choice] - norm
            worth += math.exp(log_prob) * (min(one[place, choice], other[place, choice]) - alpha * log_prob)
        goes_on = 0.0 if drawn.terminated[row] else 1.0
        target[row] = drawn.reward[row] + drawn.discount[row] * goes_on * worth


@kernel
def differentiate_choice_critics(
    net: SoftNet, drawn: Drawn, number: int, size: int, room: SoftRoom, told: SoftTold
) -> float:
    """Half the squared error of what each critic says of the choice that was made."""
    start = number * size
    fed = drawn.observation[start : start + size]
    one = forward(net.critics, net.first, net.tanh, fed, room.first)
    other = forward(net.critics, net.second, net.tanh, fed, room.second)
    to_one, to_other = last_place(room.first_pulls, net.first, size), last_place(room.second_pulls, net.second, size)
    to_one[:] = 0
    to_other[:] = 0
    loss = 0.0
    for place in range(size):
        row = start + place
        choice, share = int(drawn.action[row, 0]), drawn.weight[row] / size
        told.value[row] = one[place, choice]
        off, off_other = one[place, choice] - told.target[row], other[place, choice] - told.target[row]
        to_one[place, choice], to_other[place, choice] = off * share, off_other * share
        loss += 0.5 * share * (off * off + off_other * off_other)
    backward(net.critics, net.first, net.tanh, fed, room.first, room.first_pulls, net.critics_gradient)
    backward(net.critics, net.second, net.tanh, fed, room.second, room.second_pulls, net.critics_gradient)
    return loss


@kernel
def differentiate_chooser(net: SoftNet, drawn: Drawn, number: int, alpha: float, size: int, room: SoftRoom) -> float:
    """cost_j = alpha log p_j - min of both critics;  loss = Σ p cost;  d loss / d logit_j = p_j (cost_j - Σ p cost)."""
    start = number * size
    fed = drawn.observation[start : start + size]
    logits = forward(net.actor, net.policy, net.tanh, fed, room.policy)
    one = forward(net.critics, net.first, net.tanh, fed, room.first)
    other = forward(net.critics, net.second, net.tanh, fed, room.second)
    to_logits = last_place(room.policy_pulls, net.policy, size)
    loss = 0.0
    for place in range(size):
        norm, expected, log_prob = log_normaliser(logits, place), 0.0, 0.0
        for choice in range(logits.shape[1]):
            own = logits[place, choice] - norm
            chance = math.exp(own)
            expected += chance * (alpha * own - min(one[place, choice], other[place, choice]))
            log_prob += chance * own
        for choice in range(logits.shape[1]):
            own = logits[place, choice] - norm
            cost = alpha * own - min(one[place, choice], other[place, choice])
            to_logits[place, choice] = math.exp(own) * (cost - expected) / size
        room.log_prob[place] = log_prob
        loss += expected / size
    backward(net.actor, net.policy, net.tanh, fed, room.policy, room.policy_pulls, net.actor_gradient)
    return loss
