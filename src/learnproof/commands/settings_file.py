"""A settings file named on the command line is read before the rest of it, which may then change single values of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..config import load_settings


def with_settings(arguments: Callable[..., Any]) -> Callable[[list[str]], tuple[list[str], Any]]:
    """For a command whose arguments have `settings`."""

    def prepare(words: list[str]) -> tuple[list[str], Any]:
        path = _config_named_in(words)
        return words, None if path is None else arguments(settings=load_settings(path))

    return prepare


def _config_named_in(words: list[str]) -> str | None:
    for position, word in enumerate(words):
        if word == "--config" and position + 1 < len(words):
            return words[position + 1]
        if word.startswith("--config="):
            return word.partition("=")[2]
    return None
