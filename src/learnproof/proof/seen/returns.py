"""How the numbers that a loss used as returns were made: fitted, not guessed.

Inside an episode every return of the lambda family obeys one line, for whatever gamma, lambda and scale of rewards:

    y[t] = c r[t] + gamma V[t+1] + gamma lambda (y[t+1] - V[t+1])

which is linear in (c, gamma, gamma lambda): least squares on the rows inside episodes finds them, to rounding where the
definition is right (lambda 1 is Monte Carlo, 0 is one step). Then the special rows are asked one kind at a time, which
of the ways to treat them explains the number found there:

    terminal rows   stop (right), or go on into the next episode
    first rows      go on (right), or stop: the ends are shifted by one
    cut rows        a time limit: bootstrap from the true last state (right), stop as if terminal, or go on
    last rows       of the rollout: bootstrap from the state that follows (right), from the state itself, or from nothing
    later ends      stop (right), or start the sum with that of the episode before: episodes were summed up one after the other
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from .fitting import trimmed_least_squares
from .losses import Array
from .rollouts import Rollout, Targets, agree

MATCHED = 1e-3
"""Largest error of a row, over the spread of the returns, that still counts as rounding: targets computed back from float32
differences are good to 1e-5, wrong definitions are off by 1e-2 and more."""
EXACT = 2e-6
"""Special rows are few, so each must agree as closely as the others do, up to rounding: values of neighbouring states may differ by
no more than 1e-5 of the spread of the returns, and a wrong treatment must not look right by that."""
ROUNDED = 20
"""Times the error of the rows inside of episodes."""
MOST_INSIDE = 0.9
"""Share of the rows inside episodes that a definition must explain; where two rollouts meet, one in a rollout does not."""
NEARLY_ONE = 1e-2
"""Small rewards inside of episodes tell their scale badly, and large ones at the ends would show it: where rewards as they are explain
the rows as well, they are taken so."""
FEW_ELSEWHERE = 64
REWARD_ALONE = 1e-5
"""Difference, over their size, of returns from rewards alone."""
ANOTHER_ORDER, REVERSED = "in another order", "reversed"
MIN_ROWS = 12
"""Rows inside episodes below which three unknowns are not fitted."""


@dataclass
class Fit:
    """A definition that explains the rows inside episodes, and how the special rows were treated."""

    form: str
    """lambda return, along the batch, in another order, reversed."""
    reward_scale: float
    gamma: float
    gae_lambda: float | None
    error: float
    rows: int
    special: dict[str, dict[str, int]] = field(default_factory=dict)
    """kind of row -> treatment -> how many rows only it explains; "ambiguous" and "unexplained" beside them."""

    @property
    def matched(self) -> bool:
        return self.error <= MATCHED


def rollout_fits(rollout: Rollout) -> list[Fit]:
    """Of each value head's targets that can be told; worked out once."""
    if rollout.fits is None:
        found = [fit_targets(rollout, targets) for targets in rollout.targets]
        rollout.fits = [fit for fit in found if fit is not None]
    return rollout.fits


def fit_targets(rollout: Rollout, targets: Targets) -> Fit | None:
    """The best explanation of a value head's targets, or None where there are too few rows to tell."""
    best: Fit | None = None
    for source in value_sources(rollout, targets):
        fit = _fit(rollout, targets.target, source)
        if fit is not None and (best is None or fit.error < best.error):
            best = fit
        if best is not None and best.matched:
            break
    return best


def value_sources(rollout: Rollout, targets: Targets) -> list[dict[int, float]]:
    """Values of states that the targets may be made of: what the value head said when it was asked, what it predicts in the loss."""
    values = [heads for name, heads in rollout.silent if _same_head(name, targets.module)] or [
        heads for _, heads in rollout.silent
    ]
    own = {
        int(identity): float(number)
        for identity, number in zip(rollout.observation.tolist(), targets.prediction, strict=True)
        if np.isfinite(number)
    }
    return [*({**own, **heads} for heads in values if agree(heads, own)), *values, own]


def advantages_scaled_by(rollout: Rollout, targets: Targets) -> float | None:
    """The factor by which advantages were multiplied before a target was made of them: y = V + a A + b for some b. None where the rows are
    not of that form.

    With w = y - V, inside of an episode w[t] = a (c r[t] + gamma V[t+1] - V[t]) + gamma lambda w[t+1] + b (1 - gamma lambda)."""
    for source in value_sources(rollout, targets):
        value = rollout.values_of(rollout.observation, source)
        found = residuals_of(rollout, targets.target - value, value)
        if found is not None and found.here < 0 and 0.5 <= -found.ahead / found.here <= 1.001:
            return -found.here
    return None


