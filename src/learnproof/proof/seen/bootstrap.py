"""How a temporal-difference target was made: y = c r + gamma (1 - d) X, fitted over the definitions of X; then the ends.

    X     for a network with one number per action: its largest, the one at another network's largest, its mean, its smallest;
          for networks with one number: each alone, the smaller and the larger of two
    soft  a log-probability beside X: X - alpha log p, with the correction of a squashed action where there is one

c, gamma and alpha come from least squares on the transitions that neither ended nor were cut, so that no treatment of ends can
spoil them. Each special row is then asked which treatment explains it:

    terminal rows   stop (right), go on, or keep the entropy bonus alone
    cut rows        a time limit: go on (right), or stop
    inner rows      go on (right), or stop: an end was written beside the wrong transition

Candidates for X come from the calls without gradient that the watcher saw between two steps. They stand row by row beside
the batch, so that no identity of next observations is needed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from .fitting import trimmed_least_squares
from .losses import Array, Loss, Regression

MATCHED = 1e-4
"""Largest error over the spread of the targets: right definitions reach 1e-6 in float32."""
NEAR = 1e-3
"""The same for a single special row."""
MOST_INNER = 0.8
"""Share of the inner rows that a definition must explain; ends written to the wrong rows spoil a few of them."""
MIN_ROWS = 8
WRONG_SQUASH = "tanh of the squashed action"
WRONG_SIGN = "tanh with the wrong sign"


@dataclass(frozen=True)
class Explanation:
    future: str
    """How X was made, e.g. "largest of target"."""
    networks: tuple[str, ...]
    soft: str
    """"" for no log-probability in it, else the correction that explains it."""
    reward_scale: float
    gamma: float
    temperature: float
    error: float
    terminal: Counter[str]
    """treatment -> rows that only it explains; "unexplained" beside them."""
    cut: Counter[str]
    inner: Counter[str]


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
    shifted: str
    """"before" or "after" where the reward of that step explains the target and the step's own does not."""
    other_actions: int
    """Rows in which the loss looks at another action than the one that was taken."""


def explain(
    loss: Loss, regression: Regression, likely: set[tuple[str, str]], try_shifts: bool = True
) -> Bootstrapped | None:
    """`likely` are pairs (future, soft) that explained other targets of the run: if one does, no others are tried. `try_shifts`:
    where nothing explains it, also by the reward of the step before or after."""
    found = _explain(loss, regression, likely) if likely else None
    if found is None or not found.explanations:
        found = _explain(loss, regression, None)
    if found is not None and not found.explanations and try_shifts:
        for way in ("before", "after"):
            if "t.reward_" + way in loss.arrays and float(np.ptp(loss.arrays["t.reward"])) > 0:
                other = _explain(loss, regression, None, "reward_" + way)
                if other is not None and other.explanations:
                    return replace(found, shifted=way)
    return found


def _explain(
    loss: Loss, regression: Regression, only: set[tuple[str, str]] | None, rewards: str = "reward"
) -> Bootstrapped | None:
    arrays = loss.arrays
    rows = arrays.get("t.row")
    if rows is None or len(rows) < MIN_ROWS or regression.target.size <= int(rows.max()):
        return None
    y = regression.target[rows]
    reward = arrays["t." + rewards].astype(np.float64)
    terminated = arrays["t.terminated"]
    cut = arrays["t.truncated"] & ~terminated
    spread = max(float(y.std()), 1e-3 * float(np.abs(y).max()), 1e-6)
    explanations = []
    best = np.inf
    for future, networks, numbers, soft, columns in _futures(loss, regression.target.size):
        if only is not None and not {(future, soft), (future, WRONG_SIGN)} & only:
            continue
        ahead = np.stack([numbers[rows], *(column[rows] for column in columns)], axis=1)
        solved = _solve(np.concatenate([reward[:, None], ahead], axis=1), y, ~(terminated | cut), spread)
        if solved is None:
            continue
        answer, error = solved
        best = min(best, error)
        if error > MATCHED:
            continue
        stops = answer[0] * reward
        goes_on = stops + ahead @ answer[1:]
        bonus = stops + ahead[:, 1:] @ answer[2:] if columns else np.full(len(y), np.nan)
        tolerance = max(NEAR, 10 * error) * spread
        terminal = _count(y[terminated], {"stop": stops, "go on": goes_on, "bonus": bonus}, terminated, tolerance)
        explanations.append(
            Explanation(
                future=future,
                networks=networks,
                soft=_signed_correction(soft, answer),
                reward_scale=float(answer[0]),
                gamma=float(answer[1]),
                temperature=-float(answer[2] / answer[1]) if columns and abs(answer[1]) > 1e-6 else 0.0,
                error=error,
                terminal=terminal,
                cut=_count(y[cut], {"go on": goes_on, "stop": stops}, cut, tolerance),
                inner=_count(y[~(terminated | cut)], {"go on": goes_on, "stop": stops}, ~(terminated | cut), tolerance),
            )
        )
    alone = _solve(reward[:, None], y, np.ones(len(y), bool), spread)
    return Bootstrapped(
        update=loss.update,
        module=regression.module,
        explanations=_simplest(explanations),
        best=float(best),
        terminal_rows=int(terminated.sum()),
        cut_rows=int(cut.sum()),
        rows=len(rows),
        reward_only=np.inf if alone is None else alone[1],
        next_rows_reset=_read_from_reset(loss, rows),
        shifted="",
        other_actions=_other_actions(loss, rows, regression),
    )


