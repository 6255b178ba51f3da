"""One root seed becomes many named generators, each saved and restored by itself.

A generator belongs to one purpose ("actions", "minibatches", "proof"), so that drawing more numbers for one purpose
never shifts another. Nothing in learnproof touches the global state of random, numpy or torch.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


def derive_seed(root: int, *names: str | int) -> int:
    """A 63-bit seed for a purpose: equal names give equal seeds, other names unrelated ones."""
    text = "\x1f".join([str(int(root)), *(str(name) for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(root: int, *names: str | int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(derive_seed(root, *names)))


def episode_seeds(root: int, purpose: str, count: int) -> list[int]:
    """`count` different environment seeds for a purpose; those of two purposes do not meet but by a 2**-31 chance."""
    return [int(s) for s in generator(root, "episode seeds", purpose).integers(0, 2**31, size=count)]


def generator_state(source: np.random.Generator) -> dict[str, Any]:
    """The state as plain JSON (PCG64: two 128-bit integers, written as text so that no reader rounds them)."""
    state = source.bit_generator.state
    return {
        "bit_generator": state["bit_generator"],
        "state": str(state["state"]["state"]),
        "inc": str(state["state"]["inc"]),
        "has_uint32": int(state["has_uint32"]),
        "uinteger": int(state["uinteger"]),
    }


def restore_generator(target: np.random.Generator, saved: dict[str, Any]) -> None:
    target.bit_generator.state = {
        "bit_generator": saved["bit_generator"],
        "state": {"state": int(saved["state"]), "inc": int(saved["inc"])},
        "has_uint32": int(saved["has_uint32"]),
        "uinteger": int(saved["uinteger"]),
    }
