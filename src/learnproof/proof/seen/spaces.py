"""Action spaces as a watcher writes them down: Gymnasium's own way of printing them."""

from __future__ import annotations

import re

_BOX = re.compile(r"Box\(([-\d.e+]+), ([-\d.e+]+), \([\d, ]+\), float\d+\)")


def box_bounds(space: str) -> tuple[float, float] | None:
    """Of a box whose numbers all have the same two bounds."""
    found = _BOX.fullmatch(space)
    return None if found is None else (float(found.group(1)), float(found.group(2)))
