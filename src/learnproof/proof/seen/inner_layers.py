"""Rows of layers that a script calls one by one.

A script that calls `net.forward(x)` itself, or strings layers together by hand, shows each layer as a call of its own. Only the first is
given an observation; the others are given what the one before them said, and nobody knows those rows. A layer that has as many rows as one
whose rows are known, in the same loss or at the same times, speaks of the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def graded_rows(arrays: Mapping[str, Array], calls: int, log_probs: int, known: Array) -> dict[str, Array]:
    """Of the calls and log-probabilities of a loss, those whose rows have to be replaced."""
    keys = [
        *(f"c{position}.rows" for position in range(calls)),
        *(f"p{position}.rows" for position in range(log_probs)),
    ]
    rows = {key: arrays[key] for key in keys if key in arrays}
    shown = _each(known)
    strange = [key for key, own in rows.items() if shown.isdisjoint(_each(own))]
    batches = [own for key, own in rows.items() if key not in strange]
    found = {}
    for key in strange if batches else ():
        batch = next((own for own in batches if len(own) == len(rows[key])), None)
        if batch is not None:
            found[key] = batch
    return found


def silent_rows(arrays: Mapping[str, Array], calls: int, known: Array) -> dict[str, Array]:
    """The same of calls without a graph beside a loss: one whose rows nobody knows follows the one that it was given the answer of."""
    before, found, shown = None, {}, _each(known)
    for key in (f"n{position}.rows" for position in range(calls)):
        rows = arrays.get(key)
        if rows is None:
            continue
        if not shown.isdisjoint(_each(rows)):
            before = rows
        elif before is not None and len(before) == len(rows):
            found[key] = before
    return found


def timed_rows(arrays: Mapping[str, Array], modules: Sequence[Any], known: Array) -> dict[str, Array]:
    """The same of a rollout's calls, module by module: those that were asked at the same moments were asked about the same rows."""
    timed = [
        (f"m{position}.rows", arrays[f"m{position}.time"], arrays[f"m{position}.rows"])
        for position in range(len(modules))
        if f"m{position}.time" in arrays and f"m{position}.rows" in arrays
    ]
    shown = _each(known)
    familiar = [(times, rows) for _, times, rows in timed if not shown.isdisjoint(_each(rows))]
    found = {}
    for key, times, rows in timed:
        if shown.isdisjoint(_each(rows)):
            same = next((own for moments, own in familiar if np.array_equal(moments, times)), None)
            if same is not None:
                found[key] = same
    return found


def _each(rows: Array) -> set[Any]:
    """Sets answer for a few hundred rows what np.isin sorts them for."""
    return set(rows.ravel().tolist())
