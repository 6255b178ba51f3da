"""A language model's policy gradient: tokens that the policy chose, and no others, carry the loss; a reference stands apart.

    tokens_masked     prompt and padding get no gradient, the first chosen token does, and the mask is a mask
    reference_apart   the divergence is from another network than the policy, and is punished, not sought

A loop counts as one where log-probabilities of tokens, [sequences, positions], are in the loss and no environment is stepped.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Loss, Seen
from ..seen.token_rollouts import left_out
from ..seen.tokens import Tokens, token_losses
from ..seen.view import Follower
from .base import ENOUGH, FEW_ROWS, SeenCheck

AWAY = 1e-6
FEW_ENDINGS = 20
AS_OFTEN = 6.0
"""Standard errors."""
SETTLED = 4
"""Updates after its first gradient, when a reference that is kept still must differ from a policy that moves."""


class TokensMasked(SeenCheck):
    name = "tokens_masked"
    question = "Do exactly the tokens that the policy chose carry the loss?"
    family = "mechanism-identity"

    def lacks(self, seen: Seen) -> str:
        return "" if token_losses(seen) else "no log-probabilities of tokens were seen in a loss"

    def look(self, seen: Seen) -> Finding:
        found = token_losses(seen)
        masks = [loss for loss in found if _mask_is_no_mask(loss.loss)]
        in_prompt = [t for t in found if t.prompt is not None and t.used[:, : t.prompt - 1].any()]
        first_lost = [t for t in found if t.prompt is not None and t.used.any() and not t.used[:, t.prompt - 1].any()]
        padding = [t for t in found if _beyond(t)]
        figures: dict[str, Any] = {
            "losses": len(found), "with_a_prompt_trained": len(in_prompt), "without_the_first_token": len(first_lost),
            "with_padding_in_another_term": len(padding), "with_a_mask_that_is_none": len(masks),
        }  # fmt: skip

        def fail(summary: str, cause: str, advice: str) -> Finding:
            return self.finding("fail", summary, figures, where="the mask of tokens", cause=cause, advice=advice)

        if len(found) < ENOUGH:
            return self.finding("undecided", f"{len(found)} such losses were looked at; it takes {ENOUGH}.", figures)
        if len(masks) > 0.8 * len(found):
            return fail(
                "The tensor that masks the tokens is not 0 or 1: it is a multiple of the advantages.",
                "The advantages were passed where the mask belongs, so that every token counts by its advantage squared.",
                "Pass the mask of the answer's tokens.",
            )
        late = [t for t in found if t.reads_past_the_end]
        if len(late) > 0.8 * len(found):
            return fail(
                "Each token is scored by the answer that the network gave after it had read that token.",
                "Position j of the logits is for token j + 1; logits and tokens were cut at the same place.",
                "Score ids[:, start:] with logits[:, start - 1 : -1].",
            )
        known = sum(t.prompt is not None for t in found)
        if known >= ENOUGH and max(len(in_prompt), len(first_lost)) > 0.8 * known:
            where = "tokens of the prompt" if len(in_prompt) >= len(first_lost) else "not the first token of the answer"
            return fail(
                f"The loss trains {where}: the mask and the log-probabilities are shifted against each other.",
                "Position j of the log-probabilities is for token j + 1; the mask was cut at another place.",
                "Shift mask and tokens alike, or cut both at the length of the prompt.",
            )
        if len(padding) > 0.8 * len(found):
            return fail(
                "Positions whose log-probability is masked out still get a gradient from another term of the loss.",
                "Entropy or divergence is averaged over padding too.",
                "Multiply every term by the mask before it is averaged, and divide by the mask's sum.",
            )
        cut_short, sequences = left_out(seen)
        figures |= {"sequences": sequences, "without_their_last_token": cut_short}
        if cut_short >= FEW_ROWS and cut_short > 0.2 * sequences:
            return fail(
                f"In {cut_short} of {sequences} sequences the last token, with which the reward came, is not in the loss: the target "
                "of the token before it goes on past the mask.",
                "The mask drops the token that ends a sequence, so that ending is never trained.",
                "Count the ending token among those that the policy chose; mask only what comes after it.",
            )
        unended, ending = max(_endings_left_out(found), _endings_that_are_padding(found))
        if unended >= FEW_ENDINGS:
            return fail(
                f"{unended} sequences end with token {ending}, and it carries the loss in none of them: whether to end is never trained.",
                "The mask drops the token that ends a sequence together with the padding after it.",
                "Count the ending token among those that the policy chose; mask only what comes after it.",
            )
        return self.finding(
            "pass", f"In {len(found)} losses only chosen tokens carry the loss (prompt known in {known}).", figures
        )


def _endings_left_out(found: list[Tokens]) -> tuple[int, int]:
    """How many sequences go on, after their last token with a gradient, with one token that is the same in all and then with another
    one, the padding, alone; and that token. None where it carries the loss anywhere, or where padding and ending are one token."""
    endings: Counter[int] = Counter()
    trained: set[int] = set()
    for tokens in found:
        if tokens.action is None:
            continue
        used = tokens.used
        trained |= set(np.unique(tokens.action[used]).tolist())
        last = np.where(used, np.arange(tokens.shape[1]), -1).max(axis=1)
        for row in np.flatnonzero((last >= 0) & (last < tokens.shape[1] - 2)):
            ending, *padding = tokens.action[row, last[row] + 1 :].tolist()
            if len(set(padding)) == 1 and padding[0] != ending:
                endings[int(ending)] += 1
    if len(endings) != 1 or set(endings) & trained:
        return 0, -1
    token, count = endings.most_common(1)[0]
    return count, token


def _endings_that_are_padding(found: list[Tokens]) -> tuple[int, int]:
    """The same where one token is both: it follows the last trained token in every sequence that is not full, is trained nowhere, and was
    drawn, for it comes as often as the policy's own probabilities say. Padding that nobody draws comes far more often."""
    endings: Counter[int] = Counter()
    trained: set[int] = set()
    expected = variance = 0.0
    for tokens in found:
        chances = tokens.chances() if tokens.fresh else None
        if tokens.action is None or chances is None:
            continue
        used = tokens.used
        trained |= set(np.unique(tokens.action[used]).tolist())
        last = np.where(used, np.arange(tokens.shape[1]), -1).max(axis=1)
        rows = np.flatnonzero((last >= 0) & (last < tokens.shape[1] - 1))
        rest = {int(token) for row in rows for token in tokens.action[row, last[row] + 1 :]}
        if len(rest) != 1:
            continue
        token = rest.pop()
        endings[token] += len(rows)
        drawn = used.copy()
        drawn[rows, last[rows] + 1] = True
        p = chances[..., token][drawn]
        expected, variance = expected + float(p.sum()), variance + float((p * (1 - p)).sum())
    if len(endings) != 1 or set(endings) & trained or variance == 0:
        return 0, -1
    token, count = endings.most_common(1)[0]
    return (count, token) if abs(count - expected) < AS_OFTEN * np.sqrt(variance) else (0, -1)


