"""Shapes and distributions: an (N,) against an (N, 1), log-probabilities per dimension, probabilities where logits belong,
actions that were drawn from another distribution than the one that scores them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Loss, Seen
from ..seen.tokens import token_losses
from .base import ENOUGH, SeenCheck, some
from .temperature import averaged_log_probs

MIN_LOSSES = 3
PICKED_DOWN = "GatherBackward0"
PROBABILITIES = 1e-5


class NoAccidentalBroadcast(SeenCheck):
    name = "no_accidental_broadcast"
    question = "Does the loss compare row with row, and not every row with every other?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        if any(event.what == "shapes" for event in seen.evidence.not_seen):
            return "the shapes in the graph could not be read"
        return "" if seen.training_losses else "no loss was read"

    def look(self, seen: Seen) -> Finding:
        losses = seen.training_losses
        late = [loss for loss in losses if any(not what["operand"] for what in loss.event.broadcasts)]
        found = [loss for loss in losses if _of_the_batch(loss)]
        figures: dict[str, Any] = {"losses": len(losses), "with_a_broadcast": len(found), "weighed_late": len(late)}
        if len(found) >= MIN_LOSSES and len(found) > 0.5 * sum(loss.structure == found[0].structure for loss in losses):
            what = next(w for w in found[0].event.broadcasts if w["operand"] and w["node"] != PICKED_DOWN)
            n, operand = what["shape"][0], tuple(what["operand"])
            return self.finding(
                "fail",
                f"In {len(found)} losses a tensor of shape {operand} meets one of {n} numbers and becomes {n} x {n}: every row is "
                "compared with every other.",
                {**figures, "shape": what["shape"], "operand": list(operand), "operation": what["node"]},
                where=f"the loss of update {found[0].update}, {what['node'].removesuffix('Backward0')}",
                cause="Columns were picked with q[:, actions], which takes all of them for every row."
                if what["node"] == "IndexBackward0"
                else "One side was squeezed or flattened and the other was not: (N,) against (N, 1).",
                advice="Use q.gather(1, actions[:, None]).squeeze(1)."
                if what["node"] == "IndexBackward0"
                else "Give both sides the same shape, e.g. values.squeeze(-1), and assert it.",
            )
        down = [loss for loss in losses if any(what["node"] == PICKED_DOWN for what in loss.event.broadcasts)]
        if len(down) >= MIN_LOSSES and len(down) > 0.5 * sum(loss.structure == down[0].structure for loss in losses):
            rows, columns = down[0].event.broadcasts[0]["shape"]
            return self.finding(
                "fail",
                f"In {len(down)} losses numbers are picked down the batch of {rows} rows instead of along the {columns} columns: each row "
                "gets the answer to one of the first few rows.",
                {**figures, "picked_down": len(down)},
                where=f"the loss of update {down[0].update}, gather",
                cause="gather was given dim=0.",
                advice="Use q.gather(1, actions[:, None]).squeeze(1).",
            )
        if len(late) >= MIN_LOSSES and len(late) > 0.5 * sum(loss.structure == late[0].structure for loss in losses):
            n = max(max(what["shape"]) for what in late[0].event.broadcasts if not what["operand"])
            return self.finding(
                "fail",
                f"In {len(late)} losses {n} weights are multiplied with one number, to which the {n} rows have been averaged before: every "
                "row counts alike, whatever its weight.",
                {**figures, "rows": n},
                where=f"the loss of update {late[0].update}",
                cause="The loss is reduced (reduction='mean', or .mean()) before the importance weights or masks of its rows come in.",
                advice="Use reduction='none', multiply row by row, then average.",
            )
        return self.finding("pass", f"No loss of {len(losses)} broadcasts its rows against each other.", figures)


def _of_the_batch(loss: Loss) -> bool:
    """A broadcast to (N, N) where N is the number of rows that log-probabilities, ratios, weights or a network's answers have."""
    sizes = {len(policy.value) for policy in loss.policies}
    sizes |= {
        int(c["shape"][0]) for c in loss.event.constants if c.get("shape") and c.get("role") in ("ratio", "weight")
    }
    sizes |= {int(about["shape"][0]) for about in loss.event.calls if about.get("shape")}
    return any(
        int(what["shape"][0]) in sizes
        for what in loss.event.broadcasts
        if what["operand"] and what["node"] != PICKED_DOWN
    )


