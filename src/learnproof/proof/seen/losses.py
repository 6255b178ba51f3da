"""One backward pass as the checks ask for it: which rows of the batch got which weight, prediction and target.

The watcher wrote arrays by place (evidence/watched.py). Three things are read out of them, whatever the script's spelling:

    Policy       dL/dlog_prob of the action taken, row by row: what the loss does to each action's probability
    Regression   prediction, target and dL/dprediction, row by row
    ratio        exp(new - old log-probability), exactly as the loss used it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...evidence import Evidence
from ...evidence.watched import LossSeen
from .inner_layers import graded_rows, silent_rows

Array = np.ndarray[Any, Any]

MOSTLY_ONE = 0.5
"""Share of rows in which a number was put in; where the new one equals the old one nothing shows."""
MOST_STACKED, FEWEST_ROWS = 10, 16
WRITTEN_OUT = "a network that is written out"
ARITHMETIC = ("AddBackward0", "SubBackward0", "MulBackward0", "DivBackward0", "ClampBackward0", "ClampBackward1", "MinimumBackward0",
              "MaximumBackward0", "RsubBackward1")  # fmt: skip


SOFTMAX = ("SoftmaxBackward0", "ExpBackward0")
SUMS = ("AddBackward0", "SubBackward0", "RsubBackward1")
LOG_SOFTMAX = ("LogSoftmaxBackward0", "LogsumexpBackward0", "LogBackward0")


def is_written_entropy(term: Mapping[str, Any]) -> bool:
    """sum(p log p): the product of a softmax and its own logarithm. Where something is added to the logarithm or taken from it, as the values of
    actions are in the actor's loss of a discrete SAC, it is more than an entropy; a logarithm less a logsumexp is still one."""
    near = term["structure"][:4]
    product = near[:1] == ["MulBackward0"] and "sum" in term["reductions"]
    by_logsumexp = "LogsumexpBackward0" in term["structure"][:5]
    more = any(n in SUMS for n in near[1:3]) and not by_logsumexp
    logarithm = by_logsumexp or any(n in LOG_SOFTMAX for n in near)
    return product and not more and logarithm and any(n in SOFTMAX for n in near)


def is_stacked(shape: tuple[int, ...]) -> bool:
    """[critics, rows]: several critics in one tensor, one number for each row."""
    return len(shape) == 2 and 2 <= shape[0] <= MOST_STACKED and shape[1] >= FEWEST_ROWS


@dataclass(frozen=True)
class Policy:
    """Log-probabilities in a loss."""

    value: Array
    """[n] or [n, d] as the distribution gave it."""
    gradient: Array
    """dL/dlog_prob, of the same shape."""
    rows: Array | None
    """Identity of the observation of each row."""
    time: Array | None
    """Environment steps before each row was scored, where it was scored as it was acted."""
    action: Array | None
    terms: tuple[int, ...]
    kind: str

    @property
    def weight(self) -> Array:
        """[n]: how strongly each row's action is reinforced, up to a positive factor."""
        gradient = -self.gradient.astype(np.float64)
        return np.asarray(gradient.reshape(len(gradient), -1).mean(axis=1))

    @property
    def even(self) -> bool:
        """Every row has the same weight: an entropy term (SAC), not a policy gradient."""
        return bool(np.ptp(self.weight) <= 1e-6 * max(float(np.abs(self.weight).max()), 1e-30))


@dataclass(frozen=True)
class Regression:
    """A prediction that is drawn to a constant."""

    prediction: Array
    target: Array
    gradient: Array | None
    """dL/dprediction."""
    rows: Array | None
    time: Array | None
    """As in Policy."""
    module: str | None
    call: int | None
    terms: tuple[int, ...]
    exact: bool
    """False where the target was computed back from a difference, good to about 1e-6 of the prediction."""


def _rows_of(output: Array) -> int:
    return int(output.shape[1]) if is_stacked(output.shape) else len(output)


