"""Warning signs in the curves, with what usually helps. None of them is a defect, so none of them accuses.

Each check passes or stays undecided with advice: an entropy that collapses in a run that learns, large gradients that
are clipped, a curve that is flat because the policy was good from the start are all seen in healthy runs. The bounds
are rules of thumb; where each comes from is said beside it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from ..evidence import Evidence
from .check import Check, Finding, Needs
from .classic import performance_of
from .statistics import block_means, rise_test

Array = np.ndarray[Any, Any]

COLLAPSED = 0.1
"""Share of the largest possible entropy below which a policy hardly explores: 2 actions at 98.7 to 1.3 %."""
EARLY = 0.2
"""The first fifth of the updates."""
UNMOVED = 0.01
"""Change of the entropy, as a share of the largest possible one, below which it has not moved."""
KL_HIGH = 0.05
"""approx_kl of one iteration; usual stopping targets are 0.01 to 0.03."""
CLIP_HIGH, CLIP_LOW = 0.4, 1e-3
"""Share of clipped samples; 0.05 to 0.3 is usual for a clip range of 0.2."""
KL_LOW = 1e-5
"""Below this an iteration changes next to nothing."""
EXPLODING = 100.0
"""The bound of the classic rule."""
VANISHING = 1e-6
"""Gradient norm at which a step of learning rate 3e-4 is lost in float32 rounding of weights of size 1."""
BLOCKS = 20
"""A curve is looked at as 20 means of equal stretches."""
LOST = 0.5
"""Share of the gain whose loss is called a drop; the same as the stopping rule's decline_fraction."""
CLEARLY = 4.0
"""Standard errors beyond which a drop is not the noise of the episodes (1 in 30,000 for a normal mean)."""
FLAT = 0.05
"""p-value of a rising trend above which a curve is called flat."""


def curve(evidence: Evidence) -> Array:
    """Performance per episode, larger is better; of a curriculum, the last stage's."""
    return np.array(
        [score for episode in evidence.comparable_episodes for score in performance_of(episode, evidence.run)]
    )


class CurveCheck(Check):
    """A question about the performance of the training episodes, in the order in which they ended."""

    family = "advice"
    needs = Needs(events=("episode",))

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        scores = curve(evidence)
        if scores.size < self.min_samples:
            return self.finding("undecided", f"Only {scores.size} episodes carry the metric {evidence.run.metric!r}.")
        return self.judge_curve(scores)

    @abstractmethod
    def judge_curve(self, scores: Array) -> Finding: ...


class EntropyCollapse(Check):
    name = "entropy_collapse"
    question = "Does the policy keep exploring in the first part of the training?"
    family = "advice"
    needs = Needs(events=("update",))
    min_samples = 10

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        largest = evidence.run.max_entropy
        if not largest:
            return self.finding(
                "undecided", "The largest possible entropy is not known, so a share of it cannot be told."
            )
        shares = [float(np.mean(update.entropy)) / largest for update in evidence.updates]
        early = min(shares[: max(1, int(len(shares) * EARLY))])
        figures = {"first": shares[0], "lowest_early": early, "last": shares[-1], "collapsed_below": COLLAPSED}
        if early >= COLLAPSED:
            return self.finding(
                "pass", f"The entropy stayed at {early:.0%} of its largest value or above early on.", figures
            )
        return self.finding(
            "undecided",
            f"The entropy fell to {early:.0%} of its largest value within the first fifth of the training. That is fine in a run whose "
            "return rises; otherwise the policy decided before it knew.",
            figures,
            advice="Raise the entropy coefficient or lower the learning rate.",
        )


class EntropyMoving(Check):
    name = "entropy_moving"
    question = "Does the policy become more decided at all?"
    family = "advice"
    needs = Needs(events=("update",))
    min_samples = 10

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        values = [float(np.mean(update.entropy)) for update in evidence.updates]
        scale = evidence.run.max_entropy or max(1.0, abs(values[0]))
        moved = max(abs(value - values[0]) for value in values) / scale
        figures = {"first": values[0], "last": values[-1], "moved": moved, "unmoved_below": UNMOVED}
        if moved >= UNMOVED:
            return self.finding("pass", f"The entropy went from {values[0]:.3g} to {values[-1]:.3g}.", figures)
        return self.finding(
            "undecided",
            f"The entropy stayed at {values[0]:.3g} all along: the policy is as undecided as at the start.",
            figures,
            advice="Train longer, raise the learning rate, or lower the entropy coefficient.",
        )


