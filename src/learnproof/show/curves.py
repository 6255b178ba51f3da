"""Evidence as curves: what the pictures draw, over environment steps.

Evidence may be a stranger's, and a run may have blown up: a value that is no number, or that is too large to draw,
becomes NaN and its step is kept in `spoilt`, so that a picture can mark the place instead of hiding it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..evidence import Episode, Evaluation, Evidence, Update
from ..evidence.measured import measured_updates
from .phrasing import number

Array = np.ndarray[Any, Any]
LARGEST_DRAWN = 1e100
LAST_STEP_DRAWN = 1e15


@dataclass(frozen=True)
class Curve:
    """Points in the order of training; `y` is finite or NaN."""

    x: Array
    y: Array

    @property
    def spoilt(self) -> Array:
        """Steps at which there was a value, and it was not finite."""
        return self.x[np.isnan(self.y)]

    @property
    def drawable(self) -> bool:
        return bool(np.isfinite(self.y).any())

    @property
    def finite(self) -> Array:
        return self.y[np.isfinite(self.y)]


def curve(points: Iterable[tuple[Any, Any]]) -> Curve:
    """A curve from (step, value) pairs. A pair whose step is no number, or whose value is missing, is left out."""
    kept = [(number(step), number(value)) for step, value in points if value is not None]
    rows = [(step, value) for step, value in kept if step is not None and abs(step) <= LAST_STEP_DRAWN]
    x = np.array([step for step, _ in rows], dtype=np.float64)
    y = np.array([np.nan if value is None else value for _, value in rows], dtype=np.float64)
    y[~(np.abs(y) <= LARGEST_DRAWN)] = np.nan
    return Curve(x, y)


def mean(values: Any) -> float | None:
    """Mean of a list of numbers; None for an empty list, NaN where one of them is no number."""
    if not isinstance(values, (list, tuple)):
        return number(values)
    numbers = [number(value) for value in values]
    if not numbers:
        return None
    known = np.array([np.nan if value is None else value for value in numbers], dtype=np.float64)
    # Divided first: the sum of two large finite values may not be finite.
    return float((known / len(known)).sum()) if np.isfinite(known).all() else float("nan")


def largest(values: Any) -> float | None:
    """Largest of a list of numbers; None for an empty list, NaN where one of them is no number."""
    if not isinstance(values, (list, tuple)):
        return number(values)
    numbers = [number(value) for value in values]
    return max((float("nan") if value is None else value for value in numbers), key=_nan_first, default=None)


def _nan_first(value: float) -> float:
    return float("inf") if value != value else value


def of_updates(evidence: Evidence, value: Callable[[Update], Any], optimizer: int | None = None) -> Curve:
    """Of all updates, or of those that one of several optimizers made."""
    return curve(
        (update.step, mean(value(update)))
        for update in measured_updates(evidence)
        if optimizer is None or update.optimizer == optimizer
    )


def of_module(evidence: Evidence, module: str, name: str) -> Curve:
    """`name` is a field of ModuleChange: weight_change, grad_norm, ..."""
    return curve(
        (update.step, number(getattr(update.modules[module], name)))
        for update in measured_updates(evidence)
        if module in update.modules
    )


def module_names(evidence: Evidence) -> list[str]:
    """Every module that an update names, in the order of first mention."""
    return list(dict.fromkeys(name for update in measured_updates(evidence) for name in update.modules))


def of_episodes(evidence: Evidence, value: Callable[[Episode], Any]) -> Curve:
    return curve((episode.step, value(episode)) for episode in evidence.episodes)


def metric_of(episode: Episode, metric: str) -> Any:
    """The run's metric in one episode; None where the episode does not have it."""
    if metric == "return":
        return episode.return_
    return episode.metrics.get(str(metric)) if isinstance(episode.metrics, dict) else None


def of_evaluations(evidence: Evidence, value: Callable[[Evaluation], Any]) -> Curve:
    return curve((evaluation.step, mean(value(evaluation))) for evaluation in evidence.evaluations)


def smoothed(source: Curve) -> Curve:
    """A centred moving mean over about a twentieth of the points; NaN does not spread."""
    count = len(source.y)
    window = int(np.clip(count // 20, 1, 200)) | 1
    if window == 1 or not source.drawable:
        return source
    known = np.isfinite(source.y)
    kernel = np.ones(window)
    weight = np.convolve(known.astype(np.float64), kernel, mode="same")
    total = np.convolve(np.where(known, source.y, 0.0), kernel, mode="same")
    return Curve(source.x, np.divide(total, weight, out=np.full(count, np.nan), where=weight > 0))


def thinned(source: Curve, most: int) -> Curve:
    """At most `most` points: of each stretch its lowest and its highest, so that no spike is lost."""
    count = len(source.y)
    if count <= most:
        return source
    picked: set[int] = {0, count - 1}
    for stretch in np.array_split(np.arange(count), max(1, (most - 2) // 2)):
        values = source.y[stretch]
        if np.isfinite(values).any():
            picked.add(int(stretch[np.nanargmin(values)]))
            picked.add(int(stretch[np.nanargmax(values)]))
        else:
            picked.add(int(stretch[0]))
    order = np.array(sorted(picked))
    return Curve(source.x[order], source.y[order])
