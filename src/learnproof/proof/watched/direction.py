"""What a step does to the policy and to predictions, whatever the loss is spelt like.

The gradient that arrives at a log-probability, a prediction or a critic's answer says which way a small step moves it; the
sign of gradient . step says whether the optimizer goes down the loss (maximize=True with a negated loss is healthy).

    policy_direction   weights of log-probabilities against advantages recomputed from the rewards
    value_direction    gradients at predictions against prediction - target
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Seen
from ..seen.fitting import correlation
from ..seen.losses import Array
from ..seen.returns import fit_targets, rollout_fits
from ..seen.rollouts import Rollout
from ..seen.token_rewards import misordered, mixed_groups, rewarded
from ..seen.token_rollouts import token_rollouts
from ..seen.tokens import token_losses
from .base import ENOUGH, SeenCheck, some
from .clamped import clamped_errors

CLEARLY = 0.3
"""Mean correlation from which the direction counts as shown. Healthy scripts reached 0.89 to 1; unrelated weights and advantages
(20 independent rows in each of eight rollouts) passed 14 of 200,000 simulated times."""
AGAINST = -0.5
MIN_CYCLES = 3
NOISE = 3.0
"""Standard errors by which the mean must exceed 0."""
ITS_OWN = 0.95
"""Correlation, of either sign, from which a loss is weighed with the very advantages that its value targets imply."""
ASTRAY = 0.2
"""Share of predictions, in most of the losses, that go the wrong way; in health none does."""
MISORDERED = 0.2
"""Share of the losses on tokens; of batches of four sequences 5 in 80 fit by chance, of those that were misordered nearly all."""
MIN_ROWS = 8
LOSSES_EACH = 8
"""Losses of a rollout whose weights are looked at."""


def descends(seen: Seen) -> float:
    """1 where the optimizers go down their losses, -1 where they climb."""
    products = [step.descent for step in seen.steps if step.descent]
    if len(products) < ENOUGH:
        return 1.0
    return -1.0 if np.mean(np.sign(products)) > 0.5 else 1.0


class PolicyDirection(SeenCheck):
    name = "policy_direction"
    concerns = "policies"
    question = "Do actions gain probability where their advantage, recomputed from the rewards, is positive?"
    family = "mechanism-direction"

    def lacks(self, seen: Seen) -> str:
        if _agreements(seen) or _enough_misordered(seen):
            return ""
        return "no log-probabilities were seen in a loss on a rollout whose rewards are known"

    def look(self, seen: Seen) -> Finding:
        by_cycle = _agreements(seen)
        numbers = np.array([float(np.mean(values)) for values in by_cycle.values()] or [0.0]) * descends(seen)
        rows = sum(len(rollout.time) for rollout in [*seen.rollouts, *token_rollouts(seen)])
        figures: dict[str, Any] = {
            "rollouts": len(numbers),
            "transitions": rows,
            "agreement": float(numbers.mean()),
            "smallest": float(numbers.min()),
            "largest": float(numbers.max()),
        }
        turned = misordered(seen)
        if _enough_misordered(seen):
            return self.finding(
                "fail",
                f"In {len(turned)} losses the weights are those of other sequences: they fit the rewards in another order.",
                {**figures, "losses_with_another_order": len(turned)},
                where="the policy's loss",
                cause="Advantages were flattened from a transposed table, or the sequences were sorted or shuffled and the advantages were "
                "not.",
                advice="Put both in the same order: index advantages and sequences alike.",
            )
        mixed = mixed_groups(seen)
        if len(mixed) >= ENOUGH:
            return self.finding(
                "fail",
                f"In {len(mixed)} losses the answers of a group, whose rewards are compared with each other, are answers to different "
                "questions.",
                {**figures, "losses_with_mixed_groups": len(mixed)},
                where="the advantages",
                cause="Questions are repeated in one order (repeat) and rewards grouped in the other (repeat_interleave).",
                advice="Repeat each question next to itself, with repeat_interleave, or turn the table of rewards round.",
            )
        elsewhere = _of_other_rows(seen)
        if elsewhere >= MIN_CYCLES:
            return self.finding(
                "fail",
                f"In {elsewhere} rollouts the weights of the actions are the advantages of other rows: they were flattened environment by "
                "environment, the rows beside them step by step, or the other way round.",
                {**figures, "rollouts_with_another_order": elsewhere},
                where="the policy's loss",
                cause="The table of advantages, [steps, environments], was transposed before it was flattened; the other tables were not.",
                advice="Flatten observations, actions, log-probabilities and advantages from tables of the same shape.",
            )
        if len(numbers) < MIN_CYCLES:
            return self.finding("undecided", f"{len(numbers)} rollouts were looked at; it takes {MIN_CYCLES}.", figures)
        mean, spread = float(numbers.mean()), float(numbers.std(ddof=1) / np.sqrt(len(numbers)))
        certain = np.array(list(_by_own_targets(seen).values())) * descends(seen)
        against = numbers if mean <= AGAINST and numbers.max() < 0 else certain
        if len(against) >= MIN_CYCLES and against.max() < 0:
            return self.finding(
                "fail",
                f"In all {len(against)} rollouts looked at, actions with a positive advantage lose probability (correlation "
                f"{against.mean():+.2f}).",
                figures,
                where="the policy's loss",
                cause="A minus is missing or doubled: in the loss, in the advantage, or in the optimizer (maximize).",
                advice="Minimise -(log_prob * advantage): check the sign of each factor.",
            )
        if mean >= CLEARLY and mean >= NOISE * spread:
            return self.finding(
                "pass",
                f"In {len(numbers)} rollouts actions gain probability where the recomputed advantage is positive (correlation "
                f"{mean:+.2f}).",
                figures,
            )
        own = _own_advantage(seen)
        if len(own) >= ENOUGH and abs(float(np.mean(own))) < 0.1 and rows >= 500 and abs(mean) < 0.1:
            return self.finding(
                "fail",
                f"In {len(own)} rollouts the weights of the actions have nothing to do with the advantages that the value targets "
                f"imply (correlation {float(np.mean(own)):+.2f}).",
                {**figures, "agreement_with_own_targets": float(np.mean(own))},
                where="the policy's loss",
                cause="Advantages and actions are in different orders: one was shuffled, flattened or transposed without the other.",
                advice="Index log-probabilities, actions and advantages with the same indices.",
            )
        return self.finding(
            "undecided",
            f"Over {len(numbers)} rollouts the policy's weights agree with the recomputed advantages by {mean:+.2f} ± {spread:.2f}; "
            f"it takes {CLEARLY:+.1f}.",
            figures,
        )


def _enough_misordered(seen: Seen) -> bool:
    """A few small batches fit their rewards in another order by chance; where the order is wrong, most do."""
    return len(misordered(seen)) >= max(ENOUGH, MISORDERED * len(token_losses(seen)))


def _by_own_targets(seen: Seen) -> dict[int, float]:
    """For each rollout whose weights are, up to their sign, the very advantages that its value targets imply: that correlation."""
    known = seen.notes.get("by own targets")
    if known is None:
        known = seen.notes["by own targets"] = {}
        for rollout in [*seen.pooled_rollouts, *token_rollouts(seen)]:
            weights = rollout.policy_weights(1)[:1]
            each = [value for c in _of_targets(rollout) for w in weights if (value := _correlation(w, c)) is not None]
            if each and max(map(abs, each)) >= ITS_OWN:
                known[rollout.cycle] = max(each, key=abs)
    return dict(known)


def _of_other_rows(seen: Seen) -> int:
    """Rollouts whose weights are not their own advantages, but those of a table that was flattened along its other axis."""
    found = 0
    for rollout in seen.rollouts:
        steps, copies = rollout.orders
        if rollout.cycle in _by_own_targets(seen) or np.array_equal(steps, copies):
            continue
        for weight in rollout.policy_weights(1)[:1]:
            for own in _of_targets(rollout):
                turned = [np.empty_like(own), np.empty_like(own)]
                turned[0][steps], turned[1][copies] = own[copies], own[steps]
                if any(abs(_correlation(weight, each) or 0.0) >= ITS_OWN for each in turned):
                    found += 1
                    break
    return found


def _agreements(seen: Seen) -> dict[int, list[float]]:
    """For each rollout, the correlation of its losses' weights with the advantage that agrees best."""
    known = seen.notes.get("agreements")
    if known is not None:
        return dict(known)
    found: dict[int, list[float]] = defaultdict(list)
    certain = _by_own_targets(seen)
    for rollout in [*seen.pooled_rollouts, *token_rollouts(seen)]:
        if rollout.cycle in certain:
            found[rollout.cycle] = [certain[rollout.cycle]]
            continue
        candidates = _advantages(rollout)
        weights = rollout.policy_weights(LOSSES_EACH)
        for candidate_values in [[_correlation(weight, c) for weight in weights] for c in candidates]:
            values = [value for value in candidate_values if value is not None]
            if values and (not found[rollout.cycle] or np.mean(values) > np.mean(found[rollout.cycle])):
                found[rollout.cycle] = values
    for each in [] if token_rollouts(seen) else rewarded(seen):
        found[each.tokens.loss.update].append(each.agreement)
    kept = {cycle: values for cycle, values in found.items() if values}
    seen.notes["agreements"] = kept
    return kept


