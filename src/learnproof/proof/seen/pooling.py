"""Rollouts of a few steps (A2C's five, say) put together, so that there are rows enough to fit a definition to.

The parts keep their episodes apart: each gets streams of its own, so that no row follows one of another part. Only parts that
share no observation are put together. Where one part ends the next one begins, and the same observation was valued
by two states of the network; what comes once can be told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .rollouts import COLUMNS, Rollout

SHORT = 16
"""Rows below which a rollout is put together with others."""
ENOUGH = 48
"""Rows at which no further one is added."""
STREAMS = 1_000
"""Environments of one part; the streams of the next one are counted from there on."""


def pooled(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """The long ones as they are, and the short ones by groups."""
    groups: list[tuple[list[Rollout], set[int]]] = []
    for rollout in rollouts:
        if len(rollout.time) >= SHORT:
            continue
        own = _identities(rollout)
        room = (g for g in groups if sum(len(part.time) for part in g[0]) < ENOUGH and g[1].isdisjoint(own))
        members, known = next(room, ([], set()))
        if not members:
            groups.append((members, known))
        members.append(rollout)
        known |= own
    long = [rollout for rollout in rollouts if len(rollout.time) >= SHORT]
    return [*long, *(_together(members) for members, _ in groups)]


def _identities(rollout: Rollout) -> set[int]:
    columns = (rollout.observation, rollout.next_observation, rollout.final_observation)
    return {int(identity) for column in columns for identity in column.tolist()} - {0}


def _together(members: list[Rollout]) -> Rollout:
    if len(members) == 1:
        return members[0]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in members]) for name in COLUMNS if name != "stream"
    }
    stream = np.concatenate([part.stream + STREAMS * place for place, part in enumerate(members)])
    action = None
    if all(part.action is not None and part.action.shape[1:] == _width(members[0]) for part in members):
        action = np.concatenate([part.action for part in members if part.action is not None])
    silent: dict[str, dict[int, float]] = {}
    for part in members:
        for name, numbers in part.silent:
            mine = silent.setdefault(name, {})
            silent[name] = numbers | mine  # the first answer counts: a later one is that of other weights
    return Rollout(
        cycle=members[0].cycle,
        **columns,
        stream=stream,
        action=action,
        silent=list(silent.items()),
        losses=[loss for part in members for loss in part.losses],
        parts=[part.losses for part in members],
    )


def _width(rollout: Rollout) -> tuple[int, ...] | None:
    return None if rollout.action is None else rollout.action.shape[1:]
