"""The line of somebody's program from which we were called: where a loss was differentiated, an optimizer made."""

from __future__ import annotations

import os
import sys
from typing import Any

OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
DEEPEST = 60


def calling_line(torch: Any) -> str:
    """`train.py:120`, the innermost line that is neither torch's nor ours; "" where there is none.

    Relative to the working folder where it lies in it, else with the folder that holds it: whose file it is can be told, and
    no more of somebody's disk is written down than that takes."""
    skipped = (OURS, os.path.dirname(torch.__file__) + os.sep)
    frame: Any = sys._getframe(1)
    for _ in range(DEEPEST):
        if frame is None:
            return ""
        file = frame.f_code.co_filename
        if not file.startswith(skipped) and not file.startswith("<"):
            return f"{_shortened(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _shortened(file: str) -> str:
    try:
        below = os.path.relpath(file)
    except (OSError, ValueError):
        below = os.pardir
    if not below.startswith(os.pardir) and not below.startswith("."):
        return below
    return os.path.join(*os.path.abspath(file).split(os.sep)[-2:])
