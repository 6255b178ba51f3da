"""The transitions of a cycle (a rollout, then its updates), step after step, with what the losses made of them.

Those of a long cycle were written as a whole; of a short one (a few steps of many environments) the transitions that the
batch was made of came with the loss.

Rows are told apart by the identity of their observation (a digest that the watcher made). An observation that came twice
in one rollout (a small grid, say) cannot be told apart and is left out, but where a batch is the whole rollout in order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...evidence import Evidence
from ...evidence.reader import Sample
from .inner_layers import timed_rows
from .losses import Array, Loss

COLUMNS = (
    "time", "stream", "copy", "observation", "next_observation", "final_observation", "reward", "terminated",
    "truncated", "resets",
)  # fmt: skip

NAMED_SHARE = 0.9
FEWEST_NAMED = 4
"""Rows of a batch whose observation came once, from which on they say when a network was asked."""
SAME_ANSWER = 1e-5
"""Difference of two answers to one question, over their size, that batches of different sizes make by rounding."""
UNKNOWN = np.uint64(1)
"""Stands for an observation that exists and whose identity is not known."""


@dataclass(frozen=True)
class Told:
    """What the losses made of the rows, where it was worked out otherwise than by the names of their rows (token_rollouts.py)."""

    targets: list[Targets]
    weights: list[Array]
    rewards: str
    """The array that the rewards were found in."""
    ahead: int
    """Positions by which the values of tokens are read further on in the sequence than the distributions that the tokens came from."""
    beyond: Array
    """Of rows that end a sequence: the prediction at the position after it, nan where there is none."""


@dataclass
class Rollout:
    cycle: int
    time: Array
    stream: Array
    copy: Array
    observation: Array
    next_observation: Array
    final_observation: Array
    reward: Array
    terminated: Array
    truncated: Array
    resets: Array
    """The step only brought the first observation of a new episode; its action was ignored."""
    action: Array | None = field(repr=False)
    """[rows, numbers] as the environment was given it."""
    silent: list[tuple[str, dict[int, float]]] = field(repr=False)
    """Modules that gave one number per row without a gradient: name, and observation -> that number."""
    losses: list[Loss] = field(repr=False)
    parts: list[list[Loss]] = field(default_factory=list, repr=False)
    """Of one put together of several (pooling.py): the losses of each."""
    told: Told | None = field(default=None, repr=False)
    fits: list[Any] | None = field(default=None, repr=False)
    """What returns.py found, once it was asked."""

    def policy_weights(self, most: int) -> list[Array]:
        """What each of the first losses weighs the log-probabilities with, by row (nan where it has none); of several rollouts put
        together, the first losses of all in one."""

        def spread(loss: Loss) -> list[Array]:
            known = [p for p in loss.policies[:1] if (p.rows is not None or p.time is not None) and not p.even]
            return [self.spread(policy.rows, policy.weight, policy.time) for policy in known]

        if self.told is not None:
            return self.told.weights
        if not self.parts:
            return [weight for loss in self.policy_losses[:most] for weight in spread(loss)]
        whole = np.full(len(self.time), np.nan)
        for loss in (loss for part in self.parts for loss in _with_policies(part)[:1]):
            for weight in spread(loss):
                whole = np.where(np.isnan(whole), weight, whole)
        return [whole] if np.isfinite(whole).any() else []

    @property
    def policy_losses(self) -> list[Loss]:
        """Those with log-probabilities; a value network may be fitted first, for a while."""
        return _with_policies(self.losses)

    @cached_property
    def following(self) -> Array:
        """The next row of the same copy, or -1."""
        following = np.full(len(self.time), -1)
        last: dict[tuple[int, int], int] = {}
        for row in np.argsort(self.time, kind="stable"):
            key = (int(self.stream[row]), int(self.copy[row]))
            if key in last:
                following[last[key]] = row
            last[key] = int(row)
        return following

    @cached_property
    def preceding(self) -> Array:
        preceding = np.full(len(self.time), -1)
        known = np.flatnonzero(self.following >= 0)
        preceding[self.following[known]] = known
        return preceding

    @cached_property
    def beside(self) -> Array:
        """The row of the next copy at the same time, or -1."""
        places = {
            (int(t), int(s), int(c)): row
            for row, (t, s, c) in enumerate(zip(self.time, self.stream, self.copy, strict=True))
        }
        keys = zip(self.time, self.stream, self.copy, strict=True)
        return np.array([places.get((int(t), int(s), int(c) + 1), -1) for t, s, c in keys], dtype=int)

    @property
    def ended(self) -> Array:
        return np.asarray(self.terminated | self.truncated)

    @cached_property
    def place(self) -> dict[int, int]:
        """observation -> row, where it came once."""
        counts = Counter(self.observation.tolist())
        return {identity: row for row, identity in enumerate(self.observation.tolist()) if counts[identity] == 1}

    @cached_property
    def orders(self) -> list[Array]:
        """The ways to lay out a rollout as one batch: step by step, or copy by copy."""
        steps = np.lexsort((self.copy, self.stream, self.time))
        return [steps, np.lexsort((self.time, self.copy, self.stream))]

    def located(self, rows: Array | None) -> Array:
        """Row of the rollout for each row of a batch, or -1."""
        if rows is None:
            return np.empty(0, dtype=int)
        for order in self.orders:
            if len(order) == len(rows) and np.array_equal(self.observation[order], rows):
                return order  # the rollout as a whole: also where observations came twice
        return np.array([self.place.get(int(identity), -1) for identity in rows.tolist()], dtype=int)

    @cached_property
    def by_time(self) -> dict[tuple[int, int], int]:
        """(environment steps before, row of the acting call) -> row. Copies of one environment are stepped together; several
        environments are stepped one after the other, each step counted."""
        if int(self.copy.max(initial=0)) > 0:
            keys = zip(self.time.tolist(), self.copy.tolist(), strict=True)
            return {(int(time) - 1, int(copy)): row for row, (time, copy) in enumerate(keys)}
        streams = len(set(self.stream.tolist()))
        counts = Counter(self.time.tolist())
        return {
            (int(time) - 1 - behind, behind): row
            for row, time in enumerate(self.time.tolist())
            if counts[time] == 1
            for behind in range(streams)
        }

    def located_by_time(self, time: Array) -> Array:
        """Row of the rollout for each row of a merged acting call: rows of equal time are those of one call, in order."""
        seen: Counter[int] = Counter()
        found = []
        for moment in time.tolist():
            found.append(self.by_time.get((int(moment), seen[int(moment)]), -1))
            seen[int(moment)] += 1
        return np.array(found, dtype=int)

    def located_at(self, rows: Array | None, time: Array | None) -> Array:
        """Row of the rollout for each row of a batch: by when it was asked where that is known, which tells states apart that come again.
        A network may be asked late, when the step has been made already (the critic after `step`, about the state before it): where the
        observations say so, that moment counts."""
        if time is None:
            return self.located(rows)
        timed = self.located_by_time(time)
        named = np.empty(0, dtype=int) if rows is None or len(rows) != len(time) else self.located(rows)
        for moment in (timed, self.located_by_time(time - 1)) if len(named) else ():
            both = (named >= 0) & (moment >= 0)
            if both.sum() >= FEWEST_NAMED and (named[both] == moment[both]).mean() >= NAMED_SHARE:
                return moment
        return timed if (named >= 0).sum() < FEWEST_NAMED else named

    def actions_scored(self, loss: Loss) -> tuple[int, int]:
        """Of the loss's first log-probabilities of discrete actions: rows that are found here, and those among them whose action is
        not the one that the environment was given. Actions may have other numbers there (a table of moves): what each scored
        action mostly stands for is what it means."""
        policy = loss.policies[0] if loss.policies else None
        if policy is None or policy.action is None or self.action is None or self.action.shape[1] != 1:
            return 0, 0
        scored = policy.action.reshape(-1)
        if scored.dtype.kind not in "iu" or len(scored) != len(policy.value):
            return 0, 0
        at = self.located_at(policy.rows, policy.time)
        if len(at) != len(scored):
            return 0, 0
        known = at >= 0
        taken = np.round(self.action[at[known], 0]).astype(np.int64)
        others = 0
        for action in np.unique(scored[known]):
            given = taken[scored[known] == action]
            others += len(given) - int(np.unique(given, return_counts=True)[1].max())
        return int(known.sum()), others

    def values_of(self, identities: Array, source: Mapping[int, float]) -> Array:
        return np.array([source.get(int(identity), np.nan) for identity in identities.tolist()])

    def spread(self, rows: Array | None, numbers: Array, time: Array | None = None) -> Array:
        """Numbers of a batch at their rows of the rollout, nan elsewhere; the first one of a row counts."""
        spread = np.full(len(self.time), np.nan)
        at = self.located_at(rows, time)
        for row, number in zip(at[::-1], numbers[::-1], strict=True):
            if row >= 0:
                spread[row] = number
        return spread

    @cached_property
    def targets(self) -> list[Targets]:
        """What each value head was drawn to, over all losses of the cycle."""
        if self.told is not None:
            return self.told.targets
        found: dict[str, Targets] = {}
        for loss in self.losses:
            for regression in loss.regressions:
                if (regression.rows is None and regression.time is None) or regression.module is None:
                    continue
                name = regression.module
                mine = found.setdefault(name, Targets(name, *(np.full(len(self.time), np.nan) for _ in range(2))))
                for column, numbers in ((mine.target, regression.target), (mine.prediction, regression.prediction)):
                    fresh = self.spread(regression.rows, numbers, regression.time)
                    column[:] = np.where(np.isnan(column), fresh, column)
        return [targets for targets in found.values() if np.isfinite(targets.target).any()]


def _with_policies(losses: Sequence[Loss]) -> list[Loss]:
    return [loss for loss in losses if loss.policies]


@dataclass(frozen=True)
class Targets:
    """By row of the rollout; nan where no loss had it."""

    module: str
    target: Array
    prediction: Array
    """As the first loss on the row saw it."""


def read_rollouts(evidence: Evidence, by_cycle: Mapping[int, Sequence[Loss]]) -> list[Rollout]:
    calls: dict[int, list[Sample]] = defaultdict(list)
    for sample in evidence.samples("calls"):
        calls[sample.event.update].append(sample)
    found = []
    for sample in evidence.samples("transitions"):
        cycle = sample.event.update
        if not all(name in sample for name in COLUMNS) or len(sample["time"]) < 2:
            continue
        columns: dict[str, Any] = {name: sample[name] for name in COLUMNS}
        columns["reward"] = columns["reward"].astype(np.float64)
        losses = list(by_cycle.get(cycle, []))
        shown = np.concatenate([columns["observation"], columns["next_observation"]])
        for loss in losses:
            loss.speaks_of(shown)
        for each in calls.get(cycle, []):
            each.arrays.update(timed_rows(each.arrays, each.event.modules, shown))
        if not _recognised(columns["observation"], losses):
            for each in calls.get(cycle, []):
                _name_by_inputs(columns, each)
        silent = [
            heads for each in calls.get(cycle, []) for heads in _one_number_heads(each.event.modules, each.arrays, "m")
        ]
        action = sample.arrays.get("action")
        found.append(Rollout(cycle=cycle, **columns, action=action, silent=silent, losses=losses))
    return found


def _recognised(observations: Array, losses: Sequence[Loss]) -> bool:
    """Whether the losses' networks were given the observations as the environment returned them."""
    known = set(observations.tolist())
    rows = [rows for loss in losses[:4] if (rows := loss.rows) is not None]
    seen = [int(identity) in known for each in rows for identity in each.tolist()]
    return not seen or float(np.mean(seen)) > 0.5


