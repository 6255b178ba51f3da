"""Learning rates and clipping: are rates above 0 while there is something left to train, and does clipping act on the steps?"""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np

from ...evidence.watched import ClippingTotals, PlateauTold, SchedulerSeen
from ..check import Finding
from ..seen import Seen
from ..seen.fitting import correlation
from .base import ENOUGH, SeenCheck, some

MIN_STEPS = 16
LONG_ENOUGH = 200
"""Steps of a run after which a warm-up has shown more than a hundredth of its rate, or is still rising."""
RISEN = 0.2
"""Share of its fall by which a rate that ends with it may have risen again."""
SPENT = 0.1
"""Share of the run, at its end, that a schedule may spend at 0: decaying to 0 at the last step is usual."""
LATE_SHARE = 0.25
"""Share of the run, at its beginning, that it may: a warm-up from 0 is above it after its first step, and a critic that is to learn alone at
first takes a few hundredths."""
LOST, CLIMBED, NEXT, SEVERAL_FALLS = 0.3, 3.0, 4, 3
"""A rate falls to less than a third within four steps, having climbed to three times as much before; three times."""
FAINT, FAINT_SHARE = 0.01, 0.25
"""Linear and cosine decays spend 1 % and 6 % of a run below a hundredth of their highest rate."""


PLATEAU = "ReduceLROnPlateau"
MIN_TOLD, NEWEST, TOGETHER = 20, (10, 20, 50, 100, 5, 1), 0.8
"""Numbers that a schedule was told; episodes just before each whose mean return it may be; correlation from which it is."""


