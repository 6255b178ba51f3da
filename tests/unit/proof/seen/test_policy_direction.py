"""What weighs the actions of a rollout: its own advantages, those of other rows, or their negative."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_rollouts import COPIES, STEPS, returns, rollout, seen_on_policy, trained_on

from learnproof.proof.watched.direction import PolicyDirection, _by_own_targets, _of_other_rows


def by_steps(table: np.ndarray) -> np.ndarray:
    return table.reshape(-1)


def by_copies(table: np.ndarray) -> np.ndarray:
    return table.T.reshape(-1)


def weighed(seed: int, rows=by_steps, weights=by_steps, sign: float = 1.0, copies: int = COPIES):
    """A rollout whose rows and whose advantages were flattened from tables [steps, environments]."""
    made, *parts = rollout(seed, copies=copies)
    y, value = returns(made, *parts, "right"), parts[1][:-1]
    advantage = y - value
    order = rows(np.arange(STEPS * copies).reshape(STEPS, copies))
    scaled = (weights(advantage) - advantage.mean()) / advantage.std()
    return trained_on(made, order, sign * scaled, y.reshape(-1)[order], value.reshape(-1)[order])


def untold(seed: int):
    """A rollout of whose weights and targets nothing is known."""
    made, *_ = rollout(seed)
    rng = np.random.default_rng(900 + seed)
    return trained_on(made, np.arange(len(made.time)), *rng.normal(size=(3, len(made.time))))


def looked_at(rollouts, **about):
    return PolicyDirection().look(seen_on_policy(rollouts, **about))


@pytest.mark.parametrize(("rows", "weights"), [(by_steps, by_copies), (by_copies, by_steps)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_advantages_flattened_along_the_other_axis_than_their_rows_are_named(rows, weights, sign):
    found = looked_at([weighed(seed, rows, weights, sign) for seed in range(4)])
    assert found.status == "fail"
    assert "advantages of other rows" in found.summary
    assert found.figures["rollouts_with_another_order"] == 4


@pytest.mark.parametrize("order", [by_steps, by_copies])
def test_advantages_flattened_as_their_rows_are_accepted(order):
    rollouts = [weighed(seed, order, order) for seed in range(4)]
    assert _of_other_rows(seen_on_policy(rollouts)) == 0
    assert looked_at(rollouts).status == "pass"


def test_of_a_single_environment_both_orders_are_one():
    rollouts = [weighed(seed, by_steps, by_copies, copies=1) for seed in range(4)]
    assert _of_other_rows(seen_on_policy(rollouts)) == 0
    assert looked_at(rollouts).status == "pass"


def test_weights_in_an_order_that_nobody_makes_are_not_those_of_other_rows():
    view = seen_on_policy([untold(seed) for seed in range(4)])
    assert _of_other_rows(view) == 0


def test_two_rollouts_in_another_order_are_not_enough():
    rollouts = [weighed(seed, weights=by_copies) for seed in range(2)] + [weighed(seed) for seed in range(2, 6)]
    assert looked_at(rollouts).status != "fail"


def test_rollouts_weighed_with_minus_their_own_advantages_are_enough_where_others_tell_nothing():
    rollouts = [*(weighed(seed, sign=-1.0) for seed in range(3)), *(untold(seed) for seed in range(3, 9))]
    view = seen_on_policy(rollouts)
    assert sorted(_by_own_targets(view)) == [0, 1, 2]
    assert max(_by_own_targets(view).values()) < -0.95
    found = PolicyDirection().look(view)
    assert found.status == "fail"
    assert "In all 3 rollouts" in found.summary
    assert "lose probability" in found.summary


@pytest.mark.parametrize(
    ("signs", "descent"),
    [([1.0, 1.0, 1.0], -1.0), ([-1.0, -1.0, 1.0], -1.0), ([-1.0, -1.0], -1.0), ([-1.0, -1.0, -1.0], 1.0)],
    ids=["their own", "of both signs", "two alone", "an optimizer that climbs"],
)
def test_rollouts_that_tell_nothing_accuse_nobody(signs, descent):
    rollouts = [weighed(seed, sign=sign) for seed, sign in enumerate(signs)]
    rollouts += [untold(seed) for seed in range(len(signs), 9)]
    found = looked_at(rollouts, steps=[SimpleNamespace(descent=descent)] * 8)
    assert found.status != "fail", found.summary
