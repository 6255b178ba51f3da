"""What a language model answered: the tokens of each sequence that carry its loss, and to which question.

Sequences without an advantage have no gradient where no divergence is paid for. Their tokens are known all the same, but not where
they end; so they are asked only whether they begin with a given answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from .losses import Array
from .token_rewards import alike_rows
from .tokens import NEARLY_ALL, Tokens

FEW_ENDINGS = 20
Answer = tuple[int, ...]


def answers(tokens: Tokens) -> list[Answer]:
    """Of each sequence, the tokens from the first that carries the loss to the last; () where none does."""
    if tokens.action is None:
        return []
    found: list[Answer] = []
    for used, row in zip(tokens.used, tokens.action, strict=True):
        at = np.flatnonzero(used)
        found.append(tuple(row[at[0] : at[-1] + 1].tolist()) if len(at) else ())
    return found


def begins_with(tokens: Tokens, answer: Answer) -> Array | None:
    """[sequences] whether each begins with that answer; None where it is not known where answers begin."""
    starts = {int(np.flatnonzero(used)[0]) for used in tokens.used if used.any()}
    if tokens.action is None or len(starts) != 1:
        return None
    start = starts.pop()
    part = tokens.action[:, start : start + len(answer)]
    return np.asarray((part == np.array(answer)).all(axis=1)) if part.shape[1] == len(answer) else None


def asked(tokens: Tokens) -> Array | None:
    """[sequences] which question each answers: the network's first answers to the same one are the same. None where it was not asked
    about whole questions."""
    place, batch = tokens.places
    outputs = (tokens.loss.arrays.get(f"n{position}.output") for position in range(len(tokens.loss.event.silent)))
    first = next((output for output in outputs if output is not None and len(output) == batch), None)
    if first is None or first.ndim != 3 or first.shape[1] < 2:
        return None
    return np.asarray(alike_rows(first)[place])


def ending(found: Sequence[Tokens]) -> int | None:
    """The token with which answers of several tokens end that are shorter than there was room for."""
    ends: Counter[int] = Counter()
    for tokens in found:
        room = tokens.shape[1] - 1
        last = np.where(tokens.used, np.arange(tokens.shape[1]), -1).max(axis=1)
        ends.update(
            answer[-1] for answer, at in zip(answers(tokens), last, strict=False) if len(answer) > 1 and at < room
        )
    if not ends:
        return None
    token, count = ends.most_common(1)[0]
    return token if count >= FEW_ENDINGS and count > NEARLY_ALL * ends.total() else None
