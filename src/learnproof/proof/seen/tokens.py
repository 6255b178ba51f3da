"""Losses on tokens of a language model: which positions carry them, where their sequences stand in the batch, what was sampled.

A loop counts as one where log-probabilities of tokens, [sequences, positions], are in the loss and no environment is stepped.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np

from .fitting import least_squares
from .losses import Array, Loss
from .view import Seen

STILL_ONE = 1e-3
SAME = 1e-3
"""Difference of two answers of one network that is more than rounding."""
ROUNDING = 1e-4
"""Difference of answers, over their size, that batches of another size leave."""
NEARLY_ALL = 0.95
TEMPERATURES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 1.1, 1.2, 1.25, 1.3, 1.5, 2.0, 0.75, 0.4, 0.3)
"""Those that people write; the first that explains a log-probability to rounding is the one."""
SCORED = 1e-4
"""Difference of log-probabilities that is rounding."""
NEVER = -1e9
"""Logit of a token that is not written."""


class Tokens:
    """Log-probabilities of a loss as [sequences, positions]."""

    def __init__(self, loss: Loss, prompt: int | None) -> None:
        self.loss = loss
        shape = loss.event.log_probs[0]["shape"]
        self.shape = (int(shape[0]), int(shape[1]))
        policy = loss.policies[0]
        self.gradient = policy.gradient.reshape(self.shape).astype(np.float64)
        self.action = None if policy.action is None else policy.action.reshape(self.shape)
        self.prompt = prompt
        """Tokens of the prompt, where the first call of the sampling tells."""

    @property
    def used(self) -> Array:
        return np.asarray(self.gradient != 0)

    @property
    def places(self) -> tuple[Array, int]:
        """Where the sequences of the loss stand in their batch, and its size; as they come, where nothing tells."""
        return self.known_places or (np.arange(self.shape[0]), self.shape[0])

    @cached_property
    def known_places(self) -> tuple[Array, int] | None:
        """The same where a network tells: without a gradient it gave the same answers to them, or to all but their last tokens, as
        far as batches of another size round alike."""
        sequences, loss = self.shape[0], self.loss
        best = None
        width = 0
        for at, about in enumerate(loss.event.silent):
            silent = loss.arrays.get(f"n{at}.output")
            for call, graded in enumerate(loss.event.calls):
                output = loss.arrays.get(f"c{call}.output")
                if silent is None or output is None or about.get("module") != graded.get("module"):
                    continue
                if output.ndim < 3 or silent.ndim != output.ndim or silent.shape[2:] != output.shape[2:]:
                    continue
                length = silent.shape[1]
                if len(output) != sequences or length > output.shape[1] or silent[0].size <= width:
                    continue
                place = _nearest(output[:, :length].reshape(sequences, -1), silent.reshape(len(silent), -1))
                if place is not None:
                    best, width = (place, len(silent)), silent[0].size
        return best

    def laid_out(self, numbers: Array) -> Array | None:
        """Numbers of the loss as [sequences, positions], nan where there is no token. Where a mask has flattened them, the positions are
        those that get a gradient, of the policy or of any other term."""
        if numbers.shape == (self.shape[0], 1):  # one for each sequence
            numbers = np.repeat(numbers, self.shape[1], axis=1)
        if numbers.size == self.used.size:
            return np.asarray(np.where(self.trained, numbers.reshape(self.shape), np.nan))
        for mask in (self.trained, self.used):
            if numbers.ndim == 1 and int(mask.sum()) == numbers.size:
                table = np.full(self.shape, np.nan)
                table[mask] = numbers
                return table
        return None

    @cached_property
    def trained(self) -> Array:
        """Positions that get a gradient from any term: log-probability, entropy or value."""
        found = self.used
        sequences, positions = self.shape
        for position in range(len(self.loss.event.calls)):
            gradient = self.loss.arrays.get(f"c{position}.gradient")
            if gradient is None or gradient.ndim < 2 or len(gradient) != sequences or gradient.shape[1] < positions:
                continue
            whole = gradient.shape[1] == positions
            start = 0 if whole else self.logits_start
            if start is not None and (whole or gradient[0, 0].size > 1):  # a value head's answers may be cut elsewhere
                part = gradient[:, start : start + positions]
                found = found | (part.reshape(sequences, positions, -1) != 0).any(axis=2)
        return found

    @property
    def fresh(self) -> bool:
        """Whether the policy has not moved since the tokens were drawn: it was asked without a gradient after the last step, and the
        ratio in the loss, where there is one, is 1."""
        return self.sampled_anew and all(
            float(np.abs(ratio - 1).max()) < STILL_ONE for ratio in self.loss.ratios if ratio.size
        )

    @property
    def sampled_anew(self) -> bool:
        """Whether the trained network was asked without a gradient since the last step: it sampled, or scored what was sampled."""
        graded = {about.get("module") for about in self.loss.event.calls}
        return self.prompt is not None or any(about.get("module") in graded for about in self.loss.event.silent)

    def ratio(self) -> Array | None:
        """[sequences, positions] of new to old probabilities, nan where there is no token."""
        return self.laid_out(self.loss.ratios[0]) if self.loss.ratios else None

    def advantages(self) -> Array | None:
        """[sequences, positions]: what the ratio is multiplied with."""
        for position, about in enumerate(self.loss.event.constants):
            if about.get("role") == "weight" and about.get("beside") == "ExpBackward0":
                numbers = self.loss.arrays.get(f"k{position}")
                table = None if numbers is None else self.laid_out(numbers.astype(np.float64))
                if table is None:
                    continue
                against = float(np.nansum(np.where(self.used, self.gradient * table, 0.0)))
                return table if against <= 0 else -table  # ratio * -advantage in a loss that is minimised
        return None

    def surrogate_gradient(self, advantages: Array, ratios: Array, inside: Array) -> Array:
        """[sequences, positions]: dL/dlog-probability without the part of a divergence from a reference, k3 = q/p - log(q/p) - 1, whose
        coefficient is found where the ratio is `inside` of its clip range."""
        places = [
            numbers
            for position, about in enumerate(self.loss.event.constants)
            if about.get("role") == "inverse_ratio" and (numbers := self.loss.arrays.get(f"k{position}")) is not None
        ]
        inverse = self.laid_out(places[0].astype(np.float64)) if places else None
        if inverse is None:
            return self.gradient
        own, pull = advantages * ratios, 1 - inverse
        rows = inside & np.isfinite(pull) & np.isfinite(own)
        lengths = np.maximum(np.isfinite(pull).sum(axis=1, keepdims=True), 1)
        found, smallest = self.gradient, np.inf
        # the mean is one over all tokens, or over those of each sequence first
        for share in (np.ones(lengths.shape), 1 / lengths):
            columns = np.stack([(share * own)[rows], (share * pull)[rows]], axis=1)
            if len(columns) < 8 or np.linalg.matrix_rank(columns) < 2:
                continue
            answer, *_ = np.linalg.lstsq(columns, self.gradient[rows], rcond=None)
            off = float(np.abs(columns @ answer - self.gradient[rows]).max())
            if off < smallest:
                found, smallest = self.gradient - answer[1] * share * np.nan_to_num(pull), off
        return np.asarray(found)

    def scored_by(self, module: str) -> Array | None:
        """[sequences, positions]: what another network, asked without a gradient, gives as log-probabilities of the same tokens."""
        place, batch = self.places
        if self._scored is None or self.action is None:
            return None
        start = self._scored[2]
        action = self.action.astype(np.int64)
        for position, about in enumerate(self.loss.event.silent):
            output = self.loss.arrays.get(f"n{position}.output")
            if about.get("module") != module or output is None or output.ndim != 3 or len(output) != batch:
                continue
            if start + self.shape[1] > output.shape[1] or action.max() >= output.shape[2]:
                continue
            logits = output[place, start : start + self.shape[1]].astype(np.float64)
            table = logits - np.logaddexp.reduce(logits, axis=2, keepdims=True)
            return np.asarray(np.take_along_axis(table, action[..., None], axis=2)[..., 0])
        return None

    def scored_logits(self) -> tuple[Array, Array] | None:
        """(log-probabilities, logits) of the tokens in the loss, where a network's answers, at some temperature, are the logits
        that explain them; None also where many sequences carry no gradient: those that do are then a choice by outcome."""
        found = self._scored
        return None if found is None else found[:2]

    def chances(self) -> Array | None:
        """[sequences, positions, tokens]: what the policy's answers in the loss say about every token at every position."""
        if self._scored is None:
            return None
        _, logits, start = self._scored
        used = self.used
        for position in range(len(self.loss.event.calls)):
            output = self.loss.arrays.get(f"c{position}.output")
            if output is None or output.ndim != 3 or len(output) != self.shape[0] or output.shape[2] != logits.shape[1]:
                continue
            whole = output[:, start : start + self.shape[1]].astype(np.float64)
            at = int(np.abs(whole[used][0]).argmax())
            temperature = float(whole[used][0, at] / logits[0, at]) if logits[0, at] else 1.0
            if not np.allclose(whole[used] / temperature, logits, atol=SCORED):
                continue
            table = whole / temperature
            return np.asarray(np.exp(table - np.logaddexp.reduce(table, axis=2, keepdims=True)))
        return None

    @property
    def logits_start(self) -> int | None:
        """Where the positions of the loss begin in the network's answers to whole sequences."""
        return None if self._scored is None else self._scored[2]

    @property
    def reads_past_the_end(self) -> bool:
        """Whether the last token is scored by the answer that was given when it had been read already."""
        lengths, found = self.sampled_lengths, self._scored
        return bool(lengths) and found is not None and found[2] + self.shape[1] == max(lengths) + 1

    @property
    def sampled_lengths(self) -> list[int]:
        """Of the calls that sampled, where each was given one token more than the one before; else none (a cache, say)."""
        lengths = [int(about["shape"][1]) for about in self.loss.event.silent if len(about.get("shape", ())) == 3]
        growing = all(after - before == 1 for before, after in pairwise(lengths[: self.shape[1]]))
        return lengths if len(lengths) >= 2 and growing else []

    def sampled_otherwise(self) -> float | None:
        """Share of the used tokens for which the network's answer, when the token was sampled, was another than in the loss; None
        where the calls of the sampling are not known, or where a step has come between."""
        if not self.fresh or not self.sampled_lengths:
            return None
        whole = [
            output
            for position in range(len(self.loss.event.calls))
            if (output := self.loss.arrays.get(f"c{position}.output")) is not None and output.ndim == 3
        ]
        if not whole or self._scored is None:
            return None
        scored = whole[-1]
        start = self._scored[2]
        looked = other = 0
        for position in range(len(self.loss.event.silent)):
            sampled = self.loss.arrays.get(f"n{position}.output")
            if sampled is None or sampled.ndim != 3 or sampled.shape[::2] != scored.shape[::2]:
                continue
            at = sampled.shape[1] - 1
            if not start <= at < start + self.shape[1] or sampled.shape[1] >= scored.shape[1]:
                continue
            rows = self.used[:, at - start]
            off = np.abs(sampled[rows, -1].astype(np.float64) - scored[rows, at]).max(axis=1, initial=0.0)
            looked += int(rows.sum())
            other += int((off > SAME * max(1.0, float(np.abs(scored[rows, at]).clip(max=1e3).max(initial=0.0)))).sum())
        return other / looked if looked else None

    @cached_property
    def _scored(self) -> tuple[Array, Array, int] | None:
        used = self.used
        if self.action is None or float(used.any(axis=1).mean()) < NEARLY_ALL:
            return None
        value = self.loss.policies[0].value.reshape(self.shape).astype(np.float64)[used]
        action = self.action.astype(np.int64)[used]
        for position in range(len(self.loss.event.calls)):
            output = self.loss.arrays.get(f"c{position}.output")
            if output is None or output.ndim != 3 or len(output) != self.shape[0] or action.max() >= output.shape[2]:
                continue
            for start in range(output.shape[1] - self.shape[1] + 1):
                logits = output[:, start : start + self.shape[1]].astype(np.float64)[used]
                for temperature in TEMPERATURES:
                    if _explains(logits / temperature, action, value):
                        return value, logits / temperature, start
                allowed = _allowed_tokens(logits, action, value)
                if allowed is not None and _explains(np.where(allowed, logits, NEVER), action, value):
                    return value, np.where(allowed, logits, NEVER), start
        return None

    @property
    def logits_gradient(self) -> Array | None:
        """[sequences, positions] whether any logit there gets a gradient. Layers inside of the network get one at every position that a later
        one attends to."""
        found: dict[str, Array] = {}
        for position, about in enumerate(self.loss.event.calls):
            gradient = self.loss.arrays.get(f"c{position}.gradient")
            if gradient is None or gradient.ndim != 3 or len(about["shape"]) != 3:
                continue
            if gradient.shape[0] == self.shape[0] and 0 <= gradient.shape[1] - self.shape[1] <= 1:
                found.setdefault(str(about.get("module")), gradient)
        for module, gradient in found.items():
            if not any(module.startswith(other + ".") for other in found):
                return np.asarray((gradient != 0).any(axis=2)[:, : self.shape[1]])
        return None


