"""sweep.png: the scores of a sweep's trials one after the other, their evaluations over steps, and the score against each setting.

The form of a mark says what became of a trial, its colour what was proven: a filled dot is proven, a hollow diamond is not; a small
hollow triangle was given up early; a cross at the foot is broken or failed and has no score that counts. results.json in, PNG
bytes out; equal results give equal bytes.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from .panel import COLOURS, Theme, drawable, style
from .phrasing import count, figure, p_value, signed
from .sweep_sheet import short_names, value_text

COLUMNS = 3


@dataclass(frozen=True)
class Mark:
    label: str
    shape: str
    colour: str
    filled: bool
    size: float
    at_foot: bool = False


def marks(colours: Theme) -> dict[str, Mark]:
    proven, unproven, broken = (colours.verdicts[name] for name in ("proven", "unproven", "broken"))
    return {
        "proven": Mark("proven", "o", proven, True, 7),
        "unproven": Mark("unproven", "D", unproven, False, 6.5),
        "pruned": Mark("given up early, unproven", "v", unproven, False, 6),
        "pruned proven": Mark("given up early, proven", "v", proven, False, 6),
        "paused": Mark("paused", "s", colours.main, False, 6),
        "broken": Mark("broken", "X", broken, True, 8, at_foot=True),
        "failed": Mark("failed", "x", broken, False, 7, at_foot=True),
    }


def outcome(trial: Mapping[str, Any]) -> str:
    if trial["state"] == "finished":
        return "proven" if trial["verdict"] == "proven" else "unproven"
    return "pruned proven" if (trial["state"], trial["verdict"]) == ("pruned", "proven") else str(trial["state"])


def sweep_png(results: Mapping[str, Any]) -> bytes:
    names = list(results["space"])
    rows = 1 + math.ceil(len(names) / COLUMNS)
    height = 1.2 + 2.75 * rows
    with mpl.rc_context(style(COLOURS)):
        sheet = Figure(figsize=(11.4, height), dpi=130, facecolor=COLOURS.paper)
        FigureCanvasAgg(sheet)
        _title(sheet, results, height)
        grid = sheet.add_gridspec(
            rows,
            2 * COLUMNS,
            left=0.06,
            right=0.985,
            top=1 - 1.5 / height,
            bottom=0.42 / height,
            wspace=0.62,
            hspace=0.55,
        )
        _over_trials(sheet.add_subplot(grid[0, :COLUMNS]), results)
        _over_steps(sheet.add_subplot(grid[0, COLUMNS:]), results)
        for position, name in enumerate(names):
            row, column = divmod(position, COLUMNS)
            axes = sheet.add_subplot(grid[1 + row, 2 * column : 2 * column + 2])
            _against(axes, results, name, short_names(names)[name])
        picture = io.BytesIO()
        sheet.savefig(picture, format="png", facecolor=COLOURS.paper, metadata={"Software": "learnproof"})
    return picture.getvalue()


def _title(sheet: Figure, results: Mapping[str, Any], height: float) -> None:
    trials = results["trials"]
    sheet.text(
        0.02, 1 - 0.26 / height, drawable(results["environment"], 60), fontsize=16, fontweight="bold", va="center"
    )
    best = "none proven yet" if results["best"] is None else f"best: trial {results['best']}"
    seeds = f" · {results['seeds']} seeds each" if results["seeds"] > 1 else ""
    line = f"{results['algorithm']} · {count(len(trials), 'trial')} of {results['steps']:,} steps{seeds} · {best}"
    sheet.text(0.02, 1 - 0.55 / height, drawable(line, 150), fontsize=10, color=COLOURS.faint, va="center")
    known = marks(COLOURS)
    used = [known[name] for name in known if any(outcome(trial) == name for trial in trials)]
    handles = [Line2D([], [], linestyle="", **_look(mark)) for mark in used]
    if handles:
        sheet.legend(
            handles,
            [mark.label for mark in used],
            loc="center left",
            bbox_to_anchor=(0.01, 1 - 0.85 / height),
            ncol=len(used),
            frameon=False,
            fontsize=9.5,
            labelcolor=COLOURS.ink,
            handletextpad=0.3,
            columnspacing=1.4,
        )


def _over_trials(axes: Any, results: Mapping[str, Any]) -> None:
    _name(axes, "Trials, one after the other", f"score: {drawable(results['metric'], 30)}; line: best proven so far")
    points = [(float(trial["number"]), trial) for trial in results["trials"]]
    best, steps = -np.inf, []
    for number, trial in points:
        if outcome(trial) == "proven" and trial["score"] is not None and trial["score"] > best:
            best = trial["score"]
        steps.append((number, best if np.isfinite(best) else np.nan))
    if any(np.isfinite(y) for _, y in steps):
        axes.step(*zip(*steps, strict=True), where="post", color=COLOURS.verdicts["proven"], linewidth=1.4, alpha=0.6)
    _scatter(axes, points, results)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))


def _over_steps(axes: Any, results: Mapping[str, Any]) -> None:
    _name(axes, "Evaluations over steps", "one line for each run; the best trial is drawn boldly")
    known = marks(COLOURS)
    drawn = False
    for trial in sorted(results["trials"], key=lambda trial: trial["number"] == results["best"]):
        mark, is_best = known[outcome(trial)], trial["number"] == results["best"]
        for run in trial["runs"]:
            points = [(step, score) for step, score in run["evaluations"] if np.isfinite(score)]
            if not points:
                continue
            drawn = True
            x, y = zip(*points, strict=True)
            axes.plot(x, y, color=mark.colour, linewidth=2.4 if is_best else 1.1, alpha=1.0 if is_best else 0.5)
            if outcome(trial) != "proven":
                axes.plot(x[-1:], y[-1:], linestyle="", **{**_look(mark), "markersize": 0.7 * mark.size})
    if not drawn:
        _nothing(axes)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:g}k" if value else "0"))


def _against(axes: Any, results: Mapping[str, Any], name: str, short: str) -> None:
    tendency = results["tendencies"].get(name)
    told = "too few finished trials for a tendency"
    if tendency is not None:
        told = f"rank correlation {signed(tendency['rank_correlation'])}, {p_value(tendency['p_value'])}"
    scale = results["scales"][name]
    form = results["space"][name]
    labels: list[str] = []
    if scale == "choices":
        labels = [value_text(None if value == "none" else value) for value in form]
        told = told if tendency is not None else "choices"
    _name(axes, drawable(short, 34), told)
    points = []
    for trial in results["trials"]:
        value = trial["values"][name]
        points.append((float(labels.index(value_text(value))) if labels else float(value), trial))
    _scatter(axes, points, results)
    if labels:
        axes.set_xlim(-0.5, len(labels) - 0.5)
        axes.set_xticks(range(len(labels)), [drawable(label, 16) for label in labels])
        axes.grid(False, axis="x")
        return
    low, high = (float(end) for end in str(form).partition(":")[0].split(".."))
    if scale == "linear":
        air = 0.04 * (high - low)
        axes.set_xlim(low - air, high + air)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        return
    air = (high / low) ** 0.05
    axes.set_xscale("log")
    axes.set_xlim(low / air, high * air)
    ticks = [low * 2**k for k in range(round(math.log2(high / low)) + 1)] if scale == "doubling" else _ticks(low, high)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: figure(value)))


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten; of a wide range its powers alone."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low <= 30 else (1,)
    ticks = [f * 10.0**p for p in powers for f in factors]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


def _scatter(axes: Any, points: Sequence[tuple[float, Mapping[str, Any]]], results: Mapping[str, Any]) -> None:
    """The scores; below them those trials that have none. The best is ringed."""
    for kind, mark in marks(COLOURS).items():
        own = [(x, trial["score"]) for x, trial in points if outcome(trial) == kind]
        scored = [(x, score) for x, score in own if score is not None]
        foot = [x for x, score in own if score is None]
        if scored:
            axes.plot(*zip(*scored, strict=True), linestyle="", zorder=3, **_look(mark))
        if foot:
            low = np.full(len(foot), 0.04)
            axes.plot(foot, low, transform=axes.get_xaxis_transform(), clip_on=False, linestyle="", **_look(mark))
    for x, trial in points:
        if trial["number"] == results["best"]:
            ring = {"markerfacecolor": "none", "markeredgecolor": COLOURS.ink, "markeredgewidth": 1.4}
            axes.plot([x], [trial["score"]], "o", markersize=12, zorder=4, **ring)
    if all(trial["score"] is None for _, trial in points):
        _nothing(axes)
    axes.margins(y=0.12)


def _look(mark: Mark) -> dict[str, Any]:
    return {
        "marker": mark.shape,
        "markersize": mark.size,
        "markerfacecolor": mark.colour if mark.filled else "none",
        "markeredgecolor": mark.colour,
        "markeredgewidth": 0 if mark.filled else 1.5,
    }


def _name(axes: Any, title: str, subtitle: str) -> None:
    axes.set_title(title, loc="left", y=1.0, pad=20, fontweight="bold", fontsize=11.5, color=COLOURS.ink)
    axes.text(0, 1.03, subtitle, transform=axes.transAxes, fontsize=9, color=COLOURS.faint, va="bottom")


def _nothing(axes: Any) -> None:
    axes.set_yticks([])
    axes.text(0.5, 0.5, "no score yet", transform=axes.transAxes, ha="center", va="center", color=COLOURS.faint)