def _correlation(first: Array, second: Array) -> float | None:
    """None where there are too few rows to tell."""
    if (np.isfinite(first) & np.isfinite(second)).sum() < MIN_ROWS:
        return None
    return correlation(first, second)


def _advantages(rollout: Rollout) -> list[Array]:
    """Advantages by several honest definitions: with and without the value network, at two horizons and at the one that explains
    the targets."""
    sources: list[dict[int, float]] = [heads for _, heads in rollout.silent]
    for targets in rollout.targets:
        pairs = zip(rollout.observation.tolist(), targets.prediction.tolist(), strict=True)
        sources.append({int(identity): number for identity, number in pairs if np.isfinite(number)})
    found = [_accumulated(rollout, {}, 0.99, 1.0), _accumulated(rollout, {}, 1.0, 1.0)]
    for source in sources[:3]:
        found += [_accumulated(rollout, source, 0.99, 0.95), _accumulated(rollout, source, 0.99, 1.0)]
        for fit in (fit for fit in rollout_fits(rollout) if fit.matched and fit.form == "lambda return"):
            lam = 1.0 if fit.gae_lambda is None else fit.gae_lambda
            found.append(_accumulated(rollout, source, fit.gamma, lam, fit.reward_scale))
    return found


def _of_targets(rollout: Rollout) -> list[Array]:
    """Advantages by the targets themselves, where the rewards explain them."""
    fits = [(targets, fit_targets(rollout, targets)) for targets in rollout.targets]
    return [
        targets.target - targets.prediction
        for targets, fit in fits
        if fit is not None and fit.matched and fit.form == "lambda return"
    ]


