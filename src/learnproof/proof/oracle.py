"""What the advantages of a rollout should have been: recomputed by definition, in float64, from what was recorded.

    delta[t]     = reward[t] + gamma * next_value[t] - value[t]
    advantage[t] = delta[t] + gamma * lambda * importance[t + 1] * advantage[t + 1]
                   (the second term only if no episode ended at t)
    target[t]    = value[t] + importance[t] * advantage[t]
    next_value   = 0 where the episode terminated, the value of the true last observation where a time limit cut it,
                   else value[t + 1], and last_value at the end of the rollout
    importance   = 1; where another policy acted, min(1, the action's probability under the learning policy over that under
                   the one that acted), from the log-probabilities of both

This is an implementation of its own, so that the one which trained can be compared with it. The known wrong
definitions are written in the same two terms (`next_value`, and whether the sum goes on past t), so that one pass
over time computes all of them. [T, N] = steps x environments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..errors import EvidenceError
from ..evidence import Evidence
from ..evidence.reader import Sample

Array = np.ndarray[Any, Any]

ROLLOUT_ROLES = ("reward", "terminated", "truncated", "value", "final_value", "last_value", "advantage", "target")
"""Without these nothing can be recomputed. `valid` and `reward_scale` default to "every step" and 1."""

SAFETY = 4.0
"""Factor between the rounding that float32 may leave in an advantage and what is called a difference."""


@dataclass(frozen=True)
class Rollout:
    """One recorded rollout; every array [T, N] and float64 but for the masks and `last_value` [N]."""

    update: int
    reward: Array
    """After scaling, as the returns were computed from it."""
    value: Array
    final_value: Array
    last_value: Array
    terminated: Array
    truncated: Array
    valid: Array
    """False for the empty step that next-step autoreset inserts: it belongs to no episode."""
    advantage: Array
    target: Array
    log_ratio: Array | None = None
    """Where another policy acted: log-probability of each action under the learning one, less that under the one that acted."""

    @classmethod
    def of(cls, sample: Sample) -> Rollout:
        shape = sample["reward"].shape
        scale = np.asarray(sample.arrays.get("reward_scale", 1.0), dtype=np.float64).reshape(-1)
        valid = sample.arrays.get("valid", np.ones(shape, dtype=bool))
        others = ("old_log_prob", "behaviour_log_prob") if "behaviour_log_prob" in sample else ()
        for role in (*ROLLOUT_ROLES, "valid", *others):
            found = np.shape(valid if role == "valid" else sample[role])
            expected = shape[1:] if role == "last_value" else shape
            if len(shape) != 2 or found != expected:
                raise EvidenceError(
                    f"The rollout of update {sample.event.update} cannot be read: {role} has shape {found}, expected "
                    f"{expected} (steps x environments, as reward has). The batch was written by another program or "
                    "damaged; judge the run from an intact copy."
                )

        def exact(role: str) -> Array:
            return np.asarray(sample[role], dtype=np.float64)

        return cls(
            update=sample.event.update,
            reward=exact("reward") * scale[0],
            value=exact("value"),
            final_value=exact("final_value"),
            last_value=exact("last_value"),
            terminated=np.asarray(sample["terminated"], dtype=bool),
            truncated=np.asarray(sample["truncated"], dtype=bool),
            valid=np.asarray(valid, dtype=bool),
            advantage=exact("advantage"),
            target=exact("target"),
            log_ratio=exact("old_log_prob") - exact("behaviour_log_prob") if others else None,
        )

    @property
    def importance(self) -> Array:
        return np.ones_like(self.reward) if self.log_ratio is None else np.exp(np.minimum(self.log_ratio, 0.0))

    @property
    def ended(self) -> Array:
        return self.terminated | self.truncated

    @property
    def following_value(self) -> Array:
        """value[t + 1], whatever it belongs to, and last_value at the end."""
        return np.concatenate([self.value[1:], self.last_value[None]])

    def finite(self) -> bool:
        arrays = [self.reward, self.value, self.final_value, self.last_value, self.advantage, self.target]
        arrays += [] if self.log_ratio is None else [self.log_ratio[self.valid]]
        return all(bool(np.all(np.isfinite(a))) for a in arrays)

    def tolerance(self, gamma: float, gae_lambda: float) -> float:
        """How far float32 may stray: one rounding per term, summed over the steps that the trace reaches back."""
        size = max(
            float(np.max(np.abs(a), initial=0.0))
            for a in (self.reward, self.value, self.final_value, self.last_value, self.advantage)
        )
        steps = self.reward.shape[0]
        decay = gamma * gae_lambda
        reach = steps if decay >= 1 else min(float(steps), 1 / (1 - decay))
        return SAFETY * float(np.finfo(np.float32).eps) * (8 + reach) * max(size, 1e-6)


def accumulate(
    rollout: Rollout, gamma: float, gae_lambda: float, next_value: Array, goes_on: Array, passes: Array | None = None
) -> Array:
    """The recursion, backwards over time. `next_value` and `goes_on` may carry leading axes: [..., T, N].

    `passes` = how much of the following step's advantage passes back to each step; by definition that step's importance.
    """
    delta = rollout.reward + gamma * next_value - rollout.value
    decay = gamma * gae_lambda * goes_on * (_following(rollout.importance) if passes is None else passes)
    advantage = np.zeros_like(delta)
    following = np.zeros_like(delta[..., 0, :])
    for t in range(delta.shape[-2] - 1, -1, -1):
        following = delta[..., t, :] + decay[..., t, :] * following
        advantage[..., t, :] = following
    return advantage


def right_terms(rollout: Rollout) -> tuple[Array, Array]:
    """`next_value` and `goes_on` of the definition at the top of this file."""
    next_value = np.where(rollout.truncated, rollout.final_value, rollout.following_value)
    return np.where(rollout.terminated, 0.0, next_value), ~rollout.ended


def recomputed_advantages(rollout: Rollout, gamma: float, gae_lambda: float) -> Array:
    return np.where(rollout.valid, accumulate(rollout, gamma, gae_lambda, *right_terms(rollout)), 0.0)


def wrong_terms(rollout: Rollout) -> list[tuple[str, Array, Array]]:
    """The wrong definitions that training code has had: name, `next_value`, `goes_on`. A name may have several forms."""
    right, goes_on = right_terms(rollout)
    following, ended = rollout.following_value, rollout.ended
    everywhere = np.ones_like(ended)
    forms = [
        ("time limit as terminal", np.where(ended, 0.0, following), goes_on),
        ("value of the next episode at a time limit", np.where(rollout.terminated, 0.0, following), goes_on),
        ("returns crossing episodes", following, everywhere),
        ("returns crossing episodes", right, everywhere),
        ("terminal states bootstrapped", np.where(rollout.truncated, rollout.final_value, following), goes_on),
    ]
    for shift in (1, -1):
        terminated, truncated, final = (
            _shifted(a, shift) for a in (rollout.terminated, rollout.truncated, rollout.final_value)
        )
        moved = terminated | truncated
        whole = np.where(terminated, 0.0, np.where(truncated, final, following))
        masked = np.where(moved, 0.0, following)
        # Where the bootstrap of a time limit is folded into the reward, only the mask moves.
        folded = masked + np.where(rollout.truncated & ~rollout.terminated, rollout.final_value, 0.0)
        forms += [("episode ends shifted by one step", term, ~moved) for term in (whole, masked, folded)]
    for name, last in (("last value zero", np.zeros_like(following[-1])), ("last value repeated", rollout.value[-1])):
        replaced = right.copy()
        replaced[-1] = np.where(ended[-1], right[-1], last)
        forms.append((name, replaced, goes_on))
    return forms


IMPORTANCE_FAULTS = ("importance left out", "importance not truncated", "importance upside down", "importance shifted")


def wrong_passes(rollout: Rollout) -> list[tuple[str, Array]]:
    """The wrong ways to let credit pass where another policy acted; none where it was the learning policy itself."""
    if rollout.log_ratio is None:
        return []
    weights = (
        np.ones_like(rollout.reward),
        np.exp(np.clip(rollout.log_ratio, -50.0, 50.0)),
        np.exp(np.minimum(-rollout.log_ratio, 0.0)),
    )
    passes = [*(_following(weight) for weight in weights), rollout.importance]
    return list(zip(IMPORTANCE_FAULTS, passes, strict=True))


def wrong_advantages(rollout: Rollout, gamma: float, gae_lambda: float) -> list[tuple[str, Array]]:
    """Every wrong definition's advantages, in one pass over time."""
    right, passed = right_terms(rollout), _following(rollout.importance)
    forms = [(name, next_value, goes_on, passed) for name, next_value, goes_on in wrong_terms(rollout)]
    forms += [(name, *right, passes) for name, passes in wrong_passes(rollout)]
    with np.errstate(over="ignore", invalid="ignore"):  # weights that are not truncated grow without bound
        stacked = accumulate(rollout, gamma, gae_lambda, *(np.stack([form[i] for form in forms]) for i in (1, 2, 3)))
    kept = rollout.valid & np.isfinite(stacked)
    return [(form[0], advantage) for form, advantage in zip(forms, np.where(kept, stacked, 0.0), strict=True)]


