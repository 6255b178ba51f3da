"""What SAC's kernels work on: an actor, its critics, and the room for one minibatch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .adam import Moments, Stride

Array = np.ndarray[Any, Any]


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
    discrete: bool
    middle: Array
    stretch: Array
    """[A] the middle of the bounds, and half their width; empty where actions are choices."""


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
    """[B, D + A]: what the critics read. This and the next four are for continuous actions."""
    to_judged: Array
    to_other: Array
    u: Array
    """[B, A]: actions before they are squashed."""
    unit: Array
    """[B, A]: after it."""
    log_prob: Array
    """[B]: of the action that was drawn; of choices, what is expected of all of them."""


class SoftTold(NamedTuple):
    """Of each row of `Drawn`; of each minibatch."""

    value: Array
    target: Array
    critic_loss: Array
    actor_loss: Array
    entropy: Array
    norm: Array
