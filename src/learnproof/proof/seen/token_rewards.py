"""Which rewards explain the weights of a language model's losses, and whether they belong to the sequences that they weigh.

Rewards are looked for among the tensors whose mean or sum the script took (watching/baselines.py): the right one explains the
weight of each sequence, up to a baseline and a scale, for the whole batch or group by group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .fitting import correlation
from .losses import Array, Loss
from .tokens import NEARLY_ALL, Tokens, token_losses
from .view import Seen

ALL_BUT_EXPLAINED = 0.98
ALL_BUT_EXACTLY = 0.9999
FEWEST_TO_ORDER = 8
FEWEST_PLACED = 5
MOSTLY_APART = 0.75
"""Share of a batch whose places differ; sequences that are alike up to their last token may be taken for each other."""
SORTED_ALIKE, OTHERWISE = 0.9999, 0.8
"""Correlations of weights and rewards, both put in order and as they stand, between which they are the same numbers in another order."""
EXPLAINS = 0.9
"""Correlation from which a tensor counts as the rewards: normalising group by group leaves 0.9 and more."""


@dataclass(frozen=True)
class Rewarded:
    """A loss on tokens together with the rewards of its sequences."""

    tokens: Tokens
    reward: Array
    """Of each sequence of the loss."""
    centred: Array
    """Less the mean of its group."""
    source: str
    """Name of the array that the rewards were found in."""
    group: int
    """Neighbours in the batch whose rewards are compared with each other."""
    agreement: float
    """Of the loss's weights with `centred`, by sequence."""


def rewarded(seen: Seen) -> list[Rewarded]:
    known = seen.notes.get("rewarded")
    if known is None:
        found = [each for tokens in token_losses(seen) if (each := _rewards(tokens)) is not None]
        placed = [each for each in found if each.tokens.known_places is not None]
        # where it is known that batches are shuffled, a part of the rewards that fits a few sequences as they stand does so by chance
        known = seen.notes["rewarded"] = placed if len(placed) >= FEWEST_PLACED else found
    return list(known)


def _placed_alone(seen: Seen) -> bool:
    """Whether `rewarded` goes by losses alone whose sequences have known places."""
    return sum(each.tokens.known_places is not None for each in rewarded(seen)) >= FEWEST_PLACED


def _rewards(tokens: Tokens) -> Rewarded | None:
    best: Rewarded | None = None
    strongest = EXPLAINS
    for advantage in _advantages(tokens.loss, tokens.shape[0]):
        for source, group, reward, centred in _centred(tokens):
            strength = abs(correlation(advantage, centred) or 0.0)
            if strength > strongest + 1e-9:
                weight = np.where(tokens.used, -tokens.gradient, 0.0).sum(axis=1)
                strongest = strength
                best = Rewarded(tokens, reward, centred, source, group, correlation(weight, centred) or 0.0)
    return best


def _centred(tokens: Tokens, turned: bool = False) -> Iterator[tuple[str, int, Array, Array]]:
    """(name, size of groups, rewards, rewards less the mean of their group) of the loss's sequences, for each tensor whose mean the script took and
    each size of groups; `turned`: with groups and samples exchanged."""
    place, batch = tokens.places
    sequences = tokens.shape[0]
    for source, tensor in tokens.loss.arrays.items():
        if source[0] != "r" or not source[1:].isdigit():
            continue
        numbers = tensor.astype(np.float64)
        whole = [(numbers, place)] if len(numbers) == batch else []
        if batch == sequences:  # nothing tells where they stand: a part after the other
            starts = range(0, len(numbers) - sequences + 1, sequences)
            whole = [(numbers[start : start + sequences], place) for start in starts]
        for rewards, rows in whole:
            for group in _group_sizes(len(rewards)):
                table = rewards.reshape(-1, group)
                less = table - table.mean(axis=1, keepdims=True)
                if not turned:
                    yield source, group, rewards[rows], less.reshape(-1)[rows]
                elif 1 < group < len(rewards):
                    yield source, group, rewards[rows], less.T.reshape(-1)[rows]


