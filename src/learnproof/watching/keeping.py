"""A loss after its step: everything that was read of it, as one event and one file of arrays (evidence/watched.py names them)."""

from __future__ import annotations

from typing import Any

from . import graph
from .arrays import as_array
from .asking import Asking
from .kept_calls import Call, Entry, Score, by_row
from .session import Session

SEVERAL = 0.2
"""Share of a batch whose next observations lie so many steps ahead, from which targets may be made of so many: where states
come again, some lie nearer than they did."""
DRAWN, DRAWN_LOSSES, FEWEST_ROWS = 0.3, 5, 8
"""Share of older rows in a batch, and such batches, from which a memory is known to be drawn from."""
WIDE = 48
"""Numbers of a row from which an answer may be a hidden layer's."""
HEAVY = 150_000
"""Bytes of a loss up to which those are kept too."""
ASKED_AGAIN = 4
"""Updates of a window after whose step networks are asked once more: of a large one, that costs a third of the update."""


class Pending:
    """A loss that was read and whose step is still to come."""

    def __init__(self, reading: graph.Reading) -> None:
        self.reading = reading
        self.body: dict[str, Any] = {}
        self.calls: list[Call] = []
        self.silent: list[Call] = []
        self.silent_scores: list[Score] = []
        self.scores: list[Score] = []
        self.entropies: list[Score] = []
        self.means_of: list[Any] = []
        self.gradients: dict[str, Any] = {}
        self.handles: list[Any] = []


