"""Prints how a policy played: one line for each episode, and, where there is no film, a table of its steps.

Of an observation with many numbers the table shows those that changed most often: in a long row of constants and flags they
are what tells one step from the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .phrasing import count, figure, printable
from .terminal import open_console

Array = np.ndarray[Any, Any]
NUMBERS_SHOWN = 6
ACTION_NUMBERS_SHOWN = 6
ACTION_COLUMNS = 36
LEFT_COLUMNS = 28
"""What step, reward and return take of a line."""


@dataclass(frozen=True)
class PlayedStep:
    observation: Array
    """All of its numbers in a row, as the environment gave them; what the action was chosen on."""
    action: Any
    reward: float


@dataclass
class PlayedEpisode:
    seed: int
    steps: list[PlayedStep] = field(default_factory=list)
    ended: str = ""
    """terminated, or truncated by a time limit."""
    metric: float | None = None
    """The environment's own measure, where that is not the return."""

    @property
    def total(self) -> float:
        return float(sum(step.reward for step in self.steps))


@dataclass(frozen=True)
class Playback:
    run: Path
    environment: str
    algorithm: str
    best_at: int
    verdict: str | None
    mode: str
    metric: str
    names: Sequence[str]
    """Of the observation's numbers."""
    episodes: Sequence[PlayedEpisode]
    film: Path | None = None
    not_drawn: str = ""
    """Why there is no film, where one was to be expected."""


def show_playback(played: Playback, *, rows: int = 30, console: Console | None = None) -> None:
    console = console if console is not None else open_console()
    judged = f"its run is {played.verdict}" if played.verdict else "its run is not judged yet"
    console.print(
        Text(
            f"{printable(played.environment, 120)}, {played.algorithm}, best policy at step {played.best_at:,}, {played.mode}; "
            f"{judged}"
        )
    )
    if played.not_drawn:
        console.print(Text(f"No film: {printable(played.not_drawn, 400)}", style="yellow"), soft_wrap=True)
    for number, episode in enumerate(played.episodes, start=1):
        if played.film is None:
            console.print()
            console.print(_table(played, episode, rows, console.width))
        console.print(Text(_summary(number, episode, played.metric), style="bold"))
    if len(played.episodes) > 1:
        totals = np.array([episode.total for episode in played.episodes])
        spread = f"{figure(totals.mean())} ± {figure(totals.std(ddof=1))}"
        console.print(Text(f"{len(totals)} episodes: mean return {spread}"))
    if played.film is not None:
        console.print(Text(f"film  {printable(played.film)}"), soft_wrap=True)


def _summary(number: int, episode: PlayedEpisode, metric: str) -> str:
    own = f", {metric} {figure(episode.metric)}" if episode.metric is not None else ""
    return (
        f"Episode {number} (seed {episode.seed}): return {figure(episode.total)}{own}, {count(len(episode.steps), 'step')}, "
        f"{episode.ended}"
    )


def _table(played: Playback, episode: PlayedEpisode, rows: int, width: int) -> Table:
    shown = _spread(len(episode.steps), rows)
    actions = {position: _action(episode.steps[position].action) for position in shown}
    room = width - LEFT_COLUMNS - min(ACTION_COLUMNS, max(len(action) for action in actions.values()))
    columns = _telling(episode, room // (2 + max([8, *(len(name) for name in played.names)])))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("step", "reward", "return"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("action", no_wrap=True, overflow="ellipsis", max_width=ACTION_COLUMNS)
    for column in columns:
        table.add_column(printable(played.names[column], 24), justify="right", no_wrap=True)
    totals = np.cumsum([step.reward for step in episode.steps])
    for position in shown:
        step = episode.steps[position]
        numbers = [figure(float(step.observation[column])) for column in columns]
        table.add_row(
            str(position + 1), figure(step.reward), figure(float(totals[position])), actions[position], *numbers
        )
    if len(shown) < len(episode.steps):
        table.caption = f"{len(shown)} of {len(episode.steps):,} steps, evenly spaced (--rows 0 shows all)"
        table.caption_justify = "left"
    return table


def _spread(steps: int, rows: int) -> list[int]:
    """Positions of at most `rows` steps, the first and the last among them; 0 = all."""
    if not rows or steps <= rows:
        return list(range(steps))
    return sorted({round(float(place)) for place in np.linspace(0, steps - 1, max(2, rows))})


def _telling(episode: PlayedEpisode, room: int) -> list[int]:
    """The numbers of the observation that are shown, in their own order."""
    seen = np.stack([step.observation for step in episode.steps])
    most = min(NUMBERS_SHOWN, max(1, room))
    changes = (np.diff(seen, axis=0) != 0).sum(0) if len(seen) > 1 else np.zeros(seen.shape[1])
    return sorted(np.argsort(-changes, kind="stable")[:most].tolist())


def _action(action: Any) -> str:
    if isinstance(action, dict):
        return ", ".join(f"{printable(key, 20)} {_action(value)}" for key, value in action.items())
    if isinstance(action, tuple):
        return ", ".join(_action(value) for value in action)
    numbers = np.ravel(np.asarray(action))
    more = ["…"] if len(numbers) > ACTION_NUMBERS_SHOWN else []
    return " ".join([figure(float(number)) for number in numbers[:ACTION_NUMBERS_SHOWN]] + more)
