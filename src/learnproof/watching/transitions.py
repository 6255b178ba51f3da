"""The memory of what environments did lately: one row per step and copy, found again by the identity of its observation."""

from __future__ import annotations

from typing import Any

TRANSITIONS_KEPT = 65_536
ACTION_WIDTH = 16


class Transitions:
    """The last TRANSITIONS_KEPT steps, column by column; `count` goes on growing."""

    def __init__(self, numpy: Any) -> None:
        self.count = 0
        self.columns = {
            "time": numpy.zeros(TRANSITIONS_KEPT, numpy.int64),
            "stream": numpy.zeros(TRANSITIONS_KEPT, numpy.int32),
            "copy": numpy.zeros(TRANSITIONS_KEPT, numpy.int32),
            "observation": numpy.zeros(TRANSITIONS_KEPT, numpy.uint64),
            "next_observation": numpy.zeros(TRANSITIONS_KEPT, numpy.uint64),
            "final_observation": numpy.zeros(TRANSITIONS_KEPT, numpy.uint64),
            "reward": numpy.zeros(TRANSITIONS_KEPT, numpy.float32),
            "terminated": numpy.zeros(TRANSITIONS_KEPT, bool),
            "truncated": numpy.zeros(TRANSITIONS_KEPT, bool),
            "resets": numpy.zeros(TRANSITIONS_KEPT, bool),
            "action": numpy.zeros((TRANSITIONS_KEPT, ACTION_WIDTH), numpy.float32),
        }
        self.places: dict[int, int] = {}
        """identity of an observation -> number of the last transition from it."""
        self.action_width = 0

    def add(self, rows: int, **values: Any) -> None:
        start = self.count % TRANSITIONS_KEPT
        rows = min(rows, TRANSITIONS_KEPT - start)  # a batch that runs over the edge loses its tail once per round
        width = values["action"].shape[1]
        self.action_width = max(self.action_width, width)
        for name, column in self.columns.items():
            if name == "action":
                column[start : start + rows, :width] = values[name][:rows]
            else:
                column[start : start + rows] = (
                    values[name] if isinstance(values[name], (int, float, bool)) else values[name][:rows]
                )
        for offset, identity in enumerate(values["observation"][:rows].tolist()):
            self.places[identity] = self.count + offset
        self.count += rows
        if len(self.places) > 2 * TRANSITIONS_KEPT:
            oldest = self.count - TRANSITIONS_KEPT
            self.places = {key: at for key, at in self.places.items() if at >= oldest}

    def numbers_of(self, identities_: list[int]) -> list[int]:
        """Which transition each observation began, or -1."""
        oldest = self.count - TRANSITIONS_KEPT
        found = (self.places.get(identity, -1) for identity in identities_)
        return [at if at >= oldest else -1 for at in found]

    def taken(self, numbers: Any) -> dict[str, Any]:
        at = numbers % TRANSITIONS_KEPT
        taken = {name: column[at] for name, column in self.columns.items()}
        taken["action"] = taken["action"][:, : max(1, self.action_width)].copy()
        return taken