def _signed_correction(soft: str, answer: Array) -> str:
    """log p of a squashed action is log p before it less the correction: in the target they have opposite signs."""
    if soft not in ("tanh", "guarded tanh") or len(answer) < 4 or abs(answer[2]) < 1e-6:
        return soft
    return WRONG_SIGN if abs(answer[3] / answer[2] - 1) < 0.1 else soft


def _simplest(found: list[Explanation]) -> list[Explanation]:
    """Without a log-probability where none is needed."""
    hard = [each for each in found if not each.soft]
    return hard or found


def _solve(columns: Array, y: Array, rows: Array, spread: float) -> tuple[Array, float] | None:
    if rows.sum() < max(MIN_ROWS, columns.shape[1] + 2):
        return None
    found = trimmed_least_squares(columns[rows], y[rows], MOST_INNER, MATCHED * spread)
    return None if found is None else (found[0], found[1] / spread)


def _count(y: Array, treatments: dict[str, Array], rows: Array, tolerance: float) -> Counter[str]:
    counts: Counter[str] = Counter()
    if len(y) == 0:
        return counts
    near = np.stack([np.abs(numbers[rows] - y) <= tolerance for numbers in treatments.values()])
    alone = near.sum(axis=0) == 1
    for position, name in enumerate(treatments):
        counts[name] = int((near[position] & alone).sum())
    counts["unexplained"] = int((near.sum(axis=0) == 0).sum())
    return +counts


def _other_actions(loss: Loss, rows: Array, regression: Regression) -> int:
    """Rows whose index in the loss is not the action that the environment was given."""
    index = loss.taken(regression.target.size)
    actions = loss.arrays.get("t.action")
    if index is None or actions is None or actions.shape[1] != 1:
        return 0
    return int((index[rows] != actions[:, 0]).sum())


def _futures(loss: Loss, count: int) -> Iterator[tuple[str, tuple[str, ...], Array, str, list[Array]]]:
    """(how, which networks, numbers, how soft, columns of a log-probability) for everything X may have been."""
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
    wide += _duelling(single, wide)
    rows = np.arange(count)
    for name, numbers in wide:
        yield f"largest of {name}", (name,), numbers.max(axis=1), "", []
        yield f"mean of {name}", (name,), numbers.mean(axis=1), "", []
        yield f"smallest of {name}", (name,), numbers.min(axis=1), "", []
    for (name, numbers), (other, choosing) in itertools.permutations(wide, 2):
        if numbers.shape == choosing.shape:
            yield f"{name} at the largest of {other}", (name, other), numbers[rows, choosing.argmax(axis=1)], "", []
    plain: list[tuple[str, tuple[str, ...], Array]] = [(name, (name,), numbers) for name, numbers in single]
    for (first, one), (second, two) in itertools.combinations(single, 2):
        if first != second and not np.array_equal(one, two):
            plain.append((f"smaller of {first} and {second}", (first, second), np.minimum(one, two)))
            plain.append((f"larger of {first} and {second}", (first, second), np.maximum(one, two)))
    for how, networks, numbers in plain:
        yield how, networks, numbers, "", []
        for correction, columns in _soft_columns(loss, count):
            yield f"{how}, less a log-probability", networks, numbers, correction, columns


def _duelling(single: list[tuple[str, Array]], wide: list[tuple[str, Array]]) -> list[tuple[str, Array]]:
    """Values put together outside of any module: V + A - mean A, of two parts of one network."""
    found = []
    for (first, value), (second, gain) in itertools.product(single, wide):
        parent = first.rpartition(".")[0]
        if parent and parent == second.rpartition(".")[0]:
            found.append((parent, value[:, None] + gain - gain.mean(axis=1, keepdims=True)))
    return found


def _put(calls: list[tuple[str, Array]], name: str, numbers: Array) -> None:
    """A call; if it only hands on what a part of it said, in place of that part."""
    for position, (_, known) in enumerate(calls):
        if np.array_equal(known, numbers):
            calls[position] = (name, numbers)
            return
    calls.append((name, numbers))


def _soft_columns(loss: Loss, count: int) -> list[tuple[str, list[Array]]]:
    """For each silent log-probability: itself, and with the usual corrections for tanh, which a scale of the action shifts."""
    found: list[tuple[str, list[Array]]] = []
    for position in range(len(loss.event.silent_log_probs)):
        value, action = loss.arrays.get(f"s{position}.value"), loss.arrays.get(f"s{position}.action")
        if value is None or len(value) != count:
            continue
        log_prob = value.astype(np.float64).reshape(count, -1).sum(axis=1)
        found.append(("plain", [log_prob]))
        if action is not None and action.size == value.size:
            before = action.astype(np.float64).reshape(count, -1)
            squashed = np.tanh(before.astype(np.float32)).astype(np.float64)
            ones = np.ones(count)
            corrections = {
                "tanh": 2 * (np.log(2) - before - np.logaddexp(0.0, -2 * before)),
                "guarded tanh": np.log(1 - squashed**2 + 1e-6),
                WRONG_SQUASH: np.log(1 - np.tanh(squashed) ** 2 + 1e-6),
            }
            found += [(name, [log_prob, column.sum(axis=1), ones]) for name, column in corrections.items()]
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