class Keeping:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.asking = Asking(session)
        self.from_before = 0
        """Losses of long cycles with many rows from earlier ones."""

    def write(self, pending: Pending) -> None:
        session, numpy = self.session, self.session.numpy
        arrays: dict[str, Any] = {}
        body = pending.body
        body["calls"] = [self._call(arrays, f"c{i}", call, pending) for i, call in enumerate(pending.calls)]
        body["silent"] = [self._silent(arrays, f"n{i}", call) for i, call in enumerate(pending.silent)]
        body["silent_log_probs"] = [self._silent_score(arrays, i, s) for i, s in enumerate(pending.silent_scores)]
        body["log_probs"] = [self._score(arrays, f"p{i}", s, pending) for i, s in enumerate(pending.scores)]
        body["constants"] = [self._constant(arrays, i, c, pending) for i, c in enumerate(pending.reading.constants)]
        body["entropies"] = [self._entropy(f"e{i}", s, pending) for i, s in enumerate(pending.entropies)]
        for position, numbers in enumerate(pending.means_of):
            arrays[f"r{position}"] = numbers
        for key, gradient in pending.gradients.items():
            if key.startswith("g"):
                arrays[key + ".gradient"] = as_array(gradient)
        names = [name for name in arrays if name[0] in "cpk" and name.endswith(".rows")]
        names = [name for name in names if arrays[name] is not None]
        batch = max(names, key=lambda name: len(arrays[name])) if names else ""
        if session.long:
            self._notice_a_memory(arrays.get(batch))
        else:
            body["transitions_of"] = batch or None
            self._transitions(arrays, arrays.get(batch))
        arrays = {name: numpy.ascontiguousarray(a) for name, a in arrays.items() if a is not None}
        if "t.terminated" in arrays and any(c.role in ("target", "difference") for c in pending.reading.constants):
            ended = arrays["t.terminated"]
            session.seeking.saw(int(ended.sum()), int((arrays["t.truncated"] & ~ended).sum()))
        if body["sought"]:
            session.writer.begin_window()
        lighten(arrays)
        file, digest = session.writer.sample("loss", body["update"], body["backward"], arrays)
        session.say("loss", file=file, sha256=digest, roles=sorted(arrays), **body)

    def _call(self, arrays: dict[str, Any], key: str, call: Call, pending: Pending) -> dict[str, Any]:
        module = call.module()
        arrays[key + ".rows"] = rows = call.entry.rows(self.session.numpy)
        arrays[key + ".output"] = by_row(as_array(call.output), rows)
        if call.entry.action is not None:
            arrays[key + ".action"] = as_array(call.entry.action)
        if call.times:
            arrays[key + ".time"] = self.session.numpy.array(call.times, self.session.numpy.int64)
            arrays[key + ".gradient"] = self._joined_gradient(key, call, pending)
        else:
            arrays[key + ".gradient"] = by_row(as_array(pending.gradients.get(key)), rows)
            if self.session.cycle_updates < ASKED_AGAIN and not pending.body["sought"]:
                arrays[key + ".after"] = by_row(self.asking.after(module, call.given), rows)
        return {
            "module": None if module is None else self.session.names.of_module(module),
            "kind": None if module is None else type(module).__name__,
            "shape": list(call.output.shape),
            "terms": _terms_with(pending.reading, call.nodes[-1]),
        }

    def _joined_gradient(self, key: str, call: Call, pending: Pending) -> Any:
        """Parts that got none have 0: the value of the last state, say, that only makes targets."""
        numpy = self.session.numpy
        rows = len(call.output) // len(call.nodes)
        shape = (rows, *call.output.shape[1:])
        caught = [pending.gradients.get(f"{key}/{part}") for part in range(len(call.nodes))]
        if all(gradient is None for gradient in caught):
            return None
        parts = [numpy.zeros(shape) if g is None else as_array(g).reshape(shape) for g in caught]
        return numpy.concatenate(parts).astype(numpy.float32)

    def _silent(self, arrays: dict[str, Any], key: str, call: Call) -> dict[str, Any]:
        module = call.module()
        arrays[key + ".rows"] = rows = call.entry.rows(self.session.numpy)
        arrays[key + ".output"] = by_row(call.output, rows)
        if call.beside is not None and len(call.beside) == len(rows):
            arrays[key + ".beside"] = call.beside
        return {
            "module": None if module is None else self.session.names.of_module(module),
            "shape": list(call.output.shape),
        }

    def _silent_score(self, arrays: dict[str, Any], index: int, score: Score) -> dict[str, Any]:
        arrays[f"s{index}.value"] = as_array(score.result)
        arrays[f"s{index}.action"] = as_array(score.value)
        return {"kind": score.kind, "shape": list(score.result.shape)}

    def _score(self, arrays: dict[str, Any], key: str, score: Score, pending: Pending) -> dict[str, Any]:
        numpy = self.session.numpy
        arrays[key + ".value"] = as_array(score.result)
        arrays[key + ".action"] = as_array(score.value)
        if score.times:
            arrays[key + ".time"] = numpy.array(score.times, numpy.int64)
        if isinstance(score.node, list):
            caught = [pending.gradients.get(f"{key}/{part}") for part in range(len(score.node))]
            if all(gradient is not None for gradient in caught):
                arrays[key + ".gradient"] = numpy.concatenate([as_array(g).reshape(-1) for g in caught])
        else:
            arrays[key + ".gradient"] = as_array(pending.gradients.get(key))
        if score.entry is not None:
            arrays[key + ".rows"] = score.entry.rows(numpy)
            if self.session.widths[0] and score.result.dim() == 2:  # a table of steps and environments
                for part in (".value", ".gradient", ".action"):
                    arrays[key + part] = by_row(arrays.get(key + part), arrays[key + ".rows"])
        first = score.node[0] if isinstance(score.node, list) else score.node
        shape = list(score.shape or score.result.shape)
        return {
            "kind": score.kind,
            "shape": shape,
            "terms": _terms_with(pending.reading, first),
            "drawn_with_graph": score.drawn_with_graph,
        }

    def _entropy(self, key: str, score: Score, pending: Pending) -> dict[str, Any]:
        """`gradient` is dL/dH, summed: below 0 where the loss asks for more entropy."""
        gradient = pending.gradients.get(key)
        return {
            "mean": float(score.result.mean()),
            "kind": score.kind,
            "gradient": None if gradient is None else float(gradient.sum()),
            "terms": _terms_with(pending.reading, score.node),
        }

    def _constant(
        self, arrays: dict[str, Any], index: int, constant: graph.Constant, pending: Pending
    ) -> dict[str, Any]:
        arrays[f"k{index}"] = as_array(constant.value)
        if constant.partner is not None:
            arrays[f"k{index}.partner"] = as_array(constant.partner)
        if constant.inputs is not None:
            arrays[f"k{index}.rows"] = Entry(constant.inputs, self.session.widths, self.session.aliases).rows(
                self.session.numpy
            )
        arrays[f"k{index}.gradient"] = as_array(pending.gradients.get(f"k{index}"))
        return {
            "role": constant.role,
            "sign": constant.sign,
            "shape": list(constant.value.shape),
            "beside": constant.beside,
            "terms": _terms_with(pending.reading, constant.node),
            "calls": _calls_behind(pending, constant),
            "log_probs": [
                i for i, s in enumerate(pending.scores) if not isinstance(s.node, list) and s.node in constant.near
            ],
        }

    def _notice_a_memory(self, rows: Any) -> None:
        """Rows that began transitions before this cycle: a rollout's own updates have none of them."""
        environments = self.session.senses.get("environments")
        if environments is None or rows is None or len(rows) < FEWEST_ROWS:
            return
        transitions = environments.journal.remembered()
        if transitions is None:
            return
        old = sum(0 <= transitions.places.get(row, -1) < environments.window_start for row in rows.tolist())
        self.from_before += old > DRAWN * len(rows)
        self.session.draws = self.from_before >= DRAWN_LOSSES

    def _transitions(self, arrays: dict[str, Any], rows: Any) -> None:
        numpy = self.session.numpy
        environments = self.session.senses.get("environments")
        transitions = None if environments is None else environments.journal.remembered()
        if transitions is None or rows is None or len(rows) == 0:
            return
        asked = {
            name[: -len(".rows")]: array
            for name, array in arrays.items()
            if name[0] == "n" and name.endswith(".rows") and array is not None and len(array) == len(rows)
        }
        following = [array.tolist() for array in asked.values()]
        numbers = numpy.array(transitions.numbers_of(rows.tolist(), following), numpy.int64)
        known = numpy.flatnonzero(numbers >= 0)
        if transitions.repeats:
            arrays["t.repeats"] = numpy.ones(1, bool)
            arrays["t.one_action"] = transitions.one_action(numbers[known])
        arrays["t.row"] = known.astype(numpy.int64)
        for name, column in transitions.taken(numbers[known]).items():
            arrays["t." + name] = column
        for key, names in asked.items():
            arrays[key + ".ahead"] = ahead = transitions.ahead(numbers[known], names[known])
            counts = numpy.bincount(ahead[ahead >= 0], minlength=1)
            steps = int(numpy.flatnonzero(counts >= SEVERAL * max(len(ahead), 1)).max(initial=0)) + 1
            self._over_several(arrays, transitions, numbers[known], steps)
        if len(known) == len(rows):
            self._asked_of_some(arrays, transitions, numbers)

    def _over_several(self, arrays: dict[str, Any], transitions: Any, numbers: Any, steps: int) -> None:
        if steps > arrays.get("t.rewards", self.session.numpy.zeros((0, 1))).shape[1]:  # targets over several steps
            windows = transitions.windows(numbers, steps)
            arrays.update({"t." + name: column for name, column in windows.items()})

    def _asked_of_some(self, arrays: dict[str, Any], transitions: Any, numbers: Any) -> None:
        """Networks that were asked only about the next observations of rows that go on: which rows those are."""
        asked = {
            name[: -len(".rows")]: array
            for name, array in arrays.items()
            if name[0] == "n" and name.endswith(".rows") and array is not None and 1 < len(array) < len(numbers)
        }
        for key, names in asked.items():
            found = transitions.going_on(numbers, names)
            if found is not None:
                arrays[key + ".of"], steps = found
                self._over_several(arrays, transitions, numbers, steps)


def lighten(arrays: dict[str, Any]) -> None:
    """Leave out what hidden layers said, widest first, until the rest is small: a window has room for many losses, and what a
    loss compares is a few numbers a row."""
    size = sum(array.nbytes for array in arrays.values())
    wide = [name for name, array in arrays.items() if name[0] in "cn" and array.ndim == 2 and array.shape[1] > WIDE]
    for name in sorted(wide, key=lambda name: arrays[name].nbytes, reverse=True):
        if size <= HEAVY:
            return
        size -= arrays.pop(name).nbytes


def _calls_behind(pending: Pending, constant: graph.Constant) -> list[int]:
    """Calls whose answer is the operand; where there is none and nothing else tells its numbers, those that it was made of."""
    direct = [i for i, call in enumerate(pending.calls) if any(node in constant.direct for node in call.nodes)]
    if direct or (constant.inputs is not None and constant.partner is not None):
        return direct
    return [i for i, call in enumerate(pending.calls) if any(node in constant.near for node in call.nodes)]


def _terms_with(reading: graph.Reading, node: Any) -> list[int]:
    return [i for i, term in enumerate(reading.terms[:16]) if node in term.members]
