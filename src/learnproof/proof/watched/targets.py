"""The numbers that losses are drawn to, recomputed from what the environment really returned.

    returns_recomputed     returns and advantages of a rollout (proof/seen/returns.py): the definition that fits names the
                           convention, or the bug
    bootstrap_recomputed   temporal-difference targets (proof/seen/bootstrap.py)
    ratio_is_one           before the first step on a rollout, new and old log-probabilities are the same ones

A target that no definition explains is not an accusation: there are more honest definitions than are written here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Seen
from ..seen.bootstrap import WRONG_SQUASH, Bootstrapped, explain
from ..seen.returns import Fit, WeightFit, fit_targets, fit_weights
from ..seen.tokens import token_losses
from .base import ENOUGH, SeenCheck, some
from .lineage import targets as target_networks

Fail = Callable[[str, str, str], Finding]
"""From what was seen, its cause, and what to do."""
FEW_ROWS = 3
"""Special rows (ends of episodes, say) that must agree on a wrong treatment."""
BOOTSTRAPS_READ = 96
"""Regressions that are explained, spread over the run."""
NO_CREDIT = 0.05
"""A discount below this gives an action no credit for what comes after."""
RATIO_OFF = 1e-3
"""Float32 leaves 1e-6 in a ratio; a policy that has taken one step is off by 1e-2."""


class ReturnsRecomputed(SeenCheck):
    name = "returns_recomputed"
    question = "Are returns and advantages what their definition makes of the rewards?"
    family = "mechanism-target"

    def lacks(self, seen: Seen) -> str:
        if not seen.on_policy:
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
        rollouts = [rollout for rollout in seen.rollouts if rollout.cycle in seen.on_policy_cycles]
        fits = [fit for r in rollouts for t in r.targets if (fit := fit_targets(r, t)) is not None]
        if fits:
            return self._by_targets(fits)
        return self._by_weights(seen)

    def _by_targets(self, fits: list[Fit]) -> Finding:
        matched = [fit for fit in fits if fit.matched]
        special: dict[str, Counter[str]] = {}
        for fit in matched:
            for kind, counts in fit.special.items():
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
            return counts[treatment] if counts[treatment] >= FEW_ROWS and counts[treatment] > 2 * others else 0

        if sum(fit.form == "along the batch" for fit in matched) > len(matched) / 2:
            return fail(
                "Returns are accumulated along the environments of the batch instead of along time.",
                "The loop that goes backwards runs over the wrong axis.",
                "Put time first, [steps, environments], and go backwards over the first axis.",
            )
        if scale < 0:
            return fail(
                f"Rewards enter the returns with the factor {scale:.3g}: what the environment rewards is avoided.",
                "A minus too much where rewards are stored or summed up.",
                "Use the reward as the environment returned it.",
            )
        if n := rows("terminal", "go on"):
            return fail(
                f"At {n} ends of episodes the return goes on into the next episode.",
                "The mask of ended episodes is missing from the recursion, or always 1.",
                "Multiply what comes after t by 1 - done[t].",
            )
        if n := rows("first", "stop"):
            return fail(
                f"The returns of {n} first steps stop there: the ends of episodes are shifted by one step.",
                "done is stored before the step and read after it, or the other way round.",
                "Use the done that came with reward[t] to cut the sum after t.",
            )
        if n := rows("cut", "stop"):
            return fail(
                f"At {n} time limits the return stops as if the task had ended.",
                "terminated and truncated were merged into one done.",
                "Bootstrap from the value of the last observation where the episode was truncated; waive this check if the time "
                "limit is a part of the task.",
            )
        if n := rows("cut", "go on"):
            return fail(
                f"At {n} time limits the return goes on into the next episode.",
                "Only terminated cuts the sum; truncated is not looked at.",
                "Stop the sum where an episode was truncated and add the value of its last observation.",
            )
        if n := rows("last", "nothing"):
            return fail(
                f"The last steps of {n} unfinished episodes count as ends: nothing of their future is in the return.",
                "The value of the state after the rollout is not used.",
                "Start the recursion from the value of the observation that follows the last step.",
            )
        if n := rows("last", "the state itself"):
            return fail(
                f"The last steps of {n} rollouts are bootstrapped from the value of the state itself, not of the one that follows.",
                "The last stored value is used where the value of the next observation belongs.",
                "Ask the value network for the observation that the last step returned.",
            )
        return None

    def _by_weights(self, seen: Seen) -> Finding:
        fits: list[WeightFit] = []
        for rollout in seen.rollouts:
            for loss in rollout.losses[:1]:
                for policy in loss.policies[:1]:
                    if policy.rows is not None:
                        fit = fit_weights(rollout, rollout.spread(policy.rows, policy.weight))
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


def _trained_empty_steps(seen: Seen) -> int:
    count = 0
    for rollout in seen.rollouts:
        empty = {int(identity) for identity in rollout.observation[rollout.resets].tolist()}
        if empty:
            used: set[int] = set()
            for loss in rollout.losses:
                rows = loss.rows
                used |= set() if rows is None else {int(identity) for identity in rows.tolist()}
            count += len(empty & used)
    return count


class BootstrapRecomputed(SeenCheck):
    name = "bootstrap_recomputed"
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
        cut: Counter[str] = sum((each.cut for each in first), Counter())
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
                "The environment resets itself, and the observation it returns then belongs to the next episode.",
                "Store info's final observation as the next observation of the last step.",
            )
        squashes = [{e.soft for e in each.explanations} for each in matched]
        if sum(each == {WRONG_SQUASH} for each in squashes) > 0.8 * len(matched):
            return fail(
                "The correction of the squashed action's log-probability is that of an action squashed twice.",
                "tanh is applied again to the action inside of log(1 - tanh(x)^2).",
                "Use log(1 - action^2 + 1e-6) with the squashed action, or the value before squashing inside tanh.",
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

    def _wrong_networks(self, seen: Seen, matched: list[Bootstrapped], common: list[str], fail: Fail) -> Finding | None:
        if common and all(future.startswith("larger of") for future in common):
            return fail(
                "The targets take the larger of two critics: their errors add up instead of cancelling.",
                "max where min belongs.",
                "Take the smaller of the two.",
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


def _twins(seen: Seen) -> bool:
    """Two regressions of one update toward the same target."""
    for loss in seen.training_losses:
        both = loss.regressions
        if len(both) >= 2 and both[0].module != both[1].module and np.array_equal(both[0].target, both[1].target):
            return True
    return False


def bootstraps(seen: Seen) -> list[Bootstrapped]:
    """Explained once: the checks share it."""
    known = seen.notes.get("bootstraps")
    if known is None:
        losses = [
            loss
            for loss in seen.training_losses
            if loss.event.transitions_of is not None
            and not loss.policies
            and loss.event.silent
            and loss.cycle not in seen.on_policy_cycles
        ]
        step = max(1, len(losses) // BOOTSTRAPS_READ)
        known = seen.notes["bootstraps"] = []
        likely: set[tuple[str, str]] = set()
        for loss in losses[::step]:
            for regression in loss.regressions:
                found = explain(loss, regression, likely)
                if found is not None:
                    known.append(found)
                    likely |= {(e.future, e.soft) for e in found.explanations}
    return list(known)


class RatioIsOne(SeenCheck):
    name = "ratio_is_one"
    question = "Before the first step on a rollout, do new and old log-probabilities agree?"
    family = "mechanism-identity"

    def lacks(self, seen: Seen) -> str:
        return "" if _first_ratios(seen) else "no probability ratio was seen in the first loss on a rollout"

    def look(self, seen: Seen) -> Finding:
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
        if wrong:
            return self.finding("undecided", f"The ratio is off 1 in {len(wrong)} of {len(off)} rollouts.", figures)
        return self.finding("pass", f"The ratio is 1 to {max(off):.1g} at the start of {len(off)} rollouts.", figures)


def _first_ratios(seen: Seen) -> list[np.ndarray[Any, Any]]:
    found = []
    for cycle in sorted({rollout.cycle for rollout in seen.rollouts}):
        losses = seen.by_cycle.get(cycle, [])
        if losses and losses[0].ratios and losses[0].ratios[0].size:
            found.append(losses[0].ratios[0])
    for tokens in token_losses(seen):
        ratios = tokens.loss.ratios
        if tokens.prompt is not None and ratios and ratios[0].size == tokens.used.size and tokens.used.any():
            found.append(
                ratios[0].reshape(-1)[tokens.used.reshape(-1)]
            )  # sampled since the last step: the first on its batch
    return found
