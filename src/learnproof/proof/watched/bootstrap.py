"""Temporal-difference targets, recomputed from rewards, ends and the networks' own answers (proof/seen/bootstrap.py).

Targets that no definition explains are no accusation: there are more honest definitions than are written there.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Seen
from ..seen.bootstrap import WRONG_SIGN, Bootstrapped, Explanation, bootstraps, with_targets
from ..seen.futures import NOT_SQUARED, ONE_FOR_ALL, OVER_THE_BATCH, SCALED_FIRST, SQUASHED_TWICE, WRONG_SQUASHES
from ..seen.losses import is_stacked
from .base import ENOUGH, FEW_ROWS, Fail, SeenCheck, some
from .lineage import targets as target_networks

NO_CREDIT = 0.05
"""A discount below this gives an action no credit for what comes after."""
LEAST_TEMPERATURE = 1e-3
MANY_LARGEST = 500
"""Rows in all of which the largest value is the one that is moved."""
OFTEN_BEYOND, HARDLY_AT = 0.05, 0.002
"""Share of drawn numbers beyond the bounds, and of actions at them, from which actions are squashed and not clipped: clipped ones
would be at the bounds about as often as drawn ones are beyond."""


class BootstrapRecomputed(SeenCheck):
    name = "bootstrap_recomputed"
    concerns = "values"
    question = "Are the targets of temporal-difference losses what their definition makes of reward and next state?"
    family = "mechanism-target"

    def lacks(self, seen: Seen) -> str:
        return "" if bootstraps(seen) else "no regression was seen on a batch whose transitions are known"

    def look(self, seen: Seen) -> Finding:
        found = bootstraps(seen)
        matched = [each for each in found if each.explanations]
        figures: dict[str, Any] = {
            "targets": len(found),
            "explained": len(matched),
            "terminal_rows": sum(each.terminal_rows for each in found),
            "cut_rows": sum(each.cut_rows for each in found),
            "error": float(np.median([min(each.best, 1e9) for each in found])),
        }
        alone = [each for each in found if each.reward_only <= 1e-4]
        if len(alone) >= max(ENOUGH, 0.8 * len(found)) and len(matched) < len(found) / 2:
            return self.finding(
                "undecided",
                "The targets are rewards alone (see credit_reaches_on).",
                {**figures, "reward_only": len(alone)},
            )
        shifted = Counter(each.shifted for each in found if each.shifted)
        if shifted and shifted.most_common(1)[0][1] >= max(ENOUGH, len(found) / 2):
            way, count = shifted.most_common(1)[0]
            return self.finding(
                "fail",
                f"{count} of {len(found)} targets are explained by the reward of the step {way} and not by the step's own.",
                {**figures, "reward_of_the_step": way},
                where="the memory's rewards",
                cause="Rewards are stored beside the wrong transition: one slot early or late.",
                advice="Store the reward that came with next_obs beside obs, action and next_obs.",
            )
        if len(matched) < max(ENOUGH, len(found) / 2):
            return self.finding(
                "undecided",
                f"{len(matched)} of {len(found)} targets are explained by a known definition (nearest error "
                f"{min(each.best for each in found):.2g} of their spread).",
                figures,
                advice="Targets over several steps, of distributions, or with shaped rewards cannot be recomputed here.",
            )
        futures = Counter(future for each in matched for future in {e.future for e in each.explanations})
        common = [future for future, count in futures.items() if count >= 0.9 * len(matched)]
        first = [each.explanations[0] for each in matched]
        gamma = float(np.median([each.gamma for each in first]))
        scale = float(np.median([each.reward_scale for each in first]))
        terminal: Counter[str] = sum((each.terminal for each in first), Counter())
        cut: Counter[str] = sum((each.cut for each in first), Counter()) if seen.limits_told else Counter()
        inner: Counter[str] = sum((each.inner for each in first), Counter())
        rows = sum(each.rows for each in matched)
        others = sum(each.other_actions for each in matched)
        figures |= {
            "future": sorted(common)[:6], "gamma": gamma, "reward_scale": scale, "at_terminal_rows": dict(terminal),
            "at_cut_rows": dict(cut), "at_inner_rows": dict(inner), "rows_with_another_action": others,
        }  # fmt: skip

        def fail(summary: str, cause: str, advice: str) -> Finding:
            return self.finding("fail", summary, figures, where="computation of targets", cause=cause, advice=advice)

        def mostly(counts: Counter[str], treatment: str) -> int:
            return (
                counts[treatment] if counts[treatment] >= FEW_ROWS and counts[treatment] > 0.7 * counts.total() else 0
            )

        if scale < -1e-3:
            return fail(
                f"Rewards enter the targets with the factor {scale:.3g}.",
                "A minus too much where rewards are stored or targets are made.",
                "Use the reward as the environment returned it.",
            )
        if gamma > 1.001:
            return fail(
                f"The future is counted {gamma:.4g} times: values grow without bound.",
                "gamma is above 1, or the future is added twice.",
                "Use a discount of at most 1.",
            )
        if (wrong := self._over_several_steps(first, terminal + cut, fail)) is not None:
            return wrong
        if (largest := _always_the_largest(seen)) >= MANY_LARGEST:
            return fail(
                f"In all {largest} rows looked at, the loss moves the largest value of the row, whatever action was taken.",
                "q.max(1) where the value of the action that was taken belongs.",
                "q.gather(1, action)",
            )
        if others > 0.2 * rows:
            return fail(
                f"In {others} of {rows} rows the loss looks at another action than the one that was taken.",
                "Actions and transitions are stored in different orders, or shifted by one.",
                "Store observation, action, reward and next observation of one step together.",
            )
        if (n := mostly(terminal, "go on")) and inner["stop"] >= FEW_ROWS:
            return fail(
                f"The targets of {n} terminal transitions go on, and those of {inner['stop']} others stop: the ends of episodes are "
                "shifted.",
                "The end of an episode is stored beside the step after it or before it.",
                "Store terminated together with the reward of the same step.",
            )
        if n := mostly(terminal, "go on"):
            return fail(
                f"The targets of {n} terminal transitions go on past the end of the episode.",
                "The factor 1 - terminated is missing from the target.",
                "target = reward + gamma * (1 - terminated) * future",
            )
        if n := mostly(terminal, "bonus"):
            return fail(
                f"At {n} ends of episodes the entropy bonus of the next state stays in the target.",
                "1 - terminated multiplies the value but not the log-probability.",
                "target = reward + gamma * (1 - terminated) * (value - alpha * log_prob)",
            )
        if n := mostly(cut, "stop"):
            return fail(
                f"The targets of {n} transitions cut by a time limit have no future, as if the task had ended.",
                "terminated and truncated were merged into one done before they were stored.",
                "Store terminated alone for the target; waive this check if the time limit is a part of the task.",
            )
        reset = sum(each.next_rows_reset for each in matched)
        if reset >= FEW_ROWS:
            return fail(
                f"For {reset} transitions cut by a time limit the future was read from the first state of the next episode.",
                "The environment was reset, or resets itself, before the transition was stored: the observation at hand then belongs to the "
                "next episode.",
                "Store what step returned at the end (of a vector that resets itself, info's final observation) as the next observation.",
            )
        if (wrong := self._wrong_squash(seen, matched, fail)) is not None:
            return wrong
        temperatures = [each.temperature for each in first if each.soft]
        if len(temperatures) > 0.8 * len(first) and float(np.median(temperatures)) < -LEAST_TEMPERATURE:
            return fail(
                f"The log-probability of the next action enters the targets with a factor of {-float(np.median(temperatures)):+.3g}: where the "
                "policy is sure of itself the future counts for more.",
                "The sign of the entropy bonus in the target is reversed.",
                "target = reward + gamma * (1 - terminated) * (value - alpha * log_prob)",
            )
        alike, pairs = _always_alike(seen)
        if alike >= ENOUGH and alike > 0.9 * pairs:
            return fail(
                f"In {alike} of {pairs} losses two critics say exactly the same: the smaller of the two is either of them.",
                "They began with the same weights and learn from the same batches, or one was made a copy of the other.",
                "Give each critic weights of its own to begin with.",
            )
        wrong = self._wrong_networks(seen, matched, common, fail)
        if wrong is not None:
            return wrong
        return self.finding(
            "pass",
            f"{len(matched)} of {len(found)} targets equal reward + {gamma:.4g} x {some(common, 1) or 'the future'}, to "
            f"{figures['error']:.1g} of their spread; {figures['terminal_rows']} terminal rows among them.",
            figures,
        )

    def _over_several_steps(self, first: list[Explanation], ends: Counter[str], fail: Fail) -> Finding | None:
        several = [each for each in first if each.steps > 1]
        if len(several) < ENOUGH:
            return None
        steps = several[0].steps
        if ends["across"] >= FEW_ROWS:
            return fail(
                f"{ends['across']} targets over {steps} steps go on across the end of an episode.",
                "The window of rewards is not emptied, or not cut, where an episode ends.",
                "Let a window end where its episode ends, with the rewards up to there.",
            )
        off = [each for each in several if abs(each.last_discount - each.gamma**each.steps) > 0.2 * (1 - each.gamma)]
        if len(off) > 0.9 * len(several):
            return fail(
                f"The value after {steps} rewards is discounted by {off[0].last_discount:.4g}, the rewards by {off[0].gamma:.4g} a "
                f"step: {off[0].gamma ** steps:.4g} was due.",
                "The bootstrap is discounted once, or not at all, instead of once per reward.",
                "Multiply the value after n rewards by gamma ** n.",
            )
        return None

    def _wrong_squash(self, seen: Seen, matched: list[Bootstrapped], fail: Fail) -> Finding | None:
        """log p(action) = log p(before tanh) - sum log(scale (1 - tanh(x)^2))."""
        squashes = [{e.soft for e in each.explanations} for each in matched]

        def explained_only_by(*corrections: str) -> bool:
            return sum(bool(each) and each <= set(corrections) for each in squashes) > 0.8 * len(matched)

        for correction, cause in (
            (SQUASHED_TWICE, "tanh is applied again to the action inside of log(1 - tanh(x)^2)."),
            (SCALED_FIRST, "The action was scaled to its bounds before 1 - action^2 was made of it."),
            (NOT_SQUARED, "The square is missing from log(1 - tanh(x)^2)."),
        ):
            if explained_only_by(correction):
                return fail(
                    f"The correction of the squashed action's log-probability is made with {correction}.",
                    cause,
                    "Use log(1 - tanh(x)^2 + 1e-6), x being what was drawn, and log(scale) beside it where the action is scaled.",
                )
        if explained_only_by(WRONG_SIGN, *WRONG_SQUASHES):
            return fail(
                "The correction of the squashed action's log-probability is added where it must be subtracted.",
                "log p(action) = log p(before tanh) - sum log(1 - tanh(x)^2), and the minus is missing.",
                "Subtract the correction.",
            )
        if explained_only_by("plain") and (share := _beyond_the_bound(seen, matched)) is not None:
            return fail(
                f"{share:.0%} of the numbers that the policy draws lie beyond the bounds of the actions, and hardly an action is at its bound: "
                "actions are squashed, and their log-probabilities are not corrected for it.",
                "log p(action) = log p(before tanh) - sum log(1 - tanh(x)^2), and the second part is missing.",
                "Subtract the correction, or use a TransformedDistribution with TanhTransform.",
            )
        return None

    def _wrong_networks(self, seen: Seen, matched: list[Bootstrapped], common: list[str], fail: Fail) -> Finding | None:
        if common and all(future.startswith("larger of") for future in common):
            return fail(
                "The targets take the larger of two critics: their errors add up instead of cancelling.",
                "max where min belongs.",
                "Take the smaller of the two.",
            )
        if common and all(ONE_FOR_ALL in future for future in common):
            return fail(
                "The future of every row is one and the same number: the extreme one of the whole batch.",
                "max() or min() without a dimension.",
                "next_q.max(dim=1).values, or torch.min(q1, q2) of two critics",
            )
        if common and all(OVER_THE_BATCH in future for future in common):
            return fail(
                "Values of a duelling network are centred by the mean over the whole batch: they depend on who else is in it.",
                "advantage.mean() without a dimension.",
                "value + advantage - advantage.mean(dim=1, keepdim=True)",
            )
        if common and all(future.startswith("smallest of") for future in common):
            return fail(
                "The targets take the value of the worst next action.",
                "min where max belongs.",
                "Take the largest value over actions.",
            )
        names = {f.name for f in seen.followers}
        asked = [{n for e in each.explanations for n in e.networks} for each in matched]
        followed = {
            name for each in asked for name in each if any(name == f or name.startswith(f + ".") for f in names)
        }
        leaders = {f.met.leader for f in seen.followers if not any(w in f.name.lower() for w in ("ema", "avg", "best"))}
        led = {name for each in asked for name in each if any(name == f or name.startswith(f + ".") for f in leaders)}
        if names and leaders and not followed and led and not target_networks(seen):
            return fail(
                f"The targets are made with {some(led)}, the network that is being trained, although {some(names)} is kept to "
                "follow it.",
                "The online network is called where the target network belongs.",
                "Call the target network for the value of the next state.",
            )
        by_led = [each for each in matched if all(set(_valued_by(e)) <= led for e in each.explanations)]
        choosing = {e.networks[1] for each in by_led for e in each.explanations if "at the largest of" in e.future}
        if names and len(by_led) > max(ENOUGH, 0.8 * len(matched)) and choosing & followed:
            return fail(
                f"The next action is chosen by {some(choosing & followed)}, which follows, and valued by {some(led)}, the network that is "
                "being trained.",
                "In double Q-learning the two networks have exchanged their parts.",
                "Let the trained network choose the next action, and the target network value it.",
            )
        modules = {each.module for each in matched}
        single = [future for future in common if not future.startswith(("smaller of", "larger of", "mean of"))]
        wide = any(word in future for future in common for word in ("largest of", "smallest of"))
        if len(modules) >= 2 and common and len(single) == len(common) and not wide and _twins(seen):
            return fail(
                f"Two critics are trained ({some(str(m) for m in modules)}) and only one makes the targets: {some(single, 2)}.",
                "min(q1, q1): the same critic twice.",
                "Take the smaller of both critics.",
            )
        return None


def _always_the_largest(seen: Seen) -> int:
    """Rows of losses without an index of actions, whose one value that is moved is the largest; 0 where some is not. A memory holds actions that
    were tried by chance, and those of earlier weights."""
    found = 0
    for loss in with_targets(seen, seen.training_losses):
        for regression in loss.regressions[:1]:
            size = regression.target.size
            moved = None if loss.taken(size) is not None else loss.moved_columns(regression.call, size)
            outputs = [loss.arrays.get(f"c{position}.output") for position in range(len(loss.event.calls))]
            output = next(
                (o for o in outputs if o is not None and o.ndim == 2 and len(o) == size and o.shape[1] > 1), None
            )
            if moved is None or output is None:
                return 0
            live = moved >= 0
            if (output.argmax(axis=1) != moved)[live].any():
                return 0
            found += int(live.sum())
    return found


def _valued_by(explanation: Explanation) -> tuple[str, ...]:
    """The networks whose numbers are in the target: where one chooses the action, the other one."""
    return explanation.networks[:1] if "at the largest of" in explanation.future else explanation.networks


def _beyond_the_bound(seen: Seen, matched: list[Bootstrapped]) -> float | None:
    """Share of the numbers drawn from normal distributions that no action may have, where actions neither exceed their bounds nor
    are clipped to them."""
    bound, updates = seen.action_bound, {each.update for each in matched}
    if bound is None:
        return None
    drawn, taken = [], []
    for loss in seen.training_losses:
        if loss.update not in updates or "t.action" not in loss.arrays:
            continue
        for position, about in enumerate(loss.event.silent_log_probs):
            if about.get("kind") == "Normal" and f"s{position}.action" in loss.arrays:
                drawn.append(np.abs(loss.arrays[f"s{position}.action"]).ravel())
                taken.append(np.abs(loss.arrays["t.action"]).ravel())
    if not drawn:
        return None
    beyond = float(np.mean(np.concatenate(drawn) > bound))
    at_bound = float(np.mean(np.concatenate(taken) >= bound * (1 - 1e-6)))
    return beyond if beyond >= OFTEN_BEYOND and at_bound <= HARDLY_AT else None


def _always_alike(seen: Seen) -> tuple[int, int]:
    """Losses in which two predictions drawn to the same targets are the same numbers, and all losses with two such predictions."""
    alike = pairs = 0
    for loss in seen.training_losses:
        both = loss.regressions[:2]
        if len(both) < 2 or loss.policies or not np.array_equal(both[0].target, both[1].target):
            continue
        if both[0].terms == both[1].terms and both[0].call == both[1].call and both[0].call is not None:
            output = loss.arrays.get(f"c{both[0].call}.output")
            if output is None or not is_stacked(output.shape):
                continue  # one prediction, read twice (the two arms of a written-out loss, say)
        pairs += 1
        alike += bool(np.array_equal(both[0].prediction, both[1].prediction))
    return alike, pairs


def _twins(seen: Seen) -> bool:
    """Two regressions of one update toward the same target."""
    for loss in seen.training_losses:
        both = loss.regressions
        if len(both) >= 2 and both[0].module != both[1].module and np.array_equal(both[0].target, both[1].target):
            return True
    return False