def _accumulated(rollout: Rollout, source: dict[int, float], gamma: float, lam: float, scale: float = 1.0) -> Array:
    value = np.nan_to_num(rollout.values_of(rollout.observation, source))
    following = np.nan_to_num(rollout.values_of(rollout.next_observation, source))
    along = rollout.following
    next_value = np.where(along >= 0, value[along], following)
    next_value = np.where(rollout.ended, 0.0, next_value)
    delta = scale * rollout.reward + gamma * next_value - value
    advantage = np.zeros(len(delta))
    for row in np.argsort(-rollout.time, kind="stable"):
        after = along[row]
        goes_on = after >= 0 and not rollout.ended[row]
        advantage[row] = delta[row] + (gamma * lam * advantage[after] if goes_on else 0.0)
    advantage[rollout.resets] = np.nan
    return advantage


def _own_advantage(seen: Seen) -> list[float]:
    """Correlation of weights with target - prediction, as the script itself has them."""
    found = []
    for rollout in seen.pooled_rollouts:
        for targets in rollout.targets:
            own = targets.target - targets.prediction
            values = [_correlation(weight, own) for weight in rollout.policy_weights(1)]
            found += [value for value in values if value is not None]
    return found


class ValueDirection(SeenCheck):
    name = "value_direction"
    concerns = "values"
    question = "Do predictions move toward their targets?"
    family = "mechanism-direction"

    def lacks(self, seen: Seen) -> str:
        told = _means_squared(seen) >= ENOUGH or clamped_errors(seen)[0] >= ENOUGH
        if told or _pulls(seen) or _pushed_away(seen, 1.0):
            return ""
        return "no regression was seen whose gradient could be caught"

    def look(self, seen: Seen) -> Finding:
        if (squared := _means_squared(seen)) >= ENOUGH:
            return self.finding(
                "fail",
                f"In {squared} losses the mean of the errors is squared: errors of opposite signs cancel, and all that is learnt is their mean.",
                {"losses": squared},
                where="the value network's loss",
                cause="mean() stands inside of the square.",
                advice="Square first, then average: ((prediction - target) ** 2).mean().",
            )
        clamped, share = clamped_errors(seen)
        if clamped >= ENOUGH:
            return self.finding(
                "fail",
                f"In {clamped} losses the error is clamped before it is squared, and {share:.0%} of the predictions, those with the largest "
                "errors, get no gradient.",
                {"losses": clamped, "share_without_gradient": share},
                where="the value network's loss",
                cause="The error was clamped where its gradient was meant to be.",
                advice="Use smooth_l1_loss or huber_loss: they bound the gradient and leave no row out.",
            )
        by_module = _pulls(seen)
        sign = descends(seen)
        nearer, looks = _nearer(seen)
        figures: dict[str, Any] = {
            "predictions": {
                name: {"updates": len(v), "agreement": float(np.mean(v) * sign)} for name, v in by_module.items()
            },
            "steps_looked_at_afterwards": looks,
            "nearer_after_the_step": nearer,
        }
        enough = {name: np.array(v) * sign for name, v in by_module.items() if len(v) >= ENOUGH}
        if not enough and not _pushed_away(seen, sign):
            return self.finding("undecided", f"Fewer than {ENOUGH} updates of each prediction were looked at.", figures)
        away = [name for name, v in enough.items() if v.mean() <= -CLEARLY and (v < 0).mean() > 0.9]
        if away:
            return self.finding(
                "fail",
                f"{some(away)} moves away from its targets in {len(enough[away[0]])} of the updates looked at.",
                figures,
                where=some(away),
                cause="The value loss has the wrong sign.",
                advice="Add the squared error to the loss that is minimised.",
            )
        astray = _pushed_away(seen, sign)
        if astray:
            name, share = max(astray.items(), key=lambda each: each[1])
            return self.finding(
                "fail",
                f"{share:.0%} of the predictions of {name} are pushed away from their targets, the others toward them.",
                {**figures, "share_pushed_away": astray},
                where=name,
                cause="A part of the loss has the wrong slope: an absolute value or a square is missing in one of its arms.",
                advice="Let the loss grow with the distance on both sides of the target; torch's smooth_l1_loss and huber_loss do.",
            )
        if all(v.mean() >= CLEARLY for v in enough.values()):
            shown = f"; after {nearer} of {looks} steps it was nearer" if looks else ""
            return self.finding("pass", f"{some(enough)} moves toward its targets{shown}.", figures)
        return self.finding("undecided", "The predictions do not clearly move toward their targets.", figures)