def _name_by_inputs(columns: dict[str, Any], sample: Sample) -> None:
    """Where observations are changed on their way (normalised, stacked), call each by what the network was given: when a
    network answered as many rows as there are copies just before a step, row j was for copy j."""
    time, copy = columns["time"], columns["copy"]
    copies = int(copy.max()) + 1
    for position in range(len(sample.event.modules)):
        times, rows = sample.arrays.get(f"m{position}.time"), sample.arrays.get(f"m{position}.rows")
        if times is None or rows is None:
            continue
        given = {int(t): rows[times == t][:copies] for t in np.unique(times) if (times == t).sum() >= copies}
        known = np.array([int(t) - 1 in given for t in time])
        if known.mean() < NAMED_SHARE:
            continue
        nothing = np.uint64(0)
        before = [given[int(t) - 1][c] if int(t) - 1 in given else nothing for t, c in zip(time, copy, strict=True)]
        after = [given[int(t)][c] if int(t) in given else nothing for t, c in zip(time, copy, strict=True)]
        columns["observation"] = np.array(before, dtype=np.uint64)
        columns["next_observation"] = np.array(after, dtype=np.uint64)
        columns["final_observation"] = np.where(columns["final_observation"] != 0, UNKNOWN, np.uint64(0))
        return


def read_short_rollouts(by_cycle: Mapping[int, Sequence[Loss]], known: set[int]) -> list[Rollout]:
    """Of cycles whose transitions came with the loss, where a policy's log-probabilities are in it."""
    found = []
    for cycle, losses in by_cycle.items():
        loss = next((each for each in losses if each.policies and "t.row" in each.arrays), None)
        if cycle in known or loss is None or not all("t." + name in loss.arrays for name in COLUMNS):
            continue
        if len(loss.arrays["t.row"]) < 2 or not _fresh(loss):
            continue
        columns: dict[str, Any] = {name: loss.arrays["t." + name] for name in COLUMNS}
        columns["reward"] = columns["reward"].astype(np.float64)
        silent = _one_number_heads(loss.event.silent, loss.arrays, "n")
        action = loss.arrays.get("t.action")
        found.append(Rollout(cycle=cycle, **columns, action=action, silent=silent, losses=list(losses)))
    return found


