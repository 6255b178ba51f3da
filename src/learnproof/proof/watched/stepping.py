"""What optimizers do with gradients: find them, step, and begin the next step without those of the last.

    optimizers_fed      an optimizer that steps finds gradients on what it holds
    optimizers_step     an optimizer that is given gradients takes steps, and lives on to use what it learnt of them
    gradients_cleared   a step uses the gradients of its own losses: none left over, none thrown away

Healthy and not accused: accumulation over several backward passes; several losses that come before one step, also where they reach weights
of several optimizers; plain SGD made anew for each step, which has nothing to lose; a language model all of whose answers earn the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from statistics import median

from ...evidence.watched import OptimizerSeen, OptimizerStep, OptimizerTotals
from ..check import Finding
from ..seen import Loss, Seen
from .answers import ALL_ALIKE, nothing_earned_more
from .base import ENOUGH, SeenCheck, common_module
from .ownership import MIN_STEPS, NEARLY_ALL, acting_modules, is_called_a_follower

BOTH_WAYS = 5
"""Steps with, and steps without another loss before them, that must go together with gradients left over or not."""
CLEARED_IN_VAIN = 8
LONG_ENOUGH = 2_000
"""Steps of another optimizer, by which a phase in which it learns alone is over."""
"""Calls of zero_grad without a step from which nobody accumulates any more."""
MADE_ANEW = 12
"""Optimizers made for the same weights, each for a step or two, from which nobody means it."""


DRY_STEPS, DRY_SHARE = 8, 1 / 3


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
        alike = nothing_earned_more(seen) if hungry else ""
        if alike:
            return self.finding("undecided", alike, figures, advice=ALL_ALIKE)
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
        for index, steps in by_optimizer.items():
            dry = _fell_dry(steps)
            if dry is None:
                continue
            owned = seen.owned.get(index, set())
            return self.finding(
                "fail",
                f"Since update {dry.update} nothing that optimizer {index} ({seen.optimizers[index].kind if index in seen.optimizers else '?'}, holding "
                f"{common_module(owned)}) holds has had a gradient, and it goes on stepping: its weights stand still.",
                {**figures, "last_step_with_gradients": dry.update, "last_step": steps[-1].update},
                where=common_module(owned),
                cause="The weights were frozen (requires_grad_(False), for a test or an export) and not released again, or the loss was cut off.",
                advice="Use torch.no_grad() for a test, or set requires_grad_(True) when it is over.",
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


def _fell_dry(steps: list[OptimizerStep]) -> OptimizerStep | None:
    """The last step with gradients, where none of those after it, a third of the run or more, had any: not even zeros."""
    with_gradients = [step for step in steps if step.parameters]
    if not with_gradients:
        return None
    after = [step for step in steps if step.update > with_gradients[-1].update]
    late = steps[-1].update - with_gradients[-1].update >= DRY_SHARE * (steps[-1].update - steps[0].update)
    return with_gradients[-1] if len(after) >= DRY_STEPS and late else None


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
    for module in acting_modules(seen) | _valuing_modules(seen):
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
    return {name for name, count in values.items() if count >= ENOUGH and not is_called_a_follower(name)} | {
        follower.met.leader + name[len(follower.name) :]
        for follower in seen.followers
        for name in asked
        if name == follower.name or name.startswith(follower.name + ".")
    }


MANY_AFTER, MANY_PLAYED = 500, 50
"""Steps of other optimizers, and episodes, after the last step of one that trains the policy."""


class OptimizersStep(SeenCheck):
    name = "optimizers_step"
    question = "Does every optimizer that is given gradients take steps, more than one or two?"
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
        anew = _made_anew(seen, totals)
        figures = {"optimizers": len(totals), "that_never_step": len(idle), "made_anew_for_a_step": len(anew)}
        if anew:
            about = seen.optimizers[anew[0].optimizer]
            return self.finding(
                "fail",
                f"{len(anew)} optimizers ({about.kind}) were made one after another for the same weights, each for "
                f"{median(each.steps for each in anew):g} steps: what they gather about the gradients is lost each time.",
                figures,
                where=about.place,
                cause="The optimizer is made inside of the training step.",
                advice="Make it once, before the loop; change its learning rate in param_groups.",
            )
        left = _left_alone(seen, totals)
        if left is not None:
            about, others = seen.optimizers[left.optimizer], max(each.steps for each in totals)
            return self.finding(
                "fail",
                f"Optimizer {left.optimizer} ({about.kind}, holding {common_module(set(about.owns))}) was made and never took a step, while "
                f"another one took {others}. Its weights are in use, and are those it started with.",
                {**figures, "steps_of_another": others},
                where=about.place,
                cause="A condition for its step never holds (a delay, a counter, a phase that never begins).",
                advice="Print when its step() is reached. If these weights are not meant to train, make no optimizer for them.",
            )
        stopped = _stopped_early(seen, totals)
        if stopped is not None:
            about, after = seen.optimizers[stopped.optimizer], _steps_after(stopped, totals)
            return self.finding(
                "fail",
                f"Optimizer {stopped.optimizer} ({about.kind}, holding {common_module(set(about.owns))}) took its last step after "
                f"{stopped.last_update} of {after + (stopped.last_update or 0) + 1} updates; {after} steps of others followed, and the policy that it "
                "trains stood still.",
                {**figures, "last_step_at_update": stopped.last_update, "steps_of_others_after": after},
                where=about.place,
                cause="A flag that stops the policy's updates (an early stop on KL, a phase) is set and never taken back.",
                advice="Take the flag back before each rollout's updates, and log how many steps each optimizer takes.",
            )
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


def _steps_after(one: OptimizerTotals, totals: list[OptimizerTotals]) -> int:
    return sum(each.steps for each in totals if each.process == one.process) - (one.last_update or 0) - 1


def _stopped_early(seen: Seen, totals: list[OptimizerTotals]) -> OptimizerTotals | None:
    """One that trains the policy of a loop which goes on playing, that stopped in the first half, and whose weights no other one holds. Where
    another policy is trained after it, the script may be done with this one."""
    policies = [loss for loss in seen.training_losses if loss.policies]
    reached = frozenset().union(*(loss.reach for loss in policies))
    here = [each for each in totals if each.process == seen.process]
    for each in here:
        if not each.steps or each.last_update is None:
            continue
        after = _steps_after(each, here)
        own = seen.owned.get(each.optimizer, set()) & reached
        others = set().union(*(seen.owned.get(other.optimizer, set()) for other in here if other is not each))
        played = sum((episode.update or 0) > each.last_update for episode in seen.evidence.episodes)
        succeeded = any(loss.update > each.last_update and not loss.reach & own for loss in policies)
        alone = own and not own & others and not succeeded
        if alone and after >= MANY_AFTER and after > each.last_update and played >= MANY_PLAYED:
            return each
    return None


def _left_alone(seen: Seen, totals: list[OptimizerTotals]) -> OptimizerTotals | None:
    """One that nobody ever stepped, for weights that no other one holds and no loss reaches, of a network that answers beside the losses."""
    if max((each.steps for each in totals), default=0) < LONG_ENOUGH:
        return None
    in_use = {str(about.get("module")) for loss in seen.training_losses for about in loss.event.silent}
    trained = {name for each in totals if each.steps for name in seen.owned.get(each.optimizer, ())}
    trained |= set().union(*(loss.reach for loss in seen.training_losses))
    for each in totals:
        owned = seen.owned.get(each.optimizer, set())
        if (
            each.steps == 0
            and not owned & trained
            and any(name.startswith(f"{module}.") for name in owned for module in in_use)
        ):
            return each
    return None


def _made_anew(seen: Seen, totals: list[OptimizerTotals]) -> list[OptimizerTotals]:
    by_weights: dict[frozenset[str], list[OptimizerTotals]] = defaultdict(list)
    for each in totals:
        about = seen.optimizers.get(each.optimizer)
        if about is not None and each.steps and _gathers(about):
            by_weights[frozenset(about.owns)].append(each)
    several = [found for found in by_weights.values() if len(found) >= MADE_ANEW]
    return next((found for found in several if max(each.steps for each in found) <= 2), [])


def _gathers(optimizer: OptimizerSeen) -> bool:
    """Whether it keeps something from one step to the next."""
    return optimizer.kind != "SGD" or any(group.get("momentum") for group in optimizer.groups)


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
            if (
                left := [
                    span for span in found if span[0].event.gradient_before > 0 and not _joins(seen, index, span[0])
                ]
            )
            and len(found) >= MIN_STEPS
            and (len(left) >= NEARLY_ALL * len(found) or _left_by_others(seen, index, found))
        }
        left_over = [span for left in polluted.values() for span in left]
        several = [
            span for span in _before_steps(seen) if len(span) > 1 and len({loss.structure for loss in span}) == 1
        ]
        thrown = [
            span
            for span in several
            if all(loss.event.gradient_before == 0 for loss in span) and not all(map(_leaves_nothing, span[:-1]))
        ]
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


def _leaves_nothing(loss: Loss) -> bool:
    """Whether its rows all have the weight 0, so that there was no gradient to be cleared."""
    return bool(loss.policies) and not loss.regressions and not any(policy.gradient.any() for policy in loss.policies)


def _joins(seen: Seen, index: int, loss: Loss) -> bool:
    """Whether another loss of the same step came before it and reaches what this optimizer holds: both are meant to be added."""
    return any(
        other.update == loss.update
        and 0 <= other.event.earlier < loss.event.earlier
        and other.reach & seen.owned[index]
        for other in seen.training_losses
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
