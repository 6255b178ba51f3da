"""What became of the trials, which of them is best, and results.json.

    state     finished, pruned (given up), broken (a defect was found), failed (it could not be run), paused (to be gone on with)
    verdict   of its runs: broken where one is, proven where all are, else unproven
    score     mean over its seeds, on episodes that no choice inside of the training has seen; None where it is broken or failed

The best trial is the proven one of the highest score. A trial that is unproven may well score higher: that a policy scores is not yet
a sign that it was learnt, and results.json says so beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from ..evidence import Evidence
from .plan import SweepPlan
from .space import Choices, Space, values_of_base

FORM = "learnproof sweep"
VERSION = 1
LEAST_FOR_A_TENDENCY = 5


@dataclass(frozen=True)
class SeedRecord:
    """One run of a trial."""

    seed: int
    folder: str
    """Relative to the sweep's folder."""
    verdict: str
    score: float | None
    proof_score: float | None
    """Of the trained policy on the proof's seeds, which no choice has seen, the sweep's neither."""
    steps: int
    stopped: str
    """The rule that ended the training."""
    evaluations: list[list[float]] = field(default_factory=list)
    """[step, score] in the mode that is judged."""


@dataclass(frozen=True)
class TrialRecord:
    number: int
    state: str
    verdict: str | None
    score: float | None
    values: dict[str, Any]
    runs: list[SeedRecord]
    seconds: float
    interrupted: list[str] = field(default_factory=list)
    """How often it was stopped on the way, and by what: SIGINT, SIGTERM, killed."""
    note: str = ""
    """What went wrong."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def joint_verdict(verdicts: Sequence[str]) -> str:
    if "broken" in verdicts:
        return "broken"
    return "proven" if verdicts and all(verdict == "proven" for verdict in verdicts) else "unproven"


def evaluations_of(evidence: Evidence, mode: str) -> list[list[float]]:
    return [[float(one.step), fmean(getattr(one, mode))] for one in evidence.evaluations]


def results(plan: SweepPlan, records: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    """The body of results.json."""
    settings = plan.settings
    ranked = rank(records)
    return {
        "format": FORM,
        "version": VERSION,
        "environment": settings.env.id,
        "algorithm": settings.algorithm,
        "metric": metric,
        "steps": settings.steps,
        "planned": plan.trials,
        "seeds": plan.seeds,
        "space": {name: dimension.typed for name, dimension in plan.dimensions().items()},
        "scales": _scales(plan.dimensions()),
        "base_is_first": values_of_base(plan.dimensions(), settings) is not None,
        "ranking": [int(trial["number"]) for trial in ranked],
        "best": next((trial["number"] for trial in ranked if is_candidate(trial)), None),
        "tendencies": tendencies(records, plan.dimensions()),
        "trials": sorted(records, key=lambda trial: int(trial["number"])),
    }


def is_candidate(trial: Mapping[str, Any]) -> bool:
    return trial["state"] == "finished" and trial["verdict"] == "proven" and trial["score"] is not None


def rank(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Proven ones first, then the other finished ones, then what was given up, each by score."""

    def key(trial: Mapping[str, Any]) -> tuple[bool, bool, float, int]:
        score = trial["score"] if trial["score"] is not None else -np.inf
        return not is_candidate(trial), trial["state"] != "finished", -float(score), int(trial["number"])

    return sorted(records, key=key)


def tendencies(records: Sequence[Mapping[str, Any]], space: Space) -> dict[str, dict[str, Any]]:
    """Whether the score rises or falls with each numeric setting: rank correlation over the finished trials."""
    scored = [trial for trial in records if trial["state"] == "finished" and trial["score"] is not None]
    found = {}
    for name, dimension in space.items():
        if isinstance(dimension, Choices) and not all(_is_number(value) for value in dimension.values):
            continue
        x = np.array([float(trial["values"][name]) for trial in scored])
        y = np.array([float(trial["score"]) for trial in scored])
        if len(scored) < LEAST_FOR_A_TENDENCY or np.ptp(x) == 0 or np.ptp(y) == 0:
            continue
        correlation, p_value = spearmanr(x, y)
        found[name] = {"rank_correlation": float(correlation), "p_value": float(p_value), "trials": len(scored)}
    return found


def relative(path: Path, root: Path) -> str:
    return str(path.relative_to(root))


def _scales(space: Space) -> dict[str, str]:
    return {name: "choices" if isinstance(one, Choices) else one.scale for name, one in space.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