class LearningRateAlive(SeenCheck):
    name = "learning_rate_alive"
    concerns = "optimizers"
    question = "Is the learning rate above 0 for as long as training goes on?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        return "" if any(step.learning_rates for step in seen.steps) else "no learning rate was seen"

    def look(self, seen: Seen) -> Finding:
        worst: Finding | None = None
        for index in sorted({step.optimizer for step in seen.steps}):
            steps = [
                step
                for step in seen.steps
                if step.optimizer == index and any(r is not None for r in step.learning_rates)
            ]
            if len(steps) < MIN_STEPS:
                continue
            finding = self._one(seen, index, [(s.step, [r for r in s.learning_rates if r is not None]) for s in steps])
            if finding.status == "fail":
                return finding
            worst = finding
        if worst is None:
            return self.finding(
                "undecided", f"No optimizer has {MIN_STEPS} measured steps yet.", {"steps": len(seen.steps)}
            )
        return worst

    def _one(self, seen: Seen, index: int, rates: list[tuple[int, list[float]]]) -> Finding:
        total = seen.optimizer_totals.get(index)
        length = max(total.steps if total is not None else 0, rates[-1][0] + 1)
        kind = seen.optimizers[index].kind if index in seen.optimizers else "?"
        figures: dict[str, Any] = {
            "optimizer": index, "steps": length, "first": rates[0][1], "last": rates[-1][1],
            "largest": max(max(group) for _, group in rates), "smallest": min(min(group) for _, group in rates),
        }  # fmt: skip
        where = f"optimizer {index} ({kind})"
        if figures["smallest"] < 0:
            return self.finding(
                "fail", f"The learning rate falls below 0 (to {figures['smallest']:.2g}): steps then climb the loss.", figures,
                where=where, cause="The schedule goes on past its end.", advice="Stop it at 0, or size it for the whole run.",
            )  # fmt: skip
        alive = [step for step, group in rates if max(group) > 0]
        if not alive:
            return self.finding(
                "fail", f"The learning rate is 0 on all {len(rates)} measured steps: nothing can be learnt.", figures,
                where=where, cause="It was set to 0, or its schedule was spent before the first step.",
                advice="Print the optimizer's learning rate before the first step.",
            )  # fmt: skip
        dead_from = next((step for step, group in rates if step > alive[-1] and max(group) == 0), None)
        if dead_from is not None and length - dead_from > SPENT * length and length - dead_from >= MIN_STEPS:
            return self.finding(
                "fail",
                f"The learning rate reached 0 by step {dead_from} of {length} and stayed there: the last "
                f"{(length - dead_from) / length:.0%} of the steps changed nothing.",
                {**figures, "zero_from": dead_from},
                where=where,
                cause="The schedule was sized in other units than it is stepped in (rollouts or epochs against updates).",
                advice="Give the schedule the number of times that its step() will be called.",
            )
        # within its first cycle a warm-up from 0 may still stand at its first value
        cycles = {step.cycle for step in seen.steps if step.optimizer == index and step.step < alive[0]}
        if alive[0] > LATE_SHARE * length and alive[0] >= MIN_STEPS and len(cycles) > 1:
            return self.finding(
                "fail",
                f"The learning rate was 0 until step {alive[0]} of {length}: the first {alive[0] / length:.0%} of the steps changed nothing.",
                {**figures, "zero_until": alive[0]},
                where=where,
                cause="The schedule is read backwards (what remains taken for what is done), or its warm-up is sized in other units.",
                advice="Print the schedule's rate at the beginning, the middle and the end. Where other weights are meant to learn first, leave "
                "these steps out.",
            )
        made_with = max((group.get("initial_lr", 0.0) for group in _groups(seen, index)), default=0.0)
        rising = max(rates[-1][1]) >= 0.999 * figures["largest"]
        if 0 < figures["largest"] < FAINT * made_with and not rising and length >= LONG_ENOUGH:
            return self.finding(
                "fail",
                f"The learning rate is never above {figures['largest']:.2g}, and the optimizer was made with {made_with:.2g}: the schedule "
                "leaves almost nothing of it.",
                {**figures, "made_with": made_with},
                where=where,
                cause="The schedule gives a rate where a factor is wanted (LambdaLR multiplies), or two schedules act on one optimizer.",
                advice="Let the function of LambdaLR return 1 where the full rate is meant.",
            )
        back = self._risen_again(seen, index, rates)
        if back is not None:
            lowest, highest = back
            return self.finding(
                "fail",
                f"The learning rate fell to {lowest[1]:.2g} by step {lowest[0]} of {length} and rose again, to {highest[1]:.2g} at step "
                f"{highest[0]}: a cosine that is meant to end there goes on past its end.",
                {**figures, "lowest_at": lowest[0], "risen_to": highest[1]},
                where=where,
                cause="The schedule is stepped more often than it was sized for (per micro-batch or minibatch, say).",
                advice="Give it the number of times that its step() will be called, or use CosineAnnealingWarmRestarts if waves are meant.",
            )
        falls = _falls([(step, max(group)) for step, group in rates])
        if len(falls) >= SEVERAL_FALLS:
            return self.finding(
                "fail",
                f"The learning rate climbs and then falls at once, to {falls[0][1]:.2g} at step {falls[0][0]} and so on, {len(falls)} times "
                "among the steps that were looked at: a warm-up that begins anew.",
                {**figures, "falls": len(falls)},
                where=where,
                cause="The warm-up counts something that starts again (minibatches of an epoch, steps of an episode).",
                advice="Count optimizer steps of the whole run.",
            )
        if (against := _cut_for_rising(seen, index)) and figures["last"][0] < figures["first"][0]:
            return self.finding(
                "fail",
                f"The schedule waits for its number to fall, and is told returns: over {against[0]} of its steps they go together with the "
                f"training returns (correlation {against[1]:+.2f}). The better the policy, the smaller its learning rate.",
                {**figures, "told": against[0], "correlation_with_returns": against[1]},
                where=where,
                cause="ReduceLROnPlateau has mode='min' unless told otherwise.",
                advice="Make it with mode='max', or give it a loss.",
            )
        if _waits_for_a_plateau(seen, index):  # small in the end, because nothing got better any more
            return self.finding(
                "pass",
                f"The learning rate is cut where nothing gets better ({figures['first'][0]:.2g} to {figures['last'][0]:.2g}).",
                figures,
            )
        faint = max(max(group) for _, group in rates) * FAINT
        faint_from = next((step for step, _ in rates if all(max(g) < faint for s, g in rates if s >= step)), None)
        if faint_from is not None and length - faint_from > FAINT_SHARE * length and length - faint_from >= MIN_STEPS:
            return self.finding(
                "fail",
                f"The learning rate was below {FAINT:.0%} of its highest from step {faint_from} of {length} on: the last "
                f"{(length - faint_from) / length:.0%} of the steps changed almost nothing.",
                {**figures, "faint_from": faint_from},
                where=where,
                cause="A decay that was meant per episode or epoch is stepped at every update.",
                advice="Step the scheduler as often as its rate was chosen for.",
            )
        return self.finding(
            "pass", f"The learning rate stays above 0 ({figures['first'][0]:.2g} to {figures['last'][0]:.2g}).", figures
        )

    @staticmethod
    def _risen_again(
        seen: Seen, index: int, rates: list[tuple[int, list[float]]]
    ) -> tuple[tuple[int, float], tuple[int, float]] | None:
        """The lowest rate of a plain cosine and the highest after it, where that is a good part of the first fall again."""
        kinds = {event.kind for event in seen.evidence.of(SchedulerSeen) if event.optimizer == index}
        if kinds != {"CosineAnnealingLR"}:
            return None
        series = [(step, max(group)) for step, group in rates]
        at = min(range(len(series)), key=lambda place: series[place][1])
        if at == len(series) - 1:
            return None
        lowest, highest = series[at], max(series[at:], key=lambda each: each[1])
        fall = max(rate for _, rate in series[: at + 1]) - lowest[1]
        return (lowest, highest) if fall > 0 and highest[1] - lowest[1] > RISEN * fall else None


def _waits_for_a_plateau(seen: Seen, optimizer: int) -> bool:
    return any(e.kind == PLATEAU for e in seen.evidence.of(SchedulerSeen) if e.optimizer == optimizer)


