"""Do the weights move, and does every parameter get a gradient?

Both questions are about exact zeros, not about sizes: how far weights should move is the learning rate's affair, but a
parameter that has a gradient and a learning rate and does not move at all is not held by the optimizer that steps. Healthy and not
accused: warm-up from 0, a schedule that reaches 0 at its very end, steps that a gradient scaler skips, steps too small for
float32 to register.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..evidence import Evidence
from ..evidence.watched import OptimizerStep
from .check import Check, Finding, Needs

MIN_UPDATES = 3
"""Updates that must agree before anything is said."""
MIN_STEPS_TO_ACCUSE = 8
"""Inspected gradient steps on all of which a parameter must stand still, or be without gradient, to be named."""
REGISTERS = 1e-6
"""A step below this share of the weight's norm may be lost in float32 rounding (6e-8), with room for gradient clipping."""
IDLE_SHARE = 0.2
IDLE_UPDATES = 5
"""A schedule is called spent too early when the learning rate is 0 for this share, and this number, of the last updates."""
EXPLODING = 100.0
"""The norm above which the classic rule calls a gradient exploding."""


class WeightsChanging(Check):
    name = "weights_changing"
    question = "Do all weights that have a gradient move when the optimizer steps?"
    family = "mechanism-health"
    accuses = "by comparison"
    needs = Needs(events=("measured_step",))
    min_samples = MIN_UPDATES

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        if not evidence.updates:
            return self._judge_watched(evidence.of(OptimizerStep))
        updates = evidence.updates
        steps = _measured(evidence)
        rates = [update.learning_rate for update in updates]
        still = _standing_still(steps)
        last = updates[-1]
        graded = {name for update in updates for name, change in update.modules.items() if change.grad_norm > 0}
        unmoved = sorted(n for n, change in last.modules.items() if change.weight_change == 0 and n in graded)
        idle = _trailing_zeros(rates)
        figures: dict[str, Any] = {
            "updates": len(updates),
            "gradient_steps_inspected": len(steps),
            "weight_change": last.weight_change,
            "weight_change_by_module": {name: change.weight_change for name, change in last.modules.items()},
            "learning_rate_first": rates[0],
            "learning_rate_largest": max(rates),
            "learning_rate_last": rates[-1],
            "updates_at_learning_rate_0": sum(rate == 0 for rate in rates),
            "parameters_that_stand_still": still,
        }
        if max(rates) == 0:
            return self.finding(
                "fail",
                f"The learning rate is 0 in all {len(updates)} updates, so nothing can be learnt.",
                figures,
                where="learning rate",
                cause="The learning rate was set to 0, or its schedule is stepped past its end from the start.",
                advice="Set a learning rate above 0 (3e-4 is a usual start) and print the schedule's first values.",
            )
        if last.weight_change == 0 and not any(norm > 0 for update in updates for norm in update.grad_norm):
            return self.finding(
                "undecided",
                f"No weight has moved in {len(updates)} updates, but none had a gradient either (see gradients_flowing).",
                figures,
            )
        if last.weight_change == 0:
            return self.finding(
                "fail",
                f"After {last.optimizer_steps} gradient steps with learning rates up to {max(rates):.2g} all weights are exactly "
                "where they started.",
                figures,
                where=f"all parameters, updates 0 to {last.index}",
                cause="The optimizer's step is never called, or the optimizer holds other tensors than the network that acts.",
                advice="Call optimizer.step() after backward(), and build the optimizer from the final network's parameters.",
            )
        if unmoved:
            return self.finding(
                "fail",
                f"The module{'s' if len(unmoved) > 1 else ''} {', '.join(unmoved)} {'have' if len(unmoved) > 1 else 'has'} not "
                f"moved in {len(updates)} updates, while others have.",
                figures,
                where=", ".join(unmoved),
                cause="Its parameters are in no optimizer, in one that never steps, or in a group with learning rate 0.",
                advice="Check that every module meant to learn is in exactly one optimizer, with a learning rate above 0. "
                "Freeze it (requires_grad=False) if it is not meant to learn.",
            )
        if still:
            return self.finding(
                "fail",
                f"{_listed(still)} got a gradient on each inspected step and never moved.",
                figures,
                where=_listed(still),
                cause="The optimizer does not hold these tensors: they were replaced after it was built, or left out of its list.",
                advice="Build the optimizer after the last change to the network, from all of its parameters.",
            )
        if idle >= IDLE_UPDATES and idle >= IDLE_SHARE * len(updates):
            return self.finding(
                "fail",
                f"The learning rate has been 0 for the last {idle} of {len(updates)} updates: the schedule was spent long before the "
                "training.",
                figures,
                where=f"updates {updates[-idle].index} to {last.index}",
                cause="The schedule counts in other units than it is stepped in (rollouts against gradient steps, say).",
                advice="Size the schedule by the number of times that it is stepped.",
            )
        if len(steps) < MIN_UPDATES:
            return self.finding(
                "undecided",
                f"The weights have moved by {last.weight_change:.3g} in {len(updates)} updates, but only {len(steps)} gradient "
                "steps were inspected parameter by parameter.",
                figures,
                advice="Inspect more updates (evidence.max_inspections).",
            )
        return self.finding(
            "pass",
            f"In {len(updates)} updates the weights have moved by {last.weight_change:.3g} from their start, every module has "
            f"moved, and on {len(steps)} inspected steps every parameter with a gradient moved.",
            figures,
        )

    def _judge_watched(self, seen: Sequence[OptimizerStep]) -> Finding:
        """Of a stranger's loop: measured steps, by the parameters that the optimizers hold."""
        steps = _of_watched(seen)
        still = _standing_still(steps)
        largest = max((step.learning_rate for step in steps), default=0.0)
        moved = sorted({name for step in steps for name, (_, _, change) in step.parameters.items() if change > 0})
        figures: dict[str, Any] = {
            "gradient_steps_inspected": len(steps),
            "learning_rate_largest": largest,
            "parameters_that_move": len(moved),
            "parameters_that_stand_still": still,
        }
        if len(steps) < MIN_STEPS_TO_ACCUSE:
            return self.finding(
                "undecided",
                f"{len(steps)} optimizer steps with gradients were measured; it takes {MIN_STEPS_TO_ACCUSE}.",
                figures,
                advice="Let the script train longer.",
            )
        if largest == 0:
            return self.finding(
                "fail",
                f"The learning rate is 0 on all {len(steps)} measured optimizer steps, so nothing can be learnt.",
                figures,
                where="learning rate",
                cause="The learning rate was set to 0, or its schedule is spent before it begins.",
                advice="Set a learning rate above 0 and print the schedule's first values.",
            )
        if still:
            return self.finding(
                "fail",
                f"{_listed(still)} got a gradient on each measured step of its optimizer and never moved.",
                figures,
                where=_listed(still),
                cause="The optimizer's learning rate for it is 0, or its step does not reach the tensor that has the gradient.",
                advice="Check the optimizer's groups; freeze the parameter (requires_grad=False) if it is not meant to learn.",
            )
        if not moved:
            return self.finding(
                "undecided", "No parameter moved, and none had a gradient that should move it.", figures
            )
        return self.finding(
            "pass",
            f"On {len(steps)} measured optimizer steps all {len(moved)} parameters with a gradient moved.",
            figures,
        )


