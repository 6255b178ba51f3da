"""Evidence that is still being written: read again when there is more of it, judged, shown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import RenderableType
from rich.live import Live

from ..errors import EvidenceError, RunFolderError
from ..evidence import Evidence
from ..proof.verdict import Verdict, judge
from ..show.seen_table import seen_table
from ..show.terminal import is_live, open_console

LOOK_EVERY_SECONDS = 1.0


class Follower:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._size = 0

    def news(self) -> Evidence | None:
        """All evidence so far, if there is more than at the last look."""
        size = sum(part.stat().st_size for part in self.folder.glob("evidence*.jsonl"))
        if size == self._size:
            return None
        self._size = size
        try:
            return Evidence.read(self.folder)
        except EvidenceError:
            return None  # the first line is still on its way

    def judge(self, waive: Mapping[str, str]) -> Verdict | None:
        """The verdict on what is there now; None where nothing is, or nothing is new."""
        evidence = self.news()
        return None if evidence is None else judge(evidence, None, waive=waive)


def follow(folder: Path) -> None:
    """Show a run while it is being written, until it ends or Ctrl-C; once, where the output is no terminal."""
    if not folder.is_dir():
        raise RunFolderError(f"There is no run folder {folder}.")
    follower = Follower(folder)
    console = open_console()
    evidence = follower.news()
    if evidence is None:
        raise RunFolderError(f"{folder} has no evidence yet: nothing has been seen there.")
    if not is_live(console):
        console.print(_table(evidence, folder))
        return
    with Live(_table(evidence, folder), console=console, auto_refresh=False) as live:
        while evidence is None or evidence.stopped is None:
            try:
                time.sleep(LOOK_EVERY_SECONDS)
            except KeyboardInterrupt:
                return
            evidence = follower.news()
            if evidence is not None:
                live.update(_table(evidence, folder), refresh=True)


def _table(evidence: Evidence, folder: Path) -> RenderableType:
    verdict = judge(evidence, None)
    worth = [(f.status, f.check, f.summary) for f in verdict.findings if f.status in ("pass", "fail")]
    return seen_table(evidence, worth, f"{folder}: {verdict.final_status}")
