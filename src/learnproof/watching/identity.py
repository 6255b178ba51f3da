"""Which row is which: a number for each observation that is the same wherever the row turns up again.

An observation is seen when the environment gives it, when the policy acts on it, and again, shuffled into a minibatch, when
a loss is made of it. Its identity is a 64-bit hash of its numbers as float32, computed for all rows at once with fixed
multipliers, so that two runs agree and no random number is drawn. Of long rows (images), at most 1,024 numbers are used.
"""

from __future__ import annotations

from typing import Any

from .glances import is_a

LONGEST_ROW = 1_024
_multipliers: dict[int, Any] = {}


def flat_rows(numpy: Any, value: Any, rows: int | None) -> Any:
    """float32 [rows, numbers] of an array-like; None where it has no such form. `rows` None means a single row."""
    if type(value) is numpy.ndarray and value.dtype == numpy.float32:  # nearly always, and at every step
        many = 1 if rows is None else rows
        return value.reshape(many, -1) if many and value.size % many == 0 else None
    if is_a(value, dict) or (is_a(value, tuple) and not all(is_a(v, (int, float)) for v in value)):
        parts = value.values() if is_a(value, dict) else value
        flat = [flat_rows(numpy, part, rows) for part in parts]
        return None if any(part is None for part in flat) else numpy.concatenate(flat, axis=1)
    if hasattr(type(value), "detach"):
        value = value.detach().cpu().numpy()
    try:
        array = numpy.asarray(value)
        if array.dtype.kind not in "fiub":
            return None
        if array.dtype.kind != "f":
            array = array.astype(numpy.float32)
        elif array.dtype != numpy.float32:
            with numpy.errstate(all="ignore"):  # a number too large for float32 is still a number
                array = array.astype(numpy.float32)
        return array.reshape(1 if rows is None else rows, -1)
    except (TypeError, ValueError):
        return None


def identities(numpy: Any, rows: Any) -> Any:
    """uint64 [rows]."""
    if rows.shape[1] > LONGEST_ROW:
        stride = -(-rows.shape[1] // LONGEST_ROW)
        rows = rows[:, ::stride]
    bits = numpy.ascontiguousarray(rows + numpy.float32(0.0)).view(numpy.uint32).astype(numpy.uint64)  # -0.0 is 0.0
    hashed = ((bits + numpy.uint64(1)) * _multipliers_for(numpy, bits.shape[1])).sum(axis=1, dtype=numpy.uint64)
    hashed ^= hashed >> numpy.uint64(29)
    hashed *= numpy.uint64(0xBF58476D1CE4E5B9)
    return hashed ^ (hashed >> numpy.uint64(32))


def _multipliers_for(numpy: Any, width: int) -> Any:
    known = _multipliers.get(width)
    if known is None:
        state, values = 0, []
        for _ in range(width):  # splitmix64
            state = (state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
            mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
            mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
            values.append((mixed ^ (mixed >> 31)) | 1)
        known = _multipliers[width] = numpy.array(values, dtype=numpy.uint64)
    return known
