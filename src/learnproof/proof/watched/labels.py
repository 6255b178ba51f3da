"""Supervised losses: do predictions move toward the labels that they are given?

    labels_direction   the gradient at the label's own logit, which a step makes larger; what the label's probability was after it

Only losses that are nothing but a cross entropy of labels: one that is weighed with advantages is a policy's (direction.py), and one with a
token's rewards a language model's (language.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Loss, Seen
from ..seen.losses import Array
from ..seen.tokens import token_losses
from .base import ENOUGH, SeenCheck
from .direction import descends

NEARLY_ALL = 0.9
MOSTLY = 0.8
"""Share of the rows whose label must lose for a loss to count as turned round: smoothed labels lose too, where predictions are sure of them."""


class LabelsDirection(SeenCheck):
    name = "labels_direction"
    question = "Do predictions move toward their labels?"
    family = "mechanism-direction"

    def lacks(self, seen: Seen) -> str:
        return "" if supervised_losses(seen) else "no loss was seen that is a cross entropy of labels alone"

    def look(self, seen: Seen) -> Finding:
        down = descends(seen)
        found = [pulls for loss in supervised_losses(seen) if (pulls := _pulls(loss)) is not None]
        gains = [gain for loss in supervised_losses(seen) if (gain := _gain(loss)) is not None]
        means = np.array([float(np.mean(pulls)) * down for pulls in found])
        turned = np.array([float(np.mean(pulls * down > 0)) for pulls in found])
        figures: dict[str, Any] = {
            "losses": len(found),
            "toward_their_labels": int((means < 0).sum()),
            "nearer_after_the_step": f"{sum(gain > 0 for gain in gains)} of {len(gains)}",
        }
        if len(found) < ENOUGH:
            return self.finding("undecided", f"{len(found)} losses were looked at; it takes {ENOUGH}.", figures)
        if ((means > 0) & (turned > MOSTLY)).mean() >= NEARLY_ALL:
            return self.finding(
                "fail",
                f"In {int((means > 0).sum())} of {len(found)} losses a step makes the labels less likely.",
                figures,
                where="the loss",
                cause="A minus is missing or doubled: cross_entropy is already the negative log-probability.",
                advice="Minimise cross_entropy(logits, labels) as it is.",
            )
        if (means < 0).mean() >= NEARLY_ALL:
            nearer = f"; after {figures['nearer_after_the_step']} steps they were nearer" if gains else ""
            return self.finding(
                "pass", f"In {len(found)} losses predictions move toward their labels{nearer}.", figures
            )
        return self.finding(
            "undecided",
            f"In {figures['toward_their_labels']} of {len(found)} losses predictions move toward their labels.",
            figures,
        )


def supervised_losses(seen: Seen) -> list[Loss]:
    known: list[Loss] | None = seen.notes.get("supervised_losses")
    if known is None:
        tokens = {id(tokens.loss) for tokens in token_losses(seen)}
        known = [
            loss
            for loss in seen.training_losses
            if not loss.policies
            and id(loss) not in tokens
            and any(c.get("role") == "label" for c in loss.event.constants)
        ]
        seen.notes["supervised_losses"] = known
    return known


def _labelled(loss: Loss, key: str) -> tuple[Array, Array] | None:
    """Numbers [rows, classes] of the outermost call that has them, and the label of each row; rows without one are left out."""
    position = next(i for i, about in enumerate(loss.event.constants) if about.get("role") == "label")
    labels = loss.arrays.get(f"k{position}")
    if labels is None:
        return None
    flat = labels.reshape(-1).astype(np.int64)
    for call in reversed(range(len(loss.event.calls))):
        numbers = loss.arrays.get(f"c{call}.{key}")
        if numbers is not None and numbers.ndim >= 2 and numbers.size == len(flat) * numbers.shape[-1]:
            rows = numbers.reshape(len(flat), -1).astype(np.float64)
            known = (flat >= 0) & (flat < rows.shape[1])
            return rows[known], flat[known]
    return None


def _pulls(loss: Loss) -> Array | None:
    """dL / d the label's own logit, of each row."""
    found = _labelled(loss, "gradient")
    if found is None or not len(found[1]):
        return None
    rows, labels = found
    return np.asarray(rows[np.arange(len(labels)), labels])


def _gain(loss: Loss) -> float | None:
    """By how much the labels' mean log-probability was higher after the step."""
    means = []
    for key in ("output", "after"):
        found = _labelled(loss, key)
        if found is None or not len(found[1]):
            return None
        rows, labels = found
        top = rows.max(axis=1, keepdims=True)
        log_probabilities = rows - top - np.log(np.exp(rows - top).sum(axis=1, keepdims=True))
        means.append(float(log_probabilities[np.arange(len(labels)), labels].mean()))
    return means[1] - means[0]