class Residuals(NamedTuple):
    """w[t] = reward r[t] + ahead V[t+1] + here V[t] + decay w[t+1] + constant: of advantages, here is -ahead / gamma."""

    reward: float
    ahead: float
    here: float
    decay: float
    constant: float


def residuals_of(rollout: Rollout, w: Array, value: Array) -> Residuals | None:
    """How numbers of the rows follow from rewards and values, where they do so to rounding inside of episodes."""
    inside = inside_episodes(rollout, w)
    inside = inside[~rollout.ended[rollout.following[inside]]]
    following = rollout.following[inside]
    columns = np.stack(
        [rollout.reward[inside], value[following], value[inside], w[following], np.ones(len(inside))], axis=1
    )
    known = np.isfinite(columns).all(axis=1)
    if known.sum() < 2 * MIN_ROWS:
        return None
    own = w[inside][known]
    constant = np.ptp(columns[known, 0]) <= 1e-9 * max(1.0, float(np.abs(columns[known, 0]).max()))
    used = columns[known][:, 1:] if constant else columns[known]  # rewards that are all alike are one with the constant
    found = trimmed_least_squares(used, own, MOST_INSIDE, 1e-6 * spread_of(own))
    if found is None or found[1] > MATCHED * spread_of(own):
        return None
    return Residuals(*([0.0] if constant else []), *map(float, found[0]))


def fit_as_advantages(rollout: Rollout, targets: Targets) -> Fit | None:
    """The same for targets less than returns by the prediction itself."""
    return fit_targets(rollout, replace(targets, target=targets.target + targets.prediction))


def _same_head(name: str, module: str) -> bool:
    return name.rsplit("/", 1)[0] == module


def _fit(rollout: Rollout, y: Array, source: Mapping[int, float]) -> Fit | None:
    value = rollout.values_of(rollout.observation, source)
    next_value = _next_values(rollout, value, source)
    along = rollout.following
    inside = inside_episodes(rollout, y)
    inside = inside[~rollout.ended[along[inside]]]  # where ends are read a step early, these rows know it
    spread = spread_of(y)
    alone = _reward_alone(rollout, y, inside)
    if alone is not None:
        return alone
    fit = _solve(rollout, y, next_value, along, inside, spread)
    if fit is None:
        return None
    if not fit.matched:
        beside = rollout.beside
        rows = np.flatnonzero((beside >= 0) & np.isfinite(y))
        rows = rows[np.isfinite(y[beside[rows]]) & np.isfinite(value[beside[rows]])]
        other = _solve(rollout, y, np.where(beside >= 0, value[beside], np.nan), beside, rows, spread)
        if other is not None and other.matched and len(np.unique(rollout.copy)) > 2:
            other.form = "along the batch"
            return other
        return _in_another_order(rollout, y, next_value, spread) or fit
    _special_rows(rollout, y, value, next_value, source, fit, spread)
    return fit


def _in_another_order(rollout: Rollout, y: Array, next_value: Array, spread: float) -> Fit | None:
    """Returns that were flattened copy by copy beside rows that were flattened step by step, or the other way round; or each episode's
    from its end to its beginning."""
    steps, copies = rollout.orders
    back = _episodes_turned(rollout)
    pairs = [(back, np.arange(len(back)), REVERSED)]
    if not np.array_equal(steps, copies):
        pairs += [(steps, copies, ANOTHER_ORDER), (copies, steps, ANOTHER_ORDER)]
    for order, other, form in pairs:
        turned = np.empty_like(y)
        turned[other] = y[order]
        fit = _solve(rollout, turned, next_value, rollout.following, inside_episodes(rollout, turned), spread)
        if fit is not None and fit.matched:
            fit.form = form
            return fit
    return None


def _episodes_turned(rollout: Rollout) -> Array:
    """For each row the one that is as far from the end of the episode as it is from the beginning."""
    turned = np.arange(len(rollout.time))
    before = rollout.preceding
    for first in np.flatnonzero((before < 0) | rollout.ended[before]):
        rows = [int(first)]
        while not rollout.ended[rows[-1]] and rollout.following[rows[-1]] >= 0:
            rows.append(int(rollout.following[rows[-1]]))
        turned[rows] = rows[::-1]
    return turned


