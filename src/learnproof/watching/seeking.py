"""Rows that are rare: the last steps of episodes, of which a memory may hold one in thousands.

How a target treats an end, or a time limit, shows in those rows alone, and the batches of a few dozen windows may hold none of them. Where
an episode has ended, or was cut, and too few such rows have been read, batches are looked through between windows: in a quarter
of the cycles networks' calls are kept as they pass, and where the batch of a backward pass holds such a row, that pass is read as
one in a window is. All others cost the names of their rows, and it ends when enough have been found.
"""

from __future__ import annotations

from typing import Any

from .plan import SHORT_FIRST

WANTED = 8
"""Rows of each kind, ends and cuts, after which nothing is looked for any more."""
MOST_READ = 48
"""Backward passes that are read for their sake, whatever they show."""
CYCLES_IN_A_ROW, ONE_IN = 32, 4
LEAST_ROWS = 2


class Seeking:
    def __init__(self, session: Any) -> None:
        self.session = session
        self.active = False
        self.seen = {"ended": 0, "cut": 0}
        """Rows of each kind in the targets that were read."""
        self.read = 0

    def cycle_begins(self) -> None:
        """After the plan has had its say: a window goes before."""
        wanted = not self.session.window and self.is_due() and bool(self._kinds())
        if wanted and self.active:
            self.session.senses["calls"].forget()
        elif wanted:
            self.active = self.session.senses["calls"].begin_seeking()
        else:
            self.end()

    def end(self) -> None:
        if self.active:
            self.active = False
            self.session.senses["calls"].end_seeking()

    def saw(self, ended: int, cut: int) -> None:
        self.seen["ended"] += ended
        self.seen["cut"] += cut

    def finds(self) -> bool:
        """Whether what the networks were asked about since the last step holds a row that is sought."""
        session, transitions = self.session, self._transitions()
        if transitions is None or self.read >= MOST_READ:
            return False
        sought = [transitions.last_of[kind] for kind in self._kinds()]
        asked = {
            id(call.entry): call.entry
            for call in session.senses["calls"].graded
            if call.update == session.updates and call.output.dim() > 1 and len(call.output) >= LEAST_ROWS
        }
        for entry in asked.values():
            names = entry.rows(session.numpy)
            if names is not None and any(not kept.keys().isdisjoint(names.tolist()) for kept in sought):
                self.read += 1
                return True
        return False

    def is_due(self) -> bool:
        session = self.session
        if session.long_lately or session.numpy is None or session.cycle < SHORT_FIRST or self.read >= MOST_READ:
            return False
        return bool(session.cycle // CYCLES_IN_A_ROW % ONE_IN == 0)

    def _kinds(self) -> list[str]:
        transitions = self._transitions()
        if transitions is None:
            return []
        return [kind for kind, count in self.seen.items() if count < WANTED and transitions.last_of[kind]]

    def _transitions(self) -> Any:
        environments = self.session.senses.get("environments")
        return None if environments is None else environments.journal.transitions
