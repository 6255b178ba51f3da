"""The five classic checks while training runs: fed event by event, it says what has gone wrong when it does.

    monitor = ChecklistMonitor(run_started, check_every_episodes=10, profile="default")
    said = monitor.feed(event)          # None, or a MonitorLook every 10 finished episodes
    if said: record(said.look); warn(said.newly_wrong)

It keeps the first 50 and the newest 51 records of each kind, which is all that the rules look at, so its memory and
cost do not grow with the run. What it says depends on nothing but the events, so a resumed run that feeds it the recorded
ones again goes on as if never interrupted. In the default profile only what is wrong in every algorithm is said aloud (weights, gradients,
numbers that are not finite); an entropy that rises or a loss that does not fall is often healthy, and said only in `classic`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..evidence import ChecklistLook, Episode, Event, RunStarted, StageBegan, Update
from .classic import ADVICE, MEANINGS, MORE_THAN, OF_ONE_TASK, RULES, performance_of, records_of_update
from .finiteness import not_finite_in

SAID_ALOUD = {
    "default": ("weights_changing", "gradients_flowing"),
    "classic": tuple(RULES),
}


@dataclass
class History:
    """A sequence shortened to what the rules look at: its first 50 entries and its newest 51.

    More than 100 entries, the longest that any rule asks for, stay recognisable as more than 100.
    """

    first: list[float] = field(default_factory=list)
    newest: list[float] = field(default_factory=list)

    def extend(self, values: Sequence[float]) -> None:
        room = 50 - len(self.first)
        if room:
            self.first += values[:room]
            values = values[room:]
        self.newest += values[-51:]
        del self.newest[:-51]

    def records(self) -> list[float]:
        return [*self.first, *self.newest]


@dataclass(frozen=True)
class MonitorLook:
    """One look: the event for the evidence, and what has gone wrong since the look before."""

    look: ChecklistLook
    newly_wrong: list[str]


class ChecklistMonitor:
    def __init__(
        self, run: RunStarted, *, check_every_episodes: int = 10, profile: Literal["default", "classic"] = "default"
    ) -> None:
        self.run = run
        self.check_every_episodes = check_every_episodes
        self.said_aloud = SAID_ALOUD[profile]
        self.episodes = 0
        self._histories = {name: History() for name in RULES}
        self._wrong: set[str] = set()
        self._not_finite: list[str] = []
        self._not_finite_said = False

    def feed(self, event: Event) -> MonitorLook | None:
        """Take note of an update or an episode; after every `check_every_episodes` episodes, look."""
        if isinstance(event, Update):
            for name, values in records_of_update(event, self.run).items():
                self._histories[name].extend(values)
            if not self._not_finite:
                self._not_finite = list(not_finite_in(event))[:3]
        if isinstance(event, StageBegan):
            self._histories |= {name: History() for name in OF_ONE_TASK}
        if not isinstance(event, Episode):
            return None
        self._histories["performance_improving"].extend(performance_of(event, self.run))
        self.episodes += 1
        return self._look(event.step) if self.episodes % self.check_every_episodes == 0 else None

    def _look(self, step: int) -> MonitorLook:
        answers = {name: _answer(name, history.records()) for name, history in self._histories.items()}
        wrong = {name for name, answer in answers.items() if answer is False}
        sentences = [self._sentence(name, step) for name in self.said_aloud if name in wrong - self._wrong]
        if self._not_finite and not self._not_finite_said:
            sentences.append(f"Step {step}: a number is NaN or infinite ({'; '.join(self._not_finite)}).")
            self._not_finite_said = True
        self._wrong = wrong
        look = ChecklistLook(
            step=step,
            episodes=self.episodes,
            weights_changing=answers["weights_changing"],
            gradients_flowing=answers["gradients_flowing"],
            entropy_decreasing=answers["entropy_decreasing"],
            loss_improving=answers["loss_improving"],
            performance_improving=answers["performance_improving"],
        )
        return MonitorLook(look, sentences)

    def _sentence(self, name: str, step: int) -> str:
        newest = self._histories[name].records()[-1]
        shown = f"{newest:.3g}" if math.isfinite(newest) else str(newest)
        return f"Step {step}: {name}: {MEANINGS[name]} (latest {shown}). {ADVICE[name]}"


def _answer(name: str, records: Sequence[float]) -> bool | None:
    return RULES[name](records) if len(records) > MORE_THAN[name] else None
