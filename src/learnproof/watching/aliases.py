"""Observations that a script changes before its networks see them: rows are called by what the environment returned.

While a window is open, what a network is given when it acts stands beside what the environment has just returned. If one is the
other, number by number times a factor plus a shift that stay the same, a row of a training batch is turned back, rounded to a
grid, and looked up among the observations of the last transitions. Where it is changed in another way (a running mean, features), the
rows that were acted on are remembered by their own identity, and found again where the script kept them as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from .identity import identities

WIDEST = 64
"""Numbers of an observation up to which the last 65,536 of them are kept for this (16 MB)."""
PAIRS = 24
EQUAL = 8
"""Acting calls that were given the observation as it was, after which nothing is looked for any more. A running mean has not moved yet in
the first few."""
MOST_ACTED = 65_536
EXACT = 1e-5
GRID = 4_096.0
"""Steps of the grid within the spread of a number: far above the rounding of float32, far below what tells observations apart."""


class Aliases:
    def __init__(self) -> None:
        self.given: list[Any] = []
        self.returned: list[Any] = []
        self.equal = 0
        self.done = False
        self.factor: Any = None
        self.shift: Any = None
        self.step: Any = None
        self.names: dict[int, int] = {}
        """Identity of an observation's place on the grid -> its own identity."""
        self.acted: dict[int, int] = {}
        """Identity of a row that a network was given when it acted -> that of what the environment had returned."""

    @property
    def known(self) -> bool:
        return self.factor is not None

    @property
    def asks(self) -> bool:
        """Whether it still wants to hear of acting calls."""
        return not self.done or bool(self.acted)

    def meet(self, numpy: Any, returned: Any, given: Any, earlier: Callable[[], Container[int]] = tuple) -> None:
        """Rows that the environment returned last, and rows that a network is given now; `earlier` tells identities of what was acted on
        before."""
        if not self.asks:
            return
        if returned.shape == given.shape and numpy.array_equal(returned, given):
            self.equal += 1
            if (
                self.equal >= EQUAL
            ):  # what else was given were other states: the last one before a reset, the one acted on before
                self.done, self.given, self.returned, self.acted = True, [], [], {}
            return
        names = identities(numpy, given).tolist()
        if not self.done:
            known = earlier()
            if all(name in known for name in names):  # other states, as they were
                return
        self._remember(names, identities(numpy, returned).tolist())
        if self.done or returned.shape != given.shape or returned.shape[1] > WIDEST:
            return
        self.given.append(given[0].copy())
        self.returned.append(returned[0].copy())
        if len(self.given) >= PAIRS:
            self._learn(numpy)

    def _remember(self, given: list[int], returned: list[int]) -> None:
        """The first meeting counts: a state may be asked about once more when the environment has gone on."""
        for name, own in zip(given, returned):
            self.acted.setdefault(name, own)
        if len(self.acted) > 2 * MOST_ACTED:
            self.acted = dict(list(self.acted.items())[-MOST_ACTED:])

    def _learn(self, numpy: Any) -> None:
        self.done = True
        given, returned = numpy.stack(self.given).astype(float), numpy.stack(self.returned).astype(float)
        self.given, self.returned = [], []
        centred = returned - returned.mean(axis=0)
        power = (centred**2).sum(axis=0)
        moving = power > 1e-12
        if not moving.any():
            return
        factor = numpy.where(moving, (centred * given).sum(axis=0) / numpy.where(moving, power, 1.0), 1.0)
        shift = given.mean(axis=0) - factor * returned.mean(axis=0)
        off = numpy.abs(returned * factor + shift - given).max(axis=0)
        if (off > EXACT * (numpy.abs(given).max(axis=0) + 1e-3)).any() or (numpy.abs(factor) < 1e-9).any():
            return
        self.factor, self.shift, self.acted = factor, shift, {}
        spread = numpy.maximum(returned.std(axis=0), 1e-6 + 1e-4 * numpy.abs(returned).max(axis=0))
        self.step = spread * 8 / GRID

    def add(self, numpy: Any, rows: Any, names: Any) -> None:
        """Observations as the environment returned them, with their identities."""
        for place, name in zip(self._places(numpy, rows).tolist(), names.tolist()):
            self.names[place] = name
        if len(self.names) > 4 * 65_536:
            self.names = dict(list(self.names.items())[-2 * 65_536 :])

    def translated(self, numpy: Any, rows: Any, names: Any) -> Any:
        """Identities of rows that a network was given, by what the environment returned where that is known."""
        if self.acted:
            return numpy.array([self.acted.get(name, name) for name in names.tolist()], numpy.uint64)
        if not self.known or rows.shape[1] != len(self.factor):
            return names
        back = (rows - self.shift) / self.factor
        places = self._places(numpy, back)
        found = [self.names.get(place, name) for place, name in zip(places.tolist(), names.tolist())]
        return numpy.array(found, numpy.uint64)

    def _places(self, numpy: Any, rows: Any) -> Any:
        return identities(numpy, numpy.round(rows / self.step).astype(numpy.float32))
