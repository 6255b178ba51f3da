"""How a temporal-difference target was made: y = c r + gamma (1 - d) X, fitted over the definitions of X; then the ends.

    X     for a network with one number per action: its largest, the one at another network's largest, its mean, its smallest;
          for networks with one number: each alone, the smaller and the larger of two
    soft  a log-probability beside X: X - alpha log p, with the correction of a squashed action where there is one

c, gamma and alpha come from least squares on the transitions that neither ended nor were cut, so that no treatment of ends can
spoil them. Each special row is then asked which treatment explains it:

    terminal rows   stop (right), go on, or keep the entropy bonus alone
    cut rows        a time limit: go on (right), or stop
    inner rows      go on (right), or stop: an end was written beside the wrong transition

Candidates for X come from the calls without gradient that the watcher saw between two steps. They stand row by row beside
the batch, so that no identity of next observations is needed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from .fitting import least_squares, trimmed_least_squares
from .futures import futures
from .losses import Array, Loss, Regression
from .view import Seen

MATCHED = 1e-4
"""Largest error over the spread of the targets: right definitions reach 1e-6 in float32."""
NEAR = 1e-3
"""The same for a single special row."""
ROUNDING, MUCH_NEARER = 1e-6, 20
ONLY_ROUNDING = 1e-4
MOST_INNER = 0.8
"""Share of the inner rows that a definition must explain; ends written to the wrong rows spoil a few of them."""
MIN_ROWS = 8
LEAST_GAMMA = 0.3
BOOTSTRAPS_READ = 96
"""Regressions that are explained, spread over the run."""
TRIED_IN_VAIN = 12
"""Targets of one network that nothing explains, while nothing explains another of them, after which only definitions are tried that
explain others of the run: all of them together take a fifth of a second for each target."""
WRONG_SIGN = "tanh with the wrong sign"
NEARLY_ALL = 0.95
"""Share of the inner rows whose next state is asked about as the environment returned it, so that another one can be told from it."""


@dataclass(frozen=True)
class Explanation:
    future: str
    """How X was made, e.g. "largest of target"."""
    networks: tuple[str, ...]
    soft: str
    """"" for no log-probability in it, else the correction that explains it."""
    reward_scale: float
    gamma: float
    temperature: float
    error: float
    steps: int
    """Rewards in it before the future."""
    last_discount: float
    """Factor of the future: gamma for one step, gamma ** n for n."""
    terminal: Counter[str]
    """treatment -> rows that only it explains; "unexplained" beside them."""
    cut: Counter[str]
    inner: Counter[str]


@dataclass
class Bootstrapped:
    """One regression toward a target made of rewards."""

    update: int
    module: str | None
    explanations: list[Explanation]
    best: float
    """Smallest error of any definition."""
    terminal_rows: int
    cut_rows: int
    rows: int
    reward_only: float
    """Error of y = c r: small where nothing of the future is in the target."""
    ends_with_more: int
    """Terminal rows whose target is more than that."""
    next_rows_reset: int
    """Cut rows whose future was read from the first observation of the next episode."""
    shifted: str
    """"before" or "after" where the reward of that step explains the target and the step's own does not."""
    other_actions: int
    """Rows in which the loss looks at another action than the one that was taken."""


Likely = dict[str, set[tuple[str, str]]]
"""By the rewards that a target was made of, "reward" or those of a step beside it, the pairs (future, soft) that explained others of
the run."""


def explain(
    loss: Loss, regression: Regression, likely: Likely, only_likely: bool = False, bound: float | None = None
) -> Bootstrapped | None:
    """What is likely is tried first, and what explains this target is put there. Where nothing explains it, the reward of the step
    before or after may. `bound` is that of the actions."""
    if "t.rewards" in loss.arrays and (several := explain_several(loss, regression)) is not None:
        return several
    if len(loss.arrays.get("t.row", ())) < MIN_ROWS:
        return None
    varied = float(np.ptp(loss.arrays["t.reward"])) > 0
    ways = ["reward", *(way for way in ("reward_before", "reward_after") if varied and "t." + way in loss.arrays)]
    tried: list[tuple[str, set[tuple[str, str]] | None]] = [(way, likely[way]) for way in ways if way in likely]
    if not only_likely:
        tried += [(way, None) for way in ways]
    unexplained = None
    for way, definitions in tried:
        found = _explain(loss, regression, definitions, bound, way)
        if found is not None and found.explanations:
            likely.setdefault(way, set()).update((e.future, e.soft) for e in found.explanations)
            if way == "reward":
                return found
            return replace(found, shifted=way.removeprefix("reward_"), explanations=[])
        if way == "reward":
            unexplained = found
    return unexplained if unexplained is not None else _explain(loss, regression, set(), bound)


