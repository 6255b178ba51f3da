"""Is what a language model is rewarded for an answer to what it was asked?

A right task tells answers apart by their questions. Four things are seen where the reward does not, however well it rises:

    one answer          late in training nearly all sequences are the same, whatever was asked (policy_looks)
    nothing is enough   to one and the same question an empty answer and one that says something both earn all there is
    anything is enough  a policy that still draws its tokens nearly at random earns all there is, nearly always
    all is the same     no answer ever earned more than the others, and every advantage is 0

None of them accuses: there are tasks of that kind, and only who set one knows. They keep a rise from being called better.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ...evidence import Evidence
from ..check import Finding
from ..seen import Seen, seen
from ..seen.losses import Array
from ..seen.token_answers import Answer, answers, asked, begins_with, ending
from ..seen.token_rewards import rewarded, without_advantages
from ..seen.token_rollouts import batch_rewards
from ..seen.tokens import Tokens, token_losses
from .base import ENOUGH, FEW_ROWS

PART = 4
"""Late in training is the last one of so many parts of the losses looked at."""
FEW_SEQUENCES = 32
NEARLY_ALL = 0.9
TELLS_APART = 0.5
"""Agreement of answers to one question beyond that of answers to different ones, of what there could be: near 1 where a task is solved
in which nearly all questions have one right answer, near 0 where the others are only sampled."""
SAME_REWARD = 1e-6
FIRST_BATCHES = 3
AT_RANDOM = 0.9
"""Nats per token over those of tokens that are drawn evenly."""
MOSTLY_PAID = 0.8
ALL_ALIKE = (
    "Look at what checks the answers: it may read the question in place of the answer, or never be content. A task that is solved "
    "from the start, or too hard to be solved by chance, looks the same."
)


@dataclass(frozen=True)
class OneAnswer:
    """An answer that nearly all sequences are, late in training."""

    answer: Answer
    share: float
    batches: int
    length_before: float
    """Mean tokens of an answer in the first losses looked at."""

    @property
    def words(self) -> str:
        if len(self.answer) == 1 and self.length_before > 1.5:
            return (
                f"The answers have shrunk to nothing: in the last {self.batches} losses looked at, {self.share:.0%} of them are token "
                f"{self.answer[0]} alone, whatever was asked; at first they had {self.length_before:.1f} tokens."
            )
        return (
            f"In the last {self.batches} losses looked at, {self.share:.0%} of the answers are one and the same, of {len(self.answer)} "
            "tokens, whatever was asked."
        )


def one_answer(seen: Seen) -> OneAnswer | None:
    found = [tokens for tokens in token_losses(seen) if tokens.action is not None and tokens.used.any()]
    late = found[-max(ENOUGH, len(found) // PART) :]
    if len(late) < ENOUGH or all(_one_question(tokens) for tokens in late):
        return None
    answer, _ = Counter(answer for tokens in late for answer in answers(tokens) if answer).most_common(1)[0]
    known = [_known_alike(tokens, answer) for tokens in late]
    alike = np.concatenate([same for same, _ in known])
    if len(alike) < FEW_SEQUENCES or alike.mean() < NEARLY_ALL or _told_apart(known) > TELLS_APART:
        return None
    before = [len(each) for tokens in found[:ENOUGH] for each in answers(tokens) if each]
    return OneAnswer(answer, float(alike.mean()), len(late), float(np.mean(before)))


def _one_question(tokens: Tokens) -> bool:
    question = asked(tokens)
    if question is not None:
        return len(np.unique(question)) < 2
    assert tokens.action is not None
    return tokens.prompt is not None and len(np.unique(tokens.action[:, : tokens.prompt - 1], axis=0)) < 2


def _known_alike(tokens: Tokens, answer: Answer) -> tuple[Array, Array | None]:
    """Whether sequences are that answer, and their questions. Of those without a gradient, whose end is not known, whether they begin with
    it; they are left out where that is not known either."""
    given = answers(tokens)
    same = np.array([each == answer for each in given])
    weighed = np.array([bool(each) for each in given])
    begun, question = begins_with(tokens, answer), asked(tokens)
    if begun is not None:
        return np.where(weighed, same, begun), question
    return same[weighed], None if question is None else question[weighed]


def _told_apart(known: list[tuple[Array, Array | None]]) -> float:
    """How much more often two sequences agree in whether they are the answer if they have one question than if they have two, of how much
    more often they could; 0 where no question was asked twice."""
    agree_within = within = agree_across = across = 0
    for alike, question in known:
        if question is None:
            continue
        pairs = list(zip(question.tolist(), alike.tolist(), strict=True))
        same, asked_twice = _pairs(Counter(pairs)), _pairs(Counter(q for q, _ in pairs))
        agree_within, within = agree_within + same, within + asked_twice
        agree_across += _pairs(Counter(alike.tolist())) - same
        across += len(pairs) * (len(pairs) - 1) - asked_twice
    if not within or not across or agree_across == across:
        return 0.0
    chance = agree_across / across
    return (agree_within / within - chance) / (1 - chance)


def _pairs(counts: Counter[Any]) -> int:
    return sum(count * (count - 1) for count in counts.values())


def unless_any_answer_earns_it(evidence: Evidence, judged: Finding) -> Finding:
    """A better policy by rewards that an empty answer earns, or nearly any, is none that can be called better."""
    if not token_losses(seen(evidence)):
        return judged
    alike = nothing_earned_more(seen(evidence))
    if alike:
        return dataclasses.replace(judged, status="undecided", summary=alike, advice=ALL_ALIKE)
    sign = _nothing_is_enough(seen(evidence)) or _anything_is_enough(seen(evidence))
    if sign is None:
        return judged
    words, figures, advice = sign
    return dataclasses.replace(
        judged,
        status="undecided",
        summary=f"{judged.summary} But {words}",
        figures=judged.figures | figures,
        advice=f"{advice} If it is meant, this is no defect; it only keeps the run from being proven.",
    )


def nothing_earned_more(seen: Seen) -> str:
    """That said in a sentence; "" where an answer did."""
    losses = without_advantages(seen)
    if losses < ENOUGH:
        return ""
    return (
        f"In all {losses} losses looked at, the advantage of every answer is 0: whatever the policy answered earned the same as its other "
        "answers, and nothing could be learnt from it."
    )


def _nothing_is_enough(seen: Seen) -> tuple[str, dict[str, Any], str] | None:
    """Only where several answers to a question were compared with each other: there, and by what the network said of it, it is known
    to be the same. A question to which nothing is the right answer has no other right one."""
    found = rewarded(seen)
    end = ending([each.tokens for each in found])
    if end is None:
        return None
    best = max(float(each.reward.max()) for each in found)
    empty_given = empty_paid = both_paid = 0
    for each in found:
        question = asked(each.tokens)
        place, batch = each.tokens.places
        if question is None or not 1 < each.group < batch:
            continue
        paid = each.reward >= best - SAME_REWARD
        to: dict[tuple[int, int], list[tuple[bool, bool]]] = {}
        for q, at, answer, full in zip(question, place, answers(each.tokens), paid, strict=True):
            if answer:
                to.setdefault((int(q), int(at) // each.group), []).append((answer == (end,), bool(full)))
        for given in to.values():
            nothing, something = ([full for empty, full in given if empty is kind] for kind in (True, False))
            empty_given += bool(nothing)
            empty_paid += bool(nothing) and all(nothing)
            both_paid += bool(nothing) and all(nothing) and any(something)
    if both_paid < FEW_ROWS or empty_paid < NEARLY_ALL * empty_given:
        return None
    return (
        f"an empty answer (token {end}, which ends it, and nothing before) earned {best:.3g}, the most that any did, to {empty_paid} of the "
        f"{empty_given} questions that it was given to; to {both_paid} of them an answer that says something earned as much.",
        {"questions_with_an_empty_answer": empty_given, "empty_answers_paid": empty_paid, "others_paid_too": both_paid},
        "Look at what checks the answers: compared only as far as the shorter one goes, or looked for inside of the right one, nothing "
        "is always right.",
    )


def _anything_is_enough(seen: Seen) -> tuple[str, dict[str, Any], str] | None:
    batches = batch_rewards(seen)
    first = list(batches)[:FIRST_BATCHES]
    if len(first) < FIRST_BATCHES:
        return None
    losses = [t for t in token_losses(seen) if t.loss.update in first and t.action is not None and t.used.any()]
    drawn = set(chain.from_iterable(chain.from_iterable(answers(tokens)) for tokens in losses))
    if len(drawn) < 2:
        return None
    nats = -float(np.mean(np.concatenate([t.loss.policies[0].value.reshape(t.shape)[t.used] for t in losses])))
    most = float(np.log(len(drawn)))
    best = max(float(np.max(rewards)) for rewards in batches.values())
    early = np.concatenate([np.asarray(batches[update], np.float64) for update in first])
    paid = float((early >= best - SAME_REWARD).mean())
    if nats < AT_RANDOM * most or paid < MOSTLY_PAID:
        return None
    return (
        f"the answers of its first {FIRST_BATCHES} batches, drawn nearly at random ({nats:.2f} nats a token; {len(drawn)} tokens drawn evenly "
        f"have {most:.2f}), earned {best:.3g}, the most that any did, {paid:.0%} of the time: nearly any answer is paid.",
        {"nats_at_first": nats, "nats_at_random": most, "paid_at_first": paid},
        "Look at what checks the answers: it may compare an answer with itself, or with the question.",
    )
