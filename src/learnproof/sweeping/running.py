"""The sweep itself: trial after trial until the plan is done, a signal comes, or a kill; each of the three can be gone on from.

    result = sweep("CartPole-v1", trials=20, space={"ppo.learning_rate": "1e-4..1e-3:log"}, out="sweeps/cartpole")
    result = resume_sweep("sweeps/cartpole")

After every trial results.json and sweep.png are written anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import Settings, to_toml
from ..envs.team_making import environment_source
from ..proof.verdict import check_waivers
from ..runs.atomic import write_file
from ..runs.folder import fresh_path
from ..show.sweep_picture import sweep_png
from ..show.sweep_sheet import SweepSheet
from ..training.assembly import environment_facts, make_actor
from ..training.interrupt import listen_for_stop
from .plan import SweepFolder, SweepPlan, check_plan
from .records import results
from .space import Dimension, Space, parse_space, ready_space
from .study import Asked, SweepStudy, require_optuna
from .trial import Trial


@dataclass(frozen=True)
class SweepResult:
    """Where a sweep lies and what came of it so far; `interrupted` where it is to be gone on with."""

    path: Path
    results: dict[str, Any]
    signal: int | None = None

    @property
    def interrupted(self) -> bool:
        return self.signal is not None

    @property
    def best(self) -> dict[str, Any] | None:
        """The proven trial of the highest score."""
        number = self.results["best"]
        return next((trial for trial in self.results["trials"] if trial["number"] == number), None)

    @property
    def exit_code(self) -> int:
        """0 where a trial was proven, 3 where none was, 1 where none could be judged; of a signal, 128 and more."""
        if self.signal is not None:
            return 128 + self.signal
        if self.best is not None:
            return 0
        return 3 if any(trial["state"] in ("finished", "pruned") for trial in self.results["trials"]) else 1


def sweep(
    env: str | None = None,
    *,
    settings: Settings | None = None,
    space: Mapping[str, Any] | Space | None = None,
    out: str | os.PathLike[str] | None = None,
    sheet: SweepSheet | None = None,
    **options: Any,
) -> SweepResult:
    """Search the settings for what scores best. `options` are those of SweepPlan: trials, seeds, sampler, pruner ...

    `space` names settings with a range "1e-4..1e-3:log" or a list of choices; without it the usual ranges are searched.
    """
    require_optuna()
    base = settings or Settings()
    base = base if env is None else base.replace({"env.id": env})
    given = {name: one.typed if isinstance(one, Dimension) else one for name, one in (space or {}).items()}
    searched = parse_space(given, base) if given else ready_space(base)
    typed = {name: dimension.typed for name, dimension in searched.items()}
    plan = SweepPlan(space=typed, settings=base, **options)
    check_plan(plan)
    metric = _rehearse(plan)
    path = Path(out) if out is not None else fresh_path(Path("sweeps"), base.env.id, base.algorithm)
    folder = SweepFolder.create(path, plan)
    return _run(folder, plan, metric, sheet or SweepSheet())


def resume_sweep(
    path: str | os.PathLike[str], *, trials: int | None = None, sheet: SweepSheet | None = None
) -> SweepResult:
    """Go on with a sweep; more `trials` than it was planned with make it longer."""
    require_optuna()
    folder = SweepFolder.open(Path(path))
    plan = folder.read_plan()
    if trials is not None and trials != plan.trials:
        plan = SweepPlan.model_validate({**plan.model_dump(), "trials": trials})
        with folder.lock():
            write_file(folder.plan, plan.to_toml().encode())
    return _run(folder, plan, _rehearse(plan), sheet or SweepSheet())


def _rehearse(plan: SweepPlan) -> str:
    """What is wrong with the environment or the settings is wrong with every trial, and is said before the first. The metric."""
    check_waivers(plan.settings.proof.waive)
    env = environment_source(plan.settings.env).evaluation(1)
    make_actor(plan.settings, env)
    metric = environment_facts(env).metric
    env.close()
    return metric


def _run(folder: SweepFolder, plan: SweepPlan, metric: str, sheet: SweepSheet) -> SweepResult:
    with folder.lock():
        study = SweepStudy(folder.study, plan)
        sheet.begin(str(folder.path), results(plan, study.records(), metric))
        with listen_for_stop(sheet.say) as request:
            waiting = study.left_behind()
            for asked in waiting:
                sheet.say(_taken_up(study, asked))
            body = None
            while not request and (waiting or study.ended() < plan.trials):
                asked = waiting.pop(0) if waiting else study.ask()
                sheet.trial(asked.number, plan.trials, asked.values)
                trial = Trial(study, folder, asked, request, sheet.display_for(plan.settings.steps))
                record = trial.run().to_json()
                sheet.ended(record)
                body = _publish(folder, plan, study, metric, [record] if record["state"] == "paused" else [])
        body = body or _publish(folder, plan, study, metric, [])
        sheet.summary(body, str(folder.path), folder.resume_command if request else None)
        return SweepResult(folder.path, body, None if request.signal is None else int(request.signal))


def _taken_up(study: SweepStudy, asked: Asked) -> str:
    """Says how a trial was left, and notes it where nobody could."""
    stopped_by = asked.notes.get("stopped_by")
    if stopped_by:
        study.note(asked, "stopped_by", "")
        return f"trial {asked.number} was stopped by {stopped_by}: going on with it"
    study.note(asked, "interrupted", [*asked.notes.get("interrupted", []), "killed"])
    return f"trial {asked.number} was killed: it is taken up again from its last checkpoint"


def _publish(
    folder: SweepFolder, plan: SweepPlan, study: SweepStudy, metric: str, paused: list[dict[str, Any]]
) -> dict[str, Any]:
    body = results(plan, [*study.records(), *paused], metric)
    write_file(folder.results, json.dumps(body, indent=2, allow_nan=False).encode() + b"\n")
    write_file(folder.picture, sweep_png(body))
    best = next((trial for trial in body["trials"] if trial["number"] == body["best"]), None)
    if best is not None:
        write_file(folder.best, to_toml(plan.settings.replace(best["values"])).encode())
    return body
