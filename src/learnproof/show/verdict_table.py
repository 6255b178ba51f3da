"""Prints a verdict: `print_verdict(verdict, folder=run)`. Takes the dict of verdict.json; decides nothing.

In the order in which people ask: learnt or not, and why; by how much; what is wrong, where, and what to do about it;
what is missing; what was looked at; where the whole report is. Plain text where the output is no terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .phrasing import figure, interval, p_value, percent, printable, signed, whole
from .terminal import Glyphs, glyphs_for, open_console
from .verdict_reading import CHECKLIST, Finding, VerdictView, read_verdict

WIDEST = 100
HEADLINE_STYLES = {"proven": "bold white on green", "broken": "bold white on red", "unproven": "bold black on yellow"}
POLICIES = {"initial": "untrained", "random": "random"}


def print_verdict(
    verdict: Mapping[str, Any], *, title: str = "", folder: Path | None = None, console: Console | None = None
) -> None:
    """`folder` is the run's; where it holds a report and verdict.json, their places are printed."""
    console = console if console is not None else open_console()
    sheet = Sheet(read_verdict(verdict), console)
    sheet.headline(title)
    sheet.performance()
    sheet.findings()
    sheet.missing()
    sheet.waived()
    sheet.controls()
    sheet.mechanism()
    sheet.checklist()
    sheet.places(folder)


