"""Values that learn from a memory by temporal differences: are their targets, their slower network, their critics right?

The questions of our own DQN and SAC, which say themselves what their batches are:

    targets_recomputed      target = reward + discount * value of what follows, and 0 follows where the task ended
    target_network_follows  the slower network moves when it is due, as far as it should, and lags in between
    value_direction         after the step the values are nearer to their targets
    critics_apart           two critics are two
    actor_climbs            the actor's gradient goes up the critics' value, and up the entropy at the temperature's exchange rate
    temperature_right       the temperature moves towards the target entropy

What is recomputed uses the networks' own answers and the transition's own reward, discount and end, never the target's code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..evidence import Evidence
from ..evidence.reader import Sample
from .check import Check, Finding, Needs, Status
from .direction import Motion, ValueDirection, cosine
from .oracle import Oracle, column
from .statistics import sign_test

Array = np.ndarray[Any, Any]
MIN_STEPS = 8
RELATIVE_TOLERANCE = 1e-4
"""Of the largest number in a target: float32 sums of a few terms, on networks asked twice."""
PULL_TOLERANCE = 0.01
"""Share of the actor's gradient that value and entropy may leave unexplained: float32 rounding of long sums."""
SAME_CRITIC = 1e-4
"""Difference of two critics, as a share of their values, that rounding alone makes of two equal ones."""
LAG_TOLERANCE = 1e-3
"""How far from its place the slower network may be, as a share of the way it had to go."""
WEIGHT_ROUNDING = 2 * float(np.finfo(np.float32).eps)
"""And as a share of its weights: near convergence the way is shorter than what float32 keeps of them."""

TARGET_ROLES = ("reward", "terminated", "discount", "target", "next_value")
EXPLANATIONS: dict[str, tuple[str, str]] = {
    "terminal states bootstrapped": (
        "The value of what follows is added where the task has ended and nothing follows.",
        "Multiply the next value by (1 - terminated).",
    ),
    "nothing follows": (
        "The targets are rewards alone: no value of what follows is added, so that credit reaches one step only.",
        "Add discount * next value where the task goes on.",
    ),
    "ends reversed": (
        "The mask of ended tasks is the wrong way round: only states after the end are valued.",
        "Multiply the next value by (1 - terminated), not by terminated.",
    ),
    "valued by the trained network": (
        "The trained network values its own targets; the slower one is not asked.",
        "Take the value of the next action from the target network.",
    ),
    "one choice for both": (
        "The action is chosen by the network that values it, where the settings say double.",
        "Choose the action by the trained network, value it by the target network.",
    ),
    "entropy with the wrong sign": (
        "The entropy is taken away where it should be added: alpha log pi is subtracted from the value of what follows.",
        "target = reward + discount * (min Q - alpha * log_prob).",
    ),
    "entropy left out": (
        "The entropy of what follows is not counted in the targets, although the actor is paid for it.",
        "target = reward + discount * (min Q - alpha * log_prob).",
    ),
    "the larger of two critics": (
        "The larger of the two critics is taken, which feeds on its own overestimates.",
        "Take the smaller one of the two target critics.",
    ),
    "one critic only": (
        "Only one of the two critics is asked about what follows.",
        "Take the smaller one of the two target critics.",
    ),
}


@dataclass(frozen=True)
class Recomputed:
    """One inspected batch: the targets by definition, and by each known wrong one."""

    place: str
    target: Array
    right: Array
    wrong: dict[str, Array]
    scale: float

    def fits(self, candidate: Array) -> bool:
        return bool(np.all(np.abs(self.target - candidate) <= RELATIVE_TOLERANCE * self.scale))


