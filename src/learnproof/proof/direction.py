"""Does an update go the right way: do actions with a positive advantage gain probability, and do values near their targets?

The unit of evidence is a stretch of training, not a gradient step: an inspected iteration, or several neighbouring ones
where each has few gradient steps. The steps on one rollout share its data, and the optimizer's momentum carries one
iteration's direction into the next (measured correlation: 0.6 at 4 gradient steps an iteration, 0.35 at 12, 0.01 at 42).
Each stretch gives one number between -1 and 1, from whole iterations where they were kept (the stronger evidence), else
from the mean of the inspected gradient steps.

Pass and fail are two different tests, because they err differently:
- pass: a sign-flip test over stretches, at PASS_LEVEL, that the numbers are above 0. The advantages are the recomputed ones
  (oracle.py), not those the loss was given, so that a run trained on shuffled advantages does not pass. Where they
  cannot be recomputed, nothing passes.
- fail: the update went against the advantage in every sense in which a right one might follow it, in so many stretches
  that a betting argument reaches this check's share of the accusation rate (statistics.betting_p_value: looking often
  does not raise it), and so did the inspected gradient steps taken together; or the networks did not move at all.
Between the two, near convergence say, nothing is said.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..evidence import Evidence
from ..evidence.reader import Sample
from ..seeding import generator
from .check import Check, Finding, Needs
from .oracle import Oracle, column, oracles
from .statistics import bets_needed, betting_p_value, sample_size_needed, sign_flip_test

Array = np.ndarray[Any, Any]

PASS_LEVEL = 0.01
"""Chance that an update which ignores the advantage passes; a fifth of the default error rate of the proof."""
MIN_STEPS = 3
"""Inspected gradient steps below which the question is not asked."""
STRETCH_STEPS = 40
"""Gradient steps from the start of one stretch to the next: four times the memory of the usual momentum of 0.9."""
ONE_STEP_STRETCH = 10
"""The same where every rollout gets one gradient step: each has experience of its own, and only the momentum ties them."""
REVERSED_BELOW = -0.1
"""Agreement of a loss's derivative with the advantages; in health it is near 1, whatever clipping leaves away."""
MIN_STILL = 3
"""Iterations without any movement before that is a defect; the first of a warm-up stands still in health."""


@dataclass(frozen=True)
class Motion:
    """How one inspected batch moved. `senses` are all the ways in which a right update might be said to go right."""

    update: int
    whole_iteration: bool
    agreement: float
    """Between -1 and 1; what the pass is tested on."""
    senses: tuple[float, ...]
    moved: bool
    could_move: bool
    """There was something to move toward, and the network was not saturated."""
    recomputed: bool
    """By the recomputed advantages, not by those that the loss was given."""


@dataclass(frozen=True)
class Direction:
    """One inspected stretch of training."""

    first_update: int
    agreement: float
    bet: float
    """The agreement's size; negative only where the stretch went wrong in every sense, 0 where it stood still."""


def by_stretch(motions: list[Motion], starts: Mapping[int, int], steps: int = STRETCH_STEPS) -> list[Direction]:
    """`starts` = gradient steps before each inspected update."""
    stretches: list[list[int]] = []
    for update in sorted({motion.update for motion in motions}):
        if not stretches or starts[update] - starts[stretches[-1][0]] >= steps:
            stretches.append([])
        stretches[-1].append(update)
    directions = []
    for updates in stretches:
        mine = [motion for motion in motions if motion.update in updates]
        stronger = [motion for motion in mine if motion.whole_iteration] or mine
        size = float(np.mean([motion.agreement for motion in stronger]))
        if not any(motion.moved for motion in mine):
            bet = 0.0
        else:
            bet = -abs(size) if wrong_in_every_sense(stronger) else abs(size)
        directions.append(Direction(updates[0], size, bet))
    return directions


def _stretch_steps(evidence: Evidence) -> int:
    updates = evidence.updates
    from_rollouts = any(event.kind == "rollout" for event in evidence.inspections)
    one_each = bool(updates) and updates[-1].optimizer_steps <= len(updates)
    return ONE_STEP_STRETCH if from_rollouts and one_each else STRETCH_STEPS