def _mask_is_no_mask(loss: Loss) -> bool:
    """Two weights that multiply the same log-probabilities, one of them a multiple of the other."""
    weights = [
        loss.arrays[f"k{position}"].astype(np.float64)
        for position, about in enumerate(loss.event.constants)
        if about.get("role") == "weight" and f"k{position}" in loss.arrays
    ]
    weights = [w for w in weights if w.ndim in (1, 2) and w.size > 1 and np.ptp(w) > 1e-9]
    per_row = [w.reshape(len(w), -1) for w in weights]
    per_token = [w for w in per_row if w.shape[1] > 1]
    if not per_token or any(set(np.unique(w)) <= {0.0, 1.0} for w in per_token):
        return False
    signs = [w for w in per_row if (w < 0).any() and (w > 0).any()]
    if len(signs) < 2:
        return False
    policy = loss.policies[0]
    gradient = policy.gradient.reshape(-1)
    return bool((gradient <= 0).all() or (gradient >= 0).all())


def _beyond(tokens: Tokens) -> bool:
    """Of sequences that have an advantage: one of 0 leaves no gradient at any of its tokens, masked or not."""
    logits, weighed = tokens.logits_gradient, tokens.used.any(axis=-1)
    return logits is not None and bool((logits & ~tokens.used)[weighed].sum() > 0.01 * logits.size)


class ReferenceApart(SeenCheck):
    name = "reference_apart"
    question = "Is the divergence measured from another network than the policy, and punished?"
    family = "mechanism-identity"

    def lacks(self, seen: Seen) -> str:
        if _divergences(seen) or _itself_as_reference(seen) or _without_gradient(seen):
            return ""
        return "no divergence from a reference was seen in a loss"

    def look(self, seen: Seen) -> Finding:
        itself = _itself_as_reference(seen)
        if itself:
            name, module = next(iter(itself.items()))
            return self.finding(
                "fail",
                f"What the script calls {name} is {module} itself, which the optimizer trains: the divergence from it is always 0.",
                {"name": name, "network": module},
                where=name,
                cause="The model was assigned and not copied: two names for one object.",
                advice="Keep a frozen copy: copy.deepcopy(model).requires_grad_(False).",
            )
        found = _divergences(seen)
        if not found and (reference := _without_gradient(seen)):
            return self.finding(
                "fail",
                f"{reference} is asked about every batch, no divergence from it has a gradient, and something without a gradient is added to "
                "the loss of each token: it is logged and holds nothing.",
                {"reference": reference},
                where="the divergence term",
                cause="The divergence was computed under no_grad, or from detached log-probabilities.",
                advice="Compute it from the policy's log-probabilities with their graph; only the reference's stay without.",
            )
        behind = _left_before_pretraining(seen, [loss for loss, *_ in found])
        if behind is not None:
            return self.finding(
                "fail",
                f"{behind.name} was copied from {behind.met.leader} before that was trained on examples, and has not been touched since: the "
                "divergence pulls the policy back to where the examples found it.",
                {"losses": len(found), "reference": behind.name, "copied_at_update": behind.met.update},
                where="the reference",
                cause="The copy is made before the pretraining, not after it.",
                advice="Copy the model when its pretraining is done, or load its weights into the reference then.",
            )
        moved = [loss.update for loss, *_ in found if loss.policies[0].gradient.any()]
        late = [off for loss, off, _ in found if moved and loss.update >= min(moved) + SETTLED]
        slopes = np.array([slope for _, _, slope in found if slope])
        figures = {"losses": len(found), "largest_ratio": max((off for _, off, _ in found), default=0.0),
                   "that_punish": int((slopes > 0).sum()), "that_reward": int((slopes < 0).sum())}  # fmt: skip
        if len(slopes) >= ENOUGH and (slopes < 0).mean() > 0.9:
            return self.finding(
                "fail",
                f"In {int((slopes < 0).sum())} losses a larger divergence from the reference lowers the loss.",
                figures,
                where="the divergence term",
                cause="It is subtracted from a loss that is minimised.",
                advice="Add coefficient * divergence to the loss.",
            )
        if len(late) >= ENOUGH and max(late) <= AWAY:
            return self.finding(
                "fail",
                f"After {found[-1][0].update} updates the policy and its reference still agree exactly: the divergence is always 0.",
                figures,
                where="the reference",
                cause="The reference is the policy itself (the same object, or called instead of it), so that it moves along.",
                advice="Keep a frozen copy: copy.deepcopy(model).requires_grad_(False).",
            )
        if len(late) < ENOUGH:
            return self.finding(
                "undecided", f"{len(late)} losses after the start were looked at; it takes {ENOUGH}.", figures
            )
        return self.finding(
            "pass", f"In {len(found)} losses the divergence from a reference apart is punished.", figures
        )


