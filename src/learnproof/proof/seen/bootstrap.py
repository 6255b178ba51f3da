"""How a temporal-difference target was made: y = c r + gamma (1 - d) X, fitted over the definitions of d and X.

    d   terminated (right), terminated or cut by a time limit, never
    X   for a network with one number per action: its largest, the one at another network's largest, its mean, its smallest;
        for networks with one number: each alone, the smaller and the larger of two
    soft  a log-probability beside X: X - alpha log p, with the correction of a squashed action where there is one

Candidates for X come from the calls without gradient that the watcher saw between two steps. They stand row by row beside
the batch, so that no identity of next observations is needed. All that explain the target are kept as a set; sets of
several losses are intersected, because one batch may hold no row that tells two definitions apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .losses import Array, Loss, Regression

MATCHED = 1e-4
"""Largest error over the spread of the targets: right definitions reach 1e-6 in float32."""
MIN_ROWS = 8
ENDS = ("terminated", "ended", "never")


@dataclass(frozen=True)
class Definition:
    ends: str
    """Which transitions have no future: terminated, ended (a time limit too), never."""
    future: str
    """How X was made, e.g. "largest of target"."""
    networks: tuple[str, ...]
    soft: str = ""
    """"" for no log-probability in it, "masked" where it ends with the episode (right), "unmasked" where it does not."""


@dataclass(frozen=True)
class Explanation:
    definition: Definition
    reward_scale: float
    gamma: float
    temperature: float
    error: float


@dataclass
class Bootstrapped:
    """One regression toward a target made of rewards."""

    update: int
    module: str | None
    explanations: list[Explanation]
    best: float
    """Smallest error of any definition."""
    terminal_rows: int
    cut_rows: int
    rows: int
    reward_only: float
    """Error of y = c r: small where nothing of the future is in the target."""
    next_rows_reset: int
    """Cut rows whose future was read from the first observation of the next episode."""


def explain(loss: Loss, regression: Regression, likely: set[tuple[str, str]]) -> Bootstrapped | None:
    """`likely` are pairs (future, soft) that explained other targets of the run: if one does, no others are tried."""
    found = _explain(loss, regression, likely) if likely else None
    if found is None or not found.explanations:
        found = _explain(loss, regression, None)
    return found


def _explain(loss: Loss, regression: Regression, only: set[tuple[str, str]] | None) -> Bootstrapped | None:
    arrays = loss.arrays
    rows = arrays.get("t.row")
    if rows is None or len(rows) < MIN_ROWS or regression.target.size <= int(rows.max()):
        return None
    y = regression.target[rows]
    reward = arrays["t.reward"].astype(np.float64)
    terminated, truncated = arrays["t.terminated"], arrays["t.truncated"]
    ends = {"terminated": terminated, "ended": terminated | truncated, "never": np.zeros_like(terminated)}
    spread = max(float(y.std()), 1e-3 * float(np.abs(y).max()), 1e-6)
    explanations = []
    best = np.inf
    for definition_ends in ENDS:
        goes_on = 1.0 - ends[definition_ends].astype(np.float64)
        for future, networks, numbers, soft in _futures(loss, regression.target.size):
            for mask in ("masked", "unmasked") if soft else ("",):
                if only is not None and (future, mask) not in only:
                    continue
                lasting = goes_on if mask == "masked" else np.ones_like(goes_on)
                columns = [reward, goes_on * numbers[rows], *(lasting * column[rows] for column in soft)]
                found = _solve(np.stack(columns, axis=1), y, spread)
                if found is None:
                    continue
                answer, error = found
                best = min(best, error)
                if error <= MATCHED:
                    temperature = -float(answer[2] / answer[1]) if soft and abs(answer[1]) > 1e-6 else 0.0
                    definition = Definition(definition_ends, future, networks, mask)
                    explanations.append(Explanation(definition, float(answer[0]), float(answer[1]), temperature, error))
    alone = _solve(reward[:, None], y, spread)
    return Bootstrapped(
        update=loss.update,
        module=regression.module,
        explanations=_simplest(explanations),
        best=float(best),
        terminal_rows=int(terminated.sum()),
        cut_rows=int((truncated & ~terminated).sum()),
        rows=len(rows),
        reward_only=np.inf if alone is None else alone[1],
        next_rows_reset=_read_from_reset(loss, rows),
    )


def _simplest(found: list[Explanation]) -> list[Explanation]:
    """Without a log-probability where none is needed."""
    hard = [each for each in found if not each.definition.soft]
    return hard or found


def _solve(columns: Array, y: Array, spread: float) -> tuple[Array, float] | None:
    size = np.linalg.norm(columns, axis=0)
    if (size <= 1e-9).any() and not (size > 1e-9).any():
        return None
    used = size > 1e-9
    scaled = columns[:, used] / size[used]
    singular = np.linalg.svd(scaled, compute_uv=False)
    if singular[-1] < 1e-4 * singular[0]:
        return None
    answer = np.zeros(columns.shape[1])
    answer[used] = np.linalg.lstsq(scaled, y, rcond=None)[0] / size[used]
    return answer, float(np.quantile(np.abs(columns @ answer - y), 0.98)) / spread


def _futures(loss: Loss, count: int) -> Iterator[tuple[str, tuple[str, ...], Array, list[Array]]]:
    """(how, which networks, numbers, columns of a log-probability) for everything X may have been."""
    wide: list[tuple[str, Array]] = []
    single: list[tuple[str, Array]] = []
    for position, about in enumerate(loss.event.silent):
        output = loss.arrays.get(f"n{position}.output")
        if output is None or output.ndim == 0 or len(output) != count:
            continue
        name = str(about.get("module"))
        numbers = output.astype(np.float64)
        if output.size == count:
            _put(single, name, numbers.reshape(-1))
        elif output.ndim == 2:
            _put(wide, name, numbers)
    rows = np.arange(count)
    for name, numbers in wide:
        yield f"largest of {name}", (name,), numbers.max(axis=1), []
        yield f"mean of {name}", (name,), numbers.mean(axis=1), []
        yield f"smallest of {name}", (name,), numbers.min(axis=1), []
    for (name, numbers), (other, choosing) in itertools.permutations(wide, 2):
        if numbers.shape == choosing.shape:
            yield f"{name} at the largest of {other}", (name, other), numbers[rows, choosing.argmax(axis=1)], []
    plain: list[tuple[str, tuple[str, ...], Array]] = [(name, (name,), numbers) for name, numbers in single]
    for (first, one), (second, two) in itertools.combinations(single, 2):
        if first != second and not np.array_equal(one, two):
            plain.append((f"smaller of {first} and {second}", (first, second), np.minimum(one, two)))
            plain.append((f"larger of {first} and {second}", (first, second), np.maximum(one, two)))
    for how, networks, numbers in plain:
        yield how, networks, numbers, []
        for columns in _soft_columns(loss, count):
            yield f"{how}, less a log-probability", networks, numbers, columns


def _put(calls: list[tuple[str, Array]], name: str, numbers: Array) -> None:
    """A call; if it only hands on what a part of it said, in place of that part."""
    for position, (_, known) in enumerate(calls):
        if np.array_equal(known, numbers):
            calls[position] = (name, numbers)
            return
    calls.append((name, numbers))


def _soft_columns(loss: Loss, count: int) -> list[list[Array]]:
    """For each silent log-probability: itself, and with the usual corrections for tanh, which a scale of the action shifts."""
    found = []
    for position in range(len(loss.event.silent_log_probs)):
        value, action = loss.arrays.get(f"s{position}.value"), loss.arrays.get(f"s{position}.action")
        if value is None or len(value) != count:
            continue
        log_prob = value.astype(np.float64).reshape(count, -1).sum(axis=1)
        found.append([log_prob])
        if action is not None and action.size == value.size:
            before = action.astype(np.float64).reshape(count, -1)
            exact = 2 * (np.log(2) - before - np.logaddexp(0.0, -2 * before))
            squashed = np.tanh(before.astype(np.float32)).astype(np.float64)
            guarded = np.log(1 - squashed**2 + 1e-6)
            ones = np.ones(count)
            found.append([log_prob, exact.sum(axis=1), ones])
            found.append([log_prob, guarded.sum(axis=1), ones])
    return found


def _read_from_reset(loss: Loss, rows: Array) -> int:
    """Cut transitions whose future was asked of the next episode's first observation, though the true last one was told."""
    arrays = loss.arrays
    cut = arrays["t.truncated"] & ~arrays["t.terminated"] & (arrays["t.final_observation"] != 0)
    if not cut.any():
        return 0
    most = 0
    for position in range(len(loss.event.silent)):
        asked = arrays.get(f"n{position}.rows")
        if asked is not None and len(asked) > int(rows.max()):
            most = max(most, int((asked[rows][cut] == arrays["t.next_observation"][cut]).sum()))
    return most
