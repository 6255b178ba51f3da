"""What a command is: its arguments, what runs them, and what is done with the words before they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PROVEN_OR_DONE, FAILED, BAD_USAGE, UNPROVEN = 0, 1, 2, 3
"""Exit codes."""


def as_typed(words: list[str]) -> tuple[list[str], Any]:
    return words, None


@dataclass(frozen=True)
class Command:
    arguments: type[Any]
    """A dataclass; its docstring and those of its fields are the help."""
    run: Callable[[Any], int]
    """From the arguments to the exit code."""
    prepare: Callable[[list[str]], tuple[list[str], Any]] = as_typed
    """From what was typed to the words that are left to read, and the arguments that they change (None = the plain ones)."""

    @property
    def summary(self) -> str:
        return (self.arguments.__doc__ or "").strip().splitlines()[0]
