"""Prints a sweep: a line for each trial as it ends, then the table of them, the best one, and what to do with it.

Decides nothing: which trial is best stands in results.json. Where the output is a terminal, a line that is redrawn shows how far the
present training is; what the training itself would say stays in its run folder.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .phrasing import count, figure, p_value, printable, signed, span, whole
from .progress import REDRAW_SECONDS, Display, Kind
from .terminal import is_live, open_console

STYLES = {"proven": "green", "unproven": "yellow", "broken": "red", "failed": "red", "paused": "cyan"}
WIDE = 110
ROWS = 30
"""Trials in the table; results.json has all."""


class TrialDisplay(Display):
    """One line while a trial trains, gone when it ends."""

    def __init__(self, total_steps: int, title: str, console: Console) -> None:
        super().__init__(total_steps, title, console, time.monotonic)
        self._drawn = -REDRAW_SECONDS
        self._live = (
            Live(console=console, auto_refresh=False, get_renderable=self._line, transient=True)
            if is_live(console)
            else None
        )

    def __enter__(self) -> TrialDisplay:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str, kind: Kind = "info") -> None:
        pass

    def phase(self, text: str) -> None:
        self._phase = printable(text, 200)
        self._show(at_once=False)

    def _show(self, *, at_once: bool) -> None:
        now = self._clock()
        if self._live is not None and (at_once or now - self._drawn >= REDRAW_SECONDS):
            self._drawn = now
            self._live.refresh()

    def _line(self) -> Text:
        status = self.status
        parts = [self.title]
        if self._phase:
            parts.append(self._phase)
        elif status.step is not None:
            parts.append(f"{whole(status.step)} of {whole(self.total_steps)} steps")
            if status.evaluation_best is not None:
                parts.append(f"best evaluation {figure(status.evaluation_best)}")
            parts.append(f"{span(self.pace.seconds_left(self.total_steps))} left")
        return Text(f"  {f' {self._glyphs.joint} '.join(parts)}", style="dim", no_wrap=True, overflow="ellipsis")


class SweepSheet:
    def __init__(self, console: Console | None = None) -> None:
        self.console = console if console is not None else open_console()

    def begin(self, path: str, results: Mapping[str, Any]) -> None:
        done = len(results["trials"])
        self._print(
            f"{printable(results['environment'], 120)}, {results['algorithm']}: {count(results['planned'], 'trial')} of "
            f"{results['steps']:,} steps"
            + (f", {results['seeds']} seeds each" if results["seeds"] > 1 else "")
            + f", in {printable(path)}"
            + (f"; {done} done" if done else ""),
            "bold",
        )
        for name, form in results["space"].items():
            self._print(f"  {name} = {_form(form)}", "dim")

    def say(self, text: str) -> None:
        self._print(text)

    def trial(self, number: int, planned: int, values: Mapping[str, Any]) -> None:
        short = short_names(list(values))
        told = ", ".join(f"{short[name]} {value_text(value)}" for name, value in values.items())
        self._print(f"trial {number} ({number + 1} of {max(planned, number + 1)})  {told}")

    def display_for(self, total_steps: int) -> Callable[[int, int], Display]:
        return lambda number, seed: TrialDisplay(total_steps, f"trial {number}, seed {seed}", self.console)

    def ended(self, record: Mapping[str, Any]) -> None:
        words = _word(record)
        score = f", score {figure(record['score'])}" if record["score"] is not None else ""
        steps = f", {sum(run['steps'] for run in record['runs']):,} steps" if record["runs"] else ""
        style = STYLES.get(record["verdict"] or record["state"], "")
        self._print(f"  {words}{score}{steps}, {span(record['seconds'])}", style)
        if record["note"]:
            self._print(f"  {printable(record['note'], 500)}")

    def summary(self, results: Mapping[str, Any], path: str, resume_command: str | None) -> None:
        trials = results["trials"]
        if trials:
            self.console.print()
            self._table(results)
            self._counts(results)
            self._tendencies(results)
            self._best(results, path)
        if resume_command is not None:
            self._print(f"Stopped. Go on with: {resume_command}", "bold")
        elif trials:
            place = Path(path)
            self._print(f"picture  {place / 'sweep.png'}\nresults  {place / 'results.json'}")

    # ------------------------------------------------------------------ parts of the summary

    def _table(self, results: Mapping[str, Any]) -> None:
        short = short_names(list(results["space"]))
        air = 1 if self.console.width < WIDE else 2
        table = Table(box=None, pad_edge=False, padding=(0, air, 0, 0), header_style="dim")
        table.add_column("")
        for name in ("trial", "score"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        table.add_column("", no_wrap=True)
        for name in results["space"]:
            table.add_column(short[name].replace("_", " "), justify="right")
        table.add_column("steps", justify="right", no_wrap=True)
        ranked = ranking(results)
        for trial in ranked[:ROWS]:
            is_best = trial["number"] == results["best"]
            verdict = trial["verdict"] or ""
            table.add_row(
                "*" if is_best else "",
                str(trial["number"]),
                figure(trial["score"]),
                Text(verdict, style=STYLES.get(verdict, "")),
                "" if trial["state"] in ("finished", "broken") else trial["state"],
                *(value_text(trial["values"][name]) for name in results["space"]),
                f"{sum(run['steps'] for run in trial['runs']):,}",
                style="bold" if is_best else "",
            )
        self.console.print(table)
        if len(ranked) > ROWS:
            self._print(f"and {count(len(ranked) - ROWS, 'more trial')}", "dim")

    def _counts(self, results: Mapping[str, Any]) -> None:
        words = [_word(trial) for trial in results["trials"]]
        told = [f"{words.count(word)} {word}" for word in sorted(set(words), key=words.index)]
        self._print(f"{count(len(words), 'trial')}: {'; '.join(told)}", "dim")

    def _tendencies(self, results: Mapping[str, Any]) -> None:
        for name, one in results["tendencies"].items():
            if one["p_value"] < 0.05:
                way = "rises" if one["rank_correlation"] > 0 else "falls"
                self._print(
                    f"The score {way} with {name} (rank correlation {signed(one['rank_correlation'])} over {one['trials']} trials, "
                    f"{p_value(one['p_value'])})."
                )

    def _best(self, results: Mapping[str, Any], path: str) -> None:
        best = next((trial for trial in results["trials"] if trial["number"] == results["best"]), None)
        if best is None:
            self._print("No trial was proven, so none is called the best.", "yellow")
            return
        proof = [run["proof_score"] for run in best["runs"] if run["proof_score"] is not None]
        fresh = (
            f", {figure(sum(proof) / len(proof))} on the proof's seeds, which had no part in choosing it"
            if proof
            else ""
        )
        self._print(f"Best: trial {best['number']}, {results['metric']} {figure(best['score'])}{fresh}.", "bold")
        base = next((trial for trial in results["trials"] if trial["number"] == 0), None)
        if base is not None and base is not best and base["score"] is not None and results.get("base_is_first"):
            self._print(f"The settings that it began with (trial 0) scored {figure(base['score'])}.")
        place = shlex.quote(str(Path(path) / "best.toml"))
        self._print(
            "The best of many is partly luck. Train with its settings on another seed: "
            f"learnproof train --config {place} --seed {max(run['seed'] for run in best['runs']) + 1}"
        )

    def _print(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)


def ranking(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The trials in the order in which results.json ranks them."""
    by_number = {trial["number"]: trial for trial in results["trials"]}
    return [by_number[number] for number in results["ranking"]]


def short_names(names: Sequence[str]) -> dict[str, str]:
    """The last part of each dotted name, where that tells them apart."""
    leaves = [name.rsplit(".", 1)[-1] for name in names]
    return {name: leaf if leaves.count(leaf) == 1 else name for name, leaf in zip(names, leaves, strict=True)}


def value_text(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3g}"
        case list() | tuple():
            return "-".join(value_text(one) for one in value)
        case None:
            return "none"
    return printable(value, 40)


def _word(trial: Mapping[str, Any]) -> str:
    """One or two words of what became of it."""
    if trial["state"] in ("finished", "broken"):
        return str(trial["verdict"])
    return f"{trial['verdict']}, {trial['state']}" if trial["verdict"] else str(trial["state"])


def _form(form: Any) -> str:
    return form if isinstance(form, str) else " / ".join(value_text(one) for one in form)
