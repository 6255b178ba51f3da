"""How text reaches a terminal, a pipe or a log: a console that never stops the program it reports on.

`open_console()` gives a rich Console on stdout that writes escape codes to a real terminal only, whatever FORCE_COLOR
says, and that goes silent where its reader has gone (`learnproof train ... | head`), where stdout is closed, or where
the disk behind it is full. `glyphs_for` picks signs that the output can encode.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import IO, TextIO, cast

from rich.console import Console


@dataclass(frozen=True)
class Glyphs:
    """Signs for a check: holds, does not hold, not known (yet), does not apply; and the joint of two phrases."""

    passed: str = "✓"
    failed: str = "✗"
    unknown: str = "·"
    skipped: str = "–"
    joint: str = "·"


ASCII_GLYPHS = Glyphs(passed="+", failed="x", unknown=".", skipped="-", joint="|")


class SurvivingStream:
    """A text stream that forgets what it cannot write. The first failure makes it silent for good."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        if self._stream is not None:
            try:
                self._write(self._stream, text)
            except (OSError, ValueError):
                self._give_up()
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._give_up()

    def isatty(self) -> bool:
        try:
            return self._stream is not None and self._stream.isatty()
        except (OSError, ValueError):
            return False

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("the stream is closed")
        return self._stream.fileno()

    def _write(self, stream: TextIO, text: str) -> None:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode(self.encoding, "replace").decode(self.encoding))

    def _give_up(self) -> None:
        """Be silent, and let the interpreter's own flush at exit succeed: it would turn the exit code into 120."""
        stream, self._stream = self._stream, None
        standard = any(stream is one for one in (sys.__stdout__, sys.__stderr__))
        if stream is None or not standard:
            return
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
        except (OSError, ValueError):
            pass  # closed altogether: there is nothing left to flush


def open_console(stream: TextIO | None = None) -> Console:
    """A console on `stream` (stdout unless given). Escape codes are written to a real terminal only."""
    surviving = SurvivingStream(sys.stdout if stream is None else stream)
    return Console(
        file=cast("IO[str]", surviving),
        force_terminal=surviving.isatty(),
        markup=False,
        highlight=False,
        emoji=False,
    )


def is_live(console: Console) -> bool:
    """Whether a table can be redrawn in place."""
    return console.is_terminal and not console.is_dumb_terminal and not console.is_jupyter


def glyphs_for(console: Console) -> Glyphs:
    try:
        "✓✗·–━─│╭".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII_GLYPHS
    return Glyphs()
