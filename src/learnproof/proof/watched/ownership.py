"""Who owns what: which loss reaches which weights, and does the optimizer that steps hold them?

    losses_reach_weights   a loss that is differentiated ends in weights that some optimizer steps
    weights_owned          weights that losses reach are in an optimizer

Healthy and not accused: an actor's loss that also reaches critics which another optimizer holds; weights frozen on purpose
(requires_grad=False); a target network that gradients happen to reach; layers that nothing calls. What an optimizer does with its
gradients is asked in stepping.py.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from ..check import Finding
from ..seen import Loss, Seen
from .base import ENOUGH, SeenCheck, common_module, some

MIN_STEPS = 8
"""Losses and measured steps on all of which something must be missing before it is called missing."""
NEARLY_ALL = 0.9
FOLLOWS = ("target", "tgt", "ema", "ref", "old", "frozen", "avg", "slow")
"""Words in the name of a network that is not meant to be trained."""


LEAF = "torch::autograd::AccumulateGrad"
LINEAR = (
    "MulBackward0",
    "DivBackward0",
    "NegBackward0",
    "AddBackward0",
    "SubBackward0",
    "SumBackward0",
    "MeanBackward0",
    "StackBackward0",
)


class LossesReachWeights(SeenCheck):
    name = "losses_reach_weights"
    question = "Does every loss that is differentiated end in weights that an optimizer steps?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        if not seen.optimizers:
            return "no optimizer was seen"
        return "" if seen.training_losses else "no loss was read"

    def look(self, seen: Seen) -> Finding:
        losses = seen.training_losses
        by_line: dict[tuple[object, ...], list[Loss]] = defaultdict(list)
        for loss in losses:
            by_line[loss.structure].append(loss)
        dead = [
            group
            for group in by_line.values()
            if len(group) >= ENOUGH and not any(loss.reach & seen.all_owned for loss in group)
        ]
        figures: dict[str, Any] = {
            "losses_read": len(losses),
            "kinds_of_loss": len(by_line),
            "that_reach_no_weight": len(dead),
        }
        if dead and seen.owned_whole:
            reached = set().union(*(loss.reach for group in dead for loss in group))
            what = f"only {some(reached)}, which no optimizer holds" if reached else "no parameter at all"
            return self.finding(
                "fail",
                f"A loss that was differentiated {sum(map(len, dead))} times among the updates looked at reaches {what}: "
                "its gradients change nothing.",
                figures,
                where=f"the loss of update {dead[0][0].update}",
                cause="The graph is cut: a tensor was rebuilt (torch.tensor(list), .item(), .numpy()), detached, or made under "
                "no_grad; or the optimizer was built on other tensors than the loss uses.",
                advice="Keep the tensors that the network returned (torch.stack instead of torch.tensor) and build the optimizer "
                "from the parameters of the network that the loss calls.",
            )
        acting = acting_modules(seen)
        untouched = _never_reached(seen, acting)
        figures["modules_that_act"] = sorted(acting)
        if untouched and len(losses) >= MIN_STEPS and seen.owned_whole:
            return self.finding(
                "fail",
                f"{some(untouched)} chooses the actions, and none of the {len(losses)} losses that were looked at reaches it.",
                figures,
                where=some(untouched),
                cause="The log-probabilities or Q-values in the loss were cut from the network's graph, or the loss is computed "
                "with another network than the one that acts.",
                advice="Compute the loss from this network's own outputs, without .detach(), .item() or torch.tensor(...) between.",
            )
        loose = _made_for_the_loss(seen)
        if len(loose) >= ENOUGH and len(loose) > 0.8 * len(losses):
            return self.finding(
                "fail",
                f"In {len(loose)} of {len(losses)} losses a term ends in a tensor that was made for this loss alone: no network is behind it, and "
                "its gradient changes nothing.",
                {**figures, "with_a_term_of_a_tensor_made_anew": len(loose)},
                where=f"the loss of update {loose[0].update}",
                cause="Log-probabilities or values were rebuilt with torch.tensor(list, requires_grad=True), which cuts their graph and hides it.",
                advice="Keep the tensors that the network returned: torch.stack(list) instead of torch.tensor(list).",
            )
        alone = _trained_by_entropy_alone(seen)
        if alone:
            return self.finding(
                "fail",
                f"Nothing but an entropy reaches {common_module(alone)} in the losses: no action is told from a better one there.",
                figures,
                where=common_module(alone),
                cause="The log-probabilities in the loss were cut from the network's graph: kept from acting under no_grad, as "
                "floats, detached, or rebuilt with torch.tensor.",
                advice="Compute the log-probabilities of the actions from the network's own outputs when the loss is made.",
            )
        return self.finding(
            "pass", f"All {len(losses)} losses that were looked at reach weights that an optimizer holds.", figures
        )


def _made_for_the_loss(seen: Seen) -> list[Loss]:
    """Losses with a term that multiplies nothing but tensors without a name, which no optimizer holds and no other loss reaches."""
    met: Counter[str] = Counter(name for loss in seen.training_losses for name in loss.reach)
    found = []
    for loss in seen.training_losses:
        for term, reach in zip(loss.event.terms, loss.term_reach, strict=False):
            linear = set(term["structure"]) <= {*LINEAR, LEAF} and LEAF in term["structure"]
            fresh = reach and all(name.startswith("tensor-") and met[name] == 1 for name in reach)
            if linear and fresh and not reach & seen.all_owned and max(term.get("shape") or [1], default=1) > 1:
                found.append(loss)
                break
    return found


def _trained_by_entropy_alone(seen: Seen) -> set[str]:
    """Weights that entropies reach and no other term of any loss does, nor a log-probability."""
    by_entropy: set[str] = set()
    by_others: set[str] = set()
    looked = 0
    for loss in seen.training_losses:
        entropies = loss.entropy_terms if loss.event.n_terms == len(loss.term_reach) and not loss.policies else set()
        looked += bool(entropies)
        for term, reach in enumerate(loss.term_reach):
            (by_entropy if term in entropies else by_others).update(reach)
        if not entropies:
            by_others |= loss.reach
    return by_entropy - by_others if looked >= MIN_STEPS else set()


def acting_modules(seen: Seen) -> set[str]:
    """Modules that were called without gradient on what an environment had just shown."""
    acting: Counter[str] = Counter()
    for sample in seen.evidence.samples("calls"):
        for about in sample.event.modules:
            if int(about.get("calls", 0)) > 2:
                acting[str(about.get("module")).rsplit("/", 1)[0]] += 1
    return {name for name in acting if not is_called_a_follower(name)}


def _never_reached(seen: Seen, acting: set[str]) -> set[str]:
    """Acting modules whose weights ask for gradients, are held by an optimizer, and are reached by no loss. Weights that were found with gradients
    are reached by one that was not looked at: the first updates of each cycle may all be the critic's."""
    reached = set().union(*(loss.reach for loss in seen.training_losses))
    reached |= {name for step in seen.steps for name, (norm, *_) in step.parameters.items() if norm}
    found = set()
    for module in acting:
        own = {name for name in seen.trainable if name.startswith(module + ".")}
        wanted = {name for name in own if seen.trainable[name] and name in seen.all_owned}
        if wanted and not own & reached:
            found.add(module)
    outermost = {m for m in found if not any(m.startswith(other + ".") for other in found)}
    return outermost


