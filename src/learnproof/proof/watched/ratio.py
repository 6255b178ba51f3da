"""Before the first step on a rollout, new and old log-probabilities are the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Loss, Seen
from ..seen.tokens import token_losses
from .base import ENOUGH, SeenCheck
from .direction import PolicyDirection

EXACTLY = 1e-6
BEYOND = 40
"""Rows beyond the clip range, over all rollouts, from which on sides are judged."""
RATIO_OFF = 1e-3
"""Float32 leaves 1e-6 in a ratio; a policy that has taken one step is off by 1e-2."""


class RatioIsOne(SeenCheck):
    name = "ratio_is_one"
    concerns = "policies"
    question = "Before the first step on a rollout, do new and old log-probabilities agree?"
    family = "mechanism-identity"

    def lacks(self, seen: Seen) -> str:
        if _first_ratios(seen) or _to_themselves(seen) >= ENOUGH:
            return ""
        return "no probability ratio was seen in the first loss on a rollout"

    def look(self, seen: Seen) -> Finding:
        if (cancelled := _to_themselves(seen)) >= ENOUGH:
            return self.finding(
                "fail",
                f"In {cancelled} losses the ratio is that of a log-probability to itself, with both its gradients: they cancel, and the "
                "policy learns nothing from it.",
                {"losses": cancelled},
                where="the ratio",
                cause="The old log-probability is the new one, and keeps its graph.",
                advice="Detach the old one: (log_prob - old_log_prob.detach()).exp().",
            )
        off = [float(np.max(np.abs(ratio - 1))) for ratio in _first_ratios(seen)]
        wrong = [value for value in off if not value <= RATIO_OFF]
        figures = {
            "rollouts": len(off),
            "largest_difference_from_1": max(off),
            "median": float(np.median(off)),
            "off": len(wrong),
        }
        if len(off) < 3:
            return self.finding("undecided", f"{len(off)} first minibatches were seen; it takes 3.", figures)
        if len(wrong) > 0.8 * len(off):
            return self.finding(
                "fail",
                f"Before any step on the rollout, the ratio is off 1 by up to {max(off):.2g} in {len(wrong)} of {len(off)} rollouts: "
                "stored and recomputed log-probabilities are not of the same action under the same policy.",
                figures,
                where="the first minibatch of each rollout",
                cause="Old log-probabilities are stored in another order, before a squash or of other actions than those replayed; "
                "dropout or batch statistics differ between acting and learning; or the rollout was made with stale weights.",
                advice="Store the log-probability of exactly the stored action, at the moment of acting, in the same mode.",
            )
        stuck, moved = _later_ratios(seen)
        figures |= {"later_losses_at_1": stuck, "later_losses_off_1": moved}
        if stuck >= ENOUGH and not moved:
            return self.finding(
                "fail",
                f"The ratio is exactly 1 in all {stuck} losses on rows that an earlier step was already made on: the old "
                "log-probabilities are those of the current policy, and clipping never acts.",
                figures,
                where="the ratio",
                cause="Old log-probabilities are computed again in each minibatch, or the new ones are compared with themselves.",
                advice="Keep the log-probabilities from the moment of acting, detached, for all epochs on the rollout.",
            )
        side = _clipped_sides(seen)
        figures |= {"beyond_the_clip": side.rows, "pushed_further": side.pushed, "held_back": side.held}
        if (
            side.rows >= BEYOND
            and side.pushed > 0.8 * side.outward
            and side.outward >= BEYOND / 2
            and side.held > 0.8 * side.inward
        ):
            return self.finding(
                "fail",
                f"Of {side.rows} rows beyond the clip range, {side.pushed} of {side.outward} that have gone far enough are pushed "
                f"further, and {side.held} of {side.inward} that went the wrong way get no gradient: the clip takes the wrong side.",
                figures,
                where="the clipped objective",
                cause="The smaller of the two surrogates is taken after they were negated, or the larger one before.",
                advice="Take the minimum of ratio * advantage and clipped ratio * advantage, and negate its mean.",
            )
        larger, clipped = _takes_the_larger(seen)
        if larger >= ENOUGH and larger > 0.9 * clipped and _direction_is_right(seen):
            return self.finding(
                "fail",
                f"In {larger} of {clipped} losses the larger of the two surrogates is what the loss maximises: nothing holds back what has gone far "
                "enough, and the clip only takes gradients away from rows that went the wrong way.",
                {**figures, "clipped_losses": clipped, "that_take_the_larger": larger},
                where="the clipped objective",
                cause="The smaller of the two surrogates is taken after they were negated, or the larger one before.",
                advice="Take the minimum of ratio * advantage and clipped ratio * advantage, and negate its mean.",
            )
        if wrong:
            return self.finding("undecided", f"The ratio is off 1 in {len(wrong)} of {len(off)} rollouts.", figures)
        return self.finding("pass", f"The ratio is 1 to {max(off):.1g} at the start of {len(off)} rollouts.", figures)


def _takes_the_larger(seen: Seen) -> tuple[int, int]:
    """Losses with a term that is the larger or the smaller of weight * ratio and weight * clipped ratio: in how many of them the objective,
    which is the loss negated, is the larger one; and how many there are."""
    larger = clipped = 0
    for loss in seen.training_losses:
        for term in loss.event.terms:
            near = term.get("structure", [])[:6]
            surrogates = near[1:3] == ["MulBackward0", "MulBackward0"] and "ExpBackward0" in near
            if near[:1] in (["MinimumBackward0"], ["MaximumBackward0"]) and surrogates and "ClampBackward1" in near:
                clipped += 1
                larger += (near[0] == "MaximumBackward0") == (term["coefficient"] < 0)
                break
    return larger, clipped


def _direction_is_right(seen: Seen) -> bool:
    """Where a whole objective has the wrong sign, larger and smaller have changed places too, and that is the fault to be named."""
    check = PolicyDirection()
    return not check.lacks(seen) and check.look(seen).status == "pass"


def _to_themselves(seen: Seen) -> int:
    return sum(loss.event.ratios_to_themselves > 0 for loss in seen.training_losses)


def _later_ratios(seen: Seen) -> tuple[int, int]:
    """Losses on rows that were trained on before in the same cycle: how many have a ratio of exactly 1, how many do not."""
    stuck = moved = 0
    for cycle in sorted({rollout.cycle for rollout in seen.rollouts}):
        visited: set[int] = set()
        steps = -1
        for loss in seen.by_cycle.get(cycle, []):
            rows = loss.policies[0].rows if loss.policies else None
            if rows is None or not loss.ratios or loss.ratios[0].size != rows.size:
                continue
            again = np.array([int(row) in visited for row in rows.tolist()])
            if again.mean() > 0.5 and loss.update > steps >= 0:
                off = float(np.abs(loss.ratios[0].reshape(-1)[again] - 1).max())
                stuck, moved = stuck + (off <= EXACTLY), moved + (off > EXACTLY)
            visited.update(int(row) for row in rows.tolist())
            steps = loss.update if steps < 0 else steps
    sequences: dict[tuple[int, ...], int] = {}
    """Tokens of each sequence of the batch -> the update in which it was trained on first."""
    for tokens in token_losses(seen):
        ratio = tokens.ratio()
        if ratio is None or tokens.action is None:
            continue
        if tokens.sampled_anew and tokens.loss.update not in sequences.values():
            sequences = {}
        names = [tuple(row) for row in np.where(tokens.trained, tokens.action, -1).tolist()]
        again = np.array([sequences.setdefault(name, tokens.loss.update) < tokens.loss.update for name in names])
        if again.mean() > 0.5 and np.isfinite(ratio[again]).any():
            off = float(np.nanmax(np.abs(ratio[again] - 1)))
            stuck, moved = stuck + (off <= EXACTLY), moved + (off > EXACTLY)
    return stuck, moved


@dataclass
class Sides:
    """Rows whose ratio is beyond the clip range; outward: where the advantage asks for more of it."""

    outward: int = 0
    pushed: int = 0
    inward: int = 0
    held: int = 0

    def add(self, outward: bool, moved: bool) -> None:
        self.outward += outward
        self.inward += not outward
        self.pushed += outward and moved
        self.held += not outward and not moved

    @property
    def rows(self) -> int:
        return self.outward + self.inward


MOVED = 1e-3
"""Of the usual gradient of a token: what is left where a divergence was taken out is rounding."""


def _clipped_sides(seen: Seen) -> Sides:
    """The sign of an advantage is that of the row's weight when its ratio was still 1, at its first loss in the cycle."""
    sides = Sides()
    for cycle in sorted({rollout.cycle for rollout in seen.rollouts}):
        signs: dict[int, float] = {}
        for loss in seen.by_cycle.get(cycle, []):
            policy = loss.policies[0] if loss.policies else None
            bounds = _clip_range(loss)
            if policy is None or policy.rows is None or not loss.ratios or bounds is None:
                continue
            ratio, weight = loss.ratios[0].reshape(-1), policy.weight
            if ratio.size != weight.size or policy.rows.size != weight.size:
                continue
            usual = float(np.median(np.abs(weight))) or float(np.abs(weight).max())
            for row, r, w in zip(policy.rows.tolist(), ratio.tolist(), weight.tolist(), strict=True):
                if row not in signs:
                    if abs(r - 1) < bounds / 4 and abs(w) > 0.3 * usual:
                        signs[row] = w
                    continue
                if abs(r - 1) <= bounds * 1.01:
                    continue
                gone_as_asked = (r > 1) == (signs[row] > 0)
                sides.add(gone_as_asked, w != 0)
    for tokens in token_losses(seen):
        bounds, ratios, advantages = _clip_range(tokens.loss), tokens.ratio(), tokens.advantages()
        if bounds is None or ratios is None or advantages is None:
            continue
        gradient = tokens.surrogate_gradient(advantages, ratios, np.abs(ratios - 1) < bounds * 0.99)
        usual = float(np.median(np.abs(gradient[gradient != 0]))) if gradient.any() else 0.0
        for at in np.argwhere(np.abs(ratios - 1) > bounds * 1.01):
            r, asked = float(ratios[tuple(at)]), float(advantages[tuple(at)])
            if np.isfinite(asked) and asked != 0:
                sides.add((r > 1) == (asked > 0), abs(float(gradient[tuple(at)])) > MOVED * usual)
    return sides


def _clip_range(loss: Loss) -> float | None:
    """From clamp(ratio, 1 - c, 1 + c)."""
    for low, high in loss.event.clips:
        if low is not None and high is not None and 0 < low < 1 < high and abs((1 - low) - (high - 1)) < 1e-4:
            return float(1 - low)
    return None


def _first_ratios(seen: Seen) -> list[np.ndarray[Any, Any]]:
    found = []
    for cycle in sorted({rollout.cycle for rollout in seen.rollouts}):
        losses = seen.by_cycle.get(cycle, [])
        if losses and losses[0].ratios and losses[0].ratios[0].size:
            found.append(losses[0].ratios[0])
    for tokens in token_losses(seen):
        ratio = tokens.ratio()
        if tokens.sampled_anew and ratio is not None and tokens.used.any():
            found.append(ratio[tokens.used & np.isfinite(ratio)])
    return found
