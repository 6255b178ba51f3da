"""Prints what was exported and how closely it was checked. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .phrasing import count, printable
from .terminal import open_console


def print_export(report: Mapping[str, Any], console: Console | None = None) -> None:
    console = console if console is not None else open_console()
    size = f"{report['bytes'] / 1000:,.0f} kB"
    console.print(Text(f"{printable(report['path'])}  {size}", style="bold"), soft_wrap=True)
    verdict = report["verdict"] or "not judged"
    console.print(
        Text(
            f"{report['algorithm']} on {printable(report['environment'], 120)}, best policy at step {report['step']:,}; its run "
            f"is {verdict}"
        )
    )
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
    table.add_column(style="dim")
    table.add_column()
    for kind in ("input", "output"):
        for one in report[f"{kind}s"]:
            table.add_row(kind, printable(one, 200))
    console.print(table)
    for what, found in (
        (f"observations of {printable(report['environment'], 120)}", report["met"]),
        ("random observations", report["random"]),
    ):
        ties = f", {count(found['ties'], 'tie')}" if found["ties"] else ""
        console.print(
            Text(
                f"{found['observations']:,} {what}: actions differ by at most {found['largest_action_difference']:.2g}, all "
                f"outputs by at most {found['largest_difference']:.2g}{ties}"
            )
        )
