"""Everything that decides a sweep, and the folder that it lies in.

sweeps/<name>/
  sweep.toml           the plan, complete; the last thing that beginning a sweep writes
  study.db             Optuna's storage (SQLite)
  trials/0003/seed0/   a run folder for each trial and seed: learnproof report, enjoy, verify ... work on it
  results.json         what became of the trials             best.toml   settings of the best proven one
  sweep.png            the picture of it
  .lock                held by the process that sweeps
"""

from __future__ import annotations

import hashlib
import os
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import Field, ValidationError

from ..config import ALGORITHMS, Section, Settings, explained
from ..errors import RunFolderError, SettingsError
from ..runs.atomic import HIDDEN, remove_leftovers, write_file
from ..runs.folder import LOCK, hold_lock
from .space import Space, parse_space

MAX_TRIALS = 100_000


class SweepPlan(Section):
    """What is searched, how long, and by which rules."""

    trials: int = Field(20, ge=1, le=MAX_TRIALS)
    """Trials in all, those that are given up or fail included."""
    seeds: int = Field(1, ge=1, le=100)
    """Trainings of each trial, with seeds that follow the settings' own; the score is their mean."""
    episodes: int = Field(50, ge=2)
    """Episodes that score a trained policy, on seeds that neither training nor the proof has seen."""
    sampler: Literal["tpe", "random"] = "tpe"
    """What to try next: tpe = near what was good (after ten random trials), random = anywhere."""
    pruner: Literal["median", "none"] = "median"
    """median = give a trial up whose best evaluation is below the median of the finished trials at the same step."""
    prune_after: int = Field(5, ge=1)
    """Finished trials before any is given up."""
    prune_from: float = Field(0.25, ge=0, le=1)
    """Share of the step budget before a trial is given up."""
    space: dict[str, str | list[Any]] = Field(default_factory=dict)
    """Ranges and choices by dotted name, as they are typed."""
    settings: Settings = Settings()
    """What all trials share."""

    def dimensions(self) -> Space:
        return parse_space(self.space, self.settings)

    @property
    def rungs(self) -> int:
        """Evaluations that the budget has room for."""
        every = self.settings.evaluation.every_steps
        return -(-self.settings.steps // every) if every else 0

    def digest(self) -> str:
        """Of all that may not change while a sweep goes on."""
        return hashlib.sha256(self.model_dump_json(exclude={"trials"}).encode()).hexdigest()

    def to_toml(self) -> str:
        others = {name for name in ALGORITHMS if name != self.settings.algorithm}
        tree = self.model_dump(mode="json", exclude_none=True, exclude={"settings": others})
        return tomli_w.dumps(tree)


def check_plan(plan: SweepPlan) -> None:
    """What no trial could do is said before the first."""
    if not plan.space:
        raise SettingsError("Nothing is searched. E.g. --vary ppo.learning_rate=1e-4..1e-3:log")
    plan.dimensions()
    if plan.pruner != "none" and not plan.settings.evaluation.every_steps:
        raise SettingsError(
            "Trials are given up by what their evaluations say, and evaluation.every_steps is 0. Set it, or --pruner none."
        )


class SweepFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, plan: SweepPlan) -> SweepFolder:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"{path} cannot hold a sweep: {error.strerror}.") from None
        folder = cls(path)
        used = {name for name in os.listdir(path) if name != LOCK and not HIDDEN.fullmatch(name)}
        if "sweep.toml" in used:
            raise RunFolderError(
                f"There is already a sweep in {path}. Go on with it: {folder.resume_command}; or choose another folder with --out."
            )
        if used:
            raise RunFolderError(f"{path} is not empty: choose an empty or new folder with --out.")
        with folder.lock():
            write_file(folder.plan, plan.to_toml().encode())
        return folder

    @classmethod
    def open(cls, path: Path) -> SweepFolder:
        if not (path / "sweep.toml").is_file():
            raise RunFolderError(
                f"There is no sweep in {path}: it has no sweep.toml. `learnproof sweep ENV` begins one."
            )
        return cls(path)

    @property
    def plan(self) -> Path:
        return self.path / "sweep.toml"

    @property
    def study(self) -> Path:
        return self.path / "study.db"

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    @property
    def picture(self) -> Path:
        return self.path / "sweep.png"

    @property
    def best(self) -> Path:
        return self.path / "best.toml"

    def run(self, trial: int, seed: int) -> Path:
        return self.path / "trials" / f"{trial:04d}" / f"seed{seed}"

    @property
    def resume_command(self) -> str:
        return f"learnproof sweep --resume {shlex.quote(str(self.path))}"

    def read_plan(self) -> SweepPlan:
        try:
            return SweepPlan.model_validate(tomllib.loads(self.plan.read_text(encoding="utf-8")))
        except ValidationError as error:
            raise explained(error, str(self.plan)) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{self.plan} is not valid TOML: {error}.") from None

    @contextmanager
    def lock(self) -> Iterator[None]:
        with hold_lock(self.path):
            remove_leftovers(self.path)
            yield