def _reward_alone(rollout: Rollout, y: Array, rows: Array) -> Fit | None:
    """y = c r inside of episodes: nothing of the future. Where all rewards are alike no other fit can tell."""
    reward, found = rollout.reward[rows], y[rows]
    power = float(reward @ reward)
    if len(rows) < MIN_ROWS or power == 0:
        return None
    scale = float(reward @ found) / power
    size = float(np.abs(found).max())
    if scale == 0 or float(np.abs(found - scale * reward).max()) > REWARD_ALONE * size:
        return None
    ended = rollout.terminated & np.isfinite(y) & ~rollout.resets
    more = np.abs(y - scale * rollout.reward)[ended] > 10 * REWARD_ALONE * size
    fit = Fit("lambda return", scale, 0.0, None, 0.0, len(rows))
    if ended.any():
        counts = {"more than the reward": int(more.sum()), "stop": int((~more).sum())}
        fit.special["terminal"] = {name: count for name, count in counts.items() if count}
    return fit


def inside_episodes(rollout: Rollout, y: Array) -> Array:
    """Rows with a following row of the same episode, both used by the loss."""
    following, before = rollout.following, rollout.preceding
    rows = np.flatnonzero((following >= 0) & ~rollout.ended & ~rollout.resets & np.isfinite(y))
    rows = rows[np.isfinite(y[following[rows]]) & ~rollout.resets[following[rows]]]
    first = (before[rows] >= 0) & rollout.ended[before[rows]]
    return np.asarray(rows[~first])


def spread_of(y: Array) -> float:
    known = y[np.isfinite(y)]
    return float(max(known.std(), 1e-3 * np.abs(known).max(initial=0.0), 1e-6)) if known.size else 1e-6


def _next_values(rollout: Rollout, value: Array, source: Mapping[int, float]) -> Array:
    direct = rollout.values_of(rollout.next_observation, source)
    along = np.where(rollout.following >= 0, value[rollout.following], np.nan)
    return np.where(np.isnan(along), direct, along)


def _solve(rollout: Rollout, y: Array, next_value: Array, along: Array, rows: Array, spread: float) -> Fit | None:
    rows = rows[np.isfinite(next_value[rows])]
    if len(rows) < MIN_ROWS:
        return None
    following = y[along[rows]]
    reward = rollout.reward
    columns = np.stack([reward[rows], next_value[rows], following - next_value[rows]], axis=1)
    found = trimmed_least_squares(columns, y[rows], MOST_INSIDE, 1e-6 * spread)
    if found is None:
        return None
    (c, gamma, gamma_lambda), error = found[0], found[1] / spread
    if not reward[rows].any():
        c = _scale_at_ends(rollout, y)
    elif abs(c - 1) <= NEARLY_ONE:
        plain = trimmed_least_squares(columns[:, 1:], y[rows] - reward[rows], MOST_INSIDE, 1e-6 * spread)
        if plain is not None and plain[1] / spread <= max(2 * error, EXACT):
            c, (gamma, gamma_lambda), error = 1.0, plain[0], plain[1] / spread
    gae_lambda = float(gamma_lambda / gamma) if abs(gamma) > 1e-3 else None
    return Fit("lambda return", float(c), float(gamma), gae_lambda, error, len(rows))


def _scale_at_ends(rollout: Rollout, y: Array) -> float:
    """Where rewards come with the last step only: the factor between them and the returns there, or 1 where there is none."""
    rows = rollout.terminated & np.isfinite(y) & (rollout.reward != 0)
    ratios = y[rows] / rollout.reward[rows]
    scale = float(np.median(ratios)) if len(ratios) else 1.0
    return scale if len(ratios) and np.median(np.abs(ratios - scale)) <= MATCHED * abs(scale) else 1.0


# ---------------------------------------------------------------------- special rows


