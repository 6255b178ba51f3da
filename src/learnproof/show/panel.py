"""One panel of a picture, and the look of all of them: their colours, raw values faint, their mean strong.

matplotlib is used through its objects, without pyplot; `style` gives every default of matplotlib and our few changes to
them, so that a picture looks the same whatever the user's own matplotlibrc says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import FuncFormatter, NullLocator

from .curves import LARGEST_DRAWN, Curve, smoothed, thinned
from .phrasing import figure, printable

Array = np.ndarray[Any, Any]
POINTS_DRAWN = 2_000


@dataclass(frozen=True)
class Theme:
    """Colours, told apart by people who see few of them."""

    paper: str
    ink: str
    faint: str
    rule: str
    main: str
    second: str
    mark: str
    verdicts: Mapping[str, str]


COLOURS = Theme(
    paper="#ffffff",
    ink="#1d2733",
    faint="#66717f",
    rule="#e3e7ec",
    main="#2563b0",
    second="#d9762b",
    mark="#c0322b",
    verdicts={"proven": "#16794a", "broken": "#c0322b", "unproven": "#9a6700"},
)


FLAT = 1e-5
"""Range of a curve, as a share of its size, below which it does not move."""


class Panel:
    """One question, one pair of axes."""

    def __init__(self, axes: Any, colours: Theme) -> None:
        self.axes = axes
        self.colours = colours
        self.empty = False
        self.values: list[Array] = []
        self._spoilt = 0

    def name(self, title: str, subtitle: str) -> None:
        self.axes.set_title(title, loc="left", y=1.0, pad=20, fontweight="bold", fontsize=11.5, color=self.colours.ink)
        self.axes.text(
            0, 1.03, subtitle, transform=self.axes.transAxes, fontsize=9, color=self.colours.faint, va="bottom"
        )

    def line(self, source: Curve, label: str, colour: str, *, scatter: bool = False, smooth: bool = True) -> bool:
        """Raw values faintly, their moving mean over them. False where there is nothing to draw."""
        if len(source.spoilt):
            self._mark_spoilt(source)
        if not source.drawable:
            return False
        self.values.append(source.finite)
        raw = thinned(source, POINTS_DRAWN)
        calm = thinned(smoothed(source), POINTS_DRAWN) if smooth else raw
        few = len(source.y) < 20
        if scatter and not few:
            self.axes.plot(raw.x, raw.y, ".", color=colour, alpha=0.22, markersize=3, markeredgewidth=0)
        else:
            self.axes.plot(raw.x, raw.y, "-", color=colour, alpha=0.9 if few else 0.25, linewidth=1)
        if few:
            self.axes.plot(raw.x, raw.y, "o", color=colour, markersize=4, label=label)
        else:
            self.axes.plot(calm.x, calm.y, "-", color=colour, linewidth=2, label=label)
        return True

    def reference(self, value: float | None, label: str, colour: str | None = None, dash: str = "--") -> None:
        if value is not None and np.isfinite(value) and abs(value) <= LARGEST_DRAWN:
            self.values.append(np.array([value]))
            self.axes.axhline(value, color=colour or self.colours.faint, linestyle=dash, linewidth=1.1, label=label)

    def finish(self, *, may_be_logarithmic: bool = False) -> None:
        if not self.values:
            return self._say_nothing()
        values = np.concatenate(self.values)
        if np.ptp(values) <= FLAT * max(1e-30, float(np.abs(values).max())):
            # Without limits of our own, rounding errors would fill the panel, and its labels have ten digits.
            middle = float(values.mean())
            reach = 0.1 * abs(middle) or 1.0
            self.axes.set_ylim(middle - reach, middle + reach)
        elif may_be_logarithmic and values.min() > 0 and values.max() / values.min() > 100:
            self.axes.set_yscale("log")
        elif may_be_logarithmic and np.abs(values).max() > 200 * (typical := float(np.median(np.abs(values)))) > 0:
            self.axes.set_yscale("symlog", linthresh=typical)
        if self.axes.get_yscale() != "linear":
            self.axes.yaxis.set_minor_locator(NullLocator())  # they are not shown, and take as long as all else
            self.axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: figure(value)))
        if self._spoilt:
            label = f"not finite ({self._spoilt:,})"
            self.axes.plot([], [], "x", color=self.colours.mark, markersize=5, label=label)
        _, labels = self.axes.get_legend_handles_labels()
        if labels:
            self.axes.legend(loc="best", frameon=False, fontsize=8.5, labelcolor=self.colours.faint, handlelength=1.6)

    def start_at_zero(self) -> None:
        """For what cannot be negative: a small change then looks small."""
        if self.values and min(values.min() for values in self.values) >= 0:
            _, high = self.axes.get_ylim()
            self.axes.set_ylim(-0.03 * high, 1.02 * high)

    def _mark_spoilt(self, source: Curve) -> None:
        self._spoilt += len(source.spoilt)
        steps = source.spoilt[:: max(1, len(source.spoilt) // 100)]
        self.axes.plot(
            steps,
            np.full(len(steps), 0.03),
            "x",
            transform=self.axes.get_xaxis_transform(),
            color=self.colours.mark,
            markersize=5,
        )

    def _say_nothing(self) -> None:
        marked = bool(self.axes.lines)
        self.empty = not marked
        self.axes.set_yticks([])
        if not marked:
            self.axes.set_xticks([])
        text = "no finite value" if marked else "not recorded"
        self.axes.text(
            0.5, 0.5, text, transform=self.axes.transAxes, ha="center", va="center", color=self.colours.faint
        )


def drawable(value: Any, limit: int) -> str:
    """Text that the built-in font has signs for."""
    return printable(value, limit).encode("latin-1", "replace").decode("latin-1")


def style(colours: Theme) -> dict[str, Any]:
    """Every default of matplotlib, whatever the user's own file says, and our few changes to them."""
    defaults = {name: value for name, value in mpl.rcParamsDefault.items() if not name.startswith("backend")}
    return {
        **defaults,
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "text.parse_math": False,
        "text.color": colours.ink,
        "axes.facecolor": colours.paper,
        "axes.edgecolor": colours.rule,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.formatter.limits": (-4, 6),
        "axes.formatter.useoffset": False,
        "grid.color": colours.rule,
        "grid.linewidth": 0.8,
        "xtick.color": colours.faint,
        "ytick.color": colours.faint,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "ytick.minor.size": 0,
    }