class TargetsRecomputed(Check):
    name = "targets_recomputed"
    question = "Are the targets that trained the values the ones that their definition gives?"
    family = "mechanism-target"
    accuses = "by comparison"
    needs = Needs(samples={"gradient_step": TARGET_ROLES}, constants=("gamma",))
    min_samples = MIN_STEPS

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        constants = evidence.run.constants
        batches = [
            sample.once("recomputed", partial(recomputed, sample, constants))
            for sample in evidence.samples("gradient_step")
        ]
        batches = [batch for batch in batches if np.isfinite(batch.target).all() and np.isfinite(batch.right).all()]
        wrong = [batch for batch in batches if not batch.fits(batch.right)]
        ends = sum(int(batch.wrong["terminal states bootstrapped"].size) for batch in batches)
        figures: dict[str, Any] = {
            "gradient_steps": len(batches),
            "gradient_steps_that_agree": len(batches) - len(wrong),
            "targets_compared": ends,
            "largest_difference": max(
                (float(np.abs(batch.target - batch.right).max()) for batch in batches), default=0.0
            ),
        }
        if len(batches) < MIN_STEPS:
            return self.finding(
                "undecided",
                f"Only {len(batches)} gradient steps could be compared; it takes {MIN_STEPS}.",
                figures,
                advice="Train longer, or inspect more iterations (evidence.max_inspections).",
            )
        if not wrong:
            return self.finding(
                "pass",
                f"Recomputed from rewards, ends and what the target network said, the targets of {len(batches)} gradient steps "
                f"agree to {figures['largest_difference']:.1e}.",
                figures,
            )
        fitting = [name for name in EXPLANATIONS if all(name in b.wrong and b.fits(b.wrong[name]) for b in wrong)]
        figures["explained_by"] = fitting
        cause, advice = EXPLANATIONS.get(
            fitting[0] if fitting else "",
            (
                "None of the known wrong definitions fits; the targets may belong to other rows of the batch.",
                "Print one transition with its reward, its end, the next value and its target, and compare by hand.",
            ),
        )
        worst = max(wrong, key=lambda batch: float(np.abs(batch.target - batch.right).max()))
        summary = (
            f"In {len(wrong)} of {len(batches)} gradient steps the targets are not those of the definition (largest difference "
            f"{figures['largest_difference']:.3g})."
        )
        if fitting:
            summary += f" What fits is: {' or '.join(fitting)}."
        status: Status = "fail" if len(wrong) > 1 else "undecided"
        return self.finding(status, summary, figures, where=worst.place, cause=cause, advice=advice)


def recomputed(sample: Sample, constants: dict[str, Any]) -> Recomputed:
    reward, discount, target = (column(sample, role).astype(np.float64) for role in ("reward", "discount", "target"))
    goes_on = 1.0 - column(sample, "terminated").astype(np.float64)
    futures = _soft_futures(sample) if "next_log_prob" in sample else _greedy_futures(sample, constants)
    future = futures.pop("right")
    wrong = {name: reward + discount * goes_on * other for name, other in futures.items()}
    wrong |= {
        "terminal states bootstrapped": reward + discount * future,
        "nothing follows": reward,
        "ends reversed": reward + discount * (1 - goes_on) * future,
    }
    scale = max(1.0, float(np.abs(reward).max()), float(np.abs(future).max()))
    place = f"update {sample.event.update}, gradient step {sample.event.optimizer_step}"
    return Recomputed(place, target, reward + discount * goes_on * future, wrong, scale)


def _greedy_futures(sample: Sample, constants: dict[str, Any]) -> dict[str, Array]:
    """What follows, by DQN's definition and by wrong ones: [B] each."""
    slower = sample["next_value"].astype(np.float64)
    trained = sample["next_value_online"].astype(np.float64)
    rows = np.arange(len(slower))
    double, single = slower[rows, trained.argmax(1)], slower.max(1)
    found = {"right": double if constants.get("double") else single, "valued by the trained network": trained.max(1)}
    return found | {"one choice for both": single} if constants.get("double") else found


def _soft_futures(sample: Sample) -> dict[str, Array]:
    """By SAC's definition: one drawn action [B, 1], or all discrete ones [B, n], whose expectation is taken."""
    first, second = sample["next_value"].astype(np.float64), sample["next_value_second"].astype(np.float64)
    log_prob = sample["next_log_prob"].astype(np.float64)
    alpha = float(sample["temperature"][0])
    chance = np.exp(log_prob) if log_prob.shape[1] > 1 else np.ones_like(log_prob)

    def expected(worth: Array, sign: float) -> Array:
        total: Array = (chance * (worth + sign * alpha * log_prob)).sum(1)
        return total

    smaller = np.minimum(first, second)
    return {
        "right": expected(smaller, -1),
        "entropy with the wrong sign": expected(smaller, +1),
        "entropy left out": expected(smaller, 0),
        "the larger of two critics": expected(np.maximum(first, second), -1),
        "one critic only": expected(first, -1),
    }