class Sheet:
    """One printed verdict; each method prints one part, or nothing where there is nothing to say."""

    def __init__(self, view: VerdictView, console: Console) -> None:
        self.view = view
        self.console = console
        self.width = min(console.width, WIDEST)
        self.glyphs = glyphs_for(console)

    def headline(self, title: str) -> None:
        line = Text(f" {self.view.verdict.upper()} ", style=HEADLINE_STYLES.get(self.view.verdict, "bold reverse"))
        if title:
            line.append(f"  {printable(title, 200)}", style="not bold default on default")
        self._print(Text())
        self._print(line)
        self._print(Text(self.view.why))

    def performance(self) -> None:
        performance = self.view.performance
        if performance is None:
            return
        how = [f"{whole(performance.episodes)} fresh episodes"] if performance.episodes is not None else []
        how += [f"{performance.mode} policy"] if performance.mode else []
        how += ["lower is better"] if performance.lower_is_better else []
        self._heading("Performance", f"{performance.metric}{', ' if how else ''}{', '.join(how)}")
        table = self._grid(4)
        for comparison in reversed(performance.comparisons):
            table.add_row(f"{POLICIES[comparison.against]} policy", figure(comparison.score), "", "")
        table.add_row(Text("trained policy", style="bold"), Text(figure(performance.trained), style="bold"), "", "")
        level = f"{percent(performance.confidence)} " if performance.confidence is not None else ""
        for comparison in performance.comparisons:
            if comparison.lead is None:
                continue
            bounds = (
                f"{level}interval {interval(comparison.low, comparison.high)}" if comparison.low is not None else ""
            )
            chance = p_value(comparison.p_value) if comparison.p_value is not None else ""
            table.add_row(f"lead over {POLICIES[comparison.against]}", signed(comparison.lead), bounds, chance)
        self._indented(table)

    def findings(self) -> None:
        view = self.view
        if not view.findings:
            return
        counts = [
            f"{len(found)} {word}"
            for word, found in (
                ("failed", view.with_status("fail")),
                ("waived", view.with_status("waived")),
                ("undecided", view.with_status("undecided")),
                ("passed", view.with_status("pass")),
            )
            if found
        ]
        self._heading("Checks", ", ".join(counts))
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=28)
        table.add_column()
        for finding in view.with_status("fail", "waived", "undecided", "pass"):
            sign, style = _sign(finding, self.glyphs)
            table.add_row(Text(sign, style=style), Text(finding.check, style=style), _body(finding))
        self._indented(table)
        if skipped := view.with_status("not_applicable"):
            names = ", ".join(finding.check for finding in skipped)
            text = Text(f"{self.glyphs.skipped} did not apply here: {names}", style="dim")
            self._indented(text)

    def missing(self) -> None:
        if self.view.missing:
            self._heading("Still missing", "what stands between this run and a proof")
            for sentence in self.view.missing:
                self._bullet(sentence)

    def waived(self) -> None:
        if self.view.waived:
            self._heading("Waived", "findings that are meant, with the reason given")
            for check, reason in self.view.waived:
                self._bullet(f"{check}: {reason}")

    def controls(self) -> None:
        if self.view.controls:
            self._heading("Controls", "the same run with learning made impossible")
            for name, summary in self.view.controls:
                self._bullet(f"{name}: {summary}")

    def mechanism(self) -> None:
        mechanism = self.view.mechanism
        if mechanism.updates_inspected is None and not mechanism.passed:
            return
        self._heading("Mechanism", "does an update do what it should?")
        names = f": {', '.join(mechanism.passed)}" if mechanism.passed else ""
        looked = f"{whole(mechanism.updates_inspected)} of {whole(mechanism.updates)} updates inspected"
        self._indented(Text(f"{len(mechanism.passed)} passed{names}; {looked}."))

    def checklist(self) -> None:
        if all(holds is None for _, holds in self.view.checklist):
            return
        missed = any(holds is False for _, holds in self.view.checklist)
        caution = f"; {self.glyphs.failed} can also mean too few records" if missed else ""
        self._heading("Checklist", f"the five classic rules{caution}")
        table = Table.grid(padding=(0, 1))
        for name, holds in self.view.checklist:
            sign = {True: self.glyphs.passed, False: self.glyphs.failed, None: self.glyphs.unknown}[holds]
            style = {True: "green", False: "yellow", None: "dim"}[holds]
            table.add_row(Text(sign, style=style), Text(name), Text(CHECKLIST[name], style="dim"))
        self._indented(table)

    def places(self, folder: Path | None) -> None:
        view = self.view
        self._print(Text())
        if view.error_rate is not None and view.accusation_rate is not None:
            rates = f"Chance of a false proof: at most {percent(view.error_rate)}"
            rates += f"; of a false accusation: at most {percent(view.accusation_rate)}."
            self._print(Text(rates, style="dim"))
        for label, name in (("report ", "report.html"), ("verdict", "verdict.json")):
            if folder is not None and (folder / name).exists():
                self.console.print(Text(f"{label}  {folder / name}"), soft_wrap=True)

    def _heading(self, name: str, remark: str) -> None:
        self._print(Text())
        line = Text(name, style="bold")
        if remark:
            line.append(f"  {remark}", style="not bold dim")
        self._print(line)

    def _bullet(self, text: str) -> None:
        row = Table.grid(padding=(0, 1))
        row.add_row(self.glyphs.joint, Text(text))
        self._indented(row)

    def _grid(self, columns: int) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        for _ in range(columns - 2):
            table.add_column()
        return table

    def _indented(self, what: RenderableType) -> None:
        self._print(Padding(what, (0, 0, 0, 2), expand=False))

    def _print(self, what: RenderableType) -> None:
        self.console.print(what, width=self.width)


def _body(finding: Finding) -> Text:
    """The summary; for what failed also where, why and what to do, in full; for what is undecided what to do."""
    text = Text(finding.summary)
    parts = {
        "fail": (("where", finding.where), ("cause", finding.cause), ("advice", finding.advice)),
        "undecided": (("advice", finding.advice),),
    }
    for label, value in parts.get(finding.status, ()):
        if value:
            text.append(f"\n{label}: ", style="bold")
            text.append(value)
    return text


def _sign(finding: Finding, glyphs: Glyphs) -> tuple[str, str]:
    return {
        "fail": (glyphs.failed, "bold red"),
        "waived": (glyphs.skipped, "yellow"),
        "undecided": (glyphs.unknown, "dim"),
        "pass": (glyphs.passed, "green"),
    }[finding.status]