def misordered(seen: Seen) -> list[Loss]:
    """Losses whose weights are explained by no rewards as they stand, but by rewards with sequences and groups exchanged, or by the
    same rewards of other sequences of the batch."""
    known = seen.notes.get("misordered")
    if known is not None:
        return list(known)
    explained = {each.tokens.loss.update for each in rewarded(seen)}
    unexplained = [tokens for tokens in token_losses(seen) if tokens.loss.update not in explained]
    if _placed_alone(seen):  # of the others, rewards in another order fit some by chance too
        unexplained = [tokens for tokens in unexplained if tokens.known_places is not None]
    found = seen.notes["misordered"] = []
    for tokens in unexplained:
        best = 0.0
        for advantage in _advantages(tokens.loss, tokens.shape[0]):
            for *_, turned in _centred(tokens, turned=True):
                best = max(best, abs(correlation(advantage, turned) or 0.0))
        if best > ALL_BUT_EXPLAINED:
            found.append(tokens.loss)
    by_update: dict[int, list[Tokens]] = defaultdict(list)
    for tokens in unexplained:
        by_update[tokens.loss.update].append(tokens)
    for parts in by_update.values():
        if parts[0].loss not in found and _weights_of_others(parts):
            found.append(parts[0].loss)
    return found


def _weights_of_others(parts: list[Tokens]) -> bool:
    """Whether the weights of a step's losses, all together, are those that the rewards of the batch make, each of another sequence than its
    own: the sequences are found in the batch by what the network answered to them."""
    places = [part.known_places for part in parts]
    if any(each is None for each in places):
        return False
    at = np.concatenate([each[0] for each in places if each is not None])
    batch = places[0][1] if places[0] is not None else 0
    if len(at) != batch or len(np.unique(at)) < MOSTLY_APART * batch or batch < FEWEST_TO_ORDER:
        return False
    weights = [_advantages(part.loss, part.shape[0]) for part in parts]
    if not all(weights):
        return False
    whole = np.concatenate([each[0] for each in weights])
    for source, tensor in parts[0].loss.arrays.items():
        if source[0] != "r" or not source[1:].isdigit() or tensor.size != batch:
            continue
        for group in _group_sizes(batch):
            table = tensor.astype(np.float64).reshape(-1, group)
            less = table - table.mean(axis=1, keepdims=True)
            for made in (less, less / np.maximum(table.std(axis=1, keepdims=True), 1e-8)):
                centred = made.reshape(-1)
                alike = [correlation(np.sort(whole), np.sort(sign * centred)) or 0.0 for sign in (1, -1)]
                sorted_alike = max(alike) > SORTED_ALIKE
                if sorted_alike and abs(correlation(whole, centred[at]) or 0.0) < OTHERWISE:
                    return True
    return False


def mixed_groups(seen: Seen) -> list[Loss]:
    """Losses in which rewards are compared within groups of neighbours, and neighbours are answers to different questions, though each
    question was asked as often as a group is large: the order of questions and of groups does not agree."""
    found = [tokens.loss for tokens in token_losses(seen) if _compared_across(tokens)]
    for each in rewarded(seen):
        loss, (_, batch) = each.tokens.loss, each.tokens.places
        question = _questions(each.tokens)
        if question is None or batch % each.group or each.tokens.prompt is None or loss in found:
            continue
        counts = np.bincount(question.reshape(-1))
        alike = question.reshape(-1, each.group) == question.reshape(-1, each.group)[:, :1]
        if 1 < each.group < batch and (counts % each.group == 0).mean() > NEARLY_ALL and alike.mean() < 0.5:
            found.append(loss)
    return found