class DistributionsFit(SeenCheck):
    name = "distributions_fit"
    concerns = "policies"
    question = "Are log-probabilities and Q-values of the form that the loss takes them for?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        return "" if seen.training_losses else "no loss was read"

    def look(self, seen: Seen) -> Finding:
        losses = seen.training_losses
        losses = losses[:: max(1, len(losses) // 64)]
        per_dimension = [loss for loss in losses if _ratio_per_dimension(loss)]
        squeezed = [loss for loss in losses if _softmax_q(loss)]
        twice = [loss for loss in losses if loss.event.softmax_twice or _softmax_twice(loss)]
        figures = {"losses": len(losses), "ratio_per_dimension": len(per_dimension), "q_values_that_sum_to_1": len(squeezed),
                   "probabilities_as_logits": len(twice)}  # fmt: skip
        if len(per_dimension) >= ENOUGH:
            shape = per_dimension[0].policies[0].value.shape
            return self.finding(
                "fail",
                f"The probability ratio has shape {shape}: one ratio for each dimension of an action, clipped apart.",
                figures,
                where=f"the loss of update {per_dimension[0].update}",
                cause="The log-probabilities of the dimensions are not summed.",
                advice="Sum log_prob over the last axis, or use Independent(Normal(...), 1).",
            )
        if (averaged := averaged_log_probs(seen)) >= ENOUGH:
            return self.finding(
                "fail",
                f"In {averaged} losses of the temperature the log-probability of an action is the mean over its dimensions: an action's "
                "probability is their product.",
                figures | {"averaged_over_dimensions": averaged},
                where="the log-probabilities of actions",
                cause="mean where sum belongs: the policy's entropy is taken for a fraction of what it is.",
                advice="Sum log_prob over the last axis, or use Independent(Normal(...), 1).",
            )
        if len(squeezed) >= ENOUGH:
            return self.finding(
                "fail",
                "The Q-values of every state lie between 0 and 1 and sum to 1: they are probabilities.",
                figures,
                where=some({str(about.get("module")) for about in squeezed[0].event.calls}),
                cause="The Q-network ends in a softmax.",
                advice="End it in a linear layer: Q-values have no bounds.",
            )
        if len(twice) >= ENOUGH:
            return self.finding(
                "fail",
                "The network's probabilities were taken for logits: the policy goes through softmax twice and can never become sure.",
                figures,
                where=some({str(about.get("module")) for about in twice[0].event.calls}),
                cause="softmax(...) was handed to Categorical(logits=...), log_softmax or cross_entropy, which apply it again.",
                advice="Give logits to logits= and to cross_entropy, probabilities to probs=.",
            )
        across = [loss for loss in losses if loss.event.softmax_over_rows]
        if len(across) >= ENOUGH and len(across) > 0.8 * sum(loss.structure == across[0].structure for loss in losses):
            return self.finding(
                "fail",
                f"In {len(across)} losses a softmax of a matrix runs over its rows: the probabilities of one action sum to 1 over the "
                "batch, those of one state do not.",
                figures,
                where=some({str(about.get("module")) for about in across[0].event.calls}),
                cause="softmax was given dim=0, which is right for one state and wrong for a batch.",
                advice="Use dim=-1.",
            )
        return self.finding(
            "pass", f"The distributions of {len(losses)} losses fit what the losses do with them.", figures
        )


def _ratio_per_dimension(loss: Loss) -> bool:
    for policy in loss.policies:
        if policy.value.ndim == 2 and policy.value.shape[1] > 1 and policy.kind in ("Normal", "Beta", "Laplace"):
            return any(ratio.size == policy.value.size for ratio in loss.ratios)
    return False


def _sums_to_one(output: np.ndarray[Any, Any]) -> bool:
    if output.ndim != 2 or output.shape[1] < 2 or len(output) < 2:
        return False
    return bool(output.min() >= 0 and np.abs(output.sum(axis=1) - 1).max() <= PROBABILITIES)


def _softmax_q(loss: Loss) -> bool:
    if loss.policies or loss.event.transitions_of is None:
        return False
    calls = {regression.call for regression in loss.regressions if regression.call is not None}
    return any(_sums_to_one(loss.arrays[f"c{call}.output"].astype(np.float64)) for call in calls)


def _softmax_twice(loss: Loss) -> bool:
    """log_softmax of probabilities explains the log-probabilities, and their logarithm does not."""
    for policy in loss.policies:
        if policy.kind != "Categorical" or policy.action is None or policy.value.ndim != 1:
            continue
        action = policy.action.reshape(-1).astype(np.int64)
        for _, output, _ in loss.call_gradients():
            if not _sums_to_one(output) or len(output) != len(policy.value) or action.max(initial=0) >= output.shape[1]:
                continue
            rows = np.arange(len(output))
            again = output - np.log(np.exp(output).sum(axis=1, keepdims=True))
            once = np.log(np.maximum(output[rows, action], 1e-12))
            if np.abs(again[rows, action] - policy.value).max() < 1e-4 < np.abs(once - policy.value).max():
                return True
    return False


class SampledAsScored(SeenCheck):
    """If actions are drawn from the distribution that scores them, -log p of the action is on average its entropy. The sum over
    rows, less its expectation, over its standard deviation, is then about normal."""

    name = "sampled_as_scored"
    concerns = "policies"
    question = "Were the actions drawn from the distribution whose log-probabilities the loss uses?"
    family = "mechanism-identity"

    def lacks(self, seen: Seen) -> str:
        return (
            ""
            if _surprises(seen)[2] or _other_actions(seen)[0] or _at_an_edge(seen)[0] or _drawn_with_graph(seen)
            else "no log-probabilities of discrete actions were seen beside their logits"
        )

    def look(self, seen: Seen) -> Finding:
        scored, others = _other_actions(seen)
        if scored >= ENOUGH_ROWS and others > OTHER_ACTIONS * scored:
            return self.finding(
                "fail",
                f"In {others} of {scored} rows the loss scores another action than the one that the environment was given.",
                {"rows": scored, "other_actions": others},
                where="acting and scoring",
                cause="A second sample is drawn for the log-probability, or stored actions are shifted against their observations.",
                advice="Keep the action that was sampled, step the environment with it, and score exactly that one.",
            )
        cancelled = _drawn_with_graph(seen)
        if cancelled >= ENOUGH:
            return self.finding(
                "fail",
                f"In {cancelled} losses the actions whose log-probabilities are weighed keep their own way back to the distribution: what "
                "moves the mean moves the action with it, and the two gradients cancel.",
                {"losses": cancelled},
                where="acting and scoring",
                cause="Actions are drawn with rsample() where sample() belongs.",
                advice="Draw with sample(), or detach the action before log_prob; rsample() is for actors that a critic trains.",
            )
        scored_numbers, at_edge = _at_an_edge(seen)
        if at_edge >= ENOUGH_CHANCES and at_edge > CLIPPED * scored_numbers:
            return self.finding(
                "fail",
                f"{at_edge} of {scored_numbers} numbers of the actions that a normal distribution scores are exactly its smallest or "
                "largest one: they were clipped after they had been drawn.",
                {"numbers": scored_numbers, "exactly_at_an_edge": at_edge},
                where="acting and scoring",
                cause="The clipped action is stored, and its log-probability is that of a number which was never drawn.",
                advice="Store and score the action as it was drawn, and clip only what the environment is given.",
            )
        otherwise = [share for tokens in token_losses(seen) if (share := tokens.sampled_otherwise()) is not None]
        if len(otherwise) >= ENOUGH and float(np.median(otherwise)) > OTHER_ACTIONS:
            return self.finding(
                "fail",
                f"In {len(otherwise)} losses the network gave other answers when the tokens were sampled than it gives in the loss, for "
                f"{np.median(otherwise):.0%} of the tokens.",
                {"losses": len(otherwise), "tokens_answered_otherwise": float(np.median(otherwise))},
                where="sampling and scoring",
                cause="Padding is masked in one of them and not in the other, positions are counted differently, dropout is on, or the "
                "sampling used other weights.",
                advice="Call the network in the same way when sampling and when scoring: same mask, same positions, same mode.",
            )
        surprise, variance, rows, chances = _surprises(seen)
        if not rows and scored_numbers >= ENOUGH_ROWS:
            return self.finding(
                "pass", f"{scored_numbers} numbers of actions are scored as they were drawn, unclipped.",
                {"numbers": scored_numbers, "exactly_at_an_edge": at_edge},
            )  # fmt: skip
        z = surprise / np.sqrt(variance) if variance > 0 else 0.0
        figures = {"rows": rows, "surprise_per_row": surprise / max(rows, 1), "standard_errors": float(z)}
        if rows < ENOUGH_ROWS or chances < ENOUGH_CHANCES:
            return self.finding(
                "undecided", f"{rows} rows were looked at; it takes {ENOUGH_ROWS} undecided ones.", figures
            )
        if abs(z) > FAR_OFF:
            way = "less likely" if z > 0 else "more likely"
            return self.finding(
                "fail",
                f"Over {rows} rows the actions taken are {way} than their own distribution says, by {abs(z):.0f} standard errors.",
                figures,
                where="acting and scoring",
                cause="Actions are drawn from another distribution (another temperature, noise, epsilon, other weights) than the one "
                "that the loss scores them with, or the loss scores other actions.",
                advice="Sample from the very distribution whose log_prob is stored, and store exactly that action.",
            )
        return self.finding(
            "pass", f"The actions of {rows} rows are as likely as their distribution says ({z:+.1f} s.e.).", figures
        )


CLIPPED = 0.02
MANY_DIFFERENT = 10
"""Different numbers in a column, below which a policy is as good as deterministic."""
OTHER_ACTIONS = 0.2
"""Share of rows; a policy that has nearly made up its mind draws the same action twice."""
ENOUGH_ROWS = 200
ENOUGH_CHANCES = 20.0
"""Sum of p (1 - p): how many of the rows could well have gone another way; the normal law needs some."""
FAR_OFF = 8.0


def _drawn_with_graph(seen: Seen) -> int:
    """Losses that weigh the log-probabilities of such actions row by row; an actor that a critic trains weighs all alike."""
    return sum(
        any(bool(about.get("drawn_with_graph")) for about in loss.event.log_probs[:1])
        and any(not policy.even for policy in loss.policies[:1])
        for loss in seen.training_losses
    )


def _other_actions(seen: Seen) -> tuple[int, int]:
    counts = [rollout.actions_scored(loss) for rollout in seen.rollouts for loss in rollout.losses[:1]]
    return sum(rows for rows, _ in counts), sum(others for _, others in counts)


def _at_an_edge(seen: Seen) -> tuple[int, int]:
    """Numbers of actions that normal distributions score in losses on rollouts, and those that are exactly the smallest or the largest
    of their column, beyond one of each: of a continuous law no two are alike."""
    numbers = edges = 0
    for cycle in sorted(seen.on_policy_cycles):
        for loss in seen.by_cycle.get(cycle, [])[:1]:
            for policy in loss.policies[:1]:
                if policy.kind != "Normal" or policy.action is None or policy.action.size != policy.value.size:
                    continue
                table = policy.action.reshape(len(policy.value), -1)
                for column in table.T:
                    alike = int((column == column.max()).sum() + (column == column.min()).sum()) - 2
                    if len(np.unique(column)) >= MANY_DIFFERENT:
                        numbers, edges = numbers + len(column), edges + alike
    return numbers, edges


def _surprises(seen: Seen) -> tuple[float, float, int, float]:
    """Sum of -log p - H, its variance, rows, chances; over first losses on rollouts, before any step has moved the policy."""
    known = seen.notes.get("surprises")
    if known is not None:
        return known  # type: ignore[no-any-return]
    surprise, variance, rows, chances = 0.0, 0.0, 0, 0.0
    first = [loss for cycle in sorted(seen.on_policy_cycles) for loss in seen.by_cycle.get(cycle, [])[:1]]
    scored = [pair for loss in first for pair in _scored_logits(loss)]
    scored += [pair for tokens in token_losses(seen) if tokens.fresh and (pair := tokens.scored_logits()) is not None]
    for log_prob, logits in scored:
        table = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        p = np.exp(table)
        entropy = -(p * np.where(p > 0, table, 0.0)).sum(axis=1)
        surprise += float((-log_prob - entropy).sum())
        variance += float(((p * np.where(p > 0, table, 0.0) ** 2).sum(axis=1) - entropy**2).sum())
        rows += len(log_prob)
        chances += float((1 - p.max(axis=1)).sum())
    known = seen.notes["surprises"] = (surprise, variance, rows, chances)
    return known


def _scored_logits(loss: Loss) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """(log-probabilities, logits) of rows for which a network's answers are the logits that explain the log-probabilities."""
    if not loss.policies or loss.policies[0].value.ndim != 1 or loss.policies[0].action is None:
        return []
    policy = loss.policies[0]
    action = policy.action.reshape(-1) if policy.action is not None else np.empty(0)
    listed = [] if policy.rows is None else policy.rows.tolist()
    counts = Counter(listed)
    place = {
        int(row): at for at, row in enumerate(listed) if counts[row] == 1
    }  # rows that came twice cannot be told apart
    found = []
    for position in range(len(loss.event.calls)):
        output, rows = loss.arrays.get(f"c{position}.output"), loss.arrays.get(f"c{position}.rows")
        if output is None or rows is None or output.ndim == 0 or output.shape[-1] < 2:
            continue
        logits = output.astype(np.float64).reshape(-1, output.shape[-1])
        if len(action) != len(policy.value):
            continue
        times = loss.arrays.get(f"c{position}.time")
        if policy.time is not None and times is not None and np.array_equal(times, policy.time):
            at = np.arange(len(logits))  # one acting call after the other, as they were scored
        elif len(logits) == len(rows):
            at = np.array([place.get(int(row), -1) for row in rows.tolist()])
        else:
            continue
        logits, at = logits[at >= 0], at[at >= 0]
        if len(at) == 0 or int(action[at].max()) >= logits.shape[1] or int(action[at].min()) < 0:
            continue
        scores = policy.value[at].astype(np.float64)
        table = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        if np.abs(table[np.arange(len(at)), action[at].astype(np.int64)] - scores).max() < 1e-4:
            found.append((scores, logits))
            if len(at) == len(policy.value):
                break
    return found
