"""Returns and advantages of rollouts, recomputed from what the environment really returned (proof/seen/returns.py).

The definition that fits names the convention, or the bug. Returns that no definition explains are no accusation: there are
more honest definitions than are written there.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from ..check import Finding
from ..seen import Loss, Seen
from ..seen.returns import (
    ANOTHER_ORDER,
    REVERSED,
    Fit,
    Residuals,
    advantages_scaled_by,
    fit_as_advantages,
    residuals_of,
    rollout_fits,
    value_sources,
)
from ..seen.rollouts import Rollout
from ..seen.token_rollouts import token_rollouts
from ..seen.weights import WeightFit, fit_weights, one_weight_for_all
from .base import ENOUGH, FEW_ROWS, SeenCheck


class _FaultAtEnds(NamedTuple):
    """Rows of one kind (the end of an episode, a time limit, ...) that are treated in one wrong way."""

    kind: str
    treatment: str
    summary: str
    cause: str
    advice: str


_FAULTS_AT_ENDS = (
    _FaultAtEnds(
        "terminal",
        "go on",
        "At {n} ends of episodes the return goes on into the next episode.",
        "The mask of ended episodes is missing from the recursion, or always 1.",
        "Multiply what comes after t by 1 - done[t].",
    ),
    *(
        _FaultAtEnds(
            "before",
            treatment,
            "The returns of {n} steps just before the end of an episode stop there: the ends are shifted by one step.",
            "done is read at t + 1 where the done of step t belongs.",
            "Use the done that came with reward[t] to cut the sum after t.",
        )
        for treatment in ("stop", "sum cut")
    ),
    _FaultAtEnds(
        "terminal",
        "go on from its end",
        "At {n} ends of episodes the return goes on into the next episode.",
        "The mask of ended episodes is missing from the recursion, or belongs to another step.",
        "Multiply what comes after t by 1 - done[t].",
    ),
    _FaultAtEnds(
        "terminal",
        "value of its end",
        "At {n} ends of episodes the return is bootstrapped from the state in which the task ended, as if it went on.",
        "The value of the last observation is added at every end; where the task is over, nothing follows.",
        "Multiply that value by 1 - terminated: only an episode that was truncated has a future.",
    ),
    _FaultAtEnds(
        "later end",
        "the sum before",
        "The sums of {n} episodes begin with that of the episode before them.",
        "The running return is set to 0 once, before the loop over episodes, and not for each of them.",
        "Set it to 0 (or to the value of a cut episode's last observation) where each episode's sum begins.",
    ),
    *(
        _FaultAtEnds(
            kind,
            "sum goes on",
            "At {n} " + where + " the advantage goes on with the residuals of the next episode.",
            "In the recursion of the advantages only the value is masked, not the sum that is carried along.",
            "advantage = delta + gamma * lambda * (1 - done) * advantage: the mask belongs to the sum too.",
        )
        for kind, where in (("terminal", "ends of episodes"), ("cut", "time limits"))
    ),
    _FaultAtEnds(
        "first",
        "stop",
        "The returns of {n} first steps stop there: the ends of episodes are shifted by one step.",
        "done is stored before the step and read after it, or the other way round.",
        "Use the done that came with reward[t] to cut the sum after t.",
    ),
    _FaultAtEnds(
        "cut",
        "stop",
        "At {n} time limits the return stops as if the task had ended.",
        "terminated and truncated were merged into one done.",
        "Bootstrap from the value of the last observation where the episode was truncated; waive this check if the time "
        "limit is a part of the task.",
    ),
    _FaultAtEnds(
        "cut",
        "twice",
        "At {n} time limits the value of the last observation is in the return twice.",
        "It is added to the reward, and the target bootstraps from it once more.",
        "Do one of the two: add gamma * value to the reward and stop the sum there, or bootstrap in the recursion.",
    ),
    _FaultAtEnds(
        "cut",
        "next start",
        "At {n} time limits the return is bootstrapped from the first observation of the next episode.",
        "The observation that the environment shows after a reset is taken for the one at which the episode was cut.",
        "Value the last observation of the cut episode: the one that step returned, or infos['final_obs'] of a vector.",
    ),
    _FaultAtEnds(
        "cut",
        "go on",
        "At {n} time limits the return goes on into the next episode.",
        "Only terminated cuts the sum; truncated is not looked at.",
        "Stop the sum where an episode was truncated and add the value of its last observation.",
    ),
    _FaultAtEnds(
        "last",
        "nothing",
        "The last steps of {n} unfinished episodes count as ends: nothing of their future is in the return.",
        "The value of the state after the rollout is not used.",
        "Start the recursion from the value of the observation that follows the last step.",
    ),
    _FaultAtEnds(
        "last",
        "the state itself",
        "The last steps of {n} rollouts are bootstrapped from the value of the state itself, not of the one that follows.",
        "The last stored value is used where the value of the next observation belongs.",
        "Ask the value network for the observation that the last step returned.",
    ),
)
"""In the order in which they are told: where one fault shows as two, the nearer cause comes first."""


FEWEST_ROWS_FOR_BOTH = 16
MONTE_CARLO = 0.9999
"""Lambda from which returns are plain sums."""
BEYOND_ONE = 1.0005
"""No honest discount: read forwards, a sum of past rewards grows by 1 / gamma from step to step."""
CLEARLY_SCALED = 0.05
EXACT_ROWS = 2
"""Rows of one kind that agree with one wrong treatment, and with no other: each to rounding."""
MANY_ROLLOUTS = 5
"""Rollouts explained to rounding, from which one time limit is enough: they are rare, and one row agrees by chance once in a million."""


def _weights_as_residuals(rollout: Rollout) -> Residuals | None:
    for weight in rollout.policy_weights(1):
        for targets in rollout.targets:
            for source in value_sources(rollout, targets):
                found = residuals_of(rollout, weight, rollout.values_of(rollout.observation, source))
                if found is not None:
                    return found
    return None


class ReturnsRecomputed(SeenCheck):
    name = "returns_recomputed"
    concerns = "policies"
    question = "Are returns and advantages what their definition makes of the rewards?"
    family = "mechanism-target"

    def lacks(self, seen: Seen) -> str:
        if not seen.on_policy and not token_rollouts(seen) and not one_weight_for_all(seen.training_losses):
            return "no rollout was seen together with a policy's loss that was made of it"
        return ""

    def look(self, seen: Seen) -> Finding:
        empty_rows = _trained_empty_steps(seen)
        if empty_rows >= FEW_ROWS:
            return self.finding(
                "fail",
                f"{empty_rows} rows of the losses are steps that an environment ignored: they lead from the last state of one "
                "episode to the first of the next.",
                {"empty_steps_trained_on": empty_rows},
                where="collection of rollouts",
                cause="Gymnasium's vector environments reset on the step after an end; that step's action has no effect, and it is "
                "stored like any other.",
                advice="Leave the step after an end out of the batch, or make the environment with AutoresetMode.SAME_STEP.",
            )
        alike = one_weight_for_all(seen.training_losses)
        if len(alike) >= ENOUGH:
            return self.finding(
                "fail",
                f"In {len(alike)} losses all steps have one and the same weight, while the value beside them is drawn to a return of each "
                "step: no action is credited for what came of it.",
                {"losses_with_one_weight": len(alike)},
                where="the policy's loss",
                cause="Log-probabilities and advantages are averaged or summed apart from each other, and multiplied afterwards.",
                advice="Multiply row by row first, then average: -(log_prob * advantage).mean().",
            )
        rollouts = [rollout for rollout in seen.pooled_rollouts if rollout.cycle in seen.on_policy_cycles]
        rollouts += token_rollouts(seen)
        ahead = [rollout for rollout in rollouts if rollout.told is not None and rollout.told.ahead > 0]
        if len(ahead) >= 3:
            return self.finding(
                "fail",
                f"In {len(ahead)} batches the value beside each token is that of the state after the token was read: what an action is "
                "compared with knows the action.",
                {"batches": len(ahead), "positions_ahead": ahead[0].told.ahead if ahead[0].told else 0},
                where="the values of tokens",
                cause="Values and logits of the sequence are cut at different places.",
                advice="Cut both alike: values[:, start - 1 : -1] beside logits[:, start - 1 : -1].",
            )
        fits = [fit for rollout in rollouts for fit in rollout_fits(rollout)]
        if fits:
            wrong = self._drawn_to_advantages(rollouts, fits) or self._scaled_before(rollouts, fits)
            judged = wrong or self._by_targets(fits, seen.limits_told)
            return judged if judged.status == "fail" else self._baseline_added(rollouts) or judged
        return self._by_weights(seen)

    def _drawn_to_advantages(self, rollouts: list[Rollout], fits: list[Fit]) -> Finding | None:
        if any(fit.matched for fit in fits):
            return None
        found = [fit for r in rollouts for t in r.targets if (fit := fit_as_advantages(r, t)) is not None]
        matched = [fit for fit in found if fit.matched]
        both = [loss for r in rollouts for loss in r.losses if one_number_for_both(loss)]
        if len(matched) < max(3, 0.8 * len(found)) and len(both) < 3:
            return None
        seen = f"In {len(matched)} rollouts" if len(matched) >= 3 else f"In {len(both)} losses"
        return self.finding(
            "fail",
            f"{seen} the value network is drawn to the advantages: to the returns less what it says itself.",
            {
                "rollouts": len(fits),
                "explained_as_advantages": len(matched),
                "losses_with_one_number_for_both": len(both),
            },
            where="the value network's loss",
            cause="The advantage is used as the target where the return belongs.",
            advice="Fit the value network to the returns.",
        )

    def _scaled_before(self, rollouts: list[Rollout], fits: list[Fit]) -> Finding | None:
        if any(fit.matched for fit in fits):
            return None
        found = [advantages_scaled_by(r, t) for r in rollouts for t in r.targets]
        factors = [factor for factor in found if factor is not None]
        scaled = [factor for factor in factors if abs(factor - 1) > CLEARLY_SCALED]
        if len(scaled) < max(3, 0.8 * len(found)):
            return None
        return self.finding(
            "fail",
            f"In {len(scaled)} rollouts the value network is drawn to its own values plus advantages that were multiplied before (by "
            f"{float(np.median(scaled)):.3g}): its targets are no returns.",
            {"rollouts": len(found), "explained_by_scaled_advantages": len(scaled), "factor": float(np.median(scaled))},
            where="the value network's targets",
            cause="Advantages are normalised first, and the targets are made of them afterwards.",
            advice="Make the targets first (returns = advantages + values), then normalise the advantages for the policy's loss.",
        )

    def _baseline_added(self, rollouts: list[Rollout]) -> Finding | None:
        """Advantages whose residuals have the value of the present state with the sign of the next one's."""
        found = [residuals for rollout in rollouts if (residuals := _weights_as_residuals(rollout)) is not None]
        added = [each for each in found if each.here * each.ahead > 0 and abs(each.here) > 0.1 * abs(each.ahead)]
        if len(added) < max(3, 0.8 * len(found)):
            return None
        return self.finding(
            "fail",
            f"In {len(added)} rollouts the advantages are made of residuals that add the value of the present state instead of subtracting it.",
            {"rollouts": len(found), "with_the_value_added": len(added)},
            where="computation of advantages",
            cause="A sign in reward + gamma * next_value - value.",
            advice="Subtract the value of the state in which the action was taken.",
        )

    def _by_targets(self, fits: list[Fit], limits_told: bool = True) -> Finding:
        matched = [fit for fit in fits if fit.matched]
        special: dict[str, Counter[str]] = {}
        for fit in matched:
            for kind, counts in fit.special.items():
                if kind == "cut" and not limits_told:
                    continue
                special.setdefault(kind, Counter()).update(counts)
        figures: dict[str, Any] = {
            "rollouts": len(fits),
            "explained": len(matched),
            "error": float(np.median([fit.error for fit in fits])),
            "special_rows": {kind: dict(counts) for kind, counts in special.items()},
        }
        if len(matched) < max(2, len(fits) / 2):
            return self.finding(
                "undecided",
                f"{len(matched)} of {len(fits)} rollouts have returns that a known definition explains (nearest error "
                f"{min(fit.error for fit in fits):.2g} of their spread).",
                figures,
                advice="Returns that are rescaled, shaped or clipped inside of the learner cannot be recomputed here.",
            )
        scale = float(np.median([fit.reward_scale for fit in matched]))
        gamma = float(np.median([fit.gamma for fit in matched]))
        lambdas = [fit.gae_lambda for fit in matched if fit.gae_lambda is not None]
        figures |= {"reward_scale": scale, "gamma": gamma, "lambda": float(np.median(lambdas)) if lambdas else None}
        wrong = self._wrong(matched, special, scale, gamma, figures)
        if wrong is not None:
            return wrong
        ends = special.get("terminal", Counter())
        if ends["unexplained"] >= FEW_ROWS and ends["unexplained"] > sum(ends.values()) / 2:
            return self.finding(
                "undecided",
                f"Inside of episodes the returns are those of gamma {gamma:.4g}; at {ends['unexplained']} of {sum(ends.values())} ends "
                "of episodes they are nothing that is known here.",
                figures,
                advice="Rewards that the script changes at an end cannot be recomputed; if it changes none, look at the mask of ends.",
            )
        lam = "" if not lambdas else f", lambda {figures['lambda']:.4g}"
        return self.finding(
            "pass",
            f"The returns of {len(matched)} rollouts are those of gamma {gamma:.4g}{lam}, to {figures['error']:.1g} of their spread.",
            figures,
        )

    def _wrong(
        self, matched: list[Fit], special: dict[str, Counter[str]], scale: float, gamma: float, figures: dict[str, Any]
    ) -> Finding | None:
        def fail(summary: str, cause: str, advice: str) -> Finding:
            return self.finding("fail", summary, figures, where="computation of returns", cause=cause, advice=advice)

        def rows(kind: str, treatment: str) -> int:
            counts = special.get(kind, Counter())
            others = sum(counts[name] for name in counts if name not in (treatment, "ambiguous", "unexplained"))
            most = counts[treatment] > 2 * others and counts[treatment] >= counts["unexplained"]
            enough = 1 if kind == "cut" and len(matched) >= MANY_ROLLOUTS else EXACT_ROWS
            return counts[treatment] if counts[treatment] >= enough and most else 0

        if sum(fit.form == "along the batch" for fit in matched) > len(matched) / 2:
            return fail(
                "Returns are accumulated along the environments of the batch instead of along time.",
                "The loop that goes backwards runs over the wrong axis.",
                "Put time first, [steps, environments], and go backwards over the first axis.",
            )
        if sum(fit.form == REVERSED for fit in matched) > len(matched) / 2:
            return fail(
                "The returns of each episode are right and stand in reversed order: the first step has the last one's.",
                "The list of returns was built from the end and not turned round.",
                "Insert at the front, or reverse the list before it meets the values and log-probabilities.",
            )
        if sum(fit.form == ANOTHER_ORDER for fit in matched) > len(matched) / 2:
            return fail(
                "The returns are right and belong to other rows: they were flattened environment by environment, the rows beside them step "
                "by step, or the other way round.",
                "One of two tables [steps, environments] was transposed before both were flattened.",
                "Flatten observations, actions, returns and advantages from tables of the same shape.",
            )
        if scale < 0 and gamma > BEYOND_ONE:  # y[t + 1] = c r[t] + y[t] / gamma
            return fail(
                f"The returns are sums of past rewards, discounted by {1 / gamma:.4g}: they are in reversed order.",
                "The list of returns was built from the end and not turned round.",
                "Insert at the front, or reverse the list before it meets the values and log-probabilities.",
            )
        if scale < 0:
            return fail(
                f"Rewards enter the returns with the factor {scale:.3g}: what the environment rewards is avoided.",
                "A minus too much where rewards are stored or summed up.",
                "Use the reward as the environment returned it.",
            )
        for fault in _FAULTS_AT_ENDS:
            if (fault.kind, fault.treatment) == ("cut", "stop") and _is_monte_carlo(matched, special):
                figures["time_limits_end_the_sum"] = rows("cut", "stop")
            elif n := rows(fault.kind, fault.treatment):
                return fail(fault.summary.format(n=n), fault.cause, fault.advice)
        return None

    def _by_weights(self, seen: Seen) -> Finding:
        fits: list[WeightFit] = []
        for rollout in seen.rollouts:
            if _begins_again(rollout):
                continue  # compared with others from the same start, a whole return is an honest weight
            for loss in rollout.policy_losses[:1]:
                for policy in loss.policies[:1]:
                    if policy.rows is not None or policy.time is not None:
                        fit = fit_weights(rollout, rollout.spread(policy.rows, policy.weight, policy.time))
                        if fit is not None:
                            fits.append(fit)
        matched = [fit for fit in fits if fit.matched]
        forms = Counter(fit.form for fit in matched)
        figures: dict[str, Any] = {"rollouts": len(fits), "explained": len(matched), "forms": dict(forms)}
        if len(fits) < 3 or len(matched) < len(fits) / 2:
            return self.finding(
                "undecided",
                f"{len(matched)} of {len(fits)} rollouts have weights that a known definition of returns explains.",
                figures,
            )
        form, count = forms.most_common(1)[0]
        gammas = [fit.gamma for fit in matched if fit.form == form]
        figures["gamma"] = float(np.median(gammas))
        if form in ("whole return", "constant") and count > len(fits) / 2:
            return self.finding(
                "fail",
                f"In {count} of {len(fits)} batches every step has the same weight: actions are credited for what came before them.",
                figures,
                where="computation of returns",
                cause="One return (of the first step, or of the whole episode) is used for all steps.",
                advice="Weight each log-probability with the sum of the rewards that came after it.",
            )
        if form == "against time" and count > len(fits) / 2:
            return self.finding(
                "fail",
                f"In {count} of {len(fits)} batches the weights are sums of past rewards: the returns are in reversed order.",
                figures,
                where="computation of returns",
                cause="The list of returns was built from the end and not turned round.",
                advice="Insert at the front, or reverse the list before it meets the log-probabilities.",
            )
        return self.finding(
            "pass",
            f"The weights of {count} batches are rewards to go with gamma {figures['gamma']:.4g}, up to baseline and scale.",
            figures,
        )