class WeightsOwned(SeenCheck):
    name = "weights_owned"
    concerns = "optimizers"
    question = "Is every weight that the losses reach held by an optimizer?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        if not seen.optimizers:
            return "no optimizer was seen"
        if not seen.owned_whole:
            return "an optimizer holds more parameters than were listed by name"
        return "" if seen.training_losses else "no loss was read"

    def look(self, seen: Seen) -> Finding:
        counts: Counter[str] = Counter()
        for loss in seen.training_losses:
            if loss.reach & seen.all_owned:
                counts.update(loss.reach - seen.all_owned)
        following = {follower.name for follower in seen.followers if follower.met.equal or follower.moves}
        orphans = {
            name
            for name, count in counts.items()
            if count >= ENOUGH
            and seen.trainable.get(name, True)
            and not any(name.startswith(follower + ".") for follower in following)
            and not is_called_a_follower(name)
        }
        figures = {
            "weights_reached": len(counts | Counter(seen.all_owned)),
            "held_by_no_optimizer": sorted(orphans)[:40],
        }
        if orphans:
            return self.finding(
                "fail",
                f"{len(orphans)} weights of {common_module(orphans)} get a gradient from the losses and are in no optimizer: they "
                "never learn.",
                figures,
                where=common_module(orphans),
                cause="The module was left out of the optimizer's list (a shared feature network, say), or it was replaced after "
                "the optimizer had been built.",
                advice="Give its parameters to an optimizer, or freeze it with requires_grad_(False) if it is not meant to learn.",
            )
        return self.finding("pass", "Every weight that the losses reach is held by an optimizer.", figures)


def is_called_a_follower(name: str) -> bool:
    return any(word in name.lower() for word in FOLLOWS)
