"""`with learnproof.watch(model, optimizer) as proof:` — the same eyes, in one's own loop, from here to there.

    with learnproof.watch(agent, optimizer) as proof:
        train(agent, optimizer)
    print(proof.verdict.verdict)

Nothing need be given: what the loop uses is found by itself. What is given is known by its name from the start. Under
`learnproof watch` the process is already watched, and the block adds nothing: one run, one verdict.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import UsageError
from ..proof.verdict import Verdict
from ..runs.folder import RunFolder
from .conclusion import begin_folder, judge_watched


class Watching:
    """A watched block; `verdict` is there when it has ended."""

    def __init__(self, things: tuple[Any, ...], out: Path | None, name: str, waive: dict[str, str] | None) -> None:
        self.folder: RunFolder | None = None
        self.verdict: Verdict | None = None
        self._things = things
        self._out = out
        self._name = name
        self._waive = waive
        self._session: Any = None

    def __enter__(self) -> Watching:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end("the watched block ended" if kind is None else f"the watched block raised {kind.__name__}")

    def begin(self) -> None:
        from .. import watching

        if self._session is not None:
            raise UsageError("This block is already being watched. Make another one with learnproof.watch().")
        launched = sys.modules.get("_learnproof_watching")
        if launched is not None and launched.current() is not None:
            return
        if watching.current() is not None and not watching.current().ended:
            raise UsageError("Something is already being watched in this process: watched blocks cannot be nested.")
        self.folder = begin_folder(self._out, self._name, sys.argv, self._waive)
        self._session = watching.begin(str(self.folder.path.absolute()))
        self._session.introduce(self._things)

    def end(self, reason: str) -> Verdict | None:
        if self._session is None or self.folder is None:
            return None
        session, self._session = self._session, None
        session.end(reason)
        self.verdict = judge_watched(self.folder)
        return self.verdict

    def __repr__(self) -> str:
        place = "not begun" if self.folder is None else str(self.folder.path)
        return f"<watched block, {place}: {'no verdict yet' if self.verdict is None else self.verdict.verdict}>"

    def __bool__(self) -> bool:
        """Whether learning was proven."""
        return self.verdict is not None and bool(self.verdict)


def watch(
    *things: Any, out: str | Path | None = None, name: str | None = None, waive: dict[str, str] | None = None
) -> Watching:
    """Watch the training in a `with` block. `things` are modules and optimizers; none need be given.

    out     folder of the run; default: a new one under runs/
    name    of that folder's first part; default: the script's
    waive   findings that are meant, with the reason: {"advantages_recomputed": "time limits end the task on purpose"}
    """
    script = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] not in ("", "-c") else ""
    return Watching(things, None if out is None else Path(out), name or script or "loop", waive)