def _cut_for_rising(seen: Seen, optimizer: int) -> tuple[int, float] | None:
    """Numbers that a schedule hopes to see fall, and their correlation with the returns of the episodes just before them, where that is high."""
    episodes = [e for e in seen.evidence.episodes if e.process == seen.process and e.update is not None]
    if len(episodes) < MIN_TOLD:
        return None
    ends, returns = np.array([e.update for e in episodes]), [e.return_ for e in episodes]
    waiting = [e for e in seen.evidence.of(PlateauTold) if e.optimizer == optimizer and e.mode == "min"]
    for told, newest in product(waiting, NEWEST):
        at = np.searchsorted(ends, told.updates, "right") - newest
        known = at >= 0
        if known.sum() < MIN_TOLD:
            continue
        mean = np.convolve(returns, np.ones(newest) / newest, "valid")
        together = correlation(np.array(told.numbers)[known], mean[at[known]])
        if together is not None and together >= TOGETHER:
            return int(known.sum()), together
    return None


def _falls(rates: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Steps near each other over which a rate that had climbed lost most of it at its highest. Waves that are meant fall slowly and jump
    up; rates that are cut in steps do not climb."""
    found = []
    lowest = highest = rates[0][1]
    for (before, rate), (step, after) in pairwise(rates):
        lowest, highest = min(lowest, rate), max(highest, rate)
        if step <= before + NEXT and rate == highest and after < LOST * rate and rate > CLIMBED * lowest:
            found.append((step, after))
            lowest = highest = after
    return found


class ClippingActs(SeenCheck):
    name = "clipping_acts"
    concerns = "optimizers"
    question = "Where gradients are clipped, are they those that the step then uses, and all of them?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        return "" if _clippings(seen) else "no gradients were clipped by torch's functions"

    def look(self, seen: Seen) -> Finding:
        totals = _clippings(seen)
        in_time, too_late = sum(t.in_time for t in totals), sum(t.too_late for t in totals)
        partly = [step for step in seen.steps if any(_is_layer(seen, name) for name in step.unclipped)]
        figures: dict[str, Any] = {"in_time": in_time, "too_late": too_late, "steps_clipped_in_part": len(partly)}
        nothing = sum(t.nothing for t in totals)
        if nothing >= ENOUGH and nothing > 0.8 * (in_time + too_late):
            return self.finding(
                "fail",
                f"{nothing} of {in_time + too_late} clippings were given no parameters: nothing was clipped.",
                {**figures, "given_nothing": nothing},
                where="the call that clips",
                cause="A filter or generator of parameters can be read once, and the optimizer has read it.",
                advice="Make a list of it: [p for p in model.parameters() if p.requires_grad].",
            )
        barren, looked_at = sum(t.barren for t in totals), sum(t.looked_at for t in totals)
        if barren >= ENOUGH and barren > 0.8 * looked_at:
            return self.finding(
                "fail",
                f"In {barren} of {looked_at} clippings looked at, none of the weights had a gradient: those that the step used went unclipped.",
                {**figures, "looked_at": looked_at, "of_weights_without_gradients": barren},
                where="the call that clips",
                cause="It is given another network's parameters: those of a target, or of a copy that nothing trains.",
                advice="Give clip_grad_norm_ the parameters of the optimizer that steps next.",
            )
        if too_late >= ENOUGH and not in_time:
            return self.finding(
                "fail",
                f"All {too_late} clippings come after the optimizer's step and before the next backward pass: they act on gradients "
                "that nobody uses any more.",
                figures,
                where="the order of backward, clipping and step",
                cause="clip_grad_norm_ stands behind optimizer.step().",
                advice="Clip between loss.backward() and optimizer.step().",
            )
        of_others = sum(t.of_others for t in totals)
        if of_others >= ENOUGH:
            return self.finding(
                "fail",
                f"Before {of_others} of the steps looked at, gradients of other weights were clipped, which their own step had used already; those "
                "that the step used were not.",
                {**figures, "clipped_others": of_others},
                where="the call that clips",
                cause="A line that clips one network was copied in front of another network's step.",
                advice="Give clip_grad_norm_ the parameters of the optimizer that steps next.",
            )
        measured = [step for step in seen.steps if step.parameters]
        if len(partly) >= ENOUGH and len(partly) > 0.8 * sum(s.optimizer == partly[0].optimizer for s in measured):
            left = {name for step in partly for name in step.unclipped}
            return self.finding(
                "fail",
                f"In {len(partly)} steps clipping left out {some(left)}, while it took other weights of the same optimizer.",
                figures,
                where=some(left),
                cause="Clipping is given one module or one parameter group instead of all that the optimizer steps.",
                advice="Give clip_grad_norm_ every parameter of the optimizer; waive this check if a part is meant to go unclipped.",
            )
        return self.finding("pass", f"{in_time} clippings stand between a backward pass and its step.", figures)


def _groups(seen: Seen, index: int) -> list[dict[str, float]]:
    return seen.optimizers[index].groups if index in seen.optimizers else []


def _clippings(seen: Seen) -> list[ClippingTotals]:
    return [event for event in seen.evidence.of(ClippingTotals) if event.process == seen.process]


def _is_layer(seen: Seen, name: str) -> bool:
    """A matrix or more: a single scale or bias left out changes little, and is often meant."""
    for module in seen.modules.values():
        for parameter, shape, _ in module.parameters:
            if parameter == name:
                return len(shape) > 1
    return False
