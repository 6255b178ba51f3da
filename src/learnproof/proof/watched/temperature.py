"""SAC's temperature: its loss trains it alone, towards an entropy that a policy can have, and shows the log-probabilities that the losses
use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..check import Finding
from ..seen import Loss, Seen
from ..seen.losses import Array
from .actors import actor_losses, critics
from .base import ENOUGH, SeenCheck, some
from .direction import descends

EXPONENTIAL = "ExpBackward0"
CONSTANT = 0.02
"""How far what is left over may differ from row to row and still be one number: float32, and tanh near its ends."""
VARIED = 10
"""Times that by which log-probabilities must differ from row to row, before a constant rest says anything."""


MANY_LOSSES, SAME_WEIGHT, CLEARLY_MOVED = 20, 1e-5, 0.1
"""The last one between the first and the last of those losses: a temperature that had moved before may stand still."""


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
        right, wrong = _ways(seen, [loss for loss in losses if loss.reach <= own])
        if wrong >= ENOUGH and not right:
            return self.finding(
                "fail",
                f"In {wrong} losses the temperature is drawn down where the policy's entropy is below its target, and up where it is above.",
                {**figures, "the_wrong_way": wrong},
                where=some(own),
                cause="A minus is missing from the temperature's loss.",
                advice="alpha_loss = -(log_alpha.exp() * (log_prob + target_entropy).detach()).mean()",
            )
        unused = _never_used(seen, own, losses)
        if unused is not None:
            return self.finding(
                "fail",
                f"The temperature's logarithm has moved by {unused.moved:.3g}, and in all {unused.losses} losses of the actor the log-probability "
                f"is weighed with the same {unused.weight:.4g}: what is trained is not what is used.",
                {**figures, "moved": unused.moved, "weight_in_the_actor": unused.weight},
                where=some(own),
                cause="The temperature was read once, as a number, and is not read again after its optimizer's steps.",
                advice="alpha = log_alpha.exp().detach() before each use.",
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


class Unused(NamedTuple):
    moved: float
    losses: int
    weight: float


def _never_used(seen: Seen, own: set[str], losses: Sequence[Loss]) -> Unused | None:
    """Where the weight of the log-probability in the actor's losses stands still, to rounding, while the temperature moves. It is one if
    the actor's log-probabilities drive it; other numbers have optimizers of their own too."""
    driven = [
        np.ptp(weight - log_prob) < CONSTANT and np.ptp(log_prob) > VARIED * CONSTANT
        for weight, log_prob, _ in _weighed(seen, losses)
    ]
    if sum(driven) < ENOUGH:
        return None
    weights = {}
    for loss, _ in actor_losses(seen):
        if loss.policies and loss.policies[0].even and loss.policies[0].gradient.any():
            gradient = loss.policies[0].gradient
            weights[loss.update] = float(np.abs(gradient).mean()) * gradient.size
    if len(weights) < MANY_LOSSES or np.ptp(list(weights.values())) > SAME_WEIGHT * max(weights.values()):
        return None
    between = [step.distances for step in seen.steps if min(weights) <= step.update <= max(weights)]
    by_name = [[each[name] for each in between if name in each] for name in own]
    moved = max((float(np.ptp(distances)) for distances in by_name if distances), default=0.0)
    if moved < CLEARLY_MOVED:
        return None
    return Unused(moved, len(weights), float(np.median(list(weights.values()))))


def _ways(seen: Seen, losses: Sequence[Loss]) -> tuple[int, int]:
    """Losses f(temperature) * (log_prob + target) of the right and of the wrong sign, where f is an exponential: then the sign of the loss
    is its own. With log_alpha itself in its place nobody knows."""
    signs = [
        float(np.sign(loss.event.value * weight.mean())) * descends(seen)
        for loss in losses
        if loss.event.terms and all(EXPONENTIAL in term["structure"] for term in loss.event.terms)
        for weight, log_prob, _ in _weighed(seen, [loss])
        if np.ptp(weight - log_prob) < CONSTANT and np.ptp(log_prob) > VARIED * CONSTANT
    ]
    return signs.count(-1.0), signs.count(1.0)


def _target_entropies(seen: Seen, losses: Sequence[Loss]) -> list[tuple[float, float]]:
    """(target entropy, largest entropy of squashed actions), where what weighs the temperature is the log-probability of the
    actor's loss beside it, squashed by tanh, plus one constant."""
    return [
        (float(rest.mean()), dimensions * float(np.log(2)))
        for weight, log_prob, dimensions in _weighed(seen, losses)
        if np.ptp(rest := weight - log_prob) < CONSTANT
    ]


def averaged_log_probs(seen: Seen) -> int:
    """Losses of the temperature whose weight is that log-probability divided by the number of the action's dimensions, plus one constant."""
    own = _temperatures(seen)
    losses = [loss for loss in seen.training_losses if loss.reach and loss.reach <= own]
    return sum(
        dimensions > 1
        and bool(np.ptp(weight - log_prob / dimensions) < CONSTANT)
        and bool(np.ptp(log_prob / dimensions) > VARIED * CONSTANT)
        for weight, log_prob, dimensions in _weighed(seen, losses)
    )


def _weighed(seen: Seen, losses: Sequence[Loss]) -> Iterator[tuple[Array, Array, int]]:
    """(what weighs the temperature, with either sign; the log-probability of the action in the actor's loss beside it, squashed by tanh; the
    action's dimensions)."""
    actors = {loss.update: loss for loss in seen.training_losses if loss.policies and loss.policies[0].even}
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
                yield sign * weight.astype(np.float64).reshape(-1), squashed, drawn.shape[1]


def _temperatures(seen: Seen) -> set[str]:
    """Parameters that an optimizer holds alone."""
    return {
        next(iter(owned))
        for index, owned in seen.owned.items()
        if len(owned) == 1 and seen.optimizers[index].n_owned == 1
    }
