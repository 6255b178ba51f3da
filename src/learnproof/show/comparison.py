"""Prints a comparison of runs: the standings, the duels, and what to keep in mind. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .phrasing import figure, percent, printable
from .terminal import open_console


def print_comparison(comparison: Mapping[str, Any], console: Console | None = None) -> None:
    console = console if console is not None else open_console()
    names = _short_names([row["group"] for row in comparison["final"]])
    where = comparison["environment"]
    console.print(Text(f"\n{printable(where, 120) or 'Runs'}", style="bold"))
    whole = {row["group"]: row for row in comparison["whole"]}
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("")
    table.add_column("runs", justify="right")
    table.add_column(f"return, last {percent(comparison['last'])} of the steps")
    table.add_column("over all steps")
    for row in comparison["final"]:
        table.add_row(names[row["group"]], str(row["runs"]), _mean(row), _mean(whole[row["group"]]))
    console.print(table)
    console.print(Text("Interquartile means over runs, with 95 % bootstrap intervals.", style="dim"))
    for duel in comparison["duels"]:
        console.print(Text(_duel(duel, names)))
    for note in comparison["notes"]:
        console.print(Text(f"Note: {printable(_shortened(note, names), 600)}", style="yellow"))


def _mean(row: Mapping[str, Any]) -> str:
    if row["low"] is None:
        return figure(row["iqm"])
    return f"{figure(row['iqm'])}  ({figure(row['low'])} to {figure(row['high'])})"


def _duel(duel: Mapping[str, Any], names: Mapping[str, str]) -> str:
    first, second, chance = names[duel["first"]], names[duel["second"]], duel["probability"]
    low, high = duel["low"], duel["high"]
    if chance < 0.5:
        first, second, chance = second, first, 1 - chance
        low, high = (None, None) if low is None or high is None else (1 - high, 1 - low)
    if low is None or high is None:
        return f"Of one run each, that of {first} is ahead of that of {second}; how often it would be takes more runs to tell."
    words = f"A run of {first} beats one of {second} with probability {percent(chance)}"
    sure = "better" if low > 0.5 else "not decided: the interval holds 50 %"
    return f"{words} ({percent(low)} to {percent(high)}): {sure}."


def _short_names(groups: list[str]) -> dict[str, str]:
    """The last part of each path, or as many parts as it takes to tell them apart."""
    for parts in range(1, 6):
        short = {group: str(PurePath(*PurePath(group).parts[-parts:])) for group in groups}
        if len(set(short.values())) == len(groups):
            return {group: printable(name, 60) for group, name in short.items()}
    return {group: printable(group, 200) for group in groups}


def _shortened(note: str, names: Mapping[str, str]) -> str:
    for group, short in sorted(names.items(), key=lambda pair: -len(pair[0])):
        note = note.replace(group, short)
    return note
