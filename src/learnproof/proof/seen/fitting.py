"""Small tools of those who explain numbers by other numbers."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.linalg.lapack import dgelsd, dgelsd_lwork

from .losses import Array

ALIKE = 1e-5
"""Ratio of the smallest to the largest singular value below which columns count as not telling the unknowns apart."""


def least_squares(columns: Array, y: Array) -> Array | None:
    """The coefficient of each column, 0 for a column of zeros; None where the columns do not tell the unknowns apart."""
    size = np.sqrt((columns * columns).sum(axis=0))
    used = size > 1e-9 * np.sqrt(len(y))
    if not used.any():
        return None
    scaled = columns[:, used] / size[used]
    solved, singular = _solved(scaled, y)
    if singular[-1] < ALIKE * singular[0]:
        return None
    answer = np.zeros(columns.shape[1])
    answer[used] = solved / size[used]
    return answer


def _solved(columns: Array, y: Array) -> tuple[Array, Array]:
    """Coefficients and singular values. LAPACK is asked itself where it can be: np.linalg.lstsq asks the same of it, and takes five times as
    long for the few rows of a batch; fits ask it thousands of times."""
    rows, unknowns = columns.shape
    if rows < unknowns or not (np.isfinite(columns).all() and np.isfinite(y).all()):
        solved, _, _, singular = np.linalg.lstsq(columns, y, rcond=None)
        return solved, singular
    solved, singular, _, failed = dgelsd(columns, y, *_workspace(rows, unknowns))
    if failed:
        raise np.linalg.LinAlgError("SVD did not converge in linear least squares")
    return solved[:unknowns], singular


@cache
def _workspace(rows: int, unknowns: int) -> tuple[int, int]:
    size, whole_size, _ = dgelsd_lwork(rows, unknowns, 1)
    return int(size), int(whole_size)


def trimmed_least_squares(columns: Array, y: Array, share: float, near: float) -> tuple[Array, float] | None:
    """Coefficients that explain `share` of the rows, and the error within which they do. Rows that follow another rule (an end in
    the wrong place, a boundary) would spoil a plain fit: those left furthest off are put aside, up to three times."""
    kept = np.arange(len(y))
    answer: Array | None = None
    error = np.inf
    for _ in range(4):
        if len(kept) < columns.shape[1] + 2:
            break
        found = least_squares(columns[kept], y[kept])
        if found is None:
            break
        off = np.abs(columns @ found - y)
        limit = quantile(off, share)
        if limit < error:
            answer, error = found, limit
        if limit <= near:
            break
        kept = np.flatnonzero(off <= limit)
    return None if answer is None else (answer, error)


def quantile(numbers: Array, share: float) -> float:
    """What np.quantile says, without its overhead on a few numbers: fits ask it thousands of times."""
    place = share * (len(numbers) - 1)
    below = int(place)
    above = min(below + 1, len(numbers) - 1)
    ordered = np.partition(numbers, (below, above))
    return float(ordered[below] + (place - below) * (ordered[above] - ordered[below]))


def correlation(first: Array, second: Array) -> float | None:
    """Over the rows where both are known; None where one of them does not vary."""
    rows = np.isfinite(first) & np.isfinite(second)
    a, b = first[rows], second[rows]
    if len(a) < 2:
        return None
    a, b = a - a.mean(), b - b.mean()
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return None if size <= 1e-12 else float(a @ b) / size