class GradientsFlowing(Check):
    name = "gradients_flowing"
    question = "Does every parameter that is meant to learn get a gradient?"
    family = "mechanism-health"
    accuses = "by comparison"
    needs = Needs(events=("update", "gradient_step"))
    min_samples = MIN_UPDATES

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        steps = _measured(evidence)
        largest: dict[str, float] = dict.fromkeys(evidence.run.parameters, 0.0)
        for step in steps:
            for name, (gradient, *_) in step.parameters.items():
                largest[name] = max(largest.get(name, 0.0), gradient if math.isfinite(gradient) else 0.0)
        dead = sorted(name for name, norm in largest.items() if norm == 0)
        norms = [norm for update in evidence.updates for norm in update.grad_norm]
        exploding = sum(not norm < EXPLODING for norm in norms)
        figures: dict[str, Any] = {
            "gradient_steps_inspected": len(steps),
            "parameters": len(largest),
            "parameters_without_gradient": dead,
            "norms": len(norms),
            "norms_of_100_or_more": exploding,
            "norm_largest": max(norms, default=0.0),
        }
        if len(steps) < MIN_UPDATES or (dead and len(steps) < MIN_STEPS_TO_ACCUSE):
            return self.finding(
                "undecided",
                f"{len(steps)} gradient steps were inspected, on which {len(dead)} of {len(largest)} parameters had no gradient; it "
                f"takes {MIN_STEPS_TO_ACCUSE if dead else MIN_UPDATES} steps to say more.",
                figures,
                advice="Train longer, or inspect more updates (evidence.max_inspections).",
            )
        if dead and evidence.run.constants.get("value_coefficient") == 0:
            return self.finding(
                "undecided",
                f"{_listed(dead)} had no gradient, which is right for a critic whose value coefficient is 0.",
                figures,
                where=_listed(dead),
                advice="Give the value loss a coefficient above 0, or freeze what is not meant to learn.",
            )
        excuse = _nothing_to_learn_from(evidence) if dead else None
        if excuse is not None:
            return self.finding(
                "undecided",
                f"{_listed(dead)} had no gradient, and {excuse}.",
                figures,
                where=_listed(dead),
                advice="Look at the environment first: it has to show something, and to leave a choice.",
            )
        if dead:
            return self.finding(
                "fail",
                f"{_listed(dead)} had no gradient on any of {len(steps)} inspected steps.",
                figures,
                where=_listed(dead),
                cause="The loss does not reach it: a detached tensor, no_grad, a value rebuilt with torch.tensor, a branch that the "
                "loss leaves out, or units that are all dead.",
                advice="Follow the loss back to this parameter; freeze it (requires_grad=False) if it is not meant to learn.",
            )
        if norms and exploding == len(norms):
            return self.finding(
                "undecided",
                f"Every gradient norm is {EXPLODING:g} or more before clipping (largest {max(norms):.3g}). Clipped, that can be "
                "healthy where rewards are large; it is no sign of health either.",
                figures,
                advice="Normalise rewards or lower the value coefficient, and keep gradient clipping on.",
            )
        summary = f"All {len(largest)} parameters got a gradient on {len(steps)} inspected steps."
        if exploding:
            summary += f" {exploding} of {len(norms)} gradient norms were {EXPLODING:g} or more before clipping."
        return self.finding("pass", summary, figures)


