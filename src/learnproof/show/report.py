"""report.html: one file that holds everything about a run and needs nothing to be opened.

Evidence, verdict and settings in; a page without scripts and without references out: its styles and pictures are inside
it, and its own content policy forbids the browser to load anything else. Every text in it is escaped by the template
(autoescape) and has passed `printable`: evidence and verdicts may be a stranger's. Equal inputs give equal bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from ..evidence import Evidence, StageBegan
from ..evidence.measured import count_updates, environment_of, measured_updates
from ..runs.atomic import write_file
from ..runs.folder import RunFolder
from .curves import curve, mean, module_names, of_module
from .phrasing import count, figure, interval, number, p_value, percent, printable, signed, whole
from .plots import draw_learning_progress, learning_progress_png
from .small_charts import curve_chart, performance_chart
from .verdict_reading import CHECKLIST, STATUS_WORDS, read_verdict, shown

REPORT_NAME = "report.html"
MODULES_SHOWN = 24
EVALUATIONS_SHOWN = 400
EPISODES_COMPARED = 100
MAX_SETTINGS_CHARACTERS = 50_000

MEANINGS = {
    "proven": (
        "Two things were established. First, the trained policy beats the policy this run started with and a random "
        "one, on the same fresh seeds. Second, the updates that changed it were inspected and did what a right update "
        "does. Luck alone can give the first; only learning gives both."
    ),
    "broken": (
        "At least one check found a defect in how this run trains. The scores below may look fine all the same: a "
        "defect counts even where the return rises. Start with the first failed check; the others often follow from it."
    ),
    "unproven": (
        "Nothing is wrong that could be seen, and nothing is proven either. This is not a bad mark: it says which "
        "evidence is still missing, and how much more of it would settle the question."
    ),
}
POLICIES = {"initial": "untrained policy", "random": "random policy"}


@dataclass(frozen=True)
class EvaluationRow:
    step: str
    deterministic: str
    sampled: str
    best: bool


@dataclass(frozen=True)
class EpisodeSummary:
    """Training episodes, first against last."""

    count: int
    compared: int
    first: str
    last: str
    highest: str
    length_first: str
    length_last: str
    ended_by_time_limit: str


@dataclass(frozen=True)
class ModuleCard:
    name: str
    numbers: str
    weight_change: Markup
    gradient_norm: Markup


def show_run(folder: RunFolder, evidence: Evidence, verdict: Mapping[str, Any]) -> None:
    """Write learning_progress.png and report.html into the run's folder."""
    picture = draw_learning_progress(evidence, verdict, folder.picture)
    write_report(folder.path, evidence, verdict, folder.read_about(), folder.read_config(), picture)


def write_report(
    folder_path: Path,
    evidence: Evidence,
    verdict: Mapping[str, Any],
    about: Mapping[str, Any] | None,
    config_toml: str | None,
    picture: bytes | None = None,
) -> Path:
    """Write report.html into the run's folder, whole or not at all."""
    path = folder_path / REPORT_NAME
    page = render_report(evidence, verdict, about, config_toml, picture)
    write_file(path, page.encode("utf-8", "replace"))
    return path


def render_report(
    evidence: Evidence,
    verdict: Mapping[str, Any],
    about: Mapping[str, Any] | None,
    config_toml: str | None,
    picture: bytes | None = None,
) -> str:
    """The page; `picture` is the six-panel picture where it is already drawn."""
    view = read_verdict(verdict)
    run = evidence.run
    modules = module_names(evidence)
    return _template().render(
        view=view,
        verdict_class=view.verdict if view.verdict in MEANINGS else "unknown",
        meaning=MEANINGS.get(view.verdict, "") if view.by_comparison or view.verdict != "proven" else "",
        title=printable(environment_of(evidence), 120),
        subtitle=_subtitle(evidence),
        performance_chart=performance_chart(view.performance) if view.performance else None,
        policies=POLICIES,
        checklist_questions=CHECKLIST,
        status_words=STATUS_WORDS,
        picture=_data_uri(picture or learning_progress_png(evidence, verdict)),
        modules=[_module_card(evidence, name) for name in modules[:MODULES_SHOWN]],
        modules_left_out=max(0, len(modules) - MODULES_SHOWN),
        evaluations=_evaluation_rows(evidence),
        evaluations_count=count(len(evidence.evaluations), "evaluation"),
        episodes=_episode_summary(evidence),
        happenings=_happenings(evidence),
        about=_flat(about or {}),
        constants=_flat(run.constants if isinstance(run.constants, Mapping) else {}),
        config_toml=_settings(config_toml),
    )


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("learnproof.show", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"figure": figure, "signed": signed, "whole": whole, "percent": percent, "p_value": p_value}
    environment.filters.update(filters)
    environment.globals["interval"] = interval
    return environment.get_template("report.html")


