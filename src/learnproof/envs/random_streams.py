"""One random stream per instance, as four 64-bit words that a kernel can advance and a checkpoint can save.

The generator is xoshiro256++ (Blackman and Vigna). A stream depends on its own seed alone, never on how many
instances are stepped beside it: that is why a batch of N instances equals N single ones bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .kernel import kernel

Array = np.ndarray[Any, Any]

WORDS = 4
TO_UNIT_INTERVAL = 2.0**-53


def seed_stream(seed: int | None) -> Array:
    """The four words for a seed; None takes them from the operating system."""
    return np.random.SeedSequence(seed).generate_state(WORDS, np.uint64)


def seed_streams(seeds: Sequence[int | None]) -> Array:
    """[N, 4]: one stream for each seed."""
    return np.stack([seed_stream(seed) for seed in seeds])


@kernel
def rotate_left(word: Any, bits: int) -> Any:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@kernel
def next_word(stream: Array) -> Any:
    """64 random bits; advances the stream."""
    word = rotate_left(stream[0] + stream[3], 23) + stream[0]
    shifted = stream[1] << np.uint64(17)
    stream[2] ^= stream[0]
    stream[3] ^= stream[1]
    stream[1] ^= stream[2]
    stream[0] ^= stream[3]
    stream[2] ^= shifted
    stream[3] = rotate_left(stream[3], 45)
    return word


@kernel
def uniform(stream: Array) -> float:
    """A number in [0, 1) with 53 random bits."""
    return float(next_word(stream) >> np.uint64(11)) * TO_UNIT_INTERVAL


@kernel
def uniform_between(stream: Array, low: float, high: float) -> float:
    return low + (high - low) * uniform(stream)


@kernel
def whole_number(stream: Array, low: int, high: int) -> int:
    """A whole number from low to high, both included, each as likely (to 2**-53 of the span)."""
    return low + int(uniform(stream) * (high - low + 1))
