"""PPO's objective on one minibatch, and its derivative written out.

    loss = -w min(A ratio, A clip(ratio)) + value_coefficient (V - target)^2 - entropy_coefficient H, each a mean over rows

w is 1, or the importance of each row's action where another policy acted (returns.py): the ratio is then taken to the learning
policy as it was before the update, and w carries the way from there to the policy that acted.

The derivative with respect to what the network said (log-probability, entropy, value of each row) is short, and a step
needs nothing else: the loss itself is only read by people, so that it is computed once an epoch instead of every step.
tests/unit/algorithms/test_surrogate.py compares all of it with autograd.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..config import PPOSettings


class Said(NamedTuple):
    """What the network said of each row [B]; or the derivative of the loss with respect to it."""

    log_prob: Tensor
    entropy: Tensor
    value: Tensor


class Asked(NamedTuple):
    """What the rows were worth when the rollout was made [B]."""

    old_log_prob: Tensor
    advantage: Tensor
    old_value: Tensor
    target: Tensor
    weight: Tensor | None = None


class Figures(NamedTuple):
    """Means over rows, 0-dimensional."""

    loss: Tensor | float
    policy_loss: Tensor | float
    value_loss: Tensor | float
    entropy: Tensor | float
    approx_kl: Tensor | float
    clip_fraction: Tensor | float


def derivative(said: Said, asked: Asked, settings: PPOSettings) -> Said:
    s, rows = settings, len(asked.target)
    ratio = (said.log_prob - asked.old_log_prob).exp_()
    free = ratio * asked.advantage
    held = ratio.clamp_(1 - s.clip_range, 1 + s.clip_range).mul_(asked.advantage)
    # d(A ratio) / d(log-probability) is A ratio itself; where the clipped term is the smaller one, nothing flows
    to_log_prob = free.masked_fill(free > held, 0.0).mul_(-1 / rows)
    if asked.weight is not None:
        to_log_prob.mul_(asked.weight)
    if s.clip_range_value is None:
        error = said.value - asked.target
    else:
        moved = said.value - asked.old_value
        error = _held_value(said, asked, s.clip_range_value) - asked.target
        error = error.masked_fill(moved.abs() > s.clip_range_value, 0.0)
    return Said(
        to_log_prob,
        torch.full_like(said.entropy, -s.entropy_coefficient / rows),
        error.mul_(2 * s.value_coefficient / rows),
    )


def figures(said: Said, asked: Asked, settings: PPOSettings) -> Figures:
    s = settings
    log_ratio = said.log_prob - asked.old_log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - s.clip_range, 1 + s.clip_range)
    gained = torch.min(asked.advantage * ratio, asked.advantage * clipped)
    policy_loss = -(gained if asked.weight is None else asked.weight * gained).mean()
    held = said.value if s.clip_range_value is None else _held_value(said, asked, s.clip_range_value)
    value_loss = (held - asked.target).square().mean()
    entropy = said.entropy.mean()
    return Figures(
        loss=policy_loss + s.value_coefficient * value_loss - s.entropy_coefficient * entropy,
        policy_loss=policy_loss,
        value_loss=value_loss,
        entropy=entropy,
        approx_kl=(ratio - 1 - log_ratio).mean(),
        clip_fraction=(clipped != ratio).float().mean(),
    )


def _held_value(said: Said, asked: Asked, clip_range: float) -> Tensor:
    return asked.old_value + (said.value - asked.old_value).clamp(-clip_range, clip_range)
