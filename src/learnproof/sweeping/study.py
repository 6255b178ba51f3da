"""Optuna's side of a sweep: what to try next, what to give up, and what a kill left behind.

The study lies in a SQLite file in the sweep's folder, so that a killed process loses at most the report that it was writing. Whoever
holds the folder's lock is the only one who sweeps there: a trial that the file calls running when a sweep is opened was left by
a process that has stopped. It is not thrown away but taken up first, with its number, its values and its run folders.

The sampler is made anew for each trial, from the sweep's seed and the trial's number, so that a sweep that was interrupted asks
for the same trials as one that was not.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra, RunFolderError, SettingsError
from ..seeding import derive_seed
from .plan import SweepPlan
from .space import Choices, Dimension, Range, values_of_base

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution

RANDOM_FIRST = 10
"""Random trials before the sampler goes by what was good."""
NAME = "sweep"


def require_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtra("optuna", "sweep", "A sweep") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@dataclass(frozen=True)
class Asked:
    """A trial that is to be run, or to be gone on with."""

    number: int
    values: dict[str, Any]
    """By dotted name, as settings hold them."""
    notes: dict[str, Any]
    """What was written down about it so far."""
    handle: Any
    """Optuna's own object."""


class SweepStudy:
    def __init__(self, path: Path, plan: SweepPlan) -> None:
        self._optuna = require_optuna()
        self.plan = plan
        self.space = plan.dimensions()
        self._forms = {name: distribution_of(self._optuna, dimension) for name, dimension in self.space.items()}
        self._study = self._open(path)
        noted = self._study.user_attrs.get("plan")
        if noted is None:
            self._begin()
        elif noted != plan.digest():
            raise SettingsError(
                f"sweep.toml beside {path} is not the plan that this sweep began with; only `trials` may change. Restore it, or "
                "begin a new sweep with the changed plan."
            )

    def _open(self, path: Path) -> Study:
        optuna = self._optuna
        pruner = optuna.pruners.NopPruner()
        if self.plan.pruner == "median":
            pruner = optuna.pruners.MedianPruner(
                n_startup_trials=self.plan.prune_after, n_warmup_steps=math.ceil(self.plan.prune_from * self.plan.rungs)
            )
        try:
            study: Study = optuna.create_study(
                storage=optuna.storages.RDBStorage(f"sqlite:///{path}"),
                study_name=NAME,
                direction="maximize",
                pruner=pruner,
                load_if_exists=True,
            )
        except Exception as error:  # SQLAlchemy, SQLite and Optuna each have their own
            raise RunFolderError(
                f"{path} cannot be used as a sweep's storage ({type(error).__name__}: {str(error).splitlines()[0][:200]}). Was it "
                "damaged or written by another version of Optuna? Restore it from a copy, or begin a new sweep."
            ) from error
        return study

    def _begin(self) -> None:
        """The first trial is the base settings themselves, where they lie in the space: what a sweep gains is told by it."""
        base = values_of_base(self.space, self.plan.settings)
        if base is not None and not self._study.get_trials(deepcopy=False):
            self._study.enqueue_trial({name: encoded(self.space[name], value) for name, value in base.items()})
        self._study.set_user_attr("plan", self.plan.digest())

    # ------------------------------------------------------------------ asking and telling

    def left_behind(self) -> list[Asked]:
        """Trials that a process began and did not end."""
        running = self._optuna.trial.TrialState.RUNNING
        return [
            self._asked(self._optuna.trial.Trial(self._study, frozen._trial_id))
            for frozen in self._study.get_trials(deepcopy=False, states=(running,))
        ]

    def ask(self) -> Asked:
        optuna, number = self._optuna, len(self._study.get_trials(deepcopy=False))
        seed = derive_seed(self.plan.settings.seed, "sweep", number) % 2**32
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.sampler = (
                optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_FIRST)
                if self.plan.sampler == "tpe"
                else optuna.samplers.RandomSampler(seed=seed)
            )
            return self._asked(self._study.ask(self._forms))

    def _asked(self, handle: Any) -> Asked:
        values = {name: decoded(self.space[name], handle.params[name]) for name in self.space}
        return Asked(handle.number, values, dict(handle.user_attrs), handle)

    def note(self, asked: Asked, name: str, value: Any) -> None:
        asked.notes[name] = value
        asked.handle.set_user_attr(name, value)

    def report(self, asked: Asked, rung: int, score: float) -> bool:
        """Tell of an evaluation; True where the trial is to be given up. What was told before the last kill stands."""
        told = self._study.get_trials(deepcopy=False)[asked.number].intermediate_values
        if rung not in told:
            latest = max(told, default=-1)
            for missed in range(
                latest + 1, rung
            ):  # a rollout that is longer than evaluations are apart passes over some
                asked.handle.report(told.get(latest, score), missed)
            asked.handle.report(score, rung)
        return bool(asked.handle.should_prune())

    def finish(self, asked: Asked, score: float) -> None:
        self._study.tell(asked.handle, score)

    def give_up(self, asked: Asked) -> None:
        self._study.tell(asked.handle, state=self._optuna.trial.TrialState.PRUNED)

    def fail(self, asked: Asked) -> None:
        self._study.tell(asked.handle, state=self._optuna.trial.TrialState.FAIL)

    # ------------------------------------------------------------------ looking back

    def ended(self) -> int:
        return sum(frozen.state.is_finished() for frozen in self._study.get_trials(deepcopy=False))

    def records(self) -> list[dict[str, Any]]:
        """What was noted as the record of each trial that ended, in order of number."""
        trials = self._study.get_trials(deepcopy=False)
        return [t.user_attrs["record"] for t in trials if t.state.is_finished() and "record" in t.user_attrs]


def distribution_of(optuna: Any, dimension: Dimension) -> BaseDistribution:
    forms = optuna.distributions
    made: BaseDistribution
    match dimension:
        case Choices(values):
            made = forms.CategoricalDistribution([json.dumps(value) for value in values])
        case Range(low, high, "doubling"):
            made = forms.IntDistribution(0, round(math.log2(high / low)))
        case Range(low, high, scale, integer=True):
            made = forms.IntDistribution(int(low), int(high), log=scale == "log")
        case Range(low, high, scale):
            made = forms.FloatDistribution(low, high, log=scale == "log")
    return made


def encoded(dimension: Dimension, value: Any) -> Any:
    """A setting's value as Optuna stores it."""
    match dimension:
        case Choices():
            return json.dumps(value)
        case Range(low, _, "doubling"):
            return round(math.log2(value / low))
    return value


def decoded(dimension: Dimension, stored: Any) -> Any:
    match dimension:
        case Choices(values):
            return next(value for value in values if json.dumps(value) == stored)
        case Range(low, _, "doubling", integer):
            value = low * 2**stored
            return int(value) if integer else value
        case Range(integer=True):
            return int(stored)
    return float(stored)


def as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