def _nearest(rows: Array, batch: Array) -> Array | None:
    """The row of the batch that each is, no two the same; None where one of them is none of it."""
    free = np.ones(len(batch), bool)
    places = []
    for row in rows.astype(np.float64):
        off = np.where(free, np.abs(batch - row).max(axis=1), np.inf)
        place = int(off.argmin())
        if off[place] > ROUNDING * max(1.0, float(np.abs(row).max())):
            return None
        free[place] = False
        places.append(place)
    return np.array(places)


def _explains(logits: Array, action: Array, value: Array) -> bool:
    scores = logits[np.arange(len(action)), action] - np.logaddexp.reduce(logits, axis=1)
    return bool(np.abs(scores - value).max() < SCORED)


def _allowed_tokens(logits: Array, action: Array, value: Array) -> Array | None:
    """Of a vocabulary of which some tokens are never written: which ones are left. exp(logit - log-probability) of the token taken is the
    sum of exp(logit) over those, which is linear in 0 or 1 for each."""
    rows, tokens = logits.shape
    if rows < 2 * tokens:
        return None
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    found = least_squares(powers, powers[np.arange(rows), action] * np.exp(-value))
    return None if found is None else np.asarray(found > 0.5)


def token_losses(seen: Seen) -> list[Tokens]:
    known = seen.notes.get("token_losses")
    if known is None:
        known = seen.notes["token_losses"] = _find(seen)
    return list(known)