def _fresh(loss: Loss) -> bool:
    """The batch is the last few steps of all copies; one drawn from a memory is spread over a long time."""
    time, copies = loss.arrays["t.time"], len(np.unique(loss.arrays["t.copy"]))
    return bool((int(time.max()) - int(time.min()) + 1) * copies <= 2 * len(time))


def _one_number_heads(
    modules: Sequence[Mapping[str, Any]], arrays: Mapping[str, Array], letter: str
) -> list[tuple[str, dict[int, float]]]:
    """Modules of width 1, outermost last; two that always say the same are one, and so are calls of one module that agree."""
    found: list[tuple[str, dict[int, float]]] = []
    for position, about in enumerate(modules):
        output, rows = arrays.get(f"{letter}{position}.output"), arrays.get(f"{letter}{position}.rows")
        if output is None or rows is None or output.ndim == 0 or output.size != len(rows):
            continue
        pairs = list(zip(rows.tolist(), output.reshape(-1).astype(float).tolist(), strict=True))
        numbers = dict(reversed(pairs))  # the first answer counts: a later one is that of other weights
        name = str(about.get("module"))
        earlier = next((known for own, known in found if own == name and agree(known, numbers)), None)
        if earlier is not None:
            earlier.update({row: number for row, number in numbers.items() if row not in earlier})
        elif all(numbers != known for _, known in found):
            found.append((name, numbers))
    return found


def agree(some: Mapping[int, float], others: Mapping[int, float]) -> bool:
    """Nothing that both were asked was answered otherwise."""
    both = some.keys() & others.keys()
    return all(abs(some[row] - others[row]) <= SAME_ANSWER * max(1.0, abs(some[row])) for row in both)