@dataclass
class Loss:
    event: LossSeen
    evidence: Evidence = field(repr=False)
    reach: frozenset[str]
    term_reach: list[frozenset[str]]

    @property
    def update(self) -> int:
        return self.event.update

    @property
    def cycle(self) -> int:
        return self.event.cycle

    @cached_property
    def arrays(self) -> dict[str, Array]:
        arrays = self.evidence.arrays_of(self.event)
        if self.event.transitions_of is None or "t.observation" not in arrays:
            return arrays
        shown = [arrays["t." + name] for name in ("observation", "next_observation", "final_observation")]
        known = np.concatenate([*shown, arrays[self.event.transitions_of]])
        graded = graded_rows(arrays, len(self.event.calls), len(self.event.log_probs), known)
        return arrays | graded | silent_rows(arrays, len(self.event.silent), known)

    def speaks_of(self, observations: Array) -> None:
        """What the environments showed in its cycle, where that did not come with the loss."""
        if self.event.transitions_of is None:
            self.arrays |= graded_rows(self.arrays, len(self.event.calls), len(self.event.log_probs), observations)

    @cached_property
    def structure(self) -> tuple[Any, ...]:
        """Equal for two losses that were made by the same line."""
        return (self.event.reach, tuple(tuple(term["structure"][:12]) for term in self.event.terms))

    # ------------------------------------------------------------------ policies

    @cached_property
    def policies(self) -> list[Policy]:
        found = []
        for position, about in enumerate(self.event.log_probs):
            key = f"p{position}"
            value, gradient = self.arrays.get(key + ".value"), self.arrays.get(key + ".gradient")
            if value is None or gradient is None or value.size != gradient.size or value.ndim == 0:
                continue
            found.append(
                Policy(
                    value=value,
                    gradient=gradient.reshape(value.shape) * (-1 if about.get("kind") == "cross_entropy" else 1),
                    rows=self._rows(key, len(value)),
                    time=self._times(key, len(value)),
                    action=self.arrays.get(key + ".action"),
                    terms=tuple(about.get("terms", ())),
                    kind=str(about.get("kind")),
                )
            )
        return found

    def _rows(self, key: str, count: int) -> Array | None:
        rows = self.arrays.get(key + ".rows")
        return rows if rows is not None and len(rows) == count else None

    def _times(self, key: str, count: int) -> Array | None:
        times = self.arrays.get(key + ".time")
        return times if times is not None and len(times) == count else None

    # ------------------------------------------------------------------ regressions

    @cached_property
    def regressions(self) -> list[Regression]:
        found = []
        for position, about in enumerate(self.event.constants):
            if not self.is_regression(about):
                continue
            constant = self.arrays.get(f"k{position}")
            if constant is None or constant.size < 2:
                continue
            regression = self._regression(position, about, constant.astype(np.float64).reshape(-1))
            if regression is not None:
                found.append(regression)
        return found

    def is_regression(self, about: Mapping[str, Any]) -> bool:
        """(sample - mean)^2 inside a log-probability is none, and what was added to or clipped from a prediction is not the
        prediction."""
        if about.get("role") != "difference":
            return about.get("role") == "target"
        terms = set(about.get("terms", ()))
        inside = any(terms & set(log_prob.get("terms", ())) for log_prob in self.event.log_probs)
        return not inside and about.get("beside") not in ARITHMETIC and not self._weighed_both_ways(terms)

    def _weighed_both_ways(self, terms: set[int]) -> bool:
        """Whether rows of one of these terms have weights of both signs: advantages, and what they weigh is the squared distance in the
        log-probability of a Gaussian that is written out. No error is squared in order to be made larger."""
        weights = [
            self.arrays.get(f"k{position}")
            for position, about in enumerate(self.event.constants)
            if about.get("role") == "weight" and terms & set(about.get("terms", ()))
        ]
        return any(weight is not None and weight.size > 1 and weight.min() < 0 < weight.max() for weight in weights)

    def _regression(self, position: int, about: dict[str, Any], constant: Array) -> Regression | None:
        apart = self._in_one_place(position, about)
        if apart is not None:
            return apart
        call = self._call_of(about, constant.size)
        terms = tuple(about.get("terms", ()))
        output = None if call is None else self.arrays[f"c{call}.output"].astype(np.float64)
        if about["role"] == "target":
            partner = self.arrays.get(f"k{position}.partner")
            if partner is None or partner.size != constant.size:
                return None
            prediction: Array = partner.astype(np.float64).reshape(-1)
            target = constant
        else:
            predicted = self._predicted(output, constant.size)
            if predicted is None and f"k{position}.partner" in self.arrays:
                predicted = self.arrays[f"k{position}.partner"].astype(np.float64).reshape(-1)
            if predicted is None or predicted.size != constant.size:
                return None
            prediction = predicted
            target = prediction - float(about.get("sign", 1)) * constant
        return Regression(
            prediction=prediction,
            target=target,
            gradient=self._gradient(f"k{position}" if call is None else f"c{call}", prediction),
            rows=self._rows(f"k{position}" if call is None else f"c{call}", constant.size),
            time=None if call is None else self._times(f"c{call}", constant.size),
            module=WRITTEN_OUT if call is None else self.event.calls[call].get("module"),
            call=call,
            terms=terms,
            exact=about["role"] == "target",
        )

    def _in_one_place(self, position: int, about: dict[str, Any]) -> Regression | None:
        """Whole rows of predictions are drawn to copies of themselves, in which one number each was put in."""
        target, prediction = self.arrays.get(f"k{position}"), self.arrays.get(f"k{position}.partner")
        if about["role"] != "target" or target is None or prediction is None or target.shape != prediction.shape:
            return None
        if target.ndim != 2 or target.shape[1] < 2 or len(target) < 2:
            return None
        other = target != prediction
        if other.sum(axis=1).max() > 1 or other.any(axis=1).mean() < MOSTLY_ONE:
            return None
        rows, column = np.arange(len(target)), other.argmax(axis=1)
        call = self._call_of(about, len(target))
        key = f"k{position}" if call is None else f"c{call}"
        predicted = prediction[rows, column].astype(np.float64)
        return Regression(
            prediction=predicted,
            target=target[rows, column].astype(np.float64),
            gradient=self._gradient(key, predicted),
            rows=self._rows(key, len(rows)),
            time=None if call is None else self._times(key, len(rows)),
            module=WRITTEN_OUT if call is None else self.event.calls[call].get("module"),
            call=call,
            terms=tuple(about.get("terms", ())),
            exact=True,
        )

    def _call_of(self, about: dict[str, Any], size: int) -> int | None:
        """The graded call that made the prediction: the last one of as many rows, outermost modules coming last."""
        for call in reversed(about.get("calls", [])):
            output = self.arrays.get(f"c{call}.output")
            if output is not None and output.ndim > 0 and size in (len(output), _rows_of(output)):
                return int(call)
        return None

    def _predicted(self, output: Array | None, size: int) -> Array | None:
        if output is None:
            return None
        if output.size == size:
            return output.reshape(-1)
        index = self.taken(size)
        if index is not None and output.ndim == 2 and index.max(initial=0) < output.shape[1]:
            return np.asarray(output[np.arange(size), index])
        return None

    def predicted_after(self, regression: Regression) -> Array | None:
        """The prediction once more, after the step; None where the network was not asked again."""
        after = self.arrays.get(f"c{regression.call}.after")
        return None if after is None else self._predicted(after.astype(np.float64), regression.prediction.size)

    def taken(self, size: int) -> Array | None:
        """The column that the loss read of each row (Q-values at the actions taken)."""
        for position, about in enumerate(self.event.constants):
            index = self.arrays.get(f"k{position}")
            if about.get("role") == "index" and index is not None and index.size == size and index.min(initial=0) >= 0:
                return index.reshape(-1).astype(np.int64)
        return None

    def moved_columns(self, call: int | None, size: int) -> Array | None:
        """The column of a call's answer that the loss moves in each row, where it is one (a largest value, say); -1 in rows that it leaves
        alone."""
        calls = range(len(self.event.calls)) if call is None else (call,)
        gradients = [self.arrays.get(f"c{position}.gradient") for position in calls]
        wide = [g for g in gradients if g is not None and g.ndim == 2 and len(g) == size and g.shape[1] > 1]
        if len(wide) != 1:
            return None
        moved = wide[0] != 0
        if (moved.sum(axis=1) > 1).any():
            return None
        return np.where(moved.any(axis=1), moved.argmax(axis=1), -1)

    def _gradient(self, key: str, prediction: Array) -> Array | None:
        gradient = self.arrays.get(key + ".gradient")
        if gradient is None:
            return None
        gradient = gradient.astype(np.float64)
        if gradient.size == prediction.size:
            return gradient.reshape(-1)
        if is_stacked(gradient.shape) and gradient.shape[1] == prediction.size:
            output = self.arrays.get(key + ".output")
            near = None if output is None else np.abs(output - prediction).max(axis=1)
            return None if near is None else np.asarray(gradient[int(near.argmin())])
        if gradient.ndim == 2 and len(gradient) == prediction.size:  # read at an index: the other columns get nothing
            return np.asarray(gradient.sum(axis=1))
        return None

    # ------------------------------------------------------------------ entropy

    @cached_property
    def entropy_terms(self) -> set[int]:
        """Terms that are an entropy: one that a distribution gave, or written out. A softmax times numbers without a graph is the mean of
        those numbers: of the values of actions, say."""
        given = {int(term) for entropy in self.event.entropies for term in entropy.get("terms", ())}
        means = {
            int(term)
            for about in self.event.constants
            if about.get("role") == "weight" and about.get("beside") in SOFTMAX
            for term in about.get("terms", ())
        }
        written = {position for position, term in enumerate(self.event.terms) if is_written_entropy(term)}
        return given | (written - means)

    # ------------------------------------------------------------------ the rest

    @cached_property
    def ratios(self) -> list[Array]:
        return [
            self.arrays[f"k{position}"].astype(np.float64)
            for position, about in enumerate(self.event.constants)
            if about.get("role") == "ratio" and f"k{position}" in self.arrays
        ]

    @property
    def rows(self) -> Array | None:
        """Identities of the observations of the batch."""
        for key in ("p0.rows", "c0.rows"):
            rows = self.arrays.get(key)
            if rows is not None and len(rows) > 1:
                return rows
        return self.arrays.get("p0.rows", self.arrays.get("c0.rows"))

    @property
    def trained_rows(self) -> Array:
        """The same, without those that the loss gives no gradient: a network may be asked about a whole table, of which a mask picks rows."""
        for key in ("p0", "c0"):
            rows, gradient = self.arrays.get(key + ".rows"), self.arrays.get(key + ".gradient")
            if rows is None or len(rows) < 2:
                continue
            if gradient is not None and len(gradient) == len(rows):
                rows = rows[(gradient.reshape(len(rows), -1) != 0).any(axis=1)]
            return rows
        return np.empty(0, np.uint64)

    def call_gradients(self) -> list[tuple[dict[str, Any], Array, Array]]:
        """(about, output, gradient) of each graded call whose gradient was caught."""
        found = []
        for position, about in enumerate(self.event.calls):
            output, gradient = self.arrays.get(f"c{position}.output"), self.arrays.get(f"c{position}.gradient")
            if output is not None and gradient is not None and output.shape == gradient.shape:
                found.append((about, output.astype(np.float64), gradient.astype(np.float64)))
        return found
