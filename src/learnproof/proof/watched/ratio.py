"""Before the first step on a rollout, new and old log-probabilities are the same ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Seen
from ..seen.tokens import token_losses
from .base import SeenCheck

RATIO_OFF = 1e-3
"""Float32 leaves 1e-6 in a ratio; a policy that has taken one step is off by 1e-2."""


class RatioIsOne(SeenCheck):
    name = "ratio_is_one"
    concerns = "policies"
    question = "Before the first step on a rollout, do new and old log-probabilities agree?"
    family = "mechanism-identity"

    def lacks(self, seen: Seen) -> str:
        return "" if _first_ratios(seen) else "no probability ratio was seen in the first loss on a rollout"

    def look(self, seen: Seen) -> Finding:
        off = [float(np.max(np.abs(ratio - 1))) for ratio in _first_ratios(seen)]
        wrong = [value for value in off if not value <= RATIO_OFF]
        figures = {
            "rollouts": len(off),
            "largest_difference_from_1": max(off),
            "median": float(np.median(off)),
            "off": len(wrong),
        }
        if len(off) < 3:
            return self.finding("undecided", f"{len(off)} first minibatches were seen; it takes 3.", figures)
        if len(wrong) > 0.8 * len(off):
            return self.finding(
                "fail",
                f"Before any step on the rollout, the ratio is off 1 by up to {max(off):.2g} in {len(wrong)} of {len(off)} rollouts: "
                "stored and recomputed log-probabilities are not of the same action under the same policy.",
                figures,
                where="the first minibatch of each rollout",
                cause="Old log-probabilities are stored in another order, before a squash or of other actions than those replayed; "
                "dropout or batch statistics differ between acting and learning; or the rollout was made with stale weights.",
                advice="Store the log-probability of exactly the stored action, at the moment of acting, in the same mode.",
            )
        if wrong:
            return self.finding("undecided", f"The ratio is off 1 in {len(wrong)} of {len(off)} rollouts.", figures)
        return self.finding("pass", f"The ratio is 1 to {max(off):.1g} at the start of {len(off)} rollouts.", figures)


def _first_ratios(seen: Seen) -> list[np.ndarray[Any, Any]]:
    found = []
    for cycle in sorted({rollout.cycle for rollout in seen.rollouts}):
        losses = seen.by_cycle.get(cycle, [])
        if losses and losses[0].ratios and losses[0].ratios[0].size:
            found.append(losses[0].ratios[0])
    for tokens in token_losses(seen):
        ratios = tokens.loss.ratios
        if tokens.prompt is not None and ratios and ratios[0].size == tokens.used.size and tokens.used.any():
            found.append(
                ratios[0].reshape(-1)[tokens.used.reshape(-1)]
            )  # sampled since the last step: the first on its batch
    return found
