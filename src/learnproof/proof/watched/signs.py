"""The terms beside the objective: entropy is raised, the critic is left alone, the temperature trains itself alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Loss, Seen
from ..seen.losses import is_written_entropy
from .actors import actor_losses, critics
from .base import ENOUGH, SeenCheck, some
from .direction import descends

CONSTANT = 0.02
"""How far what is left over may differ from row to row and still be one number: float32, and tanh near its ends."""


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
    return [-float(t["coefficient"]) for t in loss.event.terms if is_written_entropy(t) and t["coefficient"]]


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


class TemperatureApart(SeenCheck):
    name = "temperature_apart"
    question = "Does the temperature's loss train the temperature alone?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        return "" if _temperatures(seen) and critics(seen) else "no temperature with an optimizer of its own was seen"

    def look(self, seen: Seen) -> Finding:
        own = _temperatures(seen)
        through_critic = {id(loss) for loss, _ in actor_losses(seen)}
        losses = [loss for loss in seen.training_losses if loss.reach & own and id(loss) not in through_critic]
        leaking = [loss for loss in losses if loss.reach - own]
        if not losses:  # one backward pass for actor and temperature: then by the loss's terms
            losses = [loss for loss in seen.training_losses if any(reach & own for reach in loss.term_reach)]
            leaking = [loss for loss in losses if any(reach & own and reach - own for reach in loss.term_reach)]
        figures: dict[str, Any] = {"losses": len(losses), "that_reach_more": len(leaking)}
        if len(losses) < ENOUGH:
            return self.finding(
                "undecided", f"{len(losses)} losses of the temperature were seen; it takes {ENOUGH}.", figures
            )
        if len(leaking) > 0.9 * len(losses):
            also = set().union(*(loss.reach - own for loss in leaking))
            return self.finding(
                "fail",
                f"The temperature's loss also reaches {some(also)}.",
                figures,
                where=some(own),
                cause="The log-probability in it is not detached.",
                advice="Use log_prob.detach() in the temperature's loss.",
            )
        targets = _target_entropies(seen, losses)
        if len(targets) >= ENOUGH:
            aimed, most = (float(np.median(column)) for column in zip(*targets, strict=True))
            figures |= {"target_entropy": aimed, "largest_entropy": most}
            if aimed > most:
                return self.finding(
                    "fail",
                    f"The temperature aims at an entropy of {aimed:.3g}, and actions squashed into their bounds have at most {most:.3g}: it "
                    "can only grow.",
                    figures,
                    where=some(own),
                    cause="The target entropy has the wrong sign: it is + the number of action dimensions instead of -.",
                    advice="Set target_entropy = -action_dim.",
                )
        return self.finding("pass", f"{len(losses)} losses of the temperature reach it alone.", figures)


def _target_entropies(seen: Seen, losses: Sequence[Loss]) -> list[tuple[float, float]]:
    """(target entropy, largest entropy of squashed actions), where what weighs the temperature is the log-probability of the
    actor's loss beside it, squashed by tanh, plus one constant."""
    actors = {loss.update: loss for loss in seen.training_losses if loss.policies and loss.policies[0].even}
    found = []
    for loss in losses:
        weight = loss.arrays.get("k0")
        for actor in (actors.get(loss.update), actors.get(loss.update - 1)):
            if weight is None or actor is None:
                continue
            policy = actor.policies[0]
            if policy.action is None or policy.action.dtype.kind != "f" or len(policy.action) != weight.size:
                continue
            drawn = policy.action.astype(np.float64).reshape(weight.size, -1)
            value = policy.value.astype(np.float64).reshape(weight.size, -1).sum(axis=1)
            squashed = value - np.log1p(1e-6 - np.tanh(drawn) ** 2).sum(axis=1)
            for sign in (1, -1):
                rest = sign * weight.astype(np.float64).reshape(-1) - squashed
                if np.ptp(rest) < CONSTANT:
                    found.append((float(rest.mean()), drawn.shape[1] * float(np.log(2))))
    return found


def _temperatures(seen: Seen) -> set[str]:
    """Parameters that an optimizer holds alone."""
    return {
        next(iter(owned))
        for index, owned in seen.owned.items()
        if len(owned) == 1 and seen.optimizers[index].n_owned == 1
    }