def _special_rows(
    rollout: Rollout, y: Array, value: Array, next_value: Array, source: Mapping[int, float], fit: Fit, spread: float
) -> None:
    gamma, decay = fit.gamma, fit.gamma * (fit.gae_lambda or 0.0)
    reward = fit.reward_scale * rollout.reward
    following = rollout.following
    y_next = np.where(following >= 0, y[following], np.nan)
    stops = reward
    goes_on = reward + gamma * next_value + decay * (y_next - next_value)
    final = rollout.values_of(rollout.final_observation, source)
    final = np.where(
        np.isnan(final) & (rollout.final_observation == 0), rollout.values_of(rollout.next_observation, source), final
    )
    used = np.isfinite(y) & ~rollout.resets
    elsewhere = _asked_elsewhere(rollout, source)
    before = rollout.preceding
    after_an_end = (before >= 0) & rollout.ended[before]
    last = used & (following < 0) & ~rollout.ended
    tolerance = max(ROUNDED * fit.error, EXACT) * spread
    terminal = used & rollout.terminated
    within = terminal & (following >= 0)  # behind the last row nothing could go on
    ways: dict[str, tuple[Array, dict[str, Array]]] = {
        "terminal": (
            within if within.any() else terminal,
            {
                "stop": stops,
                "go on": goes_on,
                "go on from its end": reward + gamma * final + decay * (y_next - next_value),
                "sum goes on": reward + decay * (y_next - next_value),
                "value of its end": reward
                + (gamma * final if decay else np.nan),  # without a sum, that of "go on from its end"
            },
        ),
        "before": (
            used & ~rollout.ended & (following >= 0) & rollout.terminated[following] & ~rollout.resets[following],
            {"go on": goes_on, "stop": stops, "sum cut": reward + gamma * next_value},
        ),
        "first": (used & after_an_end & ~rollout.ended, {"go on": goes_on, "stop": stops}),
        "cut": (
            used & rollout.truncated & ~rollout.terminated,
            {
                "bootstrap": reward + gamma * final,
                "twice": reward + 2 * gamma * final,
                "sum goes on": reward + gamma * final + decay * (y_next - next_value),
                "stop": stops,
                "go on": goes_on,
                "next start": reward
                + gamma
                * np.where(following >= 0, value[following], _nearest_to(elsewhere, (y - reward) / (gamma or 1.0))),
            },
        ),
        "last": (
            last,
            {
                "bootstrap": reward + gamma * rollout.values_of(rollout.next_observation, source),
                "nothing": stops,
                "the state itself": reward + gamma * value,
            },
        ),
    }
    for kind, (rows, treatments) in ways.items():
        if rows.any():
            fit.special[kind] = _count(
                y[rows], {name: numbers[rows] for name, numbers in treatments.items()}, tolerance
            )
    if fit.special.get("terminal", {}).get("unexplained"):
        start = _starts_before(rollout)
        later = terminal & (start >= 0)
        summed = reward + gamma * np.where(start >= 0, y[start], np.nan)
        if later.any():
            fit.special["later end"] = _count(
                y[later], {"stop": stops[later], "the sum before": summed[later]}, tolerance
            )


def _starts_before(rollout: Rollout) -> Array:
    """Of each row the first row of the episode before its own, of the same copy; -1 where there is none."""
    found = np.full(len(rollout.time), -1)
    for row in np.flatnonzero(rollout.preceding < 0).tolist():
        start, before = row, -1
        while row >= 0:
            found[row] = before
            after = int(rollout.following[row])
            if rollout.ended[row]:
                start, before = after, start
            row = after
    return found


def _asked_elsewhere(rollout: Rollout, source: Mapping[int, float]) -> Array:
    """Values of observations that are none of the rollout's own: of the next episode's first one, which a reset returned. Only of a single
    environment that the script resets itself: of a vector they may be last observations that came another way."""
    if rollout.final_observation.any() or rollout.copy.any():
        return np.empty(0)
    own = {
        int(name)
        for column in ("observation", "next_observation", "final_observation")
        for name in getattr(rollout, column)
    }
    return np.array([number for name, number in source.items() if name not in own])


def _nearest_to(numbers: Array, wanted: Array) -> Array:
    """For each wanted number the nearest of those there are; nan where there are none, or so many that one is near by chance."""
    if not 0 < len(numbers) <= FEW_ELSEWHERE:
        return np.full(len(wanted), np.nan)
    return np.asarray(numbers[np.abs(numbers[:, None] - wanted[None, :]).argmin(axis=0)])


def _count(y: Array, treatments: Mapping[str, Array], tolerance: float) -> dict[str, int]:
    """How many rows each treatment alone explains."""
    names = list(treatments)
    near = np.stack([np.abs(treatments[name] - y) <= tolerance for name in names])
    alone = near.sum(axis=0) == 1
    counts = {name: int((near[position] & alone).sum()) for position, name in enumerate(names)}
    counts["ambiguous"] = int((near.sum(axis=0) > 1).sum())
    counts["unexplained"] = int((near.sum(axis=0) == 0).sum())
    return {name: count for name, count in counts.items() if count}
