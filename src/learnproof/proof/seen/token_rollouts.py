"""Sequences of a language model as rollouts: a token is a step, a sequence an episode, its reward comes with the last token.

Where a value per token is learnt beside the policy (PPO of a language model), the targets of the values say what was made of the
rewards, and the machinery of rollouts (returns.py) explains them. Numbers of a loss may have been flattened by a mask, [tokens] instead
of [sequences, positions]: the gradients tell which positions they belong to. Only losses before the first step on their
batch are read, for their predictions are still those that the targets were made of. Several of one batch are put together,
each sequence in its place of the batch where the rows of a call without gradient tell it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from .fitting import correlation, least_squares
from .losses import Array, Loss
from .returns import MIN_ROWS, rollout_fits
from .rollouts import Rollout, Targets, Told
from .token_rewards import rewarded
from .tokens import Tokens, token_losses
from .view import Seen

RELATED = 0.3
"""Correlation with the targets of last tokens from which a tensor whose mean was taken may be the rewards."""
SAME_TARGET = 1e-4
"""Difference of two targets, over their spread, that is rounding."""


@dataclass(frozen=True)
class Valued:
    """A loss on tokens with a value for each: all [sequences, positions], nan where there is no token."""

    tokens: Tokens
    module: str
    start: int
    """Of the positions of the loss in what the value head said."""
    prediction: Array
    target: Array
    weight: Array
    beyond: Array
    """[sequences]: the prediction at the position after the last token, nan where there is none."""
    place: Array
    """Of each sequence in its batch."""
    batch: int

    @property
    def last(self) -> Array:
        """The target of each sequence's last token."""
        at = _last_position(self.target)
        return np.where(at >= 0, self.target[np.arange(len(at)), at], np.nan)


def _last_position(table: Array) -> Array:
    """Of what is known in each row; -1 where nothing is."""
    return np.asarray(np.where(np.isfinite(table), np.arange(table.shape[1]), -1).max(axis=1))


def token_rollouts(seen: Seen) -> list[Rollout]:
    """One for each batch whose losses have values and whose rewards were found."""
    known = seen.notes.get("token_rollouts")
    if known is None:
        by_cycle: dict[int, list[Valued]] = defaultdict(list)
        for tokens in token_losses(seen):
            valued = _valued(tokens) if tokens.fresh else None
            if valued is not None:
                by_cycle[tokens.loss.cycle].append(valued)
        found = [_with_penalty(_rollout(cycle, parts), parts) for cycle, parts in by_cycle.items()]
        known = seen.notes["token_rollouts"] = [rollout for rollout in found if rollout is not None]
    return list(known)


def left_out(seen: Seen) -> tuple[int, int]:
    """Sequences of which the last token in the loss is not the last one of the sequence: its target goes on to one token more,
    which bears the reward and is not trained. And all sequences that could be asked."""
    found = asked = 0
    for rollout in token_rollouts(seen):
        fit = next(iter(rollout_fits(rollout)), None)
        if rollout.told is None or fit is None or not fit.matched or fit.form != "lambda return":
            continue
        beyond, target = rollout.told.beyond, rollout.targets[0].target
        decay = fit.gamma * (fit.gae_lambda or 0.0)
        reward = fit.reward_scale * rollout.reward
        goes_on = fit.gamma * beyond + decay * (reward - beyond)
        near = SAME_TARGET * max(float(np.std(target)), 1e-6)
        rows = rollout.terminated & np.isfinite(beyond) & (np.abs(goes_on - reward) > 10 * near)
        asked += int(rows.sum())
        found += int((np.abs(goes_on - target)[rows] <= near).sum())
    return found, asked


def reward_means(seen: Seen) -> list[float]:
    """Mean reward of each batch that was looked at, in the order of training."""
    return [float(np.mean(rewards)) for rewards in batch_rewards(seen).values()]


