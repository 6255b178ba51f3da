"""What is kept of a call: of a module, what it was given and what it answered; of a distribution, what it scored."""

from __future__ import annotations

import weakref
from typing import Any

from .identity import flat_rows, identities

FEWEST_MERGED = 3
"""Calls of one network at different times, all in one loss, from which they are taken for the acting of one rollout."""


class Entry:
    """An input from outside; its rows are identified once, when somebody asks. Of an observation with an action behind it, as
    critics are given them, the observation counts: `widths` are those of both."""

    def __init__(
        self, value: Any, widths: tuple[int, int] = (0, 0), aliases: Any = None, action: Any = None, time: Any = None
    ) -> None:
        self.value = value
        self.time = time
        """Environment steps before it came in: what is made of it later, even after the environment has stepped, belongs there."""
        self.action = action
        """What stood beside the observation, where it has the width of an action."""
        self.widths = widths
        self.aliases = aliases
        self.rows_: Any = None
        self.places = 0
        """Width of the one-hot rows that stand for numbers of states; 0 where there are none."""
        self.of_numbers = value is not None and not value.is_floating_point()
        """Numbers of states themselves, for an embedding."""

    def rows(self, numpy: Any) -> Any:
        if self.rows_ is None and self.value is not None:
            tensor = self.value
            flat = flat_rows(numpy, tensor, self._count(tensor))
            if flat is not None and self.widths[0] == 1 and flat.shape[1] > 1 and is_one_hot(numpy, flat):
                self.places = flat.shape[1]
                flat = flat.argmax(axis=1).astype(numpy.float32)[:, None]
            if flat is not None and self.widths[1] and flat.shape[1] == sum(self.widths):
                self.action = flat[:, self.widths[0] :]
                flat = flat[:, : self.widths[0]]
            self.rows_ = numpy.zeros(0, numpy.uint64) if flat is None else identities(numpy, flat)
            if flat is not None and self.aliases is not None:
                self.rows_ = self.aliases.translated(numpy, flat, self.rows_)
            self.value = None
        return self.rows_

    def _count(self, tensor: Any) -> int | None:
        """Rows: the first dimension, or the first two where observations lie in a table of steps and environments."""
        width = self.widths[0]
        if width == 1 and tensor.dim() == 1 and not tensor.is_floating_point():  # numbers of states, for an embedding
            return int(tensor.shape[0])
        if tensor.dim() == 3 and width > 1 and tensor.shape[2] in (width, sum(self.widths)):
            return int(tensor.shape[0] * tensor.shape[1])
        return int(tensor.shape[0]) if tensor.dim() > 1 else None


def is_one_hot(numpy: Any, rows: Any) -> bool:
    return bool(((rows == 0) | (rows == 1)).all() and (rows.sum(axis=1) == 1).all())


def by_row(array: Any, rows: Any) -> Any:
    """Numbers that lie in a table of steps and environments, [steps, environments, ...], one row of them after the other."""
    if array is None or rows is None or len(array.shape) < 2 or len(rows) == len(array):
        return array
    if len(rows) != array.shape[0] * array.shape[1]:
        return array
    return array.reshape(len(rows), *array.shape[2:])


class Joined(Entry):
    """Entries of one row each, one after the other."""

    def __init__(self, parts: list[Any]) -> None:
        super().__init__(None)
        self.parts = parts

    def rows(self, numpy: Any) -> Any:
        return numpy.concatenate([part.rows(numpy) for part in self.parts])


class Call:
    def __init__(self, module: Any, entry: Entry, given: Any, output: Any, node: Any, time: int, update: int) -> None:
        self.module = weakref.ref(module)
        self.entry = entry
        self.given = given
        """The module's own input, kept for graded calls of modules that can be asked again without effect."""
        self.output = output
        self.node = node
        """Its number (nodes.number_of); a list of them where many calls were merged."""
        self.time = time
        self.update = update
        self.chain: tuple[Any, ...] = ()
        """Weak references to the modules before it, each of which was given the output of the one before as it was."""
        self.beside: Any = None
        """Of a call without gradient: one more number for each row, which the module gave behind its first answer (an action's
        log-probability, say)."""
        self.times: list[int] = []
        """Of a merged call: when what each part of it was made of came in."""

    @property
    def acted(self) -> int:
        return self.time if self.entry.time is None else int(self.entry.time)

    @property
    def nodes(self) -> list[Any]:
        return self.node if isinstance(self.node, list) else [self.node]


def merge_calls(torch: Any, calls: list[Call]) -> list[Call]:
    """A loop that keeps the graph of acting calls its networks once per step: those calls of one network become one, with
    the rows of all of them, where the last of them stood."""
    groups: dict[Any, list[Call]] = {}
    for call in calls:
        groups.setdefault((id(call.module()), tuple(call.output.shape)), []).append(call)
    merged: dict[int, Call] = {}
    dropped: set[int] = set()
    for group in groups.values():
        if len(group) < FEWEST_MERGED or len({call.acted for call in group}) < len(group):
            continue
        module = group[0].module()
        if module is None:
            continue
        entry = Joined([call.entry for call in group])
        output = torch.cat([call.output.reshape(_rows_of(call.output), -1) for call in group])
        one = Call(module, entry, None, output, [call.node for call in group], group[-1].time, group[-1].update)
        one.times = [call.acted for call in group for _ in range(_rows_of(call.output))]
        merged[id(group[-1])] = one
        dropped.update(id(call) for call in group)
    return [merged.get(id(call), call) for call in calls if id(call) in merged or id(call) not in dropped]


def _rows_of(output: Any) -> int:
    return int(output.shape[0]) if output.dim() > 1 else 1


class Score:
    def __init__(
        self, kind: str, what: str, entry: Entry | None, value: Any, result: Any, node: Any, time: int, update: int
    ) -> None:
        self.kind = kind
        self.what = what
        """log_prob, entropy or sample."""
        self.entry = entry
        self.value = value
        self.result = result
        self.node = node
        """Its number, or None without a gradient; a list of them where many scores were merged."""
        self.shape: Any = None
        """As the script has it, where `result` is not of that shape."""
        self.times: list[int] = []
        """Of merged scores: when each row was acted on."""
        self.drawn_with_graph = False
        """What was scored keeps its own way back to the distribution's parameters (rsample)."""
        self.time = time
        self.acted = time
        """When the distribution was sampled, or else scored: a script may step its environment in between."""
        self.update = update