def _find(seen: Seen) -> list[Tokens]:
    if seen.environments:
        return []
    found = []
    for loss in seen.training_losses:
        if not loss.policies or not loss.event.log_probs:
            continue
        shape = [int(size) for size in loss.event.log_probs[0].get("shape", ())]
        while len(shape) > 2 and shape[-1] == 1:
            shape = shape[:-1]
        if len(shape) == 2 and shape[1] > 1 and loss.policies[0].gradient.size == shape[0] * shape[1]:
            found.append(Tokens(loss, _prompt(loss, shape[1])))
    return found


def _prompt(loss: Loss, positions: int) -> int | None:
    """Length of the first call without gradient that is shorter than the whole: where sampling began. None where that is not
    known, or where the log-probabilities are those of the answer alone."""
    lengths = [int(about["shape"][1]) for about in loss.event.silent if len(about.get("shape", ())) == 3]
    if not lengths or lengths[0] >= positions or len(set(lengths)) < 2:
        return None
    return lengths[0] if positions >= _whole(lengths) - 1 else None


def _whole(lengths: list[int]) -> int:
    """Tokens of a sequence when sampling is over: the last call was given all but the last one, or, with a cache, one token."""
    cached = all(length == 1 for length in lengths[1:])
    return lengths[0] + len(lengths) if cached else max(lengths) + 1
