"""Shapes and distributions: an (N,) against an (N, 1), log-probabilities per dimension, probabilities where logits belong."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Loss, Seen
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