@dataclass(frozen=True)
class FittedTrace:
    """The discount, trace decay and reward scale that the recorded advantages really follow inside episodes."""

    gamma: float
    gae_lambda: float
    reward_scale: float
    """1 = the recorded rewards; also where rewards only came at episode ends, which the fit leaves out."""
    residual: float
    """Largest difference that these three leave unexplained."""


def fit_trace(rollouts: list[Rollout]) -> FittedTrace | None:
    """Inside an episode A[t] + V[t] = c r[t] + gamma V[t+1] + gamma lambda w[t+1] A[t+1] is linear in what is unknown.

    None where the rows do not determine all three (all values equal, say).
    """
    columns: list[Array] = []
    for rollout in rollouts:
        inside = rollout.valid[:-1] & rollout.valid[1:] & ~rollout.ended[:-1]
        advantage, value = rollout.advantage, rollout.value
        passed_on = rollout.importance[1:] * advantage[1:]
        terms = (rollout.reward[:-1], value[1:], passed_on, advantage[:-1] + value[:-1])
        columns.append(np.stack([term[inside] for term in terms]))
    table = np.concatenate(columns, axis=1)
    known, result = table[:3].T, table[3]
    if len(result) < 8:
        return None
    size = np.abs(known).max(axis=0)
    used = size > 0  # rewards that only come at the end of an episode are all 0 inside it
    if not np.all(used[1:]):
        return None
    scaled = known[:, used] / size[used]
    solution, _, rank, singular = np.linalg.lstsq(scaled, result, rcond=None)
    if rank < scaled.shape[1] or singular[-1] < 1e-5 * singular[0]:
        return None
    *scale, gamma, decay = (float(x) for x in solution / size[used])
    if abs(gamma) < 1e-6:
        return None
    residual = float(np.max(np.abs(result - scaled @ solution)))
    return FittedTrace(gamma, decay / gamma, scale[0] if scale else 1.0, residual)


