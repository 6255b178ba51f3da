"""For a program without a terminal of its own: what is said goes to Python's logging, warnings are handed on, figures are not shown."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from types import TracebackType

from .phrasing import printable
from .progress import Display, Kind
from .terminal import open_console

NUMBERS = re.compile(r"[-+]?[0-9][0-9.,e+-]*")
LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class LoggedDisplay(Display):
    def __init__(self, name: str) -> None:
        super().__init__(1, name, open_console(), time.monotonic)
        self.logger = logging.getLogger(name)
        self._warnings: list[str] = []
        self._warned_of: set[str] = set()

    def say(self, text: str, kind: Kind = "info") -> None:
        self.logger.log(LEVELS[kind], "%s", printable(text))
        if kind == "warning":
            self._warnings.append(text)

    def warn(self, sentences: Sequence[str]) -> None:
        """Logged as a warning where the time before did not warn of the same with other numbers; handed on in any case."""
        kinds = {NUMBERS.sub("#", sentence): sentence for sentence in sentences}
        for kind, sentence in kinds.items():
            if kind in self._warned_of:
                self.logger.debug("%s", printable(sentence))
                self._warnings.append(sentence)
            else:
                self.say(sentence, "warning")
        self._warned_of = set(kinds)

    def take_warnings(self) -> list[str]:
        """What was warned of since they were last taken."""
        taken, self._warnings = self._warnings, []
        return taken

    def phase(self, text: str) -> None:
        if text:
            self.logger.debug("%s", printable(text))

    def _show(self, *, at_once: bool) -> None:
        pass

    def __enter__(self) -> LoggedDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