def _questions(tokens: Tokens) -> Array | None:
    """Which question each sequence of the batch answers: the network's first answers to the same one are the same."""
    first, (_, batch) = tokens.loss.arrays.get("n0.output"), tokens.places
    return None if first is None or len(first) != batch else alike_rows(first)


def alike_rows(table: Array) -> Array:
    """The same number for rows that are the same up to rounding."""
    _, number = np.unique(np.round(table.reshape(len(table), -1), 4), axis=0, return_inverse=True)
    return np.asarray(number.reshape(-1))


def _compared_across(tokens: Tokens) -> bool:
    """Whether the weights are rewards less the mean of every so manieth sequence, while the answers to one question stand next to each
    other."""
    place, batch = tokens.places
    question = _questions(tokens) if tokens.known_places is not None else None
    if question is None:
        return False
    alone = _without_a_twin(tokens)[place]
    if alone.sum() < FEWEST_TO_ORDER:
        return False
    weights = [weight[alone] for weight in _advantages(tokens.loss, tokens.shape[0])]

    def explains(table: Array, axis: int) -> bool:
        less = table - table.mean(axis=axis, keepdims=True)
        spread = [table.std(axis=axis, ddof=ddof, keepdims=True) + small for ddof, small in ((1, 1e-4), (0, 1e-8))]
        made = [centred.reshape(-1)[place][alone] for centred in (less, *(less / each for each in spread))]
        return any(abs(correlation(weight, numbers) or 0.0) > ALL_BUT_EXACTLY for weight in weights for numbers in made)

    for source, tensor in tokens.loss.arrays.items():
        if source[0] != "r" or not source[1:].isdigit() or tensor.size != batch:
            continue
        for group in _group_sizes(batch)[:-1]:
            beside = question.reshape(-1, group)
            if (beside == beside[:, :1]).mean() < NEARLY_ALL:
                continue
            rewards = tensor.astype(np.float64)
            if explains(rewards.reshape(group, -1), axis=0) and not explains(rewards.reshape(-1, group), axis=1):
                return True
    return False


def _without_a_twin(tokens: Tokens) -> Array:
    """Whether each sequence of the batch differs from all others, as far as the network was asked about it: the place of one that does not
    is a guess, and equal answers of different groups have different weights."""
    batch = tokens.places[1]
    answers = [table for name, table in tokens.loss.arrays.items() if name[0] == "n" and name.endswith(".output")]
    answers = [table for table in answers if len(table) == batch]
    number = alike_rows(max(answers, key=lambda table: int(table[0].size)))
    return np.asarray(np.bincount(number)[number] == 1)


def _advantages(loss: Loss, sequences: int) -> list[Array]:
    """Weights of one number per sequence that are no masks."""
    found = []
    for position, about in enumerate(loss.event.constants):
        weight = loss.arrays.get(f"k{position}")
        if about.get("role") != "weight" or weight is None or len(weight) != sequences:
            continue
        rows = weight.astype(np.float64).reshape(sequences, -1)
        first = rows[:, 0] if np.ptp(rows, axis=1).max() <= 1e-12 else None
        if first is not None and np.ptp(first) > 1e-9:
            found.append(first)
    return found


def without_advantages(seen: Seen) -> int:
    """How many losses on tokens there are, where in each of them every sequence has the weight 0; else 0."""
    found = token_losses(seen)
    return len(found) if all(_weightless(tokens) for tokens in found) else 0


def _weightless(tokens: Tokens) -> bool:
    """A mask that leaves nothing has a number for each token; an advantage one for each sequence."""
    weights = [
        weight
        for position, about in enumerate(tokens.loss.event.constants)
        if about.get("role") == "weight" and (weight := tokens.loss.arrays.get(f"k{position}")) is not None
    ]
    return not tokens.used.any() and any(w.size == tokens.shape[0] and not w.any() for w in weights)


def _group_sizes(sequences: int) -> list[int]:
    return [group for group in range(2, sequences + 1) if sequences % group == 0]
