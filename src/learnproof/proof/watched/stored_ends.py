"""Do the last steps of episodes come into the memory at all?

Rows of a memory are drawn from all steps. Where an episode ends every ten steps, near one row in ten is a last one; a loop that leaves its
inner loop before it stores never shows one, and its values never learn that anything ends. Targets over several steps are left
out: a window of rewards may begin before the last step and reach it.
"""

from __future__ import annotations

from typing import NamedTuple

from ..seen import Loss, Seen
from ..seen.bootstrap import bootstraps

LEAST_EXPECTED = 20.0
"""Last steps that should have been among the rows, counted by half: none of them comes about by chance once in e^40 runs, and a memory that
prefers other rows would have to avoid them all."""
BY_HALF = 0.5


class MissingEnds(NamedTuple):
    rows: int
    expected: float
    """Last steps among so many rows, had they been drawn from all steps."""


def missing_ends(seen: Seen, drawn: list[Loss]) -> MissingEnds | None:
    """None where a last step was drawn, or too few are to be expected."""
    explained = [each.explanations[0] for each in bootstraps(seen) if each.explanations]
    if not explained or any(each.steps != 1 for each in explained):
        return None
    rows, expected = 0, 0.0
    for loss in drawn:
        terminated, streams = loss.arrays.get("t.terminated"), loss.arrays.get("t.stream")
        if terminated is None or streams is None or len(terminated) != len(streams):
            continue
        if terminated.any():
            return None
        rows += len(terminated)
        expected += len(terminated) * _share_of_ends(seen, set(streams.tolist()), loss.update)
    return MissingEnds(rows, expected) if BY_HALF * expected >= LEAST_EXPECTED else None


def _share_of_ends(seen: Seen, streams: set[int], update: int) -> float:
    """Of the steps before an update in these environments, those that ended the task."""
    before = [e for e in seen.evidence.episodes if e.stream in streams and e.update is not None and e.update <= update]
    steps = sum(episode.length for episode in before)
    return sum(episode.terminated for episode in before) / steps if steps else 0.0
