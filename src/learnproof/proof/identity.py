"""Is the probability ratio 1 before the first step on a fresh rollout?

The first gradient step of an iteration sees the policy that collected the rollout, so the log-probability stored with
an action and the one recomputed for it must be the same number, but for float32 rounding. If they are not, the ratio
that PPO clips compares two things that are not the same policy: stale weights, another distribution, actions changed after
their log-prob was taken, dropout, rows mixed up. Rollouts of another policy are left out: their difference is the importance.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..evidence import Evidence
from ..evidence.reader import Sample
from .check import Check, Finding, Needs
from .oracle import column

MIN_ITERATIONS = 3
"""Iterations that must agree before anything is said."""
EQUAL = 1e-4
"""Differences up to here are rounding: float32 keeps 6e-8 of a logit, a dot product over 256 inputs loses about 16 times
as much, and a gaussian with deviation 0.01 turns an error in its mean into one 100 times larger."""
DIFFERENT = 1e-3
"""Differences from here on are not: the smallest fault measured (stored log-probs shuffled while the policy was still
nearly uniform) left 1e-3. Between the two nothing is said."""
QUANTILE = 0.9
"""Nine samples in ten decide, so that a few actions at the bound of a squashed distribution do not."""


def log_prob_difference(sample: Sample) -> float:
    """The QUANTILE of |recomputed - stored|, relative where log-probs are larger than 1; NaN for an empty batch."""
    stored = column(sample, "old_log_prob")
    recomputed = column(sample, "log_prob_before")
    if stored.size == 0:
        return float("nan")
    return float(np.quantile(np.abs(recomputed - stored) / np.maximum(1.0, np.abs(stored)), QUANTILE))


class RatioIsOne(Check):
    name = "ratio_is_one"
    question = (
        "Before the first step on a rollout, does the policy give its own actions the probability stored with them?"
    )
    family = "mechanism-identity"
    accuses = "by comparison"
    needs = Needs(samples={"gradient_step": ("row", "old_log_prob", "log_prob_before")})

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        differences: dict[int, float] = {}
        for sample in evidence.samples("gradient_step"):
            first = sample.event.epoch == 0 and sample.event.minibatch == 0
            if first and "weight" not in sample and "old_log_prob" in sample and "log_prob_before" in sample:
                difference = sample.once("log-probabilities apart", partial(log_prob_difference, sample))
                if np.isfinite(difference):
                    differences[sample.event.update] = difference
        equal = [u for u, d in differences.items() if d <= EQUAL]
        different = [u for u, d in differences.items() if d > DIFFERENT]
        figures: dict[str, Any] = {
            "iterations": len(differences),
            "equal": len(equal),
            "different": len(different),
            "largest_difference": max(differences.values(), default=0.0),
            "median_difference": float(np.median(list(differences.values()))) if differences else 0.0,
            "equal_up_to": EQUAL,
            "different_from": DIFFERENT,
        }
        if len(differences) < MIN_ITERATIONS:
            return self.finding(
                "undecided",
                f"The first gradient step was inspected in {len(differences)} iterations; it takes {MIN_ITERATIONS}.",
                figures,
                advice="Train for more iterations, or inspect the first minibatch of the first epoch.",
            )
        if len(equal) == len(differences):
            return self.finding(
                "pass",
                f"In all {len(differences)} inspected iterations the stored and the recomputed log-probabilities agree "
                f"(largest difference {figures['largest_difference']:.1e}).",
                figures,
            )
        if len(different) >= MIN_ITERATIONS and len(different) > len(differences) / 2:
            worst = max(different, key=differences.__getitem__)
            return self.finding(
                "fail",
                f"In {len(different)} of {len(differences)} inspected iterations the log-probabilities stored with the actions are not "
                f"those of the policy that is about to be trained (median difference {figures['median_difference']:.2g}, "
                f"rounding explains {EQUAL:g}).",
                figures,
                where=f"update {worst}, epoch 0, minibatch 0",
                cause="The stored log-probs come from older weights, another distribution or other actions than those trained "
                "on, or the network behaves differently in rollouts and updates (dropout, normalisation).",
                advice="Recompute log_prob of the stored actions right after the rollout, before any step, and compare; check "
                "that actions are stored before clipping and that normalisation statistics are the same in both places.",
            )
        return self.finding(
            "undecided",
            f"The stored and the recomputed log-probabilities agree in {len(equal)} of {len(differences)} inspected iterations, and "
            f"clearly differ in {len(different)}.",
            figures,
            advice="If rollouts run at a lower precision than updates, this is rounding; inspect more iterations to tell.",
        )
