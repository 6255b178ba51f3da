"""Who owns what: which loss reaches which weights, and does the optimizer that steps hold them?

    losses_reach_weights   a loss that is differentiated ends in weights that some optimizer steps
    weights_owned          weights that losses reach are in an optimizer
    optimizers_step        an optimizer that is given gradients takes steps
    optimizers_fed         an optimizer that steps finds gradients on what it holds
    gradients_cleared      a step uses the gradients of its own losses: none left over, none thrown away

Healthy and not accused: an actor's loss that also reaches critics which another optimizer holds; weights frozen on purpose
(requires_grad=False); a target network that gradients happen to reach; layers that nothing calls; accumulation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

from ...evidence.watched import OptimizerStep, OptimizerTotals
from ..check import Finding
from ..seen import Loss, Seen
from .base import ENOUGH, SeenCheck, common_module, some

MIN_STEPS = 8
"""Measured steps on all of which something must be missing before it is called missing."""
NEARLY_ALL = 0.9
BOTH_WAYS = 5
"""Steps with, and steps without another loss before them, that must go together with gradients left over or not."""
CLEARED_IN_VAIN = 8
"""Calls of zero_grad without a step from which nobody accumulates any more."""
FOLLOWS = ("target", "tgt", "ema", "ref", "old", "frozen", "avg", "slow")
"""Words in the name of a network that is not meant to be trained."""


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
        acting = _acting_modules(seen)
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


def _acting_modules(seen: Seen) -> set[str]:
    """Modules that were called without gradient on what an environment had just shown."""
    acting: Counter[str] = Counter()
    for sample in seen.evidence.samples("calls"):
        for about in sample.event.modules:
            if int(about.get("calls", 0)) > 2:
                acting[str(about.get("module")).rsplit("/", 1)[0]] += 1
    return {name for name in acting if not _is_called_a_follower(name)}


def _never_reached(seen: Seen, acting: set[str]) -> set[str]:
    """Acting modules whose weights ask for gradients, are held by an optimizer, and are reached by no loss."""
    reached = set().union(*(loss.reach for loss in seen.training_losses))
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
            and not any(word in name.lower() for word in FOLLOWS)
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


class OptimizersFed(SeenCheck):
    name = "optimizers_fed"
    concerns = "optimizers"
    question = "Does each optimizer that steps find gradients on what it holds?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        return "" if seen.steps else "no optimizer step was measured"

    def look(self, seen: Seen) -> Finding:
        by_optimizer: dict[int, list[OptimizerStep]] = defaultdict(list)
        for step in seen.steps:
            by_optimizer[step.optimizer].append(step)
        hungry = {
            index: steps
            for index, steps in by_optimizer.items()
            if len(steps) >= MIN_STEPS and not any(_fed(step) for step in steps)
        }
        figures = {
            "optimizers": len(by_optimizer),
            "steps_measured": len(seen.steps),
            "without_gradients": sorted(hungry),
        }
        if hungry:
            index, steps = next(iter(hungry.items()))
            owned = seen.owned.get(index, set())
            return self.finding(
                "fail",
                f"Optimizer {index} ({seen.optimizers[index].kind if index in seen.optimizers else '?'}, holding "
                f"{common_module(owned)}) stepped {len(steps)} times among those measured, and nothing that it holds ever had a "
                "gradient.",
                figures,
                where=common_module(owned),
                cause="Two optimizers are swapped, gradients are cleared between backward() and step(), the loss is cut from these "
                "weights, or the optimizer holds tensors that the network no longer uses.",
                advice="Print, after backward() and before step(), which of the optimizer's parameters have a gradient.",
            )
        missing = _starved(seen, by_optimizer)
        figures["starved"] = sorted(missing)[:40]
        if missing:
            return self.finding(
                "fail",
                f"{common_module(missing)} ({len(missing)} weights) is held by an optimizer and is used (for acting, or for "
                "targets), and had no gradient on any measured step.",
                figures,
                where=common_module(missing),
                cause="The loss does not depend on it: its output was detached, rebuilt as a new tensor, or left out of the loss.",
                advice="Follow the loss back to this module; if it is not meant to learn, freeze it (requires_grad_(False)).",
            )
        return self.finding("pass", f"All {len(by_optimizer)} optimizers find gradients on what they hold.", figures)


def _fed(step: OptimizerStep) -> bool:
    return step.grad_norm > 0 or any(figures[0] > 0 for figures in step.parameters.values())


def _starved(seen: Seen, by_optimizer: dict[int, list[OptimizerStep]]) -> set[str]:
    """Weights without a gradient on every measured step, of modules that act and are no followers."""
    graded = {name for step in seen.steps for name, figures in step.parameters.items() if figures[0] > 0}
    never: set[str] = set()
    for index, steps in by_optimizer.items():
        if len(steps) >= 2 * MIN_STEPS:
            listed = {name for name in seen.owned.get(index, set()) if seen.trainable.get(name, False)}
            never |= listed - graded
    found: set[str] = set()
    for module in _acting_modules(seen) | _valuing_modules(seen):
        own = {name for name in seen.trainable if name.startswith(module + ".") and seen.trainable[name]}
        if own and own <= never:
            found |= own
    return found


def _valuing_modules(seen: Seen) -> set[str]:
    """Networks, or parts of them, whose answers make targets: those that the asked target networks follow, and those that were asked for
    one number for the states of a rollout."""
    asked = {
        str(about.get("module"))
        for loss in seen.training_losses
        if loss.regressions and loss.event.transitions_of is not None
        for about in loss.event.silent
    }
    values = Counter(name.rsplit("/", 1)[0] for rollout in seen.rollouts for name, _ in rollout.silent)
    return {name for name, count in values.items() if count >= ENOUGH and not _is_called_a_follower(name)} | {
        follower.met.leader + name[len(follower.name) :]
        for follower in seen.followers
        for name in asked
        if name == follower.name or name.startswith(follower.name + ".")
    }


def _is_called_a_follower(name: str) -> bool:
    return any(word in name.lower() for word in FOLLOWS)


class OptimizersStep(SeenCheck):
    name = "optimizers_step"
    question = "Does every optimizer that is given gradients take steps?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        return "" if seen.evidence.of(OptimizerTotals) else "no optimizer was seen to its end"

    def look(self, seen: Seen) -> Finding:
        totals = seen.evidence.of(OptimizerTotals)
        idle = [
            each
            for each in totals
            if each.steps == 0 and not each.moved and each.holding and each.cleared >= CLEARED_IN_VAIN
        ]
        figures = {"optimizers": len(totals), "that_never_step": len(idle)}
        if not idle:
            steps = sum(each.steps for each in totals)
            if not steps:
                return self.finding("undecided", "No optimizer took a step.", figures, advice="Call optimizer.step().")
            return self.finding("pass", f"The optimizers took {steps} steps.", figures)
        worst = max(idle, key=lambda each: each.cleared)
        about = seen.optimizers[worst.optimizer]
        return self.finding(
            "fail",
            f"Optimizer {worst.optimizer} ({about.kind}) was cleared {worst.cleared} times and {worst.holding} of its parameters hold "
            "gradients, but it never took a step: its weights are those it started with.",
            {**figures, "cleared": worst.cleared, "parameters_with_gradients": worst.holding},
            where=about.place,
            cause="optimizer.step() is never called, or is called on another optimizer.",
            advice="Call optimizer.step() after backward(), once for each zero_grad().",
        )


class GradientsCleared(SeenCheck):
    name = "gradients_cleared"
    question = "Does each step use the gradients of its own losses, none left over and none thrown away?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        return (
            ""
            if any(_between(seen)) or any(_before_steps(seen))
            else "no optimizer step was looked at together with its losses"
        )

    def look(self, seen: Seen) -> Finding:
        by_optimizer = {index: [span for span in found if span] for index, found in _between(seen).items()}
        spans = [span for found in by_optimizer.values() for span in found]
        polluted = {
            index: left
            for index, found in by_optimizer.items()
            if (left := [span for span in found if span[0].event.gradient_before > 0])
            and len(found) >= MIN_STEPS
            and (len(left) >= NEARLY_ALL * len(found) or _left_by_others(seen, index, found))
        }
        left_over = [span for left in polluted.values() for span in left]
        several = [
            span for span in _before_steps(seen) if len(span) > 1 and len({loss.structure for loss in span}) == 1
        ]
        thrown = [span for span in several if all(loss.event.gradient_before == 0 for loss in span)]
        figures = {
            "steps_looked_at": len(spans),
            "with_gradients_left_over": len(left_over),
            "with_several_like_losses": len(several),
            "with_gradients_thrown_away": len(thrown),
        }
        if polluted:
            index = next(iter(polluted))
            return self.finding(
                "fail",
                f"Before {len(polluted[index])} losses of optimizer {index} ({common_module(seen.owned[index])}) the weights still held "
                "gradients of other losses, which the step then takes in.",
                figures,
                where=f"the loss of update {left_over[0][0].update}",
                cause="zero_grad() is not called on this optimizer between its steps, or before another loss (an actor's) leaves its "
                "gradients here.",
                advice="Call optimizer.zero_grad() once per step, just before backward().",
            )
        if len(thrown) >= ENOUGH and len(thrown) >= NEARLY_ALL * len(several):
            size = len(thrown[0])
            return self.finding(
                "fail",
                f"Each step follows {size} backward passes of the same loss, and the gradients were cleared between them: only the "
                "last one counts.",
                figures,
                where=f"update {thrown[0][0].update}",
                cause="zero_grad() is called for every micro-batch instead of once per step.",
                advice="Move zero_grad() to just after optimizer.step(), outside of the loop over micro-batches.",
            )
        if len(spans) < MIN_STEPS:
            return self.finding("undecided", f"{len(spans)} steps were looked at; it takes {MIN_STEPS}.", figures)
        accumulating = f", {len(several)} of them accumulated over several passes" if several else ""
        return self.finding(
            "pass", f"On {len(spans)} steps the gradients were those of the step's own losses{accumulating}.", figures
        )


def _left_by_others(seen: Seen, index: int, found: list[list[Loss]]) -> bool:
    """Whether gradients are left over just where a loss of another optimizer (a delayed actor's) had come between."""
    owned = seen.owned[index]
    others = {loss.update for loss in seen.training_losses if loss.reach & owned and not loss.reach <= owned}
    after_others = [span for span in found if {span[0].update, span[0].update - 1} & others]
    left = [span for span in after_others if span[0].event.gradient_before > 0]
    known = {id(span) for span in after_others}
    clean = [span for span in found if id(span) not in known and span[0].event.gradient_before == 0]
    enough = min(len(left), len(clean)) >= BOTH_WAYS and len(left) >= NEARLY_ALL * len(after_others)
    return enough and len(left) + len(clean) >= NEARLY_ALL * len(found)


def _before_steps(seen: Seen) -> list[list[Loss]]:
    """For each step that was looked at, the losses since the step before it, of whichever optimizer."""
    by_update: dict[int, list[Loss]] = defaultdict(list)
    for loss in seen.training_losses:
        by_update[loss.update].append(loss)
    return list(by_update.values())


def _between(seen: Seen) -> dict[int, list[list[Loss]]]:
    """For each optimizer, the losses between two neighbouring steps of it that reach nothing but what it holds.

    Where there is one optimizer, a loss that comes first after a step is such a span by itself."""
    found: dict[int, list[list[Loss]]] = defaultdict(list)
    for index, owned in seen.owned.items():
        steps = sorted(step.update for step in seen.steps if step.optimizer == index and step.inspected)
        losses = [loss for loss in seen.training_losses if loss.reach and loss.reach <= owned]
        by_update: dict[int, list[Loss]] = defaultdict(list)
        for loss in losses:
            by_update[loss.update].append(loss)
        inspected = {step.update for step in seen.steps if step.inspected}
        for before, after in pairwise(steps):
            span = range(before + 1, after + 1)
            if len(span) <= 8 and all(update in inspected for update in span):
                found[index].append([loss for update in span for loss in by_update.get(update, [])])
        if len(seen.owned) == 1:
            known = {id(loss) for span in found[index] for loss in span}
            found[index] += [[loss] for loss in losses if loss.event.earlier == 0 and id(loss) not in known]
    return found