def batch_rewards(seen: Seen) -> dict[int, Array]:
    """update -> rewards of the batch that was looked at in it, in the order of training. Which tensor holds them is known from the
    batches whose targets or weights it explains; in the others (all rewards alike, say) it is the tensor in the same place."""
    explained = {r.losses[0].update: (r.told.rewards, r.losses[0].arrays) for r in token_rollouts(seen) if r.told}
    explained |= {
        each.tokens.loss.update: (each.source, each.tokens.loss.arrays) for each in reversed(rewarded(seen))
    }  # the loss's own arrays: batches whose step was left out have one update
    batches = {tokens.loss.update: tokens.loss.arrays for tokens in reversed(token_losses(seen))}
    places = Counter((source, len(arrays[source])) for source, arrays in explained.values())
    if not places:
        return {}
    (place, size), _ = places.most_common(1)[0]
    found = {}
    for update, arrays in sorted(batches.items()):
        source, own = explained.get(update, (place, arrays))
        found[update] = own.get(source)
    return {update: rewards for update, rewards in found.items() if rewards is not None and len(rewards) == size}


def _valued(tokens: Tokens) -> Valued | None:
    loss = tokens.loss
    for position, about in enumerate(loss.event.constants):
        constant = loss.arrays.get(f"k{position}")
        if constant is None or not loss.is_regression(about):
            continue
        numbers = tokens.laid_out(constant.astype(np.float64))
        if numbers is None:
            continue
        for call in reversed(about.get("calls", [])):
            start = _start(tokens, loss, int(call), np.isfinite(numbers))
            if start is None:
                continue
            sequences, positions = tokens.shape
            output = loss.arrays[f"c{call}.output"].astype(np.float64).reshape(sequences, -1)
            padded = np.column_stack([output, np.full(sequences, np.nan)])
            beyond = padded[np.arange(sequences), np.minimum(start + _last_position(numbers) + 1, output.shape[1])]
            prediction = np.where(np.isfinite(numbers), output[:, start : start + positions], np.nan)
            target = numbers if about["role"] == "target" else prediction - float(about.get("sign", 1)) * numbers
            weight = np.where(np.isfinite(numbers), -tokens.gradient, np.nan)
            place, batch = tokens.places
            module = str(loss.event.calls[call].get("module"))
            return Valued(tokens, module, start, prediction, target, weight, beyond, place, batch)
    return None


def _start(tokens: Tokens, loss: Loss, call: int, known: Array) -> int | None:
    """Where the loss's positions begin in what a value head said of whole sequences: there it gets a gradient, and only there."""
    output, gradient = loss.arrays.get(f"c{call}.output"), loss.arrays.get(f"c{call}.gradient")
    sequences, positions = tokens.shape
    if output is None or output.ndim < 2 or len(output) != sequences or output[0].size != output.shape[1]:
        return None
    if output.shape[1] == positions:
        return 0
    if gradient is None:
        return None
    reached = gradient.reshape(sequences, -1) != 0
    for start in range(output.shape[1] - positions + 1):
        inside = reached[:, start : start + positions]
        if np.array_equal(inside, known) and inside.sum() == reached.sum():
            return start
    return None