class TargetNetworkFollows(Check):
    name = "target_network_follows"
    question = "Does the target network follow the trained one, as far and as often as it should, and lag in between?"
    family = "mechanism-target"
    accuses = "by comparison"
    needs = Needs(samples={"gradient_step": ("target_moved",)}, events=("update",))
    min_samples = MIN_STEPS

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        every = int(evidence.run.constants.get("target_every", 1))
        norms = {u.index: u.modules["target"].weight_norm for u in evidence.updates if "target" in u.modules}
        moves, displaced = [], []
        for sample in evidence.samples("gradient_step"):
            move = sample["target_moved"].astype(np.float64)
            moves.append(move)
            rounding = WEIGHT_ROUNDING * norms.get(sample.event.update, 0.0)
            if move[2] > LAG_TOLERANCE * max(move[0], move[1]) + rounding:
                displaced.append(move)
        due, still = self._whole_iterations(evidence, every)
        lagged = sum(move[1] > 0 for move in moves)
        figures = {
            "gradient_steps": len(moves),
            "steps_where_it_stood_wrong": len(displaced),
            "steps_where_it_lagged": int(lagged),
            "iterations_in_which_it_was_due": due,
            "iterations_in_which_it_then_stood_still": still,
        }
        if due >= MIN_STEPS and still == due:
            return self.finding(
                "fail",
                f"The target network never moved, in {due} iterations in which it was due: the targets are those of untrained values.",
                figures,
                where="target network",
                cause="The copy from the trained network is never made, or made into another object.",
                advice="Copy the trained network's weights into the target network every target_every gradient steps.",
            )
        if len(displaced) > 1:
            worst = max(displaced, key=lambda move: move[2])
            return self.finding(
                "fail",
                f"On {len(displaced)} of {len(moves)} inspected gradient steps the target network was not where it should be: it went "
                f"{worst[0]:.3g} of a way of {worst[1]:.3g}, and ended {worst[2]:.3g} off.",
                figures,
                where="target network",
                cause="It moves by another share or at another time than the settings say, or the wrong way round.",
                advice="target <- target + tau * (trained - target), every target_every gradient steps.",
            )
        if due < MIN_STEPS or not lagged:
            return self.finding(
                "undecided",
                f"The target network was due in {due} iterations and lagged on {lagged} inspected steps; it takes {MIN_STEPS} and 1.",
                figures,
                advice="Train longer, or move the target network more often.",
            )
        return self.finding(
            "pass",
            f"The target network moved in {due - still} of the {due} iterations in which it was due, and stood where it should on "
            f"{len(moves)} inspected gradient steps.",
            figures,
        )

    def _whole_iterations(self, evidence: Evidence, every: int) -> tuple[int, int]:
        """Iterations in which it had to move, and those of them in which it did not although its source had."""
        due = still = before = 0
        for update in evidence.updates:
            steps, before_now = update.optimizer_steps, before
            before = steps
            module = update.modules.get("target")
            if module is None or steps // every == before_now // every:
                continue
            due += 1
            still += module.weight_step == 0 and update.weight_step > 0
        return due, still


class TemporalDirection(ValueDirection):
    """As for values that learn from rollouts; the targets count as recomputed where they were."""

    wrong_advice = "The loss to minimise is (Q - target)^2 with the target held constant: check its sign."

    def motion(self, sample: Sample, oracle: Oracle | None, constants: dict[str, Any]) -> Motion | None:
        if not {*TARGET_ROLES, "value_before", "value_after"} <= set(sample.arrays):
            return None
        batch = recomputed(sample, constants)
        before, after = column(sample, "value_before"), column(sample, "value_after")
        if not all(np.isfinite(a).all() for a in (batch.right, before, after)):
            return None
        error_before, error_after = (float(np.mean((batch.right - said) ** 2)) for said in (before, after))
        larger = max(error_before, error_after)
        nearer = (error_before - error_after) / larger if larger > 0 else 0.0
        along = cosine(batch.right - before, after - before)
        return Motion(
            update=sample.event.update,
            whole_iteration=False,
            agreement=along,
            senses=(nearer, along),
            moved=bool(np.any(after != before)),
            could_move=error_before > 0,
            recomputed=True,
        )


class CriticsApart(Check):
    name = "critics_apart"
    question = "Are the two critics two, or one twice?"
    family = "mechanism-health"
    accuses = "by comparison"
    needs = Needs(samples={"gradient_step": ("value_before", "value_second")})
    min_samples = MIN_STEPS

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        pairs = [
            (sample["value_before"], sample["value_second"])
            for sample in evidence.samples("gradient_step")
            if "value_second" in sample
        ]
        gaps = [float(np.abs(first - second).max()) for first, second in pairs]
        shares = [gap / max(float(np.abs(first).max()), 1e-12) for gap, (first, _) in zip(gaps, pairs, strict=True)]
        figures = {"gradient_steps": len(gaps), "largest_difference": max(gaps), "as_share_of_values": max(shares)}
        if max(shares) > SAME_CRITIC:
            return self.finding(
                "pass", f"On {len(gaps)} inspected steps the critics differ by up to {max(gaps):.3g}.", figures
            )
        return self.finding(
            "fail",
            f"On all {len(gaps)} inspected steps both critics say the same (to {max(shares):.1g} of their values), so that the smaller of the two is no safeguard.",
            figures,
            where="critics",
            cause="They share their weights, or started equal and were trained on the same loss.",
            advice="Give the second critic weights of its own, drawn anew.",
        )


