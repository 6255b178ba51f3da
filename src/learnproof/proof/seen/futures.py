"""What the future in a temporal-difference target may have been made of: the answers of networks that were asked without gradient
beside the batch, alone and put together, with or without a log-probability."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from .losses import Array, Loss, is_stacked

OVER_THE_BATCH = "with the mean of the batch"
MOST_WIDE = 6
"""Networks with a number for each action that are looked at as choosers and critics."""
ONE_FOR_ALL = "over the whole batch"
SQUASHED_TWICE = "tanh of the squashed action"
SCALED_FIRST = "the action after it was scaled"
NOT_SQUARED = "the squashed action without its square"
WRONG_SQUASHES = {SQUASHED_TWICE, SCALED_FIRST, NOT_SQUARED}


Future = tuple[str, tuple[str, ...], Array, str, list[Array]]
"""(how, which networks, numbers, how soft, columns of a log-probability)."""
Wanted = Callable[[str, str], bool]
"""Whether a future made in this way, softened in this way, is looked for at all: making all of them takes longer than fitting a few."""
Made = tuple[str, tuple[str, ...], Callable[[], Array]]
"""The same without its softness, and made only when it is asked for."""


def everything(how: str, soft: str) -> bool:
    return True


def futures(loss: Loss, count: int, bound: float | None = None, wanted: Wanted = everything) -> Iterator[Future]:
    """Everything X may have been, as far as it is wanted. `bound` is that of the actions."""
    single, wide = _answers(loss, count)
    plain = [*_of_one(single), *_of_pairs(single)]
    for how, networks, make in _of_choices(wide):
        if wanted(how, ""):
            yield how, networks, make(), "", []
    soft = _soft_columns(loss, count, bound) if plain else []
    for how, networks, make in plain:
        if wanted(how, ""):
            yield how, networks, make(), "", []
        less = f"{how}, less a log-probability"
        for correction, columns in soft:
            if wanted(less, correction):
                yield less, networks, make(), correction, columns
    yield from _expected(wide, wanted)
    for how, networks, make in _one_for_all(wide, plain):
        if wanted(how, ""):
            yield how, networks, make(), "", []


def _answers(loss: Loss, count: int) -> tuple[list[tuple[str, Array]], list[tuple[str, Array]]]:
    """What networks said without gradient: with one number for each row, and with one for each action."""
    single: list[tuple[str, Array]] = []
    wide: list[tuple[str, Array]] = []
    for position, about in enumerate(loss.event.silent):
        output = loss.arrays.get(f"n{position}.output")
        if output is not None and is_stacked(output.shape) and output.shape[1] == count:
            for layer, row in enumerate(output.astype(np.float64)):
                _put(single, f"{about.get('module')}[{layer}]", row)
            continue
        if output is None or output.ndim == 0:
            continue
        output = _of_those_that_go_on(loss, output, count, loss.arrays.get(f"n{position}.of"))
        if len(output) != count:
            continue
        name = str(about.get("module"))
        numbers = output.astype(np.float64)
        if output.size == count:
            _put(single, name, numbers.reshape(-1))
        elif output.ndim == 2:
            _put(wide, name, numbers)
    return single, wide + _duelling(single, wide)


def _of_choices(wide: list[tuple[str, Array]]) -> Iterator[Made]:
    for name, numbers in wide:
        yield f"largest of {name}", (name,), partial(numbers.max, axis=1)
        yield f"mean of {name}", (name,), partial(numbers.mean, axis=1)
        yield f"smallest of {name}", (name,), partial(numbers.min, axis=1)
    for (name, numbers), (other, choosing) in itertools.permutations(wide, 2):
        if numbers.shape == choosing.shape:
            yield f"{name} at the largest of {other}", (name, other), partial(_at_the_largest, numbers, choosing)


def _at_the_largest(numbers: Array, choosing: Array) -> Array:
    chosen: Array = numbers[np.arange(len(numbers)), choosing.argmax(axis=1)]
    return chosen


def _of_one(single: list[tuple[str, Array]]) -> Iterator[Made]:
    for name, numbers in single:
        yield name, (name,), partial(np.asarray, numbers)


def _of_pairs(single: list[tuple[str, Array]]) -> Iterator[Made]:
    for (first, one), (second, two) in itertools.combinations(single, 2):
        if first != second and not np.array_equal(one, two):
            yield f"smaller of {first} and {second}", (first, second), partial(np.minimum, one, two)
            yield f"larger of {first} and {second}", (first, second), partial(np.maximum, one, two)


def _expected(wide: list[tuple[str, Array]], wanted: Wanted) -> Iterator[Future]:
    """What a policy over whole numbers expects: sum p Q, with and without its entropy, sum p log p; Q of one critic or the smaller of two."""
    for chooser, logits in wide[:MOST_WIDE]:
        if not np.isfinite(logits).all():  # asked about some rows only
            continue
        others = [(n, q) for n, q in wide[:MOST_WIDE] if n != chooser and q.shape == logits.shape]
        critics: list[tuple[str, tuple[str, ...], tuple[Array, ...]]] = [(name, (name,), (q,)) for name, q in others]
        critics += [
            (f"the smaller of {first} and {second}", (first, second), (one, two))
            for (first, one), (second, two) in itertools.combinations(others, 2)
        ]
        for how, networks, values in critics:
            plain, less = f"mean of {how} by {chooser}", f"mean of {how} by {chooser}, less a log-probability"
            if not (wanted(plain, "") or wanted(less, "plain")):
                continue
            log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
            p = np.exp(log_p)
            numbers = (p * np.minimum.reduce(values)).sum(axis=1)
            if wanted(plain, ""):
                yield plain, networks, numbers, "", []
            if wanted(less, "plain"):
                yield less, networks, numbers, "plain", [(p * log_p).sum(axis=1)]


def _one_for_all(wide: list[tuple[str, Array]], plain: list[Made]) -> Iterator[Made]:
    """A maximum or minimum without a dimension: one number of all rows, for all rows."""
    for name, numbers in wide:
        yield f"largest of {name}, {ONE_FOR_ALL}", (name,), partial(_spread, np.nanmax, partial(np.asarray, numbers))
    for how, networks, make in plain:
        if how.startswith("smaller of"):
            yield f"{how}, {ONE_FOR_ALL}", networks, partial(_spread, np.nanmin, make)


def _spread(extreme: Callable[[Array], float], make: Callable[[], Array]) -> Array:
    numbers = make()
    return np.full(len(numbers), extreme(numbers))


def _of_those_that_go_on(loss: Loss, output: Array, count: int, asked: Array | None = None) -> Array:
    """A network that was asked only about the rows that do not end (or are not cut either): its answers at those rows, nan at the others.
    `asked` are those rows where the watcher knows them; else, that it was so is shown where the target then fits."""
    rows = loss.arrays.get("t.row")
    if asked is not None and len(asked) == len(output) and len(output) < count:
        whole = np.full((count, *output.shape[1:]), np.nan)
        whole[asked] = output
        return whole
    if (
        rows is None
        or len(output) >= count
        or len(rows) != count
        or not np.array_equal(np.sort(rows), np.arange(count))
    ):
        return output
    terminated, truncated = np.zeros(count, bool), np.zeros(count, bool)
    terminated[rows], truncated[rows] = loss.arrays["t.terminated"], loss.arrays["t.truncated"]
    for over in (terminated, terminated | truncated):
        if len(output) == int((~over).sum()):
            whole = np.full((count, *output.shape[1:]), np.nan)
            whole[~over] = output
            return whole
    return output


def _duelling(single: list[tuple[str, Array]], wide: list[tuple[str, Array]]) -> list[tuple[str, Array]]:
    """Values put together outside of any module: V + A - mean A, of two parts of one network; and with the wrong mean."""
    found = []
    for (first, value), (second, gain) in itertools.product(single, wide):
        parent = first.rpartition(".")[0]
        if parent and parent == second.rpartition(".")[0]:
            found.append((parent, value[:, None] + gain - gain.mean(axis=1, keepdims=True)))
            found.append((f"{parent} {OVER_THE_BATCH}", value[:, None] + gain - gain.mean()))
    return found


def _put(calls: list[tuple[str, Array]], name: str, numbers: Array) -> None:
    """A call; if it only hands on what a part of it said, in place of that part."""
    for position, (_, known) in enumerate(calls):
        if np.array_equal(known, numbers):
            calls[position] = (name, numbers)
            return
    calls.append((name, numbers))


def _soft_columns(loss: Loss, count: int, bound: float | None) -> list[tuple[str, list[Array]]]:
    """For each silent log-probability: itself, and with the usual corrections for tanh, which a scale of the action shifts. Where a network
    gives one more number behind its first answer, that may be one, corrected already."""
    besides = [loss.arrays.get(f"n{position}.beside") for position in range(len(loss.event.silent))]
    found = [("plain", [b.astype(np.float64)]) for b in besides if b is not None and b.size == count]
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
                SQUASHED_TWICE: np.log(1 - np.tanh(squashed) ** 2 + 1e-6),
                NOT_SQUARED: np.log(1 - squashed + 1e-6),
            }
            if bound is not None and bound > 1:
                corrections[SCALED_FIRST] = np.log(np.maximum(1 - (bound * squashed) ** 2, 1e-6))
            found += [(name, [log_prob, column.sum(axis=1), ones]) for name, column in corrections.items()]
    return found