class CriticFit(Check):
    name = "explained_variance"
    question = "Do the predicted values say anything about the returns?"
    family = "advice"
    needs = Needs(events=("update",))
    min_samples = 10

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        values = np.array([update.explained_variance for update in evidence.updates])
        late = values[-max(1, len(values) // 4) :]
        late = late[np.isfinite(late)]
        if not late.size:
            return self.finding(
                "undecided", "The returns of the last updates are all equal, so nothing is left to explain."
            )
        mean = float(late.mean())
        figures = {"first": float(values[0]), "last_quarter": mean}
        if mean > 0:
            return self.finding(
                "pass", f"In the last quarter the values explain {mean:.0%} of the returns' variance.", figures
            )
        return self.finding(
            "undecided",
            f"In the last quarter the explained variance is {mean:.2f}: a constant would predict the returns as well.",
            figures,
            advice="Raise the learning rate of the critic or its coefficient, normalise rewards, or give it more capacity.",
        )


class UpdateSize(Check):
    name = "update_size"
    question = "Does each iteration change the policy by a sensible amount?"
    family = "advice"
    needs = Needs(events=("update",))
    min_samples = 10

    def absent(self, evidence: Evidence) -> list[str]:
        if evidence.updates and not any(update.approx_kl for update in evidence.updates):
            return ["no divergence from the policy before was measured"]
        return super().absent(evidence)

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        kl = float(np.median([abs(update.approx_kl[-1]) for update in evidence.updates if update.approx_kl] or [0.0]))
        clipped = float(
            np.median([update.clip_fraction[-1] for update in evidence.updates if update.clip_fraction] or [0.0])
        )
        figures = {
            "median_approx_kl": kl,
            "median_clip_fraction": clipped,
            "learning_rate": evidence.updates[0].learning_rate,
        }
        seen = f"the median approx_kl of an iteration is {kl:.2g}, and {clipped:.1%} of the samples are clipped"
        if kl > KL_HIGH or clipped > CLIP_HIGH:
            return self.finding(
                "undecided",
                f"The updates are large: {seen}.",
                figures,
                advice="Lower the learning rate, use fewer epochs, or set target_kl.",
            )
        if kl < KL_LOW and clipped < CLIP_LOW:
            return self.finding(
                "undecided",
                f"The updates are tiny: {seen}.",
                figures,
                advice="Raise the learning rate, or check that its schedule has not run out.",
            )
        return self.finding("pass", f"The updates have a usual size: {seen}.", figures)


class SuddenDrop(CurveCheck):
    name = "sudden_drop"
    question = "Did the policy keep what it had gained?"
    min_samples = 5 * BLOCKS

    def judge_curve(self, scores: Array) -> Finding:
        means = block_means(scores, BLOCKS)
        peak, last = int(np.argmax(means)), float(means[-1])
        gain, drop = float(means[peak] - means[0]), float(means[peak]) - last
        error = float(scores.std()) * np.sqrt(2 * BLOCKS / scores.size)
        figures = {"first": float(means[0]), "best": float(means[peak]), "last": last, "standard_error": error}
        if gain <= 0 or drop <= LOST * gain or drop <= CLEARLY * error:
            return self.finding(
                "pass", f"The training curve went from {means[0]:.4g} to {last:.4g} without a lasting drop.", figures
            )
        return self.finding(
            "undecided",
            f"The training curve rose from {means[0]:.4g} to {means[peak]:.4g} and fell back to {last:.4g}: the policy collapsed.",
            figures,
            where=f"after {(peak + 1) / BLOCKS:.0%} of the episodes",
            advice="Lower the learning rate or let it decay, and take fewer gradient steps on the same data.",
        )


class FlatCurve(CurveCheck):
    name = "flat_curve"
    question = "Does the training curve rise?"
    min_samples = 2 * BLOCKS

    def judge_curve(self, scores: Array) -> Finding:
        trend = rise_test(scores)
        figures = {
            "slope_per_episode": trend.slope,
            "p_value_of_a_rise": trend.p_value,
            "effective_points": trend.effective_points,
        }
        if trend.p_value <= FLAT:
            return self.finding("pass", f"The training curve rises (trend test: p = {trend.p_value:.2g}).", figures)
        return self.finding(
            "undecided",
            f"The training curve does not clearly rise (trend test: p = {trend.p_value:.2g}, allowing for autocorrelation).",
            figures,
            advice="Too little exploration is the usual cause: raise the entropy coefficient, or the share of random actions. A policy that is good from "
            "the start is flat too.",
        )


class ReturnSpread(CurveCheck):
    name = "high_variance"
    question = "Is the training curve steady from one stretch to the next?"
    min_samples = 5 * BLOCKS

    def judge_curve(self, scores: Array) -> Finding:
        means = block_means(scores, BLOCKS)
        swing = float(np.std(np.diff(means)) / np.sqrt(2))
        noise = float(np.median([np.std(part) for part in np.array_split(scores, BLOCKS)])) * np.sqrt(
            BLOCKS / scores.size
        )
        beyond = float(np.sqrt(max(0.0, swing**2 - noise**2)))
        gain = float(means.max() - means[0])
        figures = {"swing": swing, "explained_by_single_episodes": noise, "swing_beyond_that": beyond, "gain": gain}
        if beyond <= LOST * gain or beyond <= noise:
            return self.finding(
                "pass", "The training curve swings no more than its single episodes and its gain explain.", figures
            )
        return self.finding(
            "undecided",
            f"The training curve swings by {beyond:.3g} from stretch to stretch beyond what single episodes explain, with a gain "
            f"of {gain:.3g} in all.",
            figures,
            advice="Lower the clip range (PPO) or the learning rate, or gather more experience before each update.",
        )


class ExplodingGradients(Check):
    name = "exploding_gradients"
    question = "Do the gradients stay below 100?"
    family = "advice"
    needs = Needs(events=("update",))

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        norms = [(norm, update.index) for update in evidence.updates for norm in update.grad_norm_max]
        large = [(norm, index) for norm, index in norms if not norm < EXPLODING]
        figures = {"norms": len(norms), "norms_of_100_or_more": len(large), "largest": max(norms, default=(0.0, 0))[0]}
        if not large:
            return self.finding("pass", f"The largest gradient norm is {figures['largest']:.3g}.", figures)
        return self.finding(
            "undecided",
            f"In {len(large)} of {len(norms)} epochs a gradient norm reached {EXPLODING:g} or more before clipping.",
            figures,
            where=f"update {large[0][1]}",
            advice="They are clipped already: normalise rewards, or lower the learning rate."
            if evidence.run.constants.get("max_grad_norm")
            else "Clip gradients (ppo.max_grad_norm = 0.5), normalise rewards, or lower the learning rate.",
        )


class VanishingGradients(Check):
    name = "vanishing_gradients"
    question = "Are the gradients large enough to move weights?"
    family = "advice"
    needs = Needs(events=("update",))

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        norms = [norm for update in evidence.updates for norm in update.grad_norm]
        late = norms[-max(1, len(norms) // 4) :]
        median = float(np.median(late)) if late else 0.0
        figures = {"median_of_the_last_quarter": median, "vanishing_below": VANISHING}
        if median >= VANISHING:
            return self.finding("pass", f"The median gradient norm of the last quarter is {median:.2g}.", figures)
        return self.finding(
            "undecided",
            f"The median gradient norm of the last quarter is {median:.2g}: hardly a weight moves.",
            figures,
            advice="Look at the architecture (depth, activations, initial scale) and at whether the policy has saturated.",
        )


ADVICE_CHECKS: tuple[Check, ...] = (
    EntropyCollapse(),
    EntropyMoving(),
    CriticFit(),
    UpdateSize(),
    SuddenDrop(),
    FlatCurve(),
    ReturnSpread(),
    ExplodingGradients(),
    VanishingGradients(),
)
