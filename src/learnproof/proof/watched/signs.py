"""The terms beside the objective: entropy is raised, the critic is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Loss, Seen
from ..seen.losses import is_written_entropy
from .actors import actor_losses
from .base import ENOUGH, SeenCheck, some
from .direction import descends


class EntropySign(SeenCheck):
    name = "entropy_sign"
    concerns = "policies"
    question = "Where entropy is in the loss, does the loss ask for more of it?"
    family = "mechanism-direction"

    def lacks(self, seen: Seen) -> str:
        return "" if _slopes(seen) else "no entropy term was seen in a loss"

    def look(self, seen: Seen) -> Finding:
        slopes = np.array(_slopes(seen)) * descends(seen)
        figures = {
            "losses": len(slopes),
            "that_ask_for_more": int((slopes < 0).sum()),
            "for_less": int((slopes > 0).sum()),
        }
        if len(slopes) < ENOUGH:
            return self.finding(
                "undecided", f"{len(slopes)} losses with an entropy were seen; it takes {ENOUGH}.", figures
            )
        if (slopes > 0).mean() > 0.9:
            return self.finding(
                "fail",
                f"In {int((slopes > 0).sum())} of {len(slopes)} losses a lower entropy lowers the loss: exploration is punished.",
                figures,
                where="the entropy term",
                cause="The bonus is added to a loss that is minimised.",
                advice="Subtract coefficient * entropy from the loss (in SAC: minimise alpha * log_prob - Q).",
            )
        if (slopes < 0).mean() > 0.9:
            return self.finding("pass", f"In {len(slopes)} losses the entropy term asks for more entropy.", figures)
        return self.finding("undecided", "The entropy term asks for more and for less by turns.", figures)


def _slopes(seen: Seen) -> list[float]:
    """dL/dH of each loss that has an entropy: caught at the distribution, read from a term sum(p log p), or, for an actor that
    is trained through a critic, from the gradient at its own log-probability."""
    found = []
    through_critic = {id(loss) for loss, _ in actor_losses(seen)}
    for loss in seen.training_losses:
        caught = [e["gradient"] for e in loss.event.entropies if e.get("gradient")]
        if caught:
            found.append(float(sum(caught)))
        elif id(loss) in through_critic and loss.policies:
            slope = float(loss.policies[0].gradient.sum())  # log p stands for -H
            if slope:
                found.append(-slope)
        elif not loss.event.entropies:
            found += _written_out(loss)
    return found


def _written_out(loss: Loss) -> list[float]:
    """Coefficients of sum(p log p)."""
    terms = [term for position, term in enumerate(loss.event.terms) if position in loss.entropy_terms]
    return [-float(t["coefficient"]) for t in terms if is_written_entropy(t) and t["coefficient"]]


class CriticApart(SeenCheck):
    name = "critic_apart"
    concerns = "policies"
    question = "Does the policy's loss leave the critic alone?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        return (
            ""
            if _policy_and_value(seen)
            else "no policy was seen beside a value network that is trained on the same rollouts"
        )

    def look(self, seen: Seen) -> Finding:
        pairs = _policy_and_value(seen)
        mixed = [(policy, value) for policy, value in pairs if value and value <= policy]
        figures: dict[str, Any] = {"losses": len(pairs), "in_which_the_policy_reaches_the_critic": len(mixed)}
        if len(pairs) < ENOUGH:
            return self.finding("undecided", f"{len(pairs)} losses were looked at; it takes {ENOUGH}.", figures)
        if len(mixed) > 0.9 * len(pairs):
            return self.finding(
                "fail",
                f"In {len(mixed)} losses the policy's term has a gradient for every weight of the value network: the critic is pushed "
                "to make advantages look good.",
                figures,
                where=some(mixed[0][1]),
                cause="The advantage keeps its graph: the value in it is not detached.",
                advice="Use (returns - values).detach() as the advantage.",
            )
        return self.finding(
            "pass", f"In {len(pairs)} losses the policy's term leaves the value network alone.", figures
        )


def _policy_and_value(seen: Seen) -> list[tuple[frozenset[str], frozenset[str]]]:
    """(weights that the policy's term reaches, weights that the value's term reaches), of one loss or of two of a cycle."""
    found = []
    for cycle in sorted(seen.on_policy_cycles):
        losses = seen.by_cycle.get(cycle, [])[:8]
        for loss in losses:
            mine = {term for policy in loss.policies for term in policy.terms}
            values = {term for regression in loss.regressions for term in regression.terms} - mine
            if mine and values:
                reach = [_of_terms(loss, terms) for terms in (mine, values)]
                found.append((reach[0], reach[1]))
        policies = [loss for loss in losses if loss.policies and not loss.regressions]
        others = [loss for loss in losses if loss.regressions and not loss.policies]
        if policies and others:
            found.append((policies[0].reach, others[0].reach))
    return found


def _of_terms(loss: Loss, terms: set[int]) -> frozenset[str]:
    parts = [loss.term_reach[term] for term in terms if term < len(loss.term_reach)]
    return frozenset().union(*parts) if parts else frozenset()