def _explain(
    loss: Loss,
    regression: Regression,
    only: set[tuple[str, str]] | None,
    bound: float | None,
    rewards: str = "reward",
) -> Bootstrapped | None:
    arrays = loss.arrays
    rows = arrays["t.row"]
    if regression.target.size <= int(rows.max()):
        return None
    y = regression.target[rows]
    reward = arrays["t." + rewards].astype(np.float64)
    terminated = arrays["t.terminated"]
    cut = arrays["t.truncated"] & ~terminated
    spread = max(float(y.std()), 1e-3 * float(np.abs(y).max()), 1e-6)
    explanations = []
    best = np.inf

    def wanted(future: str, soft: str) -> bool:
        return only is None or (future, soft) in only or (future, WRONG_SIGN) in only

    for future, networks, numbers, soft, columns in futures(loss, regression.target.size, bound, wanted):
        ahead = np.stack([numbers[rows], *(column[rows] for column in columns)], axis=1)
        if not np.isfinite(ahead[~(terminated | cut)]).all():
            continue
        solved = _solve(np.concatenate([reward[:, None], ahead], axis=1), y, ~(terminated | cut), spread)
        if solved is None:
            continue
        answer, error = solved
        best = min(best, error)
        if error > MATCHED:
            continue
        stops = answer[0] * reward
        goes_on = stops + ahead @ answer[1:]
        bonus = stops + ahead[:, 1:] @ answer[2:] if columns else np.full(len(y), np.nan)
        tolerance = max(NEAR, 10 * error) * spread
        terminal = _count(y[terminated], {"stop": stops, "go on": goes_on, "bonus": bonus}, terminated, tolerance)
        explanations.append(
            Explanation(
                future=future,
                networks=networks,
                soft=_signed_correction(soft, answer),
                reward_scale=float(answer[0]),
                gamma=float(answer[1]),
                temperature=-float(answer[2] / answer[1]) if columns and abs(answer[1]) > 1e-6 else 0.0,
                error=error,
                steps=1,
                last_discount=float(answer[1]),
                terminal=terminal,
                cut=_count(y[cut], {"go on": goes_on, "stop": stops}, cut, tolerance),
                inner=_count(y[~(terminated | cut)], {"go on": goes_on, "stop": stops}, ~(terminated | cut), tolerance),
            )
        )
    alone = _solve(reward[:, None], y, np.ones(len(y), bool), spread) if y.any() else None
    return Bootstrapped(
        update=loss.update,
        module=regression.module,
        explanations=_simplest(explanations),
        best=float(best),
        terminal_rows=int(terminated.sum()),
        cut_rows=int(cut.sum()),
        rows=len(rows),
        reward_only=np.inf if alone is None else alone[1],
        ends_with_more=0 if alone is None else int((np.abs(y - reward * alone[0])[terminated] > NEAR * spread).sum()),
        next_rows_reset=_read_from_reset(loss, rows),
        shifted="",
        other_actions=_other_actions(loss, rows, regression),
    )


def _hard(future: str, soft: str) -> bool:
    return not soft