def starts_of(evidence: Evidence) -> dict[int, int]:
    starts: dict[int, int] = {}
    for event in evidence.inspections:
        starts[event.update] = min(event.optimizer_step, starts.get(event.update, event.optimizer_step))
    return starts


def wrong_in_every_sense(motions: list[Motion]) -> bool:
    return all(np.mean(sense) < 0 for sense in zip(*(motion.senses for motion in motions), strict=True))


class DirectionCheck(Check):
    """What the two questions of this file share: from motions to a finding."""

    family = "mechanism-direction"
    accuses = "by statistics"
    min_samples = MIN_STEPS
    subject: str
    """What goes the right way: "the policy" ..."""
    toward: str
    still_cause: str
    wrong_cause: str
    wrong_advice: str

    @abstractmethod
    def motion(self, sample: Sample, oracle: Oracle | None, constants: dict[str, Any]) -> Motion | None:
        """What one batch says, or None where it says nothing."""

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        known = oracles(evidence)
        motions = []
        for kind in ("gradient_step", "iteration"):
            for sample in evidence.samples(kind):
                look = partial(self.motion, sample, known.get(sample.event.update), evidence.run.constants)
                motion = sample.once(f"motion for {self.name}", look)
                if motion is not None:
                    motions.append(motion)
        motions = [m for m in motions if m.recomputed] or motions
        directions = by_stretch(motions, starts_of(evidence), _stretch_steps(evidence))
        steps = [m for m in motions if not m.whole_iteration]
        agreements = [d.agreement for d in directions]
        p_pass = sign_flip_test(agreements, generator(evidence.run.seed, "proof", self.name))
        p_fail = betting_p_value([d.bet for d in directions])
        wrong = [d for d in directions if d.bet < 0]
        figures: dict[str, Any] = {
            "iterations": len({m.update for m in motions}),
            "gradient_steps": len(steps),
            "stretches": len(directions),
            "stretches_the_right_way": sum(d.agreement > 0 for d in directions),
            "stretches_wrong_in_every_sense": len(wrong),
            "mean_agreement": float(np.mean(agreements)) if agreements else 0.0,
            "p_value_of_the_right_direction": p_pass,
            "pass_level": PASS_LEVEL,
            "accusation_level": alpha,
            "recomputed_targets": any(m.recomputed for m in motions),
        }
        able = {m.update for m in motions if m.could_move}
        if len(able) >= MIN_STILL and not any(m.moved for m in motions):
            return self.finding(
                "fail",
                f"On {len(motions)} inspected batches {self.subject} did not move at all, though there was something to learn.",
                figures,
                where=f"updates {motions[0].update} to {motions[-1].update}",
                cause=self.still_cause,
                advice="Look at the learning rate, at optimizer.step(), and at which tensors the optimizer holds.",
            )
        if p_fail <= alpha and wrong_in_every_sense(steps):
            return self.finding(
                "fail",
                f"In {len(wrong)} of {len(directions)} inspected stretches of training {self.subject} moved away from {self.toward} "
                f"(mean agreement {figures['mean_agreement']:+.2f}, where +1 is with it and -1 against it).",
                figures,
                where=f"from update {wrong[0].first_update} on",
                cause=self.wrong_cause,
                advice=self.wrong_advice,
                p_value=p_fail,
            )
        if p_pass <= PASS_LEVEL and figures["recomputed_targets"]:
            return self.finding(
                "pass",
                f"In {figures['stretches_the_right_way']} of {len(directions)} inspected stretches of training {self.subject} moved toward "
                f"{self.toward} (mean agreement {figures['mean_agreement']:+.2f}; chance alone: p = {p_pass:.2g}).",
                figures,
                p_value=p_fail,
            )
        return self._undecided(directions, agreements, figures, p_pass, p_fail, alpha)

    def _undecided(
        self,
        directions: list[Direction],
        agreements: list[float],
        figures: dict[str, Any],
        p_pass: float,
        p_fail: float,
        alpha: float,
    ) -> Finding:
        summary = (
            f"{figures['stretches_the_right_way']} of {len(directions)} inspected stretches of training moved {self.subject} toward "
            f"{self.toward} (mean agreement {figures['mean_agreement']:+.2f}; p = {p_pass:.2g}, {PASS_LEVEL:g} is needed)."
        )
        if p_pass <= PASS_LEVEL:
            summary += (
                " But what it should move toward could not be recomputed from the rollouts, so this proves nothing."
            )
            advice = (
                "Keep the rollouts of the inspected iterations (evidence.keep = 'samples', evidence.max_megabytes)."
            )
        elif directions and all(d.bet < 0 for d in directions):
            more = max(1, bets_needed(alpha) - len(directions))
            advice = (
                f"All went the wrong way so far; about {more} more such stretches would be enough to call it a defect."
            )
        else:
            needed = sample_size_needed(agreements, PASS_LEVEL)
            if needed is None:
                advice = (
                    "Nothing points the right way so far; look for what the loss and the advantages have in common."
                )
            else:
                more = max(1, needed - len(directions))
                figures["stretches_needed"] = needed
                advice = (
                    f"About {more} more inspected stretches like these (an iteration, or {STRETCH_STEPS} gradient steps) would "
                    "settle it: train longer or inspect more."
                )
        return self.finding("undecided", summary, figures, advice=advice, p_value=p_fail)


