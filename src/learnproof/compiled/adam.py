"""Clipping and Adam, on the whole flat vector.

scale = min(1, limit / (|g| + 1e-6));  g <- scale g
m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g²;  p <- p - rate / (1 - b1^t) · m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .kernel import finite, kernel

Array = np.ndarray[Any, Any]
FIRST, SECOND = 0.9, 0.999


class Moments(NamedTuple):
    """Adam's, of the whole vector."""

    mean: Array
    square: Array


class Stride(NamedTuple):
    """What one step of an optimizer is made with."""

    learning_rate: float
    epsilon: float
    limit: float
    """Of the gradient's norm."""


@kernel
def norm_of(gradient: Array) -> float:
    total = 0 * gradient[0]
    for place in range(gradient.shape[0]):
        total += gradient[place] * gradient[place]
    return math.sqrt(total)


@kernel
def norms_of_parts(vector: Array, ends: Array) -> Array:
    """The norm of each part of a flat vector; `ends` is where each part stops."""
    norms = np.empty(ends.shape[0])
    start = 0
    for part in range(ends.shape[0]):
        norms[part] = norm_of(vector[start : ends[part]])
        start = ends[part]
    return norms


@kernel
def scale_for(norm: float, limit: float) -> float:
    return min(1.0, limit / (norm + 1e-6))


@kernel
def adam(
    vector: Array, gradient: Array, mean: Array, square: Array, steps: int, rate: float, epsilon: float, scale: float
) -> None:
    """Step number `steps`, counted from 1; `gradient` is left as it was stepped with."""
    real = vector.dtype.type
    clip, keep, add = real(scale), real(FIRST), real(1 - FIRST)
    keep_square, add_square = real(SECOND), real(1 - SECOND)
    stride = real(rate / (1 - FIRST**steps))
    spread = real(1 / math.sqrt(1 - SECOND**steps))
    least = real(epsilon)
    for place in range(vector.shape[0]):
        pull = clip * gradient[place]
        gradient[place] = pull
        mean[place] = keep * mean[place] + add * pull
        square[place] = keep_square * square[place] + add_square * pull * pull
        vector[place] -= stride * mean[place] / (np.sqrt(square[place]) * spread + least)


@kernel
def clipped_step(vector: Array, gradient: Array, moments: Moments, steps: int, stride: Stride) -> tuple[float, float]:
    """Step number `steps`: the gradient's norm before clipping, and what it was multiplied by; the step is not taken where the norm is not
    finite."""
    norm = norm_of(gradient)
    if not finite(norm):
        return norm, 1.0
    scale = scale_for(norm, stride.limit)
    adam(vector, gradient, moments.mean, moments.square, steps, stride.learning_rate, stride.epsilon, scale)
    return norm, scale
