"""Were actions drawn from the distribution that scores them?

Of discrete actions the whole law is known, row by row: if they are drawn from it, -log p of the action is on average its entropy. The sum
of the differences is bounded as Chernoff did: for every theta, P(S >= s) <= exp(-theta s) * E[exp(theta S)], and the last factor is a
product over rows that can be computed. No normal law is asked for, so it holds for policies that have nearly made up their minds too; and as each
row's law is that of its own state, rows need not be independent.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from ..check import Finding
from ..seen import Loss, Seen
from ..seen.losses import Array
from ..seen.tokens import token_losses
from .base import ENOUGH, SeenCheck


class SampledAsScored(SeenCheck):
    name = "sampled_as_scored"
    concerns = "policies"
    question = "Were the actions drawn from the distribution whose log-probabilities the loss uses?"
    family = "mechanism-identity"

    def lacks(self, seen: Seen) -> str:
        return (
            ""
            if _surprises(seen).rows or _other_actions(seen)[0] or _at_an_edge(seen)[0] or _drawn_with_graph(seen)
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
        told = _surprises(seen)
        if not told.rows and scored_numbers >= ENOUGH_ROWS:
            return self.finding(
                "pass", f"{scored_numbers} numbers of actions are scored as they were drawn, unclipped.",
                {"numbers": scored_numbers, "exactly_at_an_edge": at_edge},
            )  # fmt: skip
        chance = math.exp(told.log_chance)
        figures = {"rows": told.rows, "surprise_over_entropy": told.share, "chance_at_most": chance}
        if told.rows < ENOUGH_ROWS or told.chances < ENOUGH_CHANCES:
            return self.finding(
                "undecided", f"{told.rows} rows were looked at; it takes {ENOUGH_ROWS} undecided ones.", figures
            )
        if told.log_chance < LOG_RARE and abs(told.share) >= CLEARLY:
            way = "less likely" if told.share > 0 else "more likely"
            return self.finding(
                "fail",
                f"Over {told.rows} rows the actions taken are {way} than their own distribution says, by {abs(told.share):.0%} of its entropy "
                f"(by chance at most once in 10^{-told.log_chance / math.log(10):.0f} times).",
                figures,
                where="acting and scoring",
                cause="Actions are drawn from another distribution (another temperature, noise, epsilon, other weights) than the one "
                "that the loss scores them with, or the loss scores other actions.",
                advice="Sample from the very distribution whose log_prob is stored, and store exactly that action.",
            )
        return self.finding(
            "pass",
            f"The actions of {told.rows} rows are as likely as their distribution says ({told.share:+.1%} of its entropy).",
            figures,
        )


CLIPPED = 0.02
MANY_DIFFERENT = 10
"""Different numbers in a column, below which a policy is as good as deterministic."""
OTHER_ACTIONS = 0.2
"""Share of rows; a policy that has nearly made up its mind draws the same action twice."""
ENOUGH_ROWS = 200
ENOUGH_CHANCES = 20.0
"""Sum of 1 - max p: how many of the rows could well have gone another way."""
LOG_RARE = math.log(1e-6)
CLEARLY = 0.05
"""Of the entropy. Sampled at twice the temperature, actions were 9 to 13 % off; healthy ones up to 3 %, by chance."""
LARGEST_THETA = 3.0


def _drawn_with_graph(seen: Seen) -> int:
    """Losses that weigh the log-probabilities of such actions row by row; an actor that a critic trains weighs all alike."""
    return sum(
        any(bool(about.get("drawn_with_graph")) for about in loss.event.log_probs[:1])
        and any(not policy.even for policy in loss.policies[:1])
        for loss in seen.training_losses
    )


def _other_actions(seen: Seen) -> tuple[int, int]:
    counts = [rollout.actions_scored(loss) for rollout in seen.rollouts for loss in rollout.policy_losses[:1]]
    return sum(rows for rows, _ in counts), sum(others for _, others in counts)


def _at_an_edge(seen: Seen) -> tuple[int, int]:
    """Numbers of actions that normal distributions score in losses on rollouts, and those that are exactly the smallest or the largest
    of their column, beyond one of each: of a continuous law no two are alike."""
    numbers = edges = 0
    for cycle in sorted(seen.on_policy_cycles):
        for loss in seen.drawn(cycle):
            for policy in loss.policies[:1]:
                if policy.kind != "Normal" or policy.action is None or policy.action.size != policy.value.size:
                    continue
                table = policy.action.reshape(len(policy.value), -1)
                for column in table.T:
                    alike = int((column == column.max()).sum() + (column == column.min()).sum()) - 2
                    if len(np.unique(column)) >= MANY_DIFFERENT:
                        numbers, edges = numbers + len(column), edges + alike
    return numbers, edges


@dataclass(frozen=True)
class _Surprises:
    """Over the rows of first losses on rollouts, before any step has moved the policy."""

    rows: int
    chances: float
    share: float
    """Sum of -log p less its expectation, over the latter: above 0 where actions are less likely than they should be."""
    log_chance: float
    """Logarithm of a bound on how likely so much or more is, on that side."""


def _surprises(seen: Seen) -> _Surprises:
    known = seen.notes.get("surprises")
    if known is None:
        known = seen.notes["surprises"] = _surprises_of(_scored(seen))
    assert isinstance(known, _Surprises)
    return known


def _scored(seen: Seen) -> list[tuple[Array, Array]]:
    """(log-probabilities of what was done, logits [rows, actions])."""
    first = [loss for cycle in sorted(seen.on_policy_cycles) for loss in seen.drawn(cycle)]
    scored = [pair for loss in first for pair in _scored_logits(loss)]
    tokens = [each.scored_logits() for each in token_losses(seen) if each.fresh]
    return scored + [pair for pair in tokens if pair is not None]


def _surprises_of(scored: list[tuple[Array, Array]]) -> _Surprises:
    laws: list[tuple[Array, Array]] = []
    surprise, expected, rows, chances = 0.0, 0.0, 0, 0.0
    for log_prob, logits in scored:
        table = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        p = np.exp(table)
        entropy = -(p * np.where(p > 0, table, 0.0)).sum(axis=1)
        laws.append((table, np.where(p > 0, -table - entropy[:, None], 0.0)))
        surprise += float((-log_prob - entropy).sum())
        expected += float(entropy.sum())
        rows += len(log_prob)
        chances += float((1 - p.max(axis=1)).sum())
    if not expected:
        return _Surprises(rows, chances, 0.0, 0.0)
    return _Surprises(rows, chances, surprise / expected, _log_chance(laws, surprise))


def _log_chance(laws: list[tuple[Array, Array]], total: float) -> float:
    """Chernoff's bound; each law has log-probabilities and values of its rows, whose expectation is 0."""
    from scipy.optimize import minimize_scalar  # takes longer to import than most judgements need without it

    side = 1.0 if total > 0 else -1.0

    def bound(theta: float) -> float:
        grown = (np.logaddexp.reduce(log_p + theta * side * x, axis=1).sum() for log_p, x in laws)
        return float(sum(grown)) - theta * abs(total)

    found = minimize_scalar(bound, bounds=(0.0, LARGEST_THETA), method="bounded", options={"xatol": 1e-3})
    return min(0.0, float(found.fun))


def _scored_logits(loss: Loss) -> list[tuple[Array, Array]]:
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
