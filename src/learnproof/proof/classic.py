"""The five checks of the first system, to the letter, as plain rules on plain sequences.

    weights_changing       more than 10 records, and the largest of the last 10 exceeds 0.001
    gradients_flowing      more than 10, and the last 10 norms are all above 0 and below 100
    entropy_decreasing     more than 100, and the mean of the last 50 is below 0.9 x the mean of the first 50
    loss_improving         more than 100, and the mean of the last 50 is below that of the first 50
    performance_improving  more than 20, and the mean of the last 10 is above that of the first 10

Each is False until it has enough records. Records are: per update the distance of all weights from their start; per
epoch the gradient norm, the entropy and the loss; per episode the performance (ROAS where the environment has it, else
the run's metric). `look` reads them from evidence; `monitor.py` gathers them while training runs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..evidence import Episode, Evidence, RunStarted, Update
from ..evidence.measured import measured_updates
from .check import Finding, Status

Rule = Callable[[Sequence[float]], bool]


def weights_changing(distances: Sequence[float]) -> bool:
    return len(distances) > 10 and max(distances[-10:]) > 0.001


def gradients_flowing(norms: Sequence[float]) -> bool:
    return len(norms) > 10 and all(0 < norm < 100 for norm in norms[-10:])


def entropy_decreasing(entropies: Sequence[float]) -> bool:
    return len(entropies) > 100 and _mean(entropies[-50:]) < 0.9 * _mean(entropies[:50])


def loss_improving(losses: Sequence[float]) -> bool:
    return len(losses) > 100 and _mean(losses[-50:]) < _mean(losses[:50])


def performance_improving(scores: Sequence[float]) -> bool:
    return len(scores) > 20 and _mean(scores[-10:]) > _mean(scores[:10])


RULES: dict[str, Rule] = {
    "weights_changing": weights_changing,
    "gradients_flowing": gradients_flowing,
    "entropy_decreasing": entropy_decreasing,
    "loss_improving": loss_improving,
    "performance_improving": performance_improving,
}
MORE_THAN = {
    "weights_changing": 10,
    "gradients_flowing": 10,
    "entropy_decreasing": 100,
    "loss_improving": 100,
    "performance_improving": 20,
}
"""A rule speaks when it has more records than this."""


OF_ONE_TASK = ("loss_improving", "performance_improving")
"""Rules that compare early with late records: where a curriculum's stage begins, they begin anew."""


@dataclass(frozen=True)
class Checklist:
    """The five answers; False also means "not enough records yet"."""

    weights_changing: bool
    gradients_flowing: bool
    entropy_decreasing: bool
    loss_improving: bool
    performance_improving: bool

    def to_json(self) -> dict[str, bool]:
        return dataclasses.asdict(self)

    def learning_verification(self) -> dict[str, bool]:
        """The same five under the names of the older JSON form."""
        return {
            "weights_updating": self.weights_changing,
            "entropy_tracking": self.entropy_decreasing,
            "gradient_flow": self.gradients_flowing,
            "loss_tracking": self.loss_improving,
            "performance_metrics": self.performance_improving,
        }


def look(evidence: Evidence) -> Checklist:
    records = records_of(evidence)
    return Checklist(**{name: rule(records[name]) for name, rule in RULES.items()})


def records_of(evidence: Evidence) -> dict[str, list[float]]:
    records: dict[str, list[float]] = {name: [] for name in RULES}
    for update in measured_updates(evidence):
        for name, values in records_of_update(update, evidence.run).items():
            if name not in OF_ONE_TASK or update.step > evidence.comparable_from:
                records[name] += values
    for episode in evidence.comparable_episodes:
        records["performance_improving"] += performance_of(episode, evidence.run)
    return records


def records_of_update(update: Update, run: RunStarted) -> Mapping[str, Sequence[float]]:
    """The gradient norm is the one that the optimizer was given: after clipping, where the run clips."""
    limit = run.constants.get("max_grad_norm")
    norms = [min(norm, limit) if limit is not None and math.isfinite(norm) else norm for norm in update.grad_norm]
    return {
        "weights_changing": [update.weight_change],
        "gradients_flowing": norms,
        "entropy_decreasing": update.entropy,
        "loss_improving": update.loss,
    }


def performance_of(episode: Episode, run: RunStarted) -> list[float]:
    """One number, larger is better; none where the episode does not carry the metric."""
    for name, value in episode.metrics.items():
        if name.lower() == "roas":
            return [value]
    if run.metric in episode.metrics:
        score = episode.metrics[run.metric]
    elif run.metric == "return":
        score = episode.return_
    else:
        return []
    return [score if run.higher_is_better else -score]


QUESTIONS = {
    "weights_changing": "Do the weights move away from where they started?",
    "gradients_flowing": "Are the gradients above 0 and below 100?",
    "entropy_decreasing": "Does the policy become more decided?",
    "loss_improving": "Does the loss fall?",
    "performance_improving": "Does performance rise?",
}
MEANINGS = {
    "weights_changing": "the weights have not moved from their start by more than 0.001",
    "gradients_flowing": "a gradient norm is 0, or 100 or more",
    "entropy_decreasing": "the entropy has not fallen to 0.9 of what it was at the start",
    "loss_improving": "the loss is not below what it was at the start",
    "performance_improving": "performance is not above what it was at the start",
}
ADVICE = {
    "weights_changing": "Check that the optimizer steps, what it holds, and the learning rate.",
    "gradients_flowing": "If norms are 0, follow the loss back to the parameters; if they are large, clip them.",
    "entropy_decreasing": "Lower the entropy coefficient or train longer; early in training a rise is healthy.",
    "loss_improving": "A PPO loss hovers round zero in a healthy run; look at the value loss and explained variance.",
    "performance_improving": "Train longer, or look at exploration and the learning rate.",
}


def findings(evidence: Evidence) -> list[Finding]:
    """The five as findings, for the profile in which they decide: a miss fails, one of performance only warns."""
    found = []
    for name, records in records_of(evidence).items():
        enough = len(records) > MORE_THAN[name]
        figures = {"records": len(records), "needed": MORE_THAN[name] + 1}
        if RULES[name](records):
            finding = Finding(
                name, "pass", QUESTIONS[name], f"Yes, by the classic rule on {len(records)} records.", figures
            )
        elif not enough:
            summary = f"Not enough records yet: {len(records)}, and the classic rule needs {MORE_THAN[name] + 1}."
            finding = Finding(name, "undecided", QUESTIONS[name], summary, figures, advice="Train longer.")
        else:
            status: Status = "undecided" if name == "performance_improving" else "fail"
            summary = f"By the classic rule no: {MEANINGS[name]} ({len(records)} records)."
            finding = Finding(name, status, QUESTIONS[name], summary, figures, advice=ADVICE[name])
        found.append(finding)
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
