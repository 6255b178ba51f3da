"""Were the advantages and value targets that trained the networks the ones that their definition gives?

Every inspected rollout's advantages are recomputed by definition (oracle.py) and compared with those that were
recorded, and with those that each inspected gradient step was really given, row by row, so that advantages shuffled or
reversed anywhere on the way are seen. Where they differ, the known wrong definitions are tried, and the one that
fits is named. A wrong definition that would have given the same numbers on everything seen so far (a time limit that
never came) is listed as not yet observable.

What is compared is exact but for float32 rounding, so this check accuses without statistics.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np

from ..evidence import Evidence
from ..evidence.reader import Sample
from .check import Check, Finding, Needs
from .comparison import RolloutComparison, StepComparison, compare_rollout, compare_step
from .oracle import IMPORTANCE_FAULTS, ROLLOUT_ROLES, FittedTrace, Rollout, fit_trace

MIN_ROLLOUTS = 3
"""Agreement over several rollouts, before anything is said."""
ROLLOUTS_KEPT_FOR_FIT = 8
"""Rollouts that do not fit, kept for the search after the discount that would fit."""

EXPLANATIONS: dict[str, tuple[str, str]] = {
    "time limit as terminal": (
        "an episode cut by a time limit is treated as if it had ended, so its last steps are taught that nothing follows",
        "Bootstrap with the value of the last observation where `truncated` is set; only `terminated` means 0. "
        "If this is meant, waive this check with the reason.",
    ),
    "value of the next episode at a time limit": (
        "at a time limit the value of the next episode's first observation is used instead of the last one's",
        "Evaluate the true final observation (final_obs) before the environment is reset.",
    ),
    "returns crossing episodes": (
        "the sum goes on past the end of an episode into the next one",
        "Multiply the carried advantage by (1 - done) at every episode end.",
    ),
    "terminal states bootstrapped": (
        "the value of what follows is added where the episode has terminated and nothing follows",
        "Multiply the next value by (1 - terminated).",
    ),
    "episode ends shifted by one step": (
        "the flags that end an episode are applied one step too early or too late",
        "Check whether done[t] belongs to the step taken at t or to the observation seen at t.",
    ),
    "last value zero": (
        "the last step of a rollout is treated as if nothing followed it",
        "Bootstrap the end of the rollout with the value of the observation after its last step.",
    ),
    "last value repeated": (
        "the end of the rollout is bootstrapped with the value of its last observation instead of the one after it",
        "Evaluate the observation that the last step led to.",
    ),
    "sign reversed": (
        "the advantages have the opposite sign: good actions are taught as bad",
        "Check the order of the subtraction: advantage = return - value.",
    ),
    "shuffled among samples": (
        "each sample is given the advantage of another one",
        "Check that observations, actions and advantages are permuted and flattened in the same way.",
    ),
    "importance left out": (
        "another policy acted, and what followed its actions is credited as if the learning policy would have gone on like that",
        "Multiply the carried advantage by min(1, pi / mu) of the following action.",
    ),
    "importance not truncated": (
        "importance weights above 1 are let through, so that credit grows along an episode",
        "Take min(1, pi / mu).",
    ),
    "importance upside down": (
        "the importance weights are those of the other direction: mu / pi",
        "Take exp(log_prob of the learning policy - log_prob of the policy that acted), at most 1.",
    ),
    "importance shifted": (
        "what follows is weighed by the importance of the step itself instead of that of the following one",
        "advantage[t] = delta[t] + gamma * lambda * importance[t + 1] * advantage[t + 1].",
    ),
    "empty step trained on": (
        "the empty step that the environment inserts between two episodes is used as if it had been an action's outcome",
        "Leave out the step after an episode end (next-step autoreset).",
    ),
}


class AdvantagesRecomputed(Check):
    name = "advantages_recomputed"
    question = "Are the advantages and value targets that trained the networks the ones that their definition gives?"
    family = "mechanism-target"
    accuses = "by comparison"
    needs = Needs(
        samples={"rollout": ROLLOUT_ROLES, "gradient_step": ("row", "advantage")}, constants=("gamma", "gae_lambda")
    )
    min_samples = MIN_ROLLOUTS

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        gamma = float(evidence.run.constants["gamma"])
        gae_lambda = float(evidence.run.constants["gae_lambda"])
        rollouts: list[RolloutComparison] = []
        misfits: list[Rollout] = []
        for sample in evidence.samples("rollout"):
            compared = sample.once("rollout compared", partial(_compared, sample, gamma, gae_lambda))
            if compared is None:
                continue
            rollouts.append(compared)
            if not compared.right and len(misfits) < ROLLOUTS_KEPT_FOR_FIT:
                misfits.append(Rollout.of(sample))
        steps = self._compare_steps(evidence, rollouts)
        figures = self._figures(rollouts, steps, gamma, gae_lambda)
        if len(rollouts) < MIN_ROLLOUTS or not steps:
            return self.finding(
                "undecided",
                f"Only {len(rollouts)} rollouts and {len(steps)} gradient steps could be compared; it takes "
                f"{MIN_ROLLOUTS} rollouts and a gradient step on one of them.",
                figures,
                advice="Train longer, or inspect more iterations (evidence.max_inspections).",
            )
        wrong_rollouts = [r for r in rollouts if not r.right]
        wrong_steps = [s for s in steps if not s.right]
        if wrong_rollouts:
            return self._rollouts_differ(rollouts, wrong_rollouts, misfits, figures, gamma, gae_lambda)
        if wrong_steps:
            return self._steps_differ(wrong_steps, steps, figures)
        summary = (
            f"Recomputed from rewards, values and episode ends, the advantages of {len(rollouts)} rollouts agree with those "
            f"recorded, and with those that {len(steps)} gradient steps used, to {figures['largest_difference']:.1e}."
        )
        if figures["time_limits_seen"] == 0:
            summary += (
                " No time limit was met, so whether one would be treated as a terminal state is not yet observable."
            )
        return self.finding("pass", summary, figures)

    def _compare_steps(self, evidence: Evidence, rollouts: list[RolloutComparison]) -> list[StepComparison]:
        by_update = {r.update: r for r in rollouts}
        normalised = bool(evidence.run.constants.get("normalize_advantage", False))
        found = []
        for sample in evidence.samples("gradient_step"):
            rollout = by_update.get(sample.event.update)
            if rollout is not None and "row" in sample and "advantage" in sample:
                compare = partial(compare_step, sample, rollout.oracle, rollout.tolerance, normalised)
                found.append(sample.once("step compared", compare))
        return [step for step in found if step is not None]

    def _figures(
        self, rollouts: list[RolloutComparison], steps: list[StepComparison], gamma: float, gae_lambda: float
    ) -> dict[str, Any]:
        names = {name for name in EXPLANATIONS if any(name in r.visible for r in rollouts)}
        always = {"sign reversed", "shuffled among samples", "empty step trained on"}
        corrected = sum(r.corrected for r in rollouts)
        if not corrected:
            always |= set(IMPORTANCE_FAULTS)
        worst = max(rollouts, key=lambda r: r.difference / r.tolerance, default=None)
        return {
            "gamma": gamma,
            "gae_lambda": gae_lambda,
            "rollouts": len(rollouts),
            "rollouts_that_agree": sum(r.right for r in rollouts),
            "rollouts_of_another_policy": corrected,
            "gradient_steps": len(steps),
            "gradient_steps_that_agree": sum(s.right for s in steps),
            "largest_difference": worst.difference if worst else 0.0,
            "tolerance": worst.tolerance if worst else 0.0,
            "terminations_seen": sum(r.terminations for r in rollouts),
            "time_limits_seen": sum(r.truncations for r in rollouts),
            "not_yet_observable": [name for name in EXPLANATIONS if name not in names | always],
        }

    def _rollouts_differ(
        self,
        rollouts: list[RolloutComparison],
        wrong: list[RolloutComparison],
        misfits: list[Rollout],
        figures: dict[str, Any],
        gamma: float,
        gae_lambda: float,
    ) -> Finding:
        names = sorted(frozenset.intersection(*(r.fitting for r in rollouts)))
        if all(r.advantage == "reversed" for r in wrong):
            names = ["sign reversed"]
        elif all(r.shuffled for r in wrong):
            names = ["shuffled among samples"]
        fitted = None if names else fit_trace(misfits)
        worst = max(wrong, key=lambda r: r.difference / r.tolerance)
        figures["explained_by"] = names
        if fitted is not None:
            figures["fitted"] = {
                "gamma": fitted.gamma,
                "gae_lambda": fitted.gae_lambda,
                "reward_scale": fitted.reward_scale,
                "residual": fitted.residual,
            }
        cause, advice = self._explain(names, fitted, wrong, gamma, gae_lambda)
        only_target = all(r.advantage in ("equal", "scaled") for r in wrong)
        what = "value targets" if only_target else "advantages"
        summary = f"In {len(wrong)} of {len(rollouts)} rollouts the recorded {what} are not those of the definition"
        summary += (
            "."
            if only_target
            else f" (largest difference {worst.difference:.3g}, rounding allows {worst.tolerance:.1e})."
        )
        if names:
            summary += f" What fits is: {' or '.join(names)}."
        status: Literal["fail", "undecided"] = "fail" if names or len(wrong) > 1 else "undecided"
        return self.finding(status, summary, figures, where=worst.place, cause=cause, advice=advice)

    def _explain(
        self,
        names: list[str],
        fitted: FittedTrace | None,
        wrong: list[RolloutComparison],
        gamma: float,
        gae_lambda: float,
    ) -> tuple[str, str]:
        if names:
            causes = [EXPLANATIONS[name][0] for name in names]
            return _sentence("; or ".join(causes)), EXPLANATIONS[names[0]][1]
        if fitted is not None and fitted.residual <= 10 * max(r.tolerance for r in wrong):
            parts = []
            if abs(fitted.gamma - gamma) > 1e-4:
                parts.append(f"the discount is {fitted.gamma:.4g} where the settings say {gamma:.4g}")
            if abs(fitted.gae_lambda - gae_lambda) > 1e-3:
                parts.append(f"lambda is {fitted.gae_lambda:.4g} where the settings say {gae_lambda:.4g}")
            if abs(fitted.reward_scale - 1) > 1e-4:
                parts.append(f"rewards are multiplied by {fitted.reward_scale:.4g} before use")
            if parts:
                return _sentence(", ".join(parts)), "Pass the same gamma and lambda to the returns as to the settings."
            return (
                "Inside episodes the recursion is right; it goes wrong where an episode or the rollout ends.",
                "Look at what follows a step with terminated or truncated set, and at the last step of the rollout.",
            )
        return (
            "None of the known wrong definitions fits; the advantages may belong to other steps, or other values.",
            "Print one short episode with its rewards, values and advantages, and compare with the definition by hand.",
        )

    def _steps_differ(
        self, wrong: list[StepComparison], steps: list[StepComparison], figures: dict[str, Any]
    ) -> Finding:
        rows = sum(s.rows for s in wrong)
        relation = float(np.average([s.relation for s in wrong], weights=[s.rows for s in wrong]))
        figures["correlation_with_definition"] = relation
        if all(s.weight != "equal" for s in wrong):
            return self._weights_differ(wrong, steps, figures)
        if all(s.empty_rows for s in wrong):
            name = "empty step trained on"
        elif all(s.advantage == "reversed" for s in wrong):
            name = "sign reversed"
        elif abs(relation) < 4 / np.sqrt(rows):
            name = "shuffled among samples"
        else:
            name = ""
        figures["explained_by"] = [name] if name else []
        cause, advice = EXPLANATIONS.get(
            name,
            (
                "something between the rollout and the loss changes them, or pairs them with other rows",
                "Compare the minibatch's advantages with the rollout's at the same rows, just before the loss.",
            ),
        )
        summary = (
            f"The rollouts' advantages are right, but {len(wrong)} of {len(steps)} gradient steps were given other ones for the "
            f"same samples (correlation with the right ones {relation:+.2f})."
        )
        if name:
            summary += f" What fits is: {name}."
        return self.finding(
            "fail" if len(wrong) > 1 else "undecided",
            summary,
            figures,
            where=wrong[0].place,
            cause=_sentence(cause),
            advice=advice,
        )

    def _weights_differ(
        self, wrong: list[StepComparison], steps: list[StepComparison], figures: dict[str, Any]
    ) -> Finding:
        return self.finding(
            "fail" if len(wrong) > 1 else "undecided",
            f"Another policy acted, and {len(wrong)} of {len(steps)} gradient steps weighed its actions by other numbers than "
            "their importance.",
            figures,
            where=wrong[0].place,
            cause="The weights were left out of the loss, computed from other log-probabilities, or belong to other rows.",
            advice="Weigh each row of the policy's loss by min(1, pi / mu), with pi as it was before the update.",
        )


def _compared(sample: Sample, gamma: float, gae_lambda: float) -> RolloutComparison | None:
    """None where its numbers are not finite."""
    rollout = Rollout.of(sample)
    return compare_rollout(rollout, gamma, gae_lambda) if rollout.finite() else None


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