def _rollout(cycle: int, parts: list[Valued]) -> Rollout | None:
    source = _reward_source(parts)
    if source is None:
        return None
    positions = parts[0].target.shape[1]
    batch = parts[0].batch
    whole = {
        name: np.full((batch, positions), np.nan) for name in ("prediction", "target", "weight", "reward", "beyond")
    }
    for part in parts:
        rewards = part.tokens.loss.arrays.get(source, ())
        if part.batch != batch or part.target.shape[1] != positions or len(rewards) != batch:
            continue
        for name in ("prediction", "target", "weight"):
            whole[name][part.place] = getattr(part, name)
        whole["beyond"][part.place] = part.beyond[:, None]
        whole["reward"][part.place] = np.asarray(rewards, np.float64)[part.place][:, None]
    used = np.isfinite(whole["target"])
    sequence, time = np.nonzero(used)
    last = time == _last_position(whole["target"])[sequence]
    names = (sequence * (positions + 1) + time + 2).astype(np.uint64)
    nothing = np.zeros(len(names), bool)
    scored_from = parts[0].tokens.logits_start
    return Rollout(
        cycle=cycle,
        time=time + 1,
        stream=np.zeros(len(names), int),
        copy=sequence,
        observation=names,
        next_observation=names + np.uint64(1),
        final_observation=np.zeros(len(names), np.uint64),
        reward=np.where(last, whole["reward"][used], 0.0),
        terminated=last,
        truncated=nothing,
        resets=nothing,
        action=None,
        silent=[],
        losses=[part.tokens.loss for part in parts],
        told=Told(
            targets=[Targets(parts[0].module, whole["target"][used], whole["prediction"][used])],
            weights=[whole["weight"][used]],
            rewards=source,
            ahead=0 if scored_from is None else parts[0].start - scored_from,
            beyond=np.where(last, whole["beyond"][used], np.nan),
        ),
    )


def _with_penalty(rollout: Rollout | None, parts: list[Valued]) -> Rollout | None:
    """Where each token also paid for its divergence from a reference, that is a part of its reward: which estimate of the
    divergence, and at which price, is what explains the targets."""
    if rollout is None or rollout.told is None or any(fit.matched for fit in rollout_fits(rollout)):
        return rollout
    targets, prediction = rollout.targets[0].target, rollout.targets[0].prediction
    following = rollout.following
    inside = np.flatnonzero((following >= 0) & ~rollout.ended)
    for divergence in _divergences(rollout, parts):
        rows = inside[np.isfinite(divergence[inside])]
        if len(rows) < 2 * MIN_ROWS:
            continue
        next_value = prediction[following[rows]]
        columns = np.stack([divergence[rows], next_value, targets[following[rows]] - next_value], axis=1)
        found = least_squares(columns, targets[rows])
        spread = max(float(np.std(targets)), 1e-6)
        if found is None or float(np.abs(columns @ found - targets[rows]).max()) > SAME_TARGET * spread:
            continue
        paid = rollout.reward + found[0] * np.nan_to_num(divergence)
        return replace(rollout, reward=paid, fits=None)
    return rollout


def _divergences(rollout: Rollout, parts: list[Valued]) -> Iterator[Array]:
    """By row: the usual estimates of each token's divergence from each network that scored the sequences without a gradient and is
    not the policy."""
    modules = {str(about.get("module")) for part in parts for about in part.tokens.loss.event.silent}
    for module in sorted(modules - {str(about.get("module")) for about in parts[0].tokens.loss.event.calls}):
        table = np.full((parts[0].batch, parts[0].target.shape[1]), np.nan)
        for part in parts:
            scored = part.tokens.scored_by(module)
            if scored is not None:
                table[part.place] = part.tokens.loss.policies[0].value.reshape(part.tokens.shape) - scored
        log_ratio = table[rollout.copy, rollout.time - 1]
        yield log_ratio
        yield np.exp(-log_ratio) + log_ratio - 1
        yield 0.5 * log_ratio**2
        yield np.abs(log_ratio)


def _reward_source(parts: list[Valued]) -> str | None:
    """The tensor of one number per sequence, among those whose mean was taken, that agrees best with the last tokens' targets."""
    best, strongest = None, RELATED
    for name, candidate in parts[0].tokens.loss.arrays.items():
        if name[0] != "r" or not name[1:].isdigit() or len(candidate) != parts[0].batch:
            continue
        same = [part for part in parts if part.batch == len(candidate) and name in part.tokens.loss.arrays]
        rewards = [part.tokens.loss.arrays[name].astype(np.float64)[part.place] for part in same]
        strength = correlation(np.concatenate([part.last for part in same]), np.concatenate(rewards)) or 0.0
        if strength > strongest:
            best, strongest = name, strength
    return best