def explain_several(loss: Loss, regression: Regression) -> Bootstrapped | None:
    """y = c (r0 + gamma r1 + ...) + g X over several steps; None where that explains nothing."""
    arrays = loss.arrays
    rows, rewards, ends = arrays["t.row"], arrays["t.rewards"].astype(np.float64), arrays["t.ends"]
    steps = rewards.shape[1]
    if steps < 2 or regression.target.size <= int(rows.max(initial=0)) or len(rewards) != len(rows):
        return None
    y = regression.target[rows]
    whole = arrays["t.whole"]
    inner = whole & (ends == steps)
    spread = max(float(y.std()), 1e-3 * float(np.abs(y).max()), 1e-6)
    varied = least_squares(rewards[inner], np.zeros(int(inner.sum()))) is not None if inner.sum() > steps else False
    columns = rewards if varied else rewards.sum(axis=1, keepdims=True)
    explanations = []
    best = np.inf
    for future, networks, numbers, _, _ in futures(loss, regression.target.size, wanted=_hard):
        ahead = numbers[rows]
        if not np.isfinite(ahead[inner]).all():
            continue
        solved = _solve(np.concatenate([columns, ahead[:, None]], axis=1), y, inner, spread)
        if solved is None:
            continue
        answer, error = solved
        best = min(best, error)
        if error > MATCHED or abs(answer[-1]) < 0.05:
            continue
        first, last = float(answer[0]), float(answer[-1])
        if varied:
            gamma = float(answer[1:-1] @ answer[:-2] / (answer[:-2] @ answer[:-2]))
        else:
            gamma = _of_equal_rewards(first * steps, abs(last), steps)
        powers = first * gamma ** np.arange(steps)
        if not varied:  # only their sum is known
            powers *= steps / np.sum(gamma ** np.arange(steps))
        if gamma < LEAST_GAMMA:  # the rewards after the first are not in it: one step explains it better
            continue
        if varied and np.abs(powers - answer[:-1]).max() > 0.01 * abs(first):
            continue
        sums = np.cumsum(rewards * powers, axis=1)
        at_end = np.minimum(ends, steps - 1)
        stops = sums[np.arange(len(y)), at_end]
        goes_on = stops + gamma ** (at_end + 1) * ahead
        across = sums[:, -1] + last * ahead
        tolerance = max(NEAR, 10 * error) * spread
        ended = whole & (ends < steps) & ("t.repeats" not in arrays)  # else another visit's end may stand here
        before_last = ended & (ends < steps - 1)
        terminal, cut = ended & arrays["t.ended_terminated"], ended & ~arrays["t.ended_terminated"]
        ways = {"stop": stops, "go on": goes_on, "across": np.where(before_last, across, np.nan)}
        explanations.append(
            Explanation(
                future=future, networks=networks, soft="", reward_scale=first, gamma=gamma, temperature=0.0, error=error,
                steps=steps, last_discount=last, terminal=_count(y[terminal], ways, terminal, tolerance),
                cut=_count(y[cut], ways, cut, tolerance), inner=Counter(),
            )
        )  # fmt: skip
    if not explanations:
        return None
    return Bootstrapped(
        update=loss.update,
        module=regression.module,
        explanations=explanations,
        best=float(best),
        terminal_rows=sum(explanations[0].terminal.values()),
        cut_rows=sum(explanations[0].cut.values()),
        rows=len(rows),
        reward_only=np.inf,
        ends_with_more=0,
        next_rows_reset=0,
        shifted="",
        other_actions=0 if "t.repeats" in arrays else _other_actions(loss, rows, regression),
    )


def _of_equal_rewards(total: float, last: float, steps: int) -> float:
    """gamma where only the sum of the rewards' factors is known, and that of the future: gamma ** steps, unless the sum is exactly the one
    that the future's factor itself makes as a discount of each step."""
    usual = last ** (1 / steps)
    sums = [float(np.sum(gamma ** np.arange(steps))) for gamma in (usual, last)]
    once = abs(total / sums[1] - 1) < ONLY_ROUNDING and abs(total / sums[0] - 1) > 10 * ONLY_ROUNDING
    return last if once and last < 1 else usual


def _signed_correction(soft: str, answer: Array) -> str:
    """log p of a squashed action is log p before it less the correction: in the target they have opposite signs."""
    if soft not in ("tanh", "guarded tanh") or len(answer) < 4 or abs(answer[2]) < 1e-6:
        return soft
    return WRONG_SIGN if abs(answer[3] / answer[2] - 1) < 0.1 else soft


def _simplest(found: list[Explanation]) -> list[Explanation]:
    """Without a log-probability where none is needed; and of corrections of a squashed action, which differ little once it is hardly drawn at
    random any more, those that explain to rounding where one does."""
    hard = [each for each in found if not each.soft]
    nearest = min((each.error for each in found), default=0.0)
    return hard or [each for each in found if each.error <= max(ROUNDING, MUCH_NEARER * nearest)]


def _solve(columns: Array, y: Array, rows: Array, spread: float) -> tuple[Array, float] | None:
    if rows.sum() < max(MIN_ROWS, columns.shape[1] + 2):
        return None
    found = trimmed_least_squares(columns[rows], y[rows], MOST_INNER, MATCHED * spread)
    return None if found is None else (found[0], found[1] / spread)