class PolicyDirection(DirectionCheck):
    name = "policy_direction"
    question = "Do actions that turned out better than expected become more probable?"
    needs = Needs(samples={"gradient_step": ("row", "advantage", "log_prob_before", "log_prob_after", "old_log_prob")})
    subject = "the policy"
    toward = "the actions with positive advantage"
    still_cause = "The policy's step never happens, its learning rate is 0, or the optimizer holds other tensors."
    wrong_cause = "The sign of the policy loss or of the advantages is reversed."
    wrong_advice = "The loss to minimise is -(advantage * log_prob), or -min(ratio * A, clipped * A): check its minus."

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        """Where the loss's own derivative is known, a reversed sign needs no statistics."""
        known = oracles(evidence)
        told = (
            sample.once("pulled", partial(_pulled, sample, known.get(sample.event.update)))
            for sample in evidence.samples("gradient_step")
        )
        pulls = [pull for pull in told if pull is not None]
        if len(pulls) < MIN_STEPS or max(pulls) > REVERSED_BELOW:
            return super().judge(evidence, alpha)
        return self.finding(
            "fail",
            f"On all {len(pulls)} inspected steps the loss pulls the policy away from the actions with positive advantage (mean "
            f"agreement of its derivative with the recomputed advantages {np.mean(pulls):+.2f}).",
            {"gradient_steps": len(pulls), "mean_agreement_of_the_derivative": float(np.mean(pulls))},
            where="policy loss",
            cause=self.wrong_cause,
            advice=self.wrong_advice,
            p_value=0.0,
        )

    def motion(self, sample: Sample, oracle: Oracle | None, constants: dict[str, Any]) -> Motion | None:
        advantage, rows = _by_row(sample, oracle, "advantage")
        before_role = "log_prob_before" if "log_prob_before" in sample else "old_log_prob"
        if advantage is None or before_role not in sample or "log_prob_after" not in sample:
            return None
        before, after, old = (column(sample, role)[rows] for role in (before_role, "log_prob_after", "old_log_prob"))
        change = after - before
        advantage = advantage[rows]
        importance = _importance(sample, oracle, rows)
        if not np.all(np.isfinite(change)) or not np.all(np.isfinite(advantage)) or advantage.size < 2:
            return None
        moved = bool(np.any(change != 0))
        whole = sample.event.kind == "iteration"
        return Motion(
            update=sample.event.update,
            whole_iteration=whole,
            agreement=cosine(advantage - advantage.mean(), change - change.mean()),
            senses=(
                cosine(advantage - advantage.mean(), change - change.mean()),
                cosine(importance * _pull(advantage, before, old, whole, constants), change),
            ),
            moved=moved,
            could_move=float(advantage.std()) > 0 and bool(np.any(np.abs(before) > 1e-6)),
            recomputed=oracle is not None,
        )