class ActorClimbs(Check):
    """The gradient that trained the actor is taken apart into that of the critics' value and that of the entropy."""

    name = "actor_climbs"
    question = "Does the actor climb its critics' value, and its entropy at the temperature's exchange rate?"
    family = "mechanism-direction"
    accuses = "by comparison"
    needs = Needs(samples={"gradient_step": ("actor_pull", "temperature")})
    min_samples = MIN_STEPS

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        pulls = [
            (*sample["actor_pull"].astype(np.float64), float(sample["temperature"][0]))
            for sample in evidence.samples("gradient_step")
            if "actor_pull" in sample
        ]
        told = [pull for pull in pulls if np.isfinite(pull).all() and pull[2] <= PULL_TOLERANCE]
        value = float(np.median([-a for a, *_ in told])) if told else float("nan")
        rates = [-b / temperature for _, b, _, temperature in told if temperature > 0]
        entropy = float(np.median(rates)) if rates else float("nan")
        figures = {
            "gradient_steps": len(pulls),
            "steps_explained": len(told),
            "pull_towards_value": value,
            "pull_towards_entropy_over_temperature": entropy,
        }
        if len(told) < MIN_STEPS:
            return self.finding(
                "undecided",
                f"The actor's gradient could be taken apart on {len(told)} of {len(pulls)} inspected steps; it takes {MIN_STEPS}.",
                figures,
                advice="Train longer, or inspect more iterations (evidence.max_inspections).",
            )
        said = f"The actor's gradient is {value:.3g} times the way up its critics"
        said += f" and {entropy:.3g} times the temperature's way up its entropy, on {len(told)} inspected steps."
        cause = ""
        if value <= 0:
            cause = "The sign of the critics' value in the actor's loss is reversed, or it is not there."
        elif entropy < 0.5:
            cause = "The sign of the entropy in the actor's loss is reversed, or it is not there."
        if cause:
            return self.finding(
                "fail",
                said,
                figures,
                where="actor loss",
                cause=cause,
                advice="The loss to minimise is alpha * log_prob - min(Q1, Q2) at actions drawn from the policy.",
            )
        return self.finding("pass", said, figures)


class TemperatureRight(Check):
    name = "temperature_right"
    question = "Does the temperature rise where the entropy is below its target, and fall where it is above?"
    family = "mechanism-direction"
    accuses = "by statistics"
    needs = Needs(samples={"gradient_step": ("temperature", "target_entropy", "policy_log_prob")})
    min_samples = MIN_STEPS

    def judge(self, evidence: Evidence, alpha: float) -> Finding:
        moves = list(_temperature_moves(evidence))
        right, wrong = sum(move > 0 for move in moves), sum(move < 0 for move in moves)
        figures = {"gradient_steps": len(moves), "the_right_way": right, "the_wrong_way": wrong}
        if right + wrong == 0:
            return self.finding("undecided", "The temperature is not tuned: it stood still.", figures)
        p_fail = sign_test(wrong, right)
        told = f"The temperature moved the right way on {right} of {right + wrong} inspected steps"
        if p_fail <= alpha:
            return self.finding(
                "fail",
                f"{told}.",
                figures,
                where="temperature",
                cause="The sign of the temperature's loss is reversed, or its target entropy has the wrong sign.",
                advice="The loss to minimise is -log_alpha * (log_prob + target_entropy), log_prob held constant.",
                p_value=p_fail,
            )
        passed = sign_test(right, wrong) <= 0.01
        return self.finding("pass" if passed else "undecided", f"{told}.", figures, p_value=p_fail)


def _temperature_moves(evidence: Evidence) -> Iterator[float]:
    for sample in evidence.samples("gradient_step"):
        if "target_entropy" not in sample:
            continue
        before, after = sample["temperature"]
        lacking = float(sample["target_entropy"][0]) + float(np.mean(sample["policy_log_prob"]))
        yield float(np.sign(after - before) * np.sign(lacking))


TEMPORAL_CHECKS: tuple[Check, ...] = (TargetsRecomputed(), TargetNetworkFollows(), TemporalDirection())
SOFT_CHECKS: tuple[Check, ...] = (*TEMPORAL_CHECKS, CriticsApart(), ActorClimbs(), TemperatureRight())
