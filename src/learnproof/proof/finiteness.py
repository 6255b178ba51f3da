"""Is every recorded number finite, and did training go through without meeting something it had to refuse?

One NaN spreads to all weights with the next step, so a single one is a defect: nothing is left to chance here. The
one number that may be NaN in health is the explained variance of returns that are all equal (0 divided by 0).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..evidence import Evidence, Update
from ..evidence.reader import Sample
from ..evidence.watched import OptimizerStep
from .check import Check, Finding

MAY_BE_NAN = {"explained_variance"}
SHOWN = 5
"""Places named in a finding; all are counted."""


class Finiteness(Check):
    name = "finiteness"
    question = "Is every number in the updates, the inspected batches and the returns finite?"
    family = "mechanism-health"
    accuses = "by comparison"

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        places = [
            *(f"{fault.where}: {fault.summary}" for fault in evidence.faults if fault.kind == "not_finite"),
            *(place for update in evidence.updates for place in not_finite_in(update)),
            *_in_inspections(evidence),
            *_in_watched(evidence.of(OptimizerStep)),
            *_in_scores(evidence),
        ]
        updates = len(evidence.updates) or len(evidence.of(OptimizerStep))
        figures: dict[str, Any] = {
            "updates": updates,
            "inspections": len(evidence.inspections),
            "not_finite": len(places),
            "places": places[:SHOWN],
        }
        if not places and not updates:
            return self.finding("undecided", "No update was recorded, so there is nothing to look at yet.", figures)
        if not places:
            return self.finding("pass", f"All numbers of {updates} updates are finite.", figures)
        return self.finding(
            "fail",
            f"{len(places)} recorded {'number is' if len(places) == 1 else 'numbers are'} NaN or infinite; the first is {places[0]}.",
            figures,
            where=places[0],
            cause="A division by zero, the logarithm of 0, an overflow after gradients grew too large, or NaN from the environment.",
            advice="Look at the first place named. Lower the learning rate, clip gradients, add a small constant to "
            "denominators and inside logarithms, and check the environment's observations and rewards.",
        )


class NothingRefused(Check):
    name = "nothing_refused"
    question = "Did training go through without meeting something that it had to refuse?"
    family = "mechanism-health"
    accuses = "by comparison"

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        faults = [fault for fault in evidence.faults if fault.kind != "not_finite"]
        figures = {"faults": len(faults), "kinds": sorted({fault.kind for fault in faults})}
        if not faults:
            return self.finding("pass", "Nothing had to be refused.", figures)
        first = faults[0]
        return self.finding(
            "fail",
            f"At step {first.step} training refused to go on ({first.kind}): {first.summary}",
            figures,
            where=first.where,
            cause="The environment or the data broke the contract that training relies on.",
            advice="Repair what is named, then resume the run from its last checkpoint.",
        )


def not_finite_in(update: Update) -> Iterator[str]:
    """ "update 12: loss" for every field with a number that is not finite, the modules' included."""
    for prefix, part in (("", update), *((f"{name}.", change) for name, change in update.modules.items())):
        for name, value in vars(part).items():
            numbers = value if isinstance(value, list) else () if value is None or name == "modules" else (value,)
            if not all(map(math.isfinite, numbers)) and prefix + name not in MAY_BE_NAN:
                yield f"update {update.index}: {prefix}{name}"


def _in_inspections(evidence: Evidence) -> Iterator[str]:
    for event in evidence.inspections:
        place = f"update {event.update}, gradient step {event.optimizer_step}"
        for parameter, (gradient, *weights) in event.parameters.items():
            if not math.isfinite(gradient):
                yield f"{place}: gradient of {parameter}"
            if not all(math.isfinite(number) for number in weights):
                yield f"{place}: weights of {parameter}"
    for kind in ("rollout", "gradient_step", "iteration"):
        for sample in evidence.samples(kind):
            for role in sample.once("not finite", partial(_not_finite_roles, sample)):
                yield f"update {sample.event.update}, {kind}: {role}"


def _not_finite_roles(sample: Sample) -> list[str]:
    return [
        role
        for role, array in sample.arrays.items()
        if np.issubdtype(array.dtype, np.floating) and not np.all(np.isfinite(array))
    ]


def _in_watched(steps: Sequence[OptimizerStep]) -> Iterator[str]:
    for step in steps:
        place = f"update {step.update}, step {step.step} of optimizer {step.optimizer}"
        for parameter, (gradient, *weights) in step.parameters.items():
            if not math.isfinite(gradient):
                yield f"{place}: gradient of {parameter}"
            if not all(math.isfinite(number) for number in weights):
                yield f"{place}: weights of {parameter}"


def _in_scores(evidence: Evidence) -> Iterator[str]:
    for episode in evidence.episodes:
        if not math.isfinite(episode.return_):
            yield f"episode that ended at step {episode.step}: return"
    for evaluation in evidence.evaluations:
        if not all(math.isfinite(score) for score in (*evaluation.deterministic, *evaluation.sampled)):
            yield f"evaluation at step {evaluation.step}: score"
