"""Replacing an attribute of somebody else's class, and putting the very same object back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any


def leave_no_trace(error: BaseException) -> None:
    """Take the caller's frame out of an error that passes through it, so that tracebacks are the script's own.

    Called in an `except BaseException` that then raises again: a bare `raise` adds no new entry for its frame.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


def with_subclasses(base: Any) -> list[Any]:
    """A class and all that derive from it so far."""
    found, waiting = [base], [base]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            if kind not in found:
                found.append(kind)
                waiting.append(kind)
    return found


HIDDEN = "<learnproof, as importlib._bootstrap>"
"""File name of our wrappers' code: `warnings` leaves frames of the import machinery out when it counts stack levels."""


class Patches:
    """What was replaced, so that it can be undone in reverse order."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []
        self._made: dict[tuple[int, str], tuple[Any, Any, Any]] = {}
        """(id of the owner, name) -> owner, original, replacement: windows open hundreds of times, and one replacement serves them all."""

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> bool:
        """owner.name = make(original), looking like the original; False where owner itself has no such function, or `make`
        gives None."""
        original = vars(owner).get(name)
        if not isinstance(original, FunctionType) or getattr(original, "_learnproof", False):
            return False
        of, known, replacement = self._made.get((id(owner), name), (None, None, None))
        if of is not owner or known is not original:
            replacement = make(original)
            if replacement is None:
                return False
            self._dress(replacement, original)
            self._made[id(owner), name] = owner, original, replacement
        setattr(owner, name, replacement)
        self._done.append((owner, name, original, replacement))
        return True

    def _dress(self, replacement: Any, original: Any) -> None:
        try:
            functools.update_wrapper(replacement, original)
        except (AttributeError, TypeError):
            pass
        if isinstance(replacement, FunctionType):
            replacement.__code__ = replacement.__code__.replace(co_filename=HIDDEN, co_name=original.__code__.co_name)
        replacement._learnproof = True

    def undo(self) -> None:
        """Somebody else may have replaced ours meanwhile (another watcher, a profiler): theirs then stays."""
        for owner, name, original, replacement in reversed(self._done):
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
        self._done.clear()

    def __bool__(self) -> bool:
        return bool(self._done)