def _subtitle(evidence: Evidence) -> str:
    run = evidence.run
    parts = ["watched"] if evidence.of_watcher else [printable(run.algorithm, 40), f"seed {printable(run.seed, 40)}"]
    steps = [number(update.step) for update in measured_updates(evidence)[-1:]]
    steps += [number(episode.step) for episode in evidence.episodes[-1:]]
    parts.append(f"{whole(max((step for step in steps if step is not None), default=0))} steps")
    parts.append(count(count_updates(evidence), "update"))
    parts.append(count(len(evidence.episodes), "training episode"))
    return " · ".join(parts)


def _module_card(evidence: Evidence, name: str) -> ModuleCard:
    parameters = evidence.run.parameters if isinstance(evidence.run.parameters, Mapping) else {}
    sizes = [number(size) or 0.0 for key, size in parameters.items() if str(key).split(".")[0] == name]
    return ModuleCard(
        name=printable(name, 80),
        numbers=f"{whole(sum(sizes))} numbers in {count(len(sizes), 'tensor')}" if sizes else "",
        weight_change=curve_chart(
            of_module(evidence, name, "weight_change"), f"weight change of {printable(name, 80)}"
        ),
        gradient_norm=curve_chart(of_module(evidence, name, "grad_norm"), f"gradient norm of {printable(name, 80)}"),
    )


def _evaluation_rows(evidence: Evidence) -> list[EvaluationRow]:
    return [
        EvaluationRow(
            step=whole(evaluation.step),
            deterministic=figure(mean(evaluation.deterministic)),
            sampled=figure(mean(evaluation.sampled)),
            best=evaluation.best is True,
        )
        for evaluation in evidence.evaluations[-EVALUATIONS_SHOWN:]
    ]


def _episode_summary(evidence: Evidence) -> EpisodeSummary | None:
    """Of a curriculum, the last stage's: those of earlier ones are of easier tasks."""
    episodes = evidence.comparable_episodes
    if not episodes:
        return None
    returns = curve((episode.step, episode.return_) for episode in episodes)
    lengths = curve((episode.step, episode.length) for episode in episodes)
    compared = min(EPISODES_COMPARED, max(1, len(returns.y) // 2))
    cut = sum(episode.terminated is False for episode in episodes)
    return EpisodeSummary(
        count=len(episodes),
        compared=compared,
        first=_mean(returns.y[:compared]),
        last=_mean(returns.y[-compared:]),
        highest=figure(returns.finite.max()) if returns.drawable else figure(None),
        length_first=_mean(lengths.y[:compared]),
        length_last=_mean(lengths.y[-compared:]),
        ended_by_time_limit=percent(cut / len(episodes)),
    )


def _mean(values: Any) -> str:
    finite = values[np.isfinite(values)]
    return figure(finite.mean()) if len(finite) else figure(None)


def _happenings(evidence: Evidence) -> list[tuple[str, str]]:
    """What else the evidence says, as (kind, sentence)."""
    rows = [
        ("fault", f"step {whole(fault.step)}, {shown(fault.where)}: {shown(fault.summary)}")
        for fault in evidence.faults[:100]
    ]
    rows += [
        (
            "curriculum",
            f"from step {whole(one.step)} stage {whole(one.stage)}, {_stage_words(one)}: {shown(one.reason)}",
        )
        for one in evidence.of(StageBegan)[:100]
    ]
    rows += [("restarted", f"step {whole(one.step)}: {shown(one.reason)}") for one in evidence.restarts[:100]]
    rows += [("not seen", f"{shown(one.what)}: {shown(one.reason)}") for one in evidence.not_seen[:100]]
    if evidence.stopped is not None:
        rows.append(("stopped", f"step {whole(evidence.stopped.step)}: {shown(evidence.stopped.reason)}"))
    return rows


def _stage_words(stage: StageBegan) -> str:
    if stage.full:
        return "the full task"
    said = [f"{printable(name, 80)} = {shown(value)}" for name, value in stage.kwargs.items()]
    return ", ".join(said + ([] if stage.difficulty is None else [f"difficulty {figure(stage.difficulty)}"]))


def _flat(body: Mapping[str, Any], prefix: str = "", levels: int = 3) -> list[tuple[str, str]]:
    """Nested settings as dotted names; what lies deeper is shown as JSON."""
    rows: list[tuple[str, str]] = []
    for key, value in body.items():
        name = f"{prefix}{printable(key, 120)}"
        if isinstance(value, Mapping) and value and levels:
            rows += _flat(value, f"{name}.", levels - 1)
        else:
            rows.append((name, shown(value)))
    return rows


def _settings(toml: str | None) -> str:
    """The settings keep their lines; each line is made harmless by itself."""
    lines = (toml or "")[:MAX_SETTINGS_CHARACTERS].splitlines()
    return "\n".join(" " * (len(line) - len(line.lstrip())) + printable(line) for line in lines)


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