def _count(y: Array, treatments: dict[str, Array], rows: Array, tolerance: float) -> Counter[str]:
    counts: Counter[str] = Counter()
    if len(y) == 0:
        return counts
    near = np.stack([np.abs(numbers[rows] - y) <= tolerance for numbers in treatments.values()])
    alone = near.sum(axis=0) == 1
    for position, name in enumerate(treatments):
        counts[name] = int((near[position] & alone).sum())
    counts["unexplained"] = int((near.sum(axis=0) == 0).sum())
    return +counts


def _other_actions(loss: Loss, rows: Array, regression: Regression) -> int:
    """Rows whose index in the loss is not the action that the environment was given. Where states come again, the transition may be
    another visit's: then of those between whose states only one action ever led."""
    certain = loss.arrays.get("t.one_action", np.full(len(rows), "t.repeats" not in loss.arrays))
    index = loss.taken(regression.target.size)
    if index is None:
        index = loss.moved_columns(regression.call, regression.target.size)
    actions = loss.arrays.get("t.action")
    if index is None or actions is None or actions.shape[1] != 1:
        return 0
    return int(((index[rows] != actions[:, 0]) & (index[rows] >= 0) & certain).sum())


def _read_from_reset(loss: Loss, rows: Array) -> int:
    """Cut transitions whose future was asked of the next episode's first observation, though the true last one was told: beside the
    next episode's first one, by a vector, or before a reset, by an environment that the script resets itself."""
    arrays = loss.arrays
    cut, following = arrays["t.truncated"] & ~arrays["t.terminated"], arrays["t.next_observation"]
    beside = arrays["t.final_observation"] != 0
    inner = ~(arrays["t.truncated"] | arrays["t.terminated"])
    most = 0
    for position in range(len(loss.event.silent) if cut.any() else 0):
        asked = arrays.get(f"n{position}.rows")
        if asked is None or len(asked) <= int(rows.max()):
            continue
        same = asked[rows] == following
        if inner.sum() >= MIN_ROWS and same[inner].mean() >= NEARLY_ALL:
            most = max(most, int((cut & (same == beside)).sum()))
    return most


def bootstraps(seen: Seen) -> list[Bootstrapped]:
    """Explained once: the checks share it."""
    known = seen.notes.get("bootstraps")
    if known is None:
        losses = with_targets(seen, seen.training_losses)
        step = max(1, len(losses) // BOOTSTRAPS_READ)
        known = seen.notes["bootstraps"] = []
        likely: Likely = {}
        in_vain: Counter[str | None] = Counter()
        for loss in losses[::step]:
            siblings: list[tuple[Regression, Bootstrapped | None]] = []
            for regression in loss.regressions:
                hopeless = in_vain[regression.module] >= TRIED_IN_VAIN
                found = _as_a_sibling(loss, regression, siblings)
                if found is None:
                    found = explain(loss, regression, likely, hopeless, seen.action_bound)
                siblings.append((regression, found))
                if found is None:
                    continue
                known.append(found)
                explained = bool(found.explanations or found.shifted)
                in_vain[regression.module] += (
                    -len(losses) if explained else 1
                )  # one that is explained keeps up hope for good
        sought = with_targets(seen, seen.sought_losses)
        pairs = [(loss, regression) for loss in sought for regression in loss.regressions]
        also = [explain(loss, regression, likely, True, seen.action_bound) for loss, regression in pairs]
        known += [each for each in also if each is not None and each.explanations]
    return list(known)


def _as_a_sibling(
    loss: Loss, regression: Regression, siblings: list[tuple[Regression, Bootstrapped | None]]
) -> Bootstrapped | None:
    """Twin critics are fitted to one target, which is explained once."""
    for other, found in siblings:
        if found is not None and np.array_equal(other.target, regression.target):
            several = any(each.steps > 1 for each in found.explanations)
            certain = not (several and "t.repeats" in loss.arrays)
            others = _other_actions(loss, loss.arrays["t.row"], regression) if certain else 0
            return replace(found, module=regression.module, other_actions=others)
    return None


def with_targets(seen: Seen, losses: list[Loss]) -> list[Loss]:
    return [
        loss
        for loss in losses
        if loss.event.transitions_of is not None
        and not loss.policies
        and loss.event.silent
        and loss.cycle not in seen.on_policy_cycles
    ]