def _nothing_to_learn_from(evidence: Evidence) -> str | None:
    """Why parameters of right code may get no gradient: a blank observation feeds zeros, a single action has no slope."""
    if evidence.run.max_entropy == 0:
        return "there is only one action to choose"
    batches = [sample["observation"] for sample in evidence.samples("gradient_step") if "observation" in sample]
    if batches and all(bool((batch == batches[0].flat[0]).all()) for batch in batches):
        return "every observation that was inspected is the same number throughout"
    return None


@dataclass(frozen=True)
class MeasuredStep:
    """One step by one optimizer, whoever measured it: name -> (gradient norm, weight norm, norm of the step)."""

    learning_rate: float
    parameters: dict[str, tuple[float, float, float]]


def _measured(evidence: Evidence) -> list[MeasuredStep]:
    return [
        MeasuredStep(event.learning_rate, {name: (g, w, d) for name, (g, w, d) in event.parameters.items()})
        for event in evidence.inspections
        if event.kind == "gradient_step" and event.parameters
    ]


def _of_watched(seen: Sequence[OptimizerStep]) -> list[MeasuredStep]:
    return [
        MeasuredStep(
            max((rate for rate in step.learning_rates if rate is not None), default=math.nan),
            {name: (figures[0], figures[1], figures[2]) for name, figures in step.parameters.items()},
        )
        for step in seen
        if step.parameters
    ]


def _standing_still(steps: Sequence[MeasuredStep]) -> list[str]:
    """Parameters that should have moved on enough inspected steps, and moved on none."""
    should: dict[str, int] = {}
    moved: set[str] = set()
    for step in steps:
        for name, (gradient, weight, change) in step.parameters.items():
            if change > 0:
                moved.add(name)
            if math.isfinite(gradient) and step.learning_rate * gradient > REGISTERS * weight:
                should[name] = should.get(name, 0) + 1
    return sorted(name for name, count in should.items() if count >= MIN_STEPS_TO_ACCUSE and name not in moved)


def _trailing_zeros(rates: Sequence[float]) -> int:
    count = 0
    for rate in reversed(rates):
        if rate != 0:
            break
        count += 1
    return count


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