def _left_before_pretraining(seen: Seen, diverging: list[Loss]) -> Follower | None:
    """A reference that was made before losses which only ever raise what they are shown, and that nothing has changed since. What the policy
    has sampled itself are no examples: rewards of 0 and 1 without a baseline only ever raise too."""
    if not diverging:
        return None
    first = min(loss.update for loss in diverging)
    asked = {str(about.get("module")) for loss in diverging for about in loss.event.silent}
    earlier = [tokens for tokens in token_losses(seen) if tokens.loss.update < first]
    for follower in seen.followers:
        if follower.name not in asked or follower.moves or not follower.met.equal:
            continue
        shown = [tokens for tokens in earlier if tokens.loss.update >= follower.met.update]
        sampled = sum(tokens.sampled_anew for tokens in shown)  # now and then, to see how far it has come
        if len(shown) >= ENOUGH and sampled < len(shown) / 2 and all((tokens.gradient <= 0).all() for tokens in shown):
            return follower
    return None


def _without_gradient(seen: Seen) -> str:
    """A network that is kept beside the policy and asked about the batches, where the losses have a part without gradient."""
    found = token_losses(seen)
    added = [tokens.loss for tokens in found if tokens.loss.event.added_without_gradient]
    if len(added) < max(ENOUGH, 0.9 * len(found)):
        return ""
    for follower in seen.followers:
        asked = [
            loss for loss in added if any(str(about.get("module")) == follower.name for about in loss.event.silent)
        ]
        if len(asked) > 0.9 * len(added):
            return follower.name
    return ""


def _itself_as_reference(seen: Seen) -> dict[str, str]:
    """Names of references that stand for a network which trains, in a loop on tokens."""
    return seen.trained_under("ref reference") if len(token_losses(seen)) >= ENOUGH else {}


def _divergences(seen: Seen) -> list[tuple[Loss, float, float]]:
    """(loss, how far the ratio to the reference is off 1 where tokens count, dL/dratio)."""
    found = []
    for tokens in token_losses(seen):
        loss = tokens.loss
        written = [_written_divergence(loss, position) for position in range(len(loss.event.constants))]
        if any(written):
            off, slope = next(each for each in written if each)
            found.append((loss, off, slope))
            continue
        for position, about in enumerate(loss.event.constants):
            ratio = loss.arrays.get(f"k{position}")
            if about.get("role") != "inverse_ratio" or ratio is None:
                continue
            gradient = loss.arrays.get(f"k{position}.gradient")
            used = tokens.used.reshape(-1) if ratio.size == tokens.used.size else np.ones(ratio.size, bool)
            off = np.abs(ratio.reshape(-1)[used].astype(np.float64) - 1)
            slope = 0.0 if gradient is None else float(gradient.sum())
            found.append((loss, float(off.max(initial=0.0)), slope))
            break
    return found


def _written_divergence(loss: Loss, position: int) -> tuple[float, float] | None:
    """(largest difference, coefficient of its term) of a divergence that is written out: sum of p (log p - log q)."""
    about, numbers = loss.event.constants[position], loss.arrays.get(f"k{position}")
    if about.get("role") != "divergence" or numbers is None:
        return None
    terms = [int(term) for term in about.get("terms", ()) if int(term) < len(loss.event.terms)]
    coefficients = [float(loss.event.terms[term]["coefficient"] or 0.0) for term in terms]
    return float(np.abs(numbers).max(initial=0.0)), coefficients[0] if coefficients else 0.0
