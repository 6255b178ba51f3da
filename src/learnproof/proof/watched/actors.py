"""An actor that is trained through a critic: does each step raise the critic's answer, and does the critic stay as it is?

The gradient that arrives at the critic's answer in the actor's loss says which way the actor is pushed, whatever the loss is spelt like.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Loss, Seen
from ..seen.bootstrap import bootstraps
from ..seen.losses import Array, is_stacked
from .base import ENOUGH, SeenCheck
from .direction import descends


class ActorClimbs(SeenCheck):
    name = "actor_climbs"
    question = "Does the actor raise the critic's answer, and leave the critic alone?"
    family = "mechanism-direction"

    def lacks(self, seen: Seen) -> str:
        if actor_losses(seen) or _deaf_actors(seen):
            return ""
        return "no loss was seen that trains an actor through a critic"

    def look(self, seen: Seen) -> Finding:
        found = actor_losses(seen)
        deaf = _deaf_actors(seen)
        if not found and len(deaf) >= ENOUGH:
            return self.finding(
                "fail",
                f"{len(deaf)} losses of the actor hold its log-probability alone: the critic's answer gives it no gradient.",
                {"losses": len(deaf)},
                where="the actor's loss",
                cause="Q is detached, or computed under no_grad, in the actor's loss.",
                advice="Let the gradient flow through Q into the action; freeze the critic's weights, not its output.",
            )
        cut = [loss for loss, _ in found if not _reaches_actor_through_critic(seen, loss)]
        if len(cut) >= ENOUGH and len(cut) > 0.9 * len(found):
            return self.finding(
                "fail",
                f"In {len(cut)} losses of the actor the critic's answer has no gradient for the actor's weights.",
                {"losses": len(found), "in_which_the_action_is_cut_off": len(cut)},
                where="the actor's loss",
                cause="The action that the critic is given has no graph: sample() where rsample() belongs, or a detached action.",
                advice="Draw the action with rsample(), or hand over the actor's output itself.",
            )
        sign = descends(seen)
        slopes = np.array([slope * sign for _, slope in found])
        mixed = [loss for loss, _ in found if _regresses_and_climbs(seen, loss)]
        figures = {
            "losses": len(found),
            "that_raise_the_critic": int((slopes < 0).sum()),
            "that_lower_it": int((slopes > 0).sum()),
            "that_also_train_the_critic": len(mixed),
        }
        if len(found) < ENOUGH:
            return self.finding("undecided", f"{len(found)} such losses were looked at; it takes {ENOUGH}.", figures)
        if (slopes > 0).mean() > 0.9:
            return self.finding(
                "fail",
                f"In {int((slopes > 0).sum())} of {len(found)} losses the actor is pushed to actions that the critic values less.",
                figures,
                where="the actor's loss",
                cause="A minus is missing: the actor's loss is +Q, or the entropy term was negated as a whole.",
                advice="Minimise alpha * log_prob - Q (or -Q).",
            )
        if len(mixed) > 0.9 * len(found):
            return self.finding(
                "fail",
                f"{len(mixed)} losses draw the critic to its target and push it up for the actor's sake in one backward pass.",
                figures,
                where="the actor's loss",
                cause="Actor and critic losses are added and one optimizer holds both, so that the critic learns to flatter.",
                advice="Step actor and critic apart, each with its own optimizer, or freeze the critic while the actor's loss runs.",
            )
        if (slopes < 0).mean() > 0.9:
            return self.finding(
                "pass", f"In {len(found)} losses the actor is pushed to actions that the critic values more.", figures
            )
        return self.finding("undecided", "The actor is pushed up and down the critic by turns.", figures)


def _deaf_actors(seen: Seen) -> list[Loss]:
    """Beside temporal-difference losses: losses with nothing but an evenly weighted log-probability that reaches no critic."""
    names = critics(seen)
    if not names:
        return []
    return [
        loss
        for loss in seen.training_losses
        if loss.policies
        and loss.policies[0].even
        and len(loss.reach) > 1
        and not any(name.startswith(critic + ".") for name in loss.reach for critic in names)
        and not _asks_a_critic(loss, names)
    ]


def _asks_a_critic(loss: Loss, names: set[str]) -> bool:
    """Also with weights that were detached on purpose, which no loss reaches: beside the network that the log-probabilities come from,
    another one was asked with a gradient."""
    modules = {str(about.get("module")) for about in loss.event.calls}
    asked = {name for name in modules if not any(reached.startswith(name + ".") for reached in loss.reach)}
    return bool(asked) or any(related(module, critic) for module in modules for critic in names)


def critics(seen: Seen) -> set[str]:
    """Modules that temporal-difference losses regress."""
    return {each.module for each in bootstraps(seen) if each.module is not None}


def actor_losses(seen: Seen) -> list[tuple[Loss, float]]:
    """Losses in which a critic is asked with a gradient and not regressed, with the sum of dL/dQ."""
    known = seen.notes.get("actor_losses")
    if known is None:
        known = seen.notes["actor_losses"] = _find_actor_losses(seen)
    return list(known)


def _find_actor_losses(seen: Seen) -> list[tuple[Loss, float]]:
    regressed = critics(seen)
    found = []
    for loss in seen.training_losses:
        mine = {regression.call for regression in loss.regressions}
        slope = 0.0
        asked = False
        for position, about in enumerate(loss.event.calls):
            gradient = loss.arrays.get(f"c{position}.gradient")
            of_a_critic = any(related(str(about.get("module")), critic) for critic in regressed)
            if gradient is None or position in mine or not of_a_critic or not _one_number(gradient):
                continue
            if any(_nested(about, loss.event.calls[other]) for other in mine if other is not None):
                continue
            asked = True
            slope += float(gradient.sum())
        others = {name for name in loss.reach if not any(name.startswith(critic + ".") for critic in regressed)}
        if asked and others and slope:
            found.append((loss, slope))
    return found


def _reaches_actor_through_critic(seen: Seen, loss: Loss) -> bool:
    """Whether a term with a critic's answer in it reaches other weights than the critics'."""
    regressed = critics(seen)
    terms = {
        term
        for about in loss.event.calls
        if any(related(str(about.get("module")), critic) for critic in regressed)
        for term in about.get("terms", ())
        if term < len(loss.term_reach)
    }
    reached = {name for term in terms for name in loss.term_reach[term]}
    return not terms or any(not any(name.startswith(critic + ".") for critic in regressed) for name in reached)


def _one_number(gradient: Array) -> bool:
    return gradient.ndim == 1 or (gradient.ndim == 2 and gradient.shape[1] == 1) or is_stacked(gradient.shape)


def related(module: str, critic: str) -> bool:
    return module == critic or critic.startswith(module + ".") or module.startswith(critic + ".")


def _nested(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Two calls of one forward pass: the same terms, and one inside of the other."""
    return first.get("terms") == second.get("terms") and related(str(first.get("module")), str(second.get("module")))


def _regresses_and_climbs(seen: Seen, loss: Loss) -> bool:
    owners = seen.owners(frozenset(loss.reach))
    critics_reached = {n for n in loss.reach if any(n.startswith(critic + ".") for critic in critics(seen))}
    if not loss.regressions or len(owners) != 1:
        return False
    return critics_reached <= seen.owned[next(iter(owners))]
