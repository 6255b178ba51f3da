"""Prints the probe ladder as it is climbed: one line per rung, and under a rung that was not climbed what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from .phrasing import count, printable
from .terminal import glyphs_for, open_console

WORDS = {
    "climbed": "climbed",
    "unsteady": "not with every seed",
    "failed": "failed",
    "raised": "raised an error",
    "not_seen": "could not be asked",
}
STYLES = {"climbed": "green", "unsteady": "yellow", "failed": "red", "raised": "red", "not_seen": "dim"}
NAME_WIDTH = 23


class LadderSheet:
    """Rungs from the first to the last; `note` shows what is being trained, where the output is a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console if console is not None else open_console()
        self.glyphs = glyphs_for(self.console)

    def note(self, rung: str, seed: int, seeds: int) -> None:
        if self.console.is_terminal:
            self.console.print(Text(f"  {self.glyphs.skipped} {rung}: training, seed {seed + 1} of {seeds}"), end="\r")

    def rung(self, climb: Mapping[str, Any]) -> None:
        status = climb["status"]
        mark = {"climbed": self.glyphs.passed, "not_seen": self.glyphs.skipped}.get(status, self.glyphs.failed)
        answers = climb["answers"]
        asked = [answer for answer in answers if answer["asked"]]
        right = sum(answer["right"] == answer["asked"] for answer in asked)
        line = Text(f"  {mark} {climb['rung']:{NAME_WIDTH}}", style=STYLES.get(status, ""))
        seeds = f"{right} of {len(asked)} seeds" if asked else ""
        line.append(f"{WORDS[status]:22}{seeds:14}{climb['seconds']:6.1f} s", style="default")
        self.console.print(line, no_wrap=True, overflow="ellipsis")
        if status != "climbed":
            self._say(climb["question"])
            self._say(climb["finding"])

    def summary(self, climbs: Sequence[Mapping[str, Any]]) -> None:
        climbed = [climb for climb in climbs if climb["status"] == "climbed"]
        asked = [climb for climb in climbs if climb["status"] != "not_seen"]
        unseen = len(climbs) - len(asked)
        line = f"{len(climbed)} of {count(len(asked), 'rung')} climbed"
        if unseen:
            line += f"; {count(unseen, 'rung')} could not be asked"
        failed = [climb for climb in asked if climb["status"] in ("failed", "raised")]
        if failed:
            line += f". The lowest that failed is {failed[0]['rung']}: begin there, what is above it may fail for the same reason"
        self.console.print(Text(f"\n{line}."))

    def _say(self, words: str) -> None:
        self.console.print(Padding(Text(printable(words, 1500)), (0, 0, 0, 4)))
