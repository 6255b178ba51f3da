"""Rollouts of five steps, as A2C makes them: too short to fit alone, enough together, and never mixed up."""

import numpy as np
import pytest

from learnproof.proof.seen.pooling import SHORT, pooled
from learnproof.proof.seen.returns import fit_targets
from learnproof.proof.seen.rollouts import Rollout, Targets

STEPS, PARTS, GAMMA = 5, 24, 0.9
State = dict[int, float]


def parts(seed: int = 0, ends: float = 0.1) -> tuple[list[Rollout], State, State]:
    """One environment, five steps after the other: the rollouts, and value and right return of every observation."""
    rng = np.random.default_rng(seed)
    count = STEPS * PARTS
    names = rng.integers(2, 2**62, count + 1, dtype=np.uint64)
    reward, terminated = rng.normal(1.0, 0.5, count), rng.random(count) < ends
    final = np.where(terminated, rng.integers(2, 2**62, count, dtype=np.uint64), 0).astype(np.uint64)
    value = dict(zip(names.tolist(), rng.normal(0.0, 3.0, count + 1).tolist(), strict=True))
    returns: State = {}
    made = []
    for start in range(0, count, STEPS):
        rows = np.arange(start, start + STEPS)
        following = value[int(names[start + STEPS])]
        for row in rows[::-1]:
            following = reward[row] + GAMMA * (0.0 if terminated[row] else following)
            returns[int(names[row])] = following
        made.append(
            Rollout(
                cycle=start // STEPS,
                time=rows + 1,
                stream=np.zeros(STEPS, int),
                copy=np.zeros(STEPS, int),
                observation=names[rows],
                next_observation=names[rows + 1],
                final_observation=final[rows],
                reward=reward[rows],
                terminated=terminated[rows],
                truncated=np.zeros(STEPS, bool),
                resets=np.zeros(STEPS, bool),
                action=rng.integers(0, 2, (STEPS, 1)),
                silent=[("critic", {int(name): value[int(name)]}) for name in names[start : start + STEPS + 1]],
                losses=[],
            )
        )
    return made, value, returns


def targets(rollout: Rollout, value: State, returns: State) -> Targets:
    by_row = [np.array([known[int(name)] for name in rollout.observation]) for known in (returns, value)]
    return Targets("critic", *by_row)


def test_neighbours_are_kept_apart_and_all_rows_stay():
    made, *_ = parts()
    together = pooled(made)
    assert sum(len(rollout.time) for rollout in together) == STEPS * PARTS
    assert len(together) < PARTS / 4
    for rollout in together:
        assert len(set(rollout.observation.tolist())) == len(rollout.time)
        followed = np.flatnonzero(rollout.following >= 0)
        assert np.array_equal(
            rollout.next_observation[followed], rollout.observation[rollout.following[followed]]
        )  # nothing follows a row but what followed it
        # the last next observation of one part is the first observation of the one after it
        assert not set(rollout.next_observation[rollout.following < 0].tolist()) & set(rollout.observation.tolist())


@pytest.mark.parametrize("seed", range(3))
def test_together_they_are_enough_to_find_the_definition(seed):
    made, value, returns = parts(seed)
    assert fit_targets(made[0], targets(made[0], value, returns)) is None
    fits = [fit for rollout in pooled(made) if (fit := fit_targets(rollout, targets(rollout, value, returns)))]
    assert len(fits) >= 2
    for fit in fits:
        assert fit.matched
        assert fit.gamma == pytest.approx(GAMMA, abs=1e-6)
        assert fit.gae_lambda == pytest.approx(1.0, abs=1e-6)
        assert set(fit.special["last"]) == {"bootstrap"}


def test_returns_that_cross_an_end_are_seen_in_parts_too():
    made, value, returns = parts(4, ends=0.3)
    for rollout in made:
        following = value[int(rollout.next_observation[-1])]
        for row in range(STEPS - 1, -1, -1):
            following = returns[int(rollout.observation[row])] = rollout.reward[row] + GAMMA * following
    fits = [fit for rollout in pooled(made) if (fit := fit_targets(rollout, targets(rollout, value, returns)))]
    crossed = [fit for fit in fits if fit.matched and fit.special["terminal"].get("go on", 0) > 0]
    assert len(crossed) == len(fits) > 0


def test_long_rollouts_are_left_as_they_are():
    made, *_ = parts()
    long = pooled(made)[0]
    assert len(long.time) >= SHORT
    assert pooled([long]) == [long]