def _is_monte_carlo(matched: list[Fit], special: dict[str, Counter[str]]) -> bool:
    """Plain sums of whole episodes, with no value of a state in any of them: where nothing else is bootstrapped, a time limit that
    ends the sum is what the return of an episode means."""
    plain = all(fit.gae_lambda is not None and fit.gae_lambda > MONTE_CARLO for fit in matched)
    return plain and not special.get("last", Counter())["bootstrap"] and not special.get("cut", Counter())["bootstrap"]


def one_number_for_both(loss: Loss) -> bool:
    """Whether the value's targets are, rescaled at most, the very numbers that weigh the log-probabilities.

    In health advantages are targets less predictions, so where predictions differ from row to row the two cannot agree."""
    for policy in loss.policies:
        for regression in loss.regressions:
            weight, target = policy.weight, np.asarray(regression.target).reshape(-1)
            predicted = np.asarray(regression.prediction).reshape(-1)
            if weight.shape != target.shape or predicted.shape != target.shape:
                continue
            live = weight != 0
            if live.sum() < FEWEST_ROWS_FOR_BOTH or np.std(predicted[live]) < 0.01 * np.std(target[live]):
                continue
            if np.ptp(weight[live]) > 0 and abs(float(np.corrcoef(weight[live], target[live])[0, 1])) > 0.99999:
                return True
    return False


def _trained_empty_steps(seen: Seen) -> int:
    count = 0
    for rollout in seen.rollouts:
        empty = {int(identity) for identity in rollout.observation[rollout.resets].tolist()}
        empty -= {
            int(identity) for identity in rollout.observation[~rollout.resets].tolist()
        }  # seen in a step that counts too
        if empty:
            used: set[int] = set()
            for loss in rollout.losses:
                used |= {int(identity) for identity in loss.trained_rows.tolist()}
            count += len(empty & used)
    return count


def _begins_again(rollout: Rollout) -> bool:
    """Whether most of its episodes have another one beside them that began in the same state: played several times on purpose."""
    before = rollout.preceding
    first = (before < 0) | rollout.ended[before] | rollout.resets[before]
    starts = Counter(rollout.observation[first & ~rollout.resets].tolist())
    again = sum(count for count in starts.values() if count > 1)
    return len(starts) > 1 and again > sum(starts.values()) / 2
