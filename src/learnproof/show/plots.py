"""learning_progress.png: six panels that say how the training went, the verdict in the title.

    weight change    entropy             loss
    gradient norm    episode returns     evaluations, or the environment's own metric

Evidence in, PNG bytes out; equal evidence gives equal bytes. Each panel shows the raw values faintly and a moving mean
over them, says so where nothing was recorded, and marks each step at which a value was not finite.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..evidence import Evidence, StageBegan, Update
from ..evidence.measured import count_updates, environment_of, optimizer_names
from ..runs.atomic import write_file
from .curves import curve, largest, metric_of, of_episodes, of_evaluations, of_updates, thinned
from .panel import COLOURS, Panel, Theme, drawable, style
from .phrasing import count, figure, number
from .verdict_reading import VerdictView, read_verdict

GRADIENT_LIMIT = 100.0
"""Above this norm a gradient counts as exploding."""


def draw_learning_progress(evidence: Evidence, verdict: Mapping[str, Any] | None, path: Path) -> bytes:
    """Write the picture, whole or not at all."""
    picture = learning_progress_png(evidence, verdict)
    write_file(path, picture)
    return picture


def learning_progress_png(evidence: Evidence, verdict: Mapping[str, Any] | None) -> bytes:
    colours = COLOURS
    with mpl.rc_context(style(colours)):
        sheet = Figure(figsize=(11.4, 6.8), dpi=130, facecolor=colours.paper)
        FigureCanvasAgg(sheet)
        view = read_verdict(verdict) if verdict is not None else None
        _title(sheet, evidence, view, colours)
        axes = sheet.subplots(2, 3)
        sheet.subplots_adjust(left=0.055, right=0.985, top=0.8, bottom=0.055, wspace=0.22, hspace=0.46)
        panels = [Panel(cell, colours) for cell in axes.flat]
        _weight_change(panels[0], evidence)
        _entropy(panels[1], evidence)
        _loss(panels[2], evidence)
        _gradient_norm(panels[3], evidence)
        _returns(panels[4], evidence)
        _metric(panels[5], evidence, view)
        _same_steps([panel for panel in panels if not panel.empty], evidence)
        picture = io.BytesIO()
        sheet.savefig(picture, format="png", facecolor=colours.paper, metadata={"Software": "learnproof"})
    return picture.getvalue()


def _weight_change(panel: Panel, evidence: Evidence) -> None:
    panel.name("Weight change", "distance from the starting weights")
    panel.line(of_updates(evidence, lambda update: update.weight_change), "", panel.colours.main, smooth=False)
    panel.finish()
    panel.start_at_zero()


def _entropy(panel: Panel, evidence: Evidence) -> None:
    panel.name("Entropy", "how undecided the policy is")
    if panel.line(of_updates(evidence, lambda update: update.entropy), "policy", panel.colours.main):
        top = number(evidence.run.max_entropy)
        panel.reference(top, f"uniform policy ({figure(top)})")
    panel.finish()
    if evidence.run.max_entropy is not None:
        panel.start_at_zero()


def _loss(panel: Panel, evidence: Evidence) -> None:
    if evidence.of_watcher:
        panel.name("Loss", "as the script computed it; a policy's loss may hover")
        _per_optimizer(panel, evidence, lambda update: update.loss)
        return
    panel.name("Loss", "value error should fall; the total may hover")
    panel.line(of_updates(evidence, lambda update: update.loss), "total", panel.colours.second)
    panel.line(of_updates(evidence, lambda update: update.value_loss), "value", panel.colours.main)
    panel.finish(may_be_logarithmic=True)


def _per_optimizer(panel: Panel, evidence: Evidence, value: Callable[[Update], Any]) -> None:
    """One line, or one for each of several optimizers: their losses have nothing in common."""
    names: dict[int | None, str] = dict(optimizer_names(evidence).items()) or {None: ""}
    colours = (panel.colours.main, panel.colours.second, panel.colours.faint)
    for (optimizer, name), colour in zip(names.items(), colours, strict=False):
        panel.line(of_updates(evidence, value, optimizer), drawable(name, 24), colour)
    panel.finish(may_be_logarithmic=True)


def _gradient_norm(panel: Panel, evidence: Evidence) -> None:
    if evidence.of_watcher:
        panel.name("Gradient norm", "as the optimizer was given it")
        _per_optimizer(panel, evidence, lambda update: update.grad_norm)
        return
    panel.name("Gradient norm", "before clipping, in each update")
    peaks = of_updates(evidence, lambda update: largest(update.grad_norm_max))
    panel.line(peaks, "largest", panel.colours.second)
    if panel.line(of_updates(evidence, lambda update: update.grad_norm), "mean", panel.colours.main):
        constants = evidence.run.constants if isinstance(evidence.run.constants, dict) else {}
        clipped = number(constants.get("max_grad_norm"))
        panel.reference(clipped, f"clipped at {figure(clipped)}", dash=":")
        if peaks.drawable and peaks.finite.max() > GRADIENT_LIMIT / 3:
            panel.reference(GRADIENT_LIMIT, "limit 100", panel.colours.mark)
    panel.finish(may_be_logarithmic=True)


def _returns(panel: Panel, evidence: Evidence) -> None:
    panel.name("Rewards", "return of each training episode")
    panel.line(of_episodes(evidence, lambda episode: episode.return_), "moving mean", panel.colours.main, scatter=True)
    panel.finish()


def _metric(panel: Panel, evidence: Evidence, view: VerdictView | None) -> None:
    metric = evidence.run.metric
    if evidence.of_watcher:
        panel.name("Episode length", "steps of each training episode")
        lengths = of_episodes(evidence, lambda episode: episode.length)
        panel.line(lengths, "moving mean", panel.colours.main, scatter=True)
        panel.finish()
        return
    if metric == "return":
        panel.name("Evaluations", "mean return on seeds kept apart from training")
    else:
        direction = "" if evidence.run.higher_is_better else ", lower is better"
        panel.name(drawable(metric, 40), f"the environment's own metric{direction}")
        episodes = of_episodes(evidence, lambda episode: metric_of(episode, metric))
        panel.line(episodes, "training episodes", panel.colours.faint, scatter=True)
    for mode, colour in (("sampled", panel.colours.second), ("deterministic", panel.colours.main)):
        scores = of_evaluations(evidence, attrgetter(mode))
        if scores.drawable:
            shown = thinned(scores, 200)
            panel.values.append(scores.finite)
            panel.axes.plot(shown.x, shown.y, "o-", color=colour, markersize=4, linewidth=1.6, label=f"{mode} policy")
    if view is not None and view.performance is not None:
        for comparison, dash in zip(view.performance.comparisons, ("--", ":"), strict=True):
            name = "untrained" if comparison.against == "initial" else comparison.against
            panel.reference(comparison.score, f"{name} ({figure(comparison.score)})", dash=dash)
    panel.finish()


def _title(sheet: Figure, evidence: Evidence, view: VerdictView | None, colours: Theme) -> None:
    run = evidence.run
    name = drawable(environment_of(evidence), 60)
    sheet.text(0.02, 0.955, name, fontsize=16, fontweight="bold", color=colours.ink, va="center")
    learnt = "watched" if evidence.of_watcher else f"{drawable(run.algorithm, 20)} · seed {drawable(run.seed, 20)}"
    counts = f"{count(count_updates(evidence), 'update')} · {count(len(evidence.episodes), 'episode')}"
    faults = " · red line: a fault" if evidence.faults else ""
    stages = " · dotted line: a stage of the curriculum" if len(evidence.of(StageBegan)) > 1 else ""
    sheet.text(0.02, 0.915, f"{learnt} · {counts}{faults}{stages}", fontsize=10, color=colours.faint, va="center")
    verdict = drawable(view.verdict, 20) if view is not None else "not judged yet"
    colour = colours.verdicts.get(verdict, colours.faint)
    sheet.text(
        0.98,
        0.945,
        verdict.upper(),
        fontsize=14,
        fontweight="bold",
        color=colours.paper,
        ha="right",
        va="center",
        bbox={"boxstyle": "round,pad=0.45", "facecolor": colour, "edgecolor": "none"},
    )


def _same_steps(panels: list[Panel], evidence: Evidence) -> None:
    """One axis of steps for all panels, so that what happened at once stands at one place."""
    for panel in panels:
        for step in curve((fault.step, 0) for fault in evidence.faults[:20]).x:
            panel.axes.axvline(step, color=panel.colours.mark, linewidth=1)
        for step in curve((stage.step, 0) for stage in evidence.of(StageBegan)[1:21]).x:
            panel.axes.axvline(step, color=panel.colours.faint, linewidth=1, linestyle=":")
    steps = np.concatenate([panel.axes.dataLim.intervalx for panel in panels] or [[]])
    steps = steps[np.isfinite(steps)]
    low, high = (steps.min(), steps.max()) if len(steps) else (0.0, 1.0)
    air = 0.03 * (high - low) or 1.0
    for panel in panels:
        panel.axes.set_xlim(low - air, high + air)
        panel.axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        panel.axes.xaxis.set_major_formatter(FuncFormatter(_steps))


def _steps(value: float, _: int | None) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