@dataclass(frozen=True)
class Oracle:
    """Recomputed advantages and value targets of one update, flat: index them with the role `row`."""

    advantage: Array
    target: Array
    valid: Array
    importance: Array | None
    """Of each row's action, where another policy acted."""

    @classmethod
    def of(cls, rollout: Rollout, advantage: Array, target: Array) -> Oracle:
        importance = None if rollout.log_ratio is None else rollout.importance.ravel()
        return cls(advantage.ravel(), target.ravel(), rollout.valid.ravel(), importance)

    def rows(self, sample: Sample) -> Array:
        row = np.asarray(sample["row"]).reshape(-1)
        if not np.issubdtype(row.dtype, np.integer) or np.any(row < 0) or np.any(row >= self.valid.size):
            raise EvidenceError(
                f"A {sample.event.kind} batch of update {sample.event.update} points to rows that its rollout of "
                f"{self.valid.size} steps does not have. The evidence was written by another program or damaged."
            )
        return row


def oracles(evidence: Evidence) -> dict[int, Oracle]:
    """By index of the update; empty where gamma, gae_lambda or the rollouts were not recorded."""
    constants = evidence.run.constants
    if "gamma" not in constants or "gae_lambda" not in constants:
        return {}
    gamma, gae_lambda = float(constants["gamma"]), float(constants["gae_lambda"])
    return {
        sample.event.update: sample.once("oracle", partial(_oracle, sample, gamma, gae_lambda))
        for sample in evidence.samples("rollout")
        if set(ROLLOUT_ROLES) <= set(sample.arrays)
    }


def _oracle(sample: Sample, gamma: float, gae_lambda: float) -> Oracle:
    rollout = Rollout.of(sample)
    advantage = recomputed_advantages(rollout, gamma, gae_lambda)
    return Oracle.of(rollout, advantage, rollout.value + rollout.importance * advantage)


def column(sample: Sample, role: str) -> Array:
    """A role with one number per row of the batch, in float64."""
    values = np.asarray(sample[role], dtype=np.float64).reshape(-1)
    rows = sample.arrays.get("row")
    if rows is not None and values.size != np.size(rows):
        raise EvidenceError(
            f"A {sample.event.kind} batch of update {sample.event.update} has {np.size(rows)} rows but {values.size} numbers "
            f"for {role}. The evidence was written by another program or damaged."
        )
    return values


def _following(weight: Array) -> Array:
    """Of the step after each one; 1 at the end, where nothing passes."""
    return np.concatenate([weight[1:], np.ones_like(weight[:1])])


def _shifted(mask: Array, by: int) -> Array:
    """Moved along time: by = 1 puts what happened at t - 1 at t."""
    moved = np.zeros_like(mask)
    if by > 0:
        moved[by:] = mask[:-by]
    else:
        moved[:by] = mask[-by:]
    return moved