class ValueDirection(DirectionCheck):
    name = "value_direction"
    question = "Do the predicted values move nearer to their targets?"
    needs = Needs(samples={"gradient_step": ("row", "target", "value_before", "value_after")})
    subject = "the value network"
    toward = "its targets"
    still_cause = "The value network's step never happens, its learning rate is 0, or the loss does not reach it."
    wrong_cause = "The sign of the value loss, or of the targets it is given, is reversed."
    wrong_advice = "The total loss is policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy."

    def motion(self, sample: Sample, oracle: Oracle | None, constants: dict[str, Any]) -> Motion | None:
        target, rows = _by_row(sample, oracle, "target")
        if target is None or "value_before" not in sample or "value_after" not in sample:
            return None
        before, after, target = (
            column(sample, "value_before")[rows],
            column(sample, "value_after")[rows],
            target[rows],
        )
        if target.size < 2 or not all(np.all(np.isfinite(a)) for a in (before, after, target)):
            return None
        error_before, error_after = float(np.mean((target - before) ** 2)), float(np.mean((target - after) ** 2))
        larger = max(error_before, error_after)
        nearer = (error_before - error_after) / larger if larger > 0 else 0.0
        return Motion(
            update=sample.event.update,
            whole_iteration=sample.event.kind == "iteration",
            agreement=nearer,
            # A step in the right direction that is too long ends farther away; that is no reversed sign.
            senses=(nearer, cosine(target - before, after - before)),
            moved=bool(np.any(after != before)),
            could_move=error_before > 0 and constants.get("value_coefficient") != 0,
            recomputed=oracle is not None,
        )


def _pulled(sample: Sample, oracle: Oracle | None) -> float | None:
    """How the loss's derivative agrees with the recomputed advantages, or with those less their mean: the larger one."""
    if oracle is None or "log_prob_gradient" not in sample:
        return None
    advantage, rows = _by_row(sample, oracle, "advantage")
    if advantage is None or rows.sum() < 2:
        return None
    pull, wanted = -column(sample, "log_prob_gradient")[rows], advantage[rows]
    return max(cosine(pull, wanted), cosine(pull, wanted - wanted.mean()))


def _pull(advantage: Array, before: Array, old: Array, whole: bool, constants: dict[str, Any]) -> Array:
    """The weight with which the whole PPO objective pulls on each log-prob.

    Normalised if the loss does so; 0 where clipping has cut the gradient; and with the entropy bonus, whose pull on a
    sampled action is that of an advantage of -coefficient * log_prob. Without these a healthy run could look
    wrong: late epochs are mostly clipped, and a strong bonus rightly lowers the most probable actions.
    """
    pull = advantage
    if constants.get("normalize_advantage"):
        pull = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    if not whole and "clip_range" in constants:
        ratio = np.exp(np.clip(before - old, -20, 20))
        clip = float(constants["clip_range"])
        cut = np.where(pull > 0, ratio > 1 + clip, ratio < 1 - clip)
        pull = np.where(cut, 0.0, pull * ratio)
    bonus = float(constants.get("entropy_coefficient") or 0.0)
    return np.asarray(pull - bonus * (before - before.mean()))


def _by_row(sample: Sample, oracle: Oracle | None, role: str) -> tuple[Array | None, Array]:
    """The recomputed role for each sample, or the recorded one where there is no rollout; and which samples to use."""
    if oracle is not None and "row" in sample:
        rows = oracle.rows(sample)
        recomputed = oracle.advantage if role == "advantage" else oracle.target
        return recomputed[rows], oracle.valid[rows]
    if role in sample:
        recorded = column(sample, role)
        return recorded, np.ones(recorded.shape, dtype=bool)
    return None, np.zeros(0, dtype=bool)


def _importance(sample: Sample, oracle: Oracle | None, used: Array) -> Array:
    """How much each sample's action counts in the loss: 1, unless another policy acted."""
    if oracle is None or oracle.importance is None:
        return np.ones(int(used.sum()))
    weights: Array = oracle.importance[oracle.rows(sample)][used]
    return weights


def cosine(a: Array, b: Array) -> float:
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size > 0 else 0.0
