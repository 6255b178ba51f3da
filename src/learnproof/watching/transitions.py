"""The memory of what environments did lately: one row per step and copy, found again by the identity of its observation.

Where observations come again and again (a small grid), a transition is found by the pair of its two observations, if the
batch tells the second one; pairs that did not always end alike are left out. If no pair is known, for targets over several
steps, the last few transitions from the observation are looked through for one that led to the second.
"""

from __future__ import annotations

from typing import Any

TRANSITIONS_KEPT = 65_536
ACTION_WIDTH = 16
MOST_AHEAD = 16
"""Steps of which a target may be made."""
ITSELF, ELSEWHERE, UNKNOWN = -1, -2, -3
RECENT = 6
LAST_KEPT = 4_096
MOSTLY = 0.8
PAIRED_AT_ONCE = 8_192
REPEATED = 64
"""Observations that came again, from which on pairs are kept too."""


class Transitions:
    """The last TRANSITIONS_KEPT steps, column by column; `count` goes on growing."""

    def __init__(self, numpy: Any) -> None:
        self.numpy = numpy
        self.count = 0
        self.columns = {
            "time": numpy.zeros(TRANSITIONS_KEPT, numpy.int64),
            "stream": numpy.zeros(TRANSITIONS_KEPT, numpy.int32),
            "copy": numpy.zeros(TRANSITIONS_KEPT, numpy.int32),
            "observation": numpy.zeros(TRANSITIONS_KEPT, numpy.uint64),
            "next_observation": numpy.zeros(TRANSITIONS_KEPT, numpy.uint64),
            "final_observation": numpy.zeros(TRANSITIONS_KEPT, numpy.uint64),
            "reward": numpy.zeros(TRANSITIONS_KEPT, numpy.float32),
            "terminated": numpy.zeros(TRANSITIONS_KEPT, bool),
            "truncated": numpy.zeros(TRANSITIONS_KEPT, bool),
            "resets": numpy.zeros(TRANSITIONS_KEPT, bool),
            "action": numpy.zeros((TRANSITIONS_KEPT, ACTION_WIDTH), numpy.float32),
        }
        self.raw: Any = None
        """Observations themselves, as long as it is not known whether the script rescales them (aliases.py)."""
        self.places: dict[int, int] = {}
        """identity of an observation -> number of the last transition from it."""
        self.repeated = 0
        self.pairs: dict[tuple[int, int], int] = {}
        """(observation, next observation) -> number of the last such transition, or -1 where they did not end alike."""
        self.with_several_actions: set[tuple[int, int]] = set()
        """Those of them to which different actions led."""
        self.all_paired = True
        """Whether that is known of all transitions since the run began."""
        self.by_pairs = False
        """Whether the transitions that were asked for last were found by their pairs."""
        self.recent: dict[int, tuple[int, ...]] = {}
        """identity of an observation -> numbers of the last RECENT transitions from it; only where observations repeat."""
        self.action_width = 0
        self.last_of: dict[str, dict[int, None]] = {"ended": {}, "cut": {}}
        """Identities of the observations before the last steps of episodes that ended, and of those that were cut."""

    @property
    def repeats(self) -> bool:
        """Whether observations come again and again: then a transition that is found may be another visit's, with another action."""
        return self.repeated > REPEATED

    def kept_raw(self) -> tuple[Any, Any]:
        """All of them with their identities."""
        count = min(self.count, TRANSITIONS_KEPT)
        return self.raw[:count], self.columns["observation"][:count]

    def add(self, raw: Any = None, **values: Any) -> None:
        """Columns of equal length; `raw` are the observations themselves, as long as they are wanted."""
        start = self.count % TRANSITIONS_KEPT
        rows = min(len(values["time"]), TRANSITIONS_KEPT - start)
        if rows < len(values["time"]):  # over the edge of the ring
            self.add(None if raw is None else raw[:rows], **{name: column[:rows] for name, column in values.items()})
            self.add(None if raw is None else raw[rows:], **{name: column[rows:] for name, column in values.items()})
            return
        width = values["action"].shape[1]
        self.action_width = max(self.action_width, width)
        if raw is not None:
            if self.raw is None:
                self.raw = self.numpy.zeros((TRANSITIONS_KEPT, raw.shape[1]), self.numpy.float32)
            if raw.shape[1] == self.raw.shape[1]:
                self.raw[start : start + rows] = raw
        for name, column in self.columns.items():
            if name == "action":
                column[start : start + rows, :width] = values[name]
            else:
                column[start : start + rows] = values[name]
        over = self.numpy.flatnonzero(values["terminated"] | values["truncated"])
        for row in over.tolist():
            kept = self.last_of["ended" if values["terminated"][row] else "cut"]
            kept[int(values["observation"][row])] = None
            if len(kept) > LAST_KEPT:
                del kept[next(iter(kept))]
        repeats = self.repeats
        for offset, identity in enumerate(values["observation"].tolist()):
            self.repeated += identity in self.places
            self.places[identity] = self.count + offset
            if repeats:
                self.recent[identity] = (*self.recent.get(identity, ())[1 - RECENT :], self.count + offset)
        if self.repeats and not repeats:
            self._pair_those_before()
        if self.repeats:
            self._pair(start, rows)
        self.count += rows
        if len(self.places) > 2 * TRANSITIONS_KEPT:
            oldest = self.count - TRANSITIONS_KEPT
            self.places = {key: at for key, at in self.places.items() if at >= oldest}
            self.recent = {key: at for key, at in self.recent.items() if at[-1] >= oldest}
        if len(self.pairs) > 2 * TRANSITIONS_KEPT:
            self.pairs, self.with_several_actions, self.all_paired = {}, set(), False

    def _pair_those_before(self) -> None:
        if self.count > PAIRED_AT_ONCE:
            self.all_paired = False
            return
        count, self.count = self.count, 0
        self._pair(0, count)
        self.count = count

    def _pair(self, start: int, rows: int) -> None:
        columns = self.columns
        for row in range(start, start + rows):
            first, second = int(columns["observation"][row]), int(columns["next_observation"][row])
            final = int(columns["final_observation"][row])
            number = self.count + row - start
            for following in (second, final) if final else (second,):
                known = self.pairs.get((first, following))
                if known is not None and known >= 0 and not self._same_action(known, row):
                    self.with_several_actions.add((first, following))
                alike = known is None or (known >= 0 and self._outcome(known) == self._outcome(row))
                self.pairs[(first, following)] = number if alike else -1

    def _outcome(self, number: int) -> tuple[float, bool, bool]:
        at = number % TRANSITIONS_KEPT
        columns = self.columns
        return float(columns["reward"][at]), bool(columns["terminated"][at]), bool(columns["truncated"][at])

    def _same_action(self, number: int, row: int) -> bool:
        actions = self.columns["action"]
        return bool((actions[number % TRANSITIONS_KEPT] == actions[row]).all())

    def one_action(self, numbers: Any) -> Any:
        """Whether only one action ever led from the first observation of each of these to its second: then every visit's was that one."""
        columns, at = self.columns, numbers % TRANSITIONS_KEPT
        names = (columns[name][at].tolist() for name in ("observation", "next_observation", "final_observation"))
        several = self.with_several_actions
        one = [(first, second) not in several and (first, final) not in several for first, second, final in zip(*names)]
        return self.numpy.array(one, bool) & (self.by_pairs and self.all_paired)

    def numbers_of(self, identities_: list[int], following: list[list[int]]) -> list[int]:
        """Which transition each observation began, or -1. `following` are lists of what may be their next observations."""
        oldest = self.count - TRANSITIONS_KEPT
        if self.repeats:
            guesses = [[self.pairs.get(pair, -1) for pair in zip(identities_, nexts)] for nexts in following]
            found = max(guesses, key=lambda guess: sum(at >= 0 for at in guess), default=[-1] * len(identities_))
            self.by_pairs = 2 * sum(at >= 0 for at in found) >= len(found)
            if not self.by_pairs:
                found = self._led_to(identities_, following)
        else:
            found = [self.places.get(identity, -1) for identity in identities_]
        return [at if at >= oldest else -1 for at in found]

    def _led_to(self, identities_: list[int], following: list[list[int]]) -> list[int]:
        numpy = self.numpy
        best, most = [-1] * len(identities_), 0
        for nexts in following:
            names = numpy.array(nexts, numpy.uint64)
            found = numpy.full(len(names), -1, numpy.int64)
            for turn in range(1, RECENT + 1):
                numbers = [self.recent.get(identity, ()) for identity in identities_]
                tried = numpy.array([at[-turn] if len(at) >= turn else -1 for at in numbers], numpy.int64)
                known = (found < 0) & (tried >= max(0, self.count - TRANSITIONS_KEPT))
                known[known] = self.ahead(tried[known], names[known]) >= 0
                found[known] = tried[known]
            if int((found >= 0).sum()) > most:
                best, most = found.tolist(), int((found >= 0).sum())
        return best

    def taken(self, numbers: Any) -> dict[str, Any]:
        at = numbers % TRANSITIONS_KEPT
        taken = {name: column[at] for name, column in self.columns.items()}
        taken["action"] = taken["action"][:, : max(1, self.action_width)].copy()
        taken["reward_before"] = self._neighbours_reward(numbers, -1)
        taken["reward_after"] = self._neighbours_reward(numbers, 1)
        return taken

    def ahead(self, numbers: Any, names: Any) -> Any:
        """How many steps after each of these transitions' own the observation of that name was seen, in the same episode; or
        ITSELF, ELSEWHERE (it began another transition), UNKNOWN."""
        numpy, columns = self.numpy, self.columns
        elsewhere = numpy.fromiter((name in self.places for name in names.tolist()), bool, len(names))
        found = numpy.where(elsewhere, ELSEWHERE, UNKNOWN).astype(numpy.int64)
        found[columns["observation"][numbers % TRANSITIONS_KEPT] == names] = ITSELF
        searching = numpy.ones(len(names), bool)
        for steps in range(MOST_AHEAD):
            at, known = self._beside(numbers, steps)
            searching &= known
            seen = (columns["next_observation"][at] == names) | (columns["final_observation"][at] == names)
            found[seen & searching] = steps
            searching &= ~seen & ~(columns["terminated"][at] | columns["truncated"][at])
            if not searching.any():
                break
        return found

    def going_on(self, numbers: Any, names: Any) -> tuple[Any, int] | None:
        """Places of those of these transitions that these observations follow in the same order, and after how many steps: of those
        that have not ended by then, or were not cut either."""
        numpy = self.numpy
        for steps in range(1, MOST_AHEAD + 1):
            windows = self.windows(numbers, steps)
            if int((windows["ends"] == steps).sum()) > len(names) or int((~windows["ended_terminated"]).sum()) < len(
                names
            ):
                continue
            for goes_on in (~windows["ended_terminated"], windows["ends"] == steps):
                places = numpy.flatnonzero(goes_on)
                if len(places) != len(names):
                    continue
                ahead = self.ahead(numbers[places], names)
                if int((ahead == steps - 1).sum()) > MOSTLY * len(names):
                    return places, steps
        return None

    def windows(self, numbers: Any, steps: int) -> dict[str, Any]:
        """Of so many steps from each of these: the rewards, whatever ends between them; after how many the episode ended
        (`steps` where it did not) and whether by itself; and whether all of them are kept."""
        numpy, columns = self.numpy, self.columns
        rewards = numpy.zeros((len(numbers), steps), numpy.float32)
        ends = numpy.full(len(numbers), steps, numpy.int64)
        whole = numpy.ones(len(numbers), bool)
        ended = numpy.zeros(len(numbers), bool)
        for step in range(steps):
            at, known = self._beside(numbers, step)
            whole &= known
            rewards[:, step] = columns["reward"][at] * known
            over = known & (columns["terminated"][at] | columns["truncated"][at])
            over &= ends == steps
            ended |= over & columns["terminated"][at]
            ends[over] = step
        return {"rewards": rewards, "ends": ends, "ended_terminated": ended, "whole": whole}

    def _beside(self, numbers: Any, steps: int) -> tuple[Any, Any]:
        """Places of the same copy's transitions so many steps later, and whether they are kept."""
        columns = self.columns
        at = numbers % TRANSITIONS_KEPT
        beside = numbers + steps * (int(columns["copy"].max()) + 1)
        place = beside % TRANSITIONS_KEPT
        known = (beside >= max(0, self.count - TRANSITIONS_KEPT)) & (beside < self.count)
        for name in ("stream", "copy"):
            known &= columns[name][place] == columns[name][at]
        return place, known

    def _neighbours_reward(self, numbers: Any, way: int) -> Any:
        """Rewards of the same copy's step before or after each of these; 0 where it is not kept."""
        place, known = self._beside(numbers, way)
        return self.columns["reward"][place] * known