def _pulls(seen: Seen) -> dict[str, list[float]]:
    """module -> correlations of dL/dprediction with prediction - target."""
    found: dict[str, list[float]] = defaultdict(list)
    few: dict[str, list[tuple[Array, Array]]] = defaultdict(list)
    losses = seen.training_losses
    for loss in losses[:: max(1, len(losses) // 96)]:
        for regression in loss.regressions:
            if regression.gradient is None or regression.module is None:
                continue
            pairs = [(regression.gradient, regression.prediction - regression.target)]
            if len(pairs[0][0]) < MIN_ROWS:  # batches of a few rows are taken together
                few[regression.module] += pairs
                pairs = few[regression.module]
                if sum(len(gradient) for gradient, _ in pairs) < 2 * MIN_ROWS:
                    continue
                few[regression.module] = []
            value = _correlation(*(np.concatenate(column) for column in zip(*pairs, strict=True)))
            if value is not None:
                found[regression.module].append(value)
    return found


def _means_squared(seen: Seen) -> int:
    return sum(loss.event.means_squared > 0 for loss in seen.training_losses)


def _pushed_away(seen: Seen, sign: float) -> dict[str, float]:
    """module -> share of its predictions that single losses of one term push away from their targets, where many are all along.
    Weights of rows may be anything from 0 on; that a loss draws to its target is a matter of signs alone."""
    shares: dict[str, list[float]] = defaultdict(list)
    losses = seen.training_losses
    for loss in losses[:: max(1, len(losses) // 96)]:
        for regression in loss.regressions if loss.event.n_terms == 1 else ():
            if regression.gradient is None or regression.module is None or len(regression.gradient) < MIN_ROWS:
                continue
            off = regression.prediction - regression.target
            live = (regression.gradient != 0) & (np.abs(off) > 1e-3 * np.abs(off).max(initial=0.0))
            if live.sum() >= MIN_ROWS:
                shares[regression.module].append(float((sign * regression.gradient * off < 0)[live].mean()))
    return {
        name: float(np.median(found))
        for name, found in shares.items()
        if len(found) >= ENOUGH and float(np.median(found)) > ASTRAY
    }


def _nearer(seen: Seen) -> tuple[int, int]:
    """Of the regressions whose network was asked again after the step, those in which it was nearer to its targets."""
    nearer = looks = 0
    for loss in seen.training_losses:
        for regression in loss.regressions:
            after = None if regression.call is None else loss.predicted_after(regression)
            if after is not None and not np.array_equal(after, regression.prediction):  # else another optimizer stepped
                looks += 1
                before = np.abs(regression.prediction - regression.target).mean()
                nearer += bool(np.abs(after - regression.target).mean() < before)
    return nearer, looks
