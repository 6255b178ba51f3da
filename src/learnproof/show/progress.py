"""A training while it runs: one live table in a terminal, plain lines everywhere else.

    with open_display(total_steps=100_000, title="CartPole-v1, ppo, seed 0") as display:
        display.update(Status(step=8_192, mean_return=21.4, entropy=0.69))
        display.say("entropy has not moved for 100 episodes", kind="warning")
        display.phase("proving: trained policy on 100 fresh seeds 40/100")

`update` may be called as often as one likes: the table is redrawn at most four times a second, and a line is printed
at most every five seconds and at each evaluation. The figures of a training appear with the first `update`; a display
that is only told phases shows only those. Speed and time left are worked out here, from the steps seen and the clock;
no clock is read anywhere else for this. A display never stops a training: where stdout is closed it is silent.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .phrasing import figure, printable, span, whole
from .terminal import Glyphs, glyphs_for, is_live, open_console

REDRAW_SECONDS = 0.25
LINE_SECONDS = 5.0
PACE_SECONDS = 30.0
NARROW_COLUMNS = 64
CHECKS = {
    "weights_changing": "weights",
    "gradients_flowing": "gradients",
    "entropy_decreasing": "entropy",
    "loss_improving": "loss",
    "performance_improving": "performance",
}
"""The five classic checks, in their order, and the short name of each."""

Kind = Literal["info", "warning", "error"]
STYLES: dict[str, str] = {"info": "", "warning": "yellow", "error": "bold red"}


@dataclass(frozen=True, kw_only=True)
class Status:
    """What is known of the training at this moment; None = not known yet."""

    step: int | None = None
    """Environment steps so far, over all instances."""
    mean_return: float | None = None
    """Mean return of the last 100 episodes (SB3's ep_rew_mean)."""
    evaluations: int | None = None
    """How many there have been: each new one gets its line."""
    evaluation_best: float | None = None
    stage: str | None = None
    """Of a curriculum: "2 of 3"."""
    entropy: float | None = None
    learning_rate: float | None = None
    checks: Mapping[str, bool | None] = field(default_factory=dict)
    """The classic checks by name ("weights_changing", ...); None = too early to tell."""


class Pace:
    """Steps per second over the last half minute, so that a slow start or a resume does not spoil the estimate."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, step: int) -> None:
        now = self._clock()
        if self._seen and now - self._seen[-1][0] < REDRAW_SECONDS and len(self._seen) > 1:
            self._seen.pop()
        self._seen.append((now, step))
        while len(self._seen) > 4 and now - self._seen[1][0] > PACE_SECONDS:
            self._seen.popleft()

    @property
    def steps_per_second(self) -> float | None:
        if len(self._seen) < 2:
            return None
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - began) if ended > began and last > first else None

    def seconds_left(self, total: int) -> float | None:
        rate = self.steps_per_second
        return None if rate is None else max(0, total - self._seen[-1][1]) / rate


class Display(ABC):
    """What the loop tells people. Use it as a context manager."""

    def __init__(self, total_steps: int, title: str, console: Console, clock: Callable[[], float]) -> None:
        self.total_steps = total_steps
        self.title = printable(title, 200)
        self.console = console
        self.status = Status()
        self.pace = Pace(clock)
        self._clock = clock
        self._glyphs = glyphs_for(console)
        self._phase = ""

    def update(self, status: Status) -> None:
        """Take in the newest figures; shown when it is time."""
        newly_evaluated = (status.evaluations or 0) > (self.status.evaluations or 0)
        self.status = status
        if status.step is not None:
            self.pace.note(status.step)
        self._show(at_once=newly_evaluated)

    @abstractmethod
    def say(self, text: str, kind: Kind = "info") -> None:
        """A line that stays."""

    @abstractmethod
    def phase(self, text: str) -> None:
        """What is being done besides training, with its own count; an empty text ends it."""

    @abstractmethod
    def _show(self, *, at_once: bool) -> None: ...

    @abstractmethod
    def __enter__(self) -> Display: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LiveDisplay(Display):
    """One table, redrawn in place; lines that are said scroll above it, and so does what the environment prints."""

    def __init__(self, total_steps: int, title: str, console: Console, clock: Callable[[], float]) -> None:
        super().__init__(total_steps, title, console, clock)
        self._drawn = -REDRAW_SECONDS
        self._live = Live(console=console, auto_refresh=False, get_renderable=self.__rich__, vertical_overflow="crop")

    def __enter__(self) -> LiveDisplay:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.refresh()
        self._live.stop()

    def say(self, text: str, kind: Kind = "info") -> None:
        self.console.print(_line(text, kind))

    def phase(self, text: str) -> None:
        self._phase = printable(text, 200)
        self._show(at_once=False)

    def _show(self, *, at_once: bool) -> None:
        now = self._clock()
        if at_once or now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            self._live.refresh()

    def __rich__(self) -> RenderableType:
        wide = self.console.width >= NARROW_COLUMNS
        parts: list[RenderableType] = []
        if self.status != Status():
            parts += [self._bar(), self._figures(wide), self._checks(wide)]
        if self._phase or not parts:
            parts.append(Text(self._phase, style="cyan", no_wrap=True, overflow="ellipsis"))
        title = Text(self.title, style="bold", no_wrap=True, overflow="ellipsis")
        return Panel(Group(*parts), title=title, title_align="left", border_style="dim", padding=(0, 1))

    def _bar(self) -> RenderableType:
        step = min(self.status.step or 0, self.total_steps)
        row = Table.grid(padding=(0, 1), expand=True)
        row.add_column(ratio=1)
        row.add_column(justify="right", no_wrap=True)
        bar = ProgressBar(total=max(1, self.total_steps), completed=step, complete_style="cyan", finished_style="green")
        row.add_row(bar, f"{100 * step // max(1, self.total_steps)} %")
        return row

    def _figures(self, wide: bool) -> RenderableType:
        status = self.status
        rate = self.pace.steps_per_second
        left = [
            ("steps", f"{whole(status.step)} of {whole(self.total_steps)}"),
            ("speed", f"{whole(rate)} steps/s"),
            ("time left", span(self.pace.seconds_left(self.total_steps))),
            ("evaluations", whole(status.evaluations)),
        ]
        right = [
            ("return, last 100", figure(status.mean_return)),
            ("best evaluation", figure(status.evaluation_best)),
            ("entropy", figure(status.entropy)),
            ("learning rate", figure(status.learning_rate)),
        ]
        if status.stage is not None:
            left.append(("stage", status.stage))
            right.append(("", ""))
        table = Table.grid(padding=(0, 2), expand=True)
        for _ in range(2 if wide else 1):
            table.add_column(style="dim", no_wrap=True)
            table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        if wide:
            for (one, its), (other, others) in zip(left, right, strict=True):
                table.add_row(one, its, other, others)
        else:
            for name, value in left + right:
                table.add_row(name, value)
        return table

    def _checks(self, wide: bool) -> RenderableType:
        styles = {self._glyphs.passed: "green", self._glyphs.failed: "red", self._glyphs.unknown: "dim"}
        text = Text("checks  " if wide else "", style="dim")
        for name, short in CHECKS.items():
            sign = _sign(self.status.checks.get(name), self._glyphs)
            text.append(f"{sign} ", style=f"not dim {styles[sign]}")
            text.append(f"{short}  ", style="not dim")
        return text


class PlainDisplay(Display):
    """Lines for a log: no escape codes, each flushed, few enough to read."""

    def __init__(self, total_steps: int, title: str, console: Console, clock: Callable[[], float]) -> None:
        super().__init__(total_steps, title, console, clock)
        self._printed_at = clock()
        self._printed = self.status
        self._phase_kind = ""

    def __enter__(self) -> PlainDisplay:
        self._print(self.title)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._print_what_is_due()

    def say(self, text: str, kind: Kind = "info") -> None:
        self.console.print(_line(text, kind), soft_wrap=True)

    def phase(self, text: str) -> None:
        """A new phase gets its line at once; the same one with another count waits its turn."""
        self._phase = printable(text, 200)
        kind = "".join(character for character in self._phase if not character.isdigit())
        if kind and (kind != self._phase_kind or self._clock() - self._printed_at >= LINE_SECONDS):
            self._print_what_is_due()
            self._printed_at = self._clock()
            self._print(self._phase)
        self._phase_kind = kind

    def _show(self, *, at_once: bool) -> None:
        now = self._clock()
        if not at_once and now - self._printed_at < LINE_SECONDS:
            return
        if self._printed == Status():
            self._explain_checks()
        self._printed_at, self._printed = now, self.status
        status = self.status
        share = f" ({100 * (status.step or 0) // max(1, self.total_steps)} %)"
        parts = [f"step {whole(status.step)} of {whole(self.total_steps)}{share}"]
        if (rate := self.pace.steps_per_second) is not None:
            parts.append(f"{whole(rate)} steps/s")
        if status.stage is not None:
            parts.append(f"stage {status.stage}")
        for name, value in (
            ("return", status.mean_return),
            ("best evaluation", status.evaluation_best),
            ("entropy", status.entropy),
            ("learning rate", status.learning_rate),
        ):
            if value is not None:
                parts.append(f"{name} {figure(value)}")
        parts.append("checks " + "".join(_sign(status.checks.get(name), self._glyphs) for name in CHECKS))
        if (left := self.pace.seconds_left(self.total_steps)) is not None:
            parts.append(f"{span(left)} left")
        self._print(f" {self._glyphs.joint} ".join(parts))

    def _explain_checks(self) -> None:
        glyphs = self._glyphs
        self._print(
            f"checks in this order: {', '.join(CHECKS.values())} "
            f"({glyphs.passed} holds, {glyphs.failed} does not, {glyphs.unknown} too early to tell)"
        )

    def _print_what_is_due(self) -> None:
        if self.status != self._printed:
            self._show(at_once=True)

    def _print(self, line: str) -> None:
        self.console.print(Text(line), soft_wrap=True)


def open_display(
    total_steps: int, title: str, console: Console | None = None, clock: Callable[[], float] = time.monotonic
) -> Display:
    """The display that fits where the output goes: stdout, unless a console is given."""
    console = console if console is not None else open_console()
    kind: type[LiveDisplay | PlainDisplay] = LiveDisplay if is_live(console) else PlainDisplay
    return kind(total_steps, title, console, clock)


def _sign(holds: bool | None, glyphs: Glyphs) -> str:
    if holds is None:
        return glyphs.unknown
    return glyphs.passed if holds else glyphs.failed


def _line(text: str, kind: Kind) -> Text:
    body = printable(text)
    return Text(body if kind == "info" else f"{kind}: {body}", style=STYLES[kind])
