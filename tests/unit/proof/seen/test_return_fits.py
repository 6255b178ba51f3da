"""Returns made by right and wrong definitions from random episodes: the fit must name each of them."""

import numpy as np
import pytest
from made_rollouts import COPIES, GAMMA, LAMBDA, STEPS, returns, rollout, seen_on_policy, trained_on

from learnproof.proof.seen.returns import Fit, advantages_scaled_by, fit_targets, residuals_of
from learnproof.proof.seen.rollouts import Rollout, Targets, _one_number_heads
from learnproof.proof.seen.weights import fit_weights
from learnproof.proof.watched.returns import ReturnsRecomputed, _trained_empty_steps


def named(fit: Fit, kind: str) -> set[str]:
    return set(fit.special[kind]) - {"ambiguous", "unexplained"}


def targets(made: Rollout, y: np.ndarray, value: np.ndarray, share: float = 1.0) -> Targets:
    kept = np.random.default_rng(1).random(y.size) < share
    return Targets("critic", np.where(kept, y.ravel(), np.nan), np.where(kept, value[:-1].ravel(), np.nan))


@pytest.mark.parametrize("seed", range(5))
def test_a_right_definition_is_found_to_rounding(seed):
    made, *parts = rollout(seed)
    fit = fit_targets(made, targets(made, returns(made, *parts, "right", scale=0.1), parts[1]))
    assert fit is not None
    assert fit.matched
    assert fit.gamma == pytest.approx(GAMMA, abs=1e-4)
    assert fit.gae_lambda == pytest.approx(LAMBDA, abs=1e-4)
    assert fit.reward_scale == pytest.approx(0.1, abs=1e-4)
    assert named(fit, "terminal") == {"stop"}
    assert named(fit, "first") == {"go on"}
    assert named(fit, "cut") == {"bootstrap"}
    assert named(fit, "last") == {"bootstrap"}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("convention", "kind", "treatment"),
    [
        ("crossing", "terminal", "go on"),
        ("shifted", "first", "stop"),
        ("early", "before", "stop"),
        ("next start", "cut", "next start"),
        ("cut as terminal", "cut", "stop"),
        ("cut twice", "cut", "twice"),
        ("cut crossing", "cut", "go on"),
        ("no last value", "last", "nothing"),
        ("wrong last value", "last", "the state itself"),
        ("sum goes on", "terminal", "sum goes on"),
        ("ends valued", "terminal", "value of its end"),
    ],
)
def test_each_wrong_definition_is_named(seed, convention, kind, treatment):
    made, *parts = rollout(seed)
    fit = fit_targets(made, targets(made, returns(made, *parts, convention), parts[1]))
    assert fit is not None
    assert fit.matched
    assert named(fit, kind) == {treatment}


def test_half_of_the_rows_are_enough():
    made, *parts = rollout(3)
    fit = fit_targets(made, targets(made, returns(made, *parts, "right"), parts[1], share=0.5))
    assert fit is not None
    assert fit.matched
    assert named(fit, "terminal") == {"stop"}


def test_returns_along_the_batch_are_named():
    made, reward, value, _ = rollout(0, ends=0.0, cuts=0.0)
    advantage = np.zeros((STEPS, COPIES + 1))
    for c in range(COPIES - 1, -1, -1):
        after = value[:-1, c + 1] if c + 1 < COPIES else 0.0
        advantage[:, c] = reward[:, c] + GAMMA * after - value[:-1, c] + GAMMA * LAMBDA * advantage[:, c + 1]
    fit = fit_targets(made, targets(made, advantage[:, :-1] + value[:-1], value))
    assert fit is not None
    assert fit.form == "along the batch"


@pytest.mark.parametrize("share", [1.0, 0.9])
def test_returns_flattened_from_a_transposed_table_are_told(share):
    made, *parts = rollout(3)
    y = returns(made, *parts, "right")
    for flat in (y.T.reshape(-1), y.reshape(COPIES, STEPS).T.reshape(-1)):
        fit = fit_targets(made, targets(made, flat, parts[1], share))
        assert fit is not None
        assert fit.matched
        assert fit.form == "in another order"
    assert fit_targets(made, targets(made, y, parts[1], share)).form == "lambda return"


def test_returns_of_episodes_that_were_not_turned_round_are_told():
    made, *parts = rollout(3, ends=0.1, cuts=0.0)
    y = returns(made, *parts, "right")
    for copy in range(COPIES):
        ended = made.terminated.reshape(STEPS, COPIES)[:, copy]
        for rows in np.split(np.arange(STEPS), np.flatnonzero(ended) + 1):
            y[rows, copy] = y[rows[::-1], copy]
    fit = fit_targets(made, targets(made, y, parts[1]))
    assert fit is not None
    assert fit.matched
    assert fit.form == "reversed"


def test_returns_in_an_order_that_nobody_makes_are_not_explained():
    made, *parts = rollout(3)
    y = np.random.default_rng(5).permutation(returns(made, *parts, "right").ravel())
    fit = fit_targets(made, targets(made, y, parts[1]))
    assert fit is not None
    assert not fit.matched


def test_noise_is_not_explained():
    made, _, value, _ = rollout(0)
    noise = np.random.default_rng(9).normal(size=(STEPS, COPIES))
    fit = fit_targets(made, targets(made, noise, value))
    assert fit is not None
    assert not fit.matched


def to_go(made: Rollout, reward: np.ndarray, gamma: float) -> np.ndarray:
    ended = (made.terminated | made.truncated).reshape(STEPS, COPIES)
    total = np.zeros((STEPS + 1, COPIES))
    for t in range(STEPS - 1, -1, -1):
        total[t] = reward[t] + gamma * np.where(ended[t], 0.0, total[t + 1])
    return total[:-1]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_weights_of_rewards_to_go_are_recognised_up_to_baseline_and_scale(constant, sign):
    made, reward, *_ = rollout(2, ends=0.1, cuts=0.0)
    if constant:
        reward = np.ones_like(reward)
        made.reward = reward.ravel()
    weight = sign * (to_go(made, reward, 0.95) - 4.0) / 7.0
    fit = fit_weights(made, weight.ravel())
    assert fit is not None
    assert fit.matched
    assert fit.form == "reward to go"
    assert fit.gamma == pytest.approx(0.95, abs=1e-6)
    assert np.sign(fit.alpha) == sign


def test_one_return_for_all_steps_and_reversed_returns_are_named():
    made, reward, *_ = rollout(2, ends=0.0, cuts=0.0)
    whole = np.broadcast_to(to_go(made, reward, 0.95)[0], reward.shape)
    assert fit_weights(made, whole.ravel().copy()).form == "whole return"  # type: ignore[union-attr]
    past = np.zeros_like(reward)
    for t in range(STEPS):
        past[t] = reward[t] + (0.95 * past[t - 1] if t else 0.0)
    assert fit_weights(made, past.ravel()).form == "against time"  # type: ignore[union-attr]


def test_rows_of_acting_calls_are_found_by_their_time():
    made, *_ = rollout(3)
    times = np.repeat(np.arange(made.time.min() - 1, made.time.max()), COPIES)
    assert made.located_by_time(times).tolist() == list(range(len(made.time)))
    apart, *_ = rollout(3)
    apart.stream, apart.copy = apart.copy.copy(), np.zeros_like(apart.copy)
    apart.time = 1 + np.arange(len(apart.time))
    steps = np.repeat(np.arange(0, len(apart.time), COPIES), COPIES)
    assert apart.located_by_time(steps).tolist() == list(range(len(apart.time)))


@pytest.mark.parametrize("rewards_alike", [True, False])
@pytest.mark.parametrize("inverted", [True, False])
def test_returns_of_rewards_alone_are_told_and_what_stands_at_ends(rewards_alike, inverted):
    made, reward, value, _ = rollout(3)
    if rewards_alike:
        reward[:] = 1.0
        made.reward[:] = 1.0
    ended = (made.terminated | made.truncated).reshape(STEPS, COPIES)
    y = reward + (GAMMA * value[1:] * ended if inverted else 0.0)
    fit = fit_targets(made, targets(made, y, value))
    assert fit is not None
    assert fit.matched
    assert fit.gamma == 0
    assert set(fit.special["terminal"]) == {"more than the reward" if inverted else "stop"}


@pytest.mark.parametrize("seed", range(3))
def test_targets_made_of_advantages_that_were_normalised_first_are_told_by_their_factor(seed):
    made, *parts = rollout(seed)
    value = parts[1][:-1]
    advantage = returns(made, *parts, "right") - value
    scaled = (advantage - advantage.mean()) / advantage.std()
    factor = advantages_scaled_by(made, targets(made, scaled + value, parts[1]))
    assert factor == pytest.approx(1 / advantage.std(), rel=1e-3)
    assert advantages_scaled_by(made, targets(made, advantage + value, parts[1])) == pytest.approx(1, rel=1e-3)
    noise = np.random.default_rng(seed).normal(size=value.shape)
    assert advantages_scaled_by(made, targets(made, noise, parts[1])) is None


def test_a_scale_that_small_rewards_tell_badly_does_not_spoil_the_ends():
    made, reward, value, final_value = rollout(0)
    reward = np.where(made.terminated.reshape(reward.shape), 1.0, -1e-5 + 1e-7 * reward)
    made.reward = reward.ravel()
    fit = fit_targets(made, targets(made, returns(made, reward, value, final_value, "right"), value))
    assert fit is not None
    assert fit.reward_scale == 1.0
    assert named(fit, "terminal") == {"stop"}


def test_calls_of_one_head_are_one_where_they_agree_and_several_where_they_do_not():
    arrays = {
        "n0.output": np.array([1.0, 2.0]), "n0.rows": np.array([1, 2]),
        "n1.output": np.array([2.0, 3.0]), "n1.rows": np.array([2, 3]),
        "n2.output": np.array([9.0, 4.0]), "n2.rows": np.array([3, 4]),
    }  # fmt: skip
    found = _one_number_heads([{"module": "v"}] * 3, arrays, "n")
    assert found == [("v", {1: 1.0, 2: 2.0, 3: 3.0}), ("v", {3: 9.0, 4: 4.0})]


@pytest.mark.parametrize("seed", range(3))
def test_residuals_tell_the_sign_of_the_present_state(seed):
    made, *parts = rollout(seed)
    value = parts[1][:-1].ravel()
    advantage = (returns(made, *parts, "right") - parts[1][:-1]).ravel()
    found = residuals_of(made, 3 * advantage - 1, value)
    assert found is not None
    assert found.here == pytest.approx(-found.ahead / GAMMA, rel=1e-3)
    added = np.zeros(STEPS * COPIES + COPIES)
    for row in np.argsort(-made.time, kind="stable"):
        after = made.following[row]
        future = parts[1].ravel()[row + COPIES]
        goes_on = 0.0 if made.ended[row] else 1.0
        rest = added[after] if after >= 0 else 0.0
        added[row] = made.reward[row] + goes_on * (GAMMA * future + GAMMA * LAMBDA * rest) + value[row]
    turned = residuals_of(made, added[: STEPS * COPIES], value)
    assert turned is not None
    assert turned.here * turned.ahead > 0


@pytest.mark.parametrize("carried", [True, False])
def test_a_sum_carried_from_episode_to_episode_is_told_though_the_batchs_last_one_stops(carried):
    """Three whole episodes, one after the other: behind the last one nothing could go on."""
    rng = np.random.default_rng(0)
    lengths = (18, 25, 21)
    rows = sum(lengths)
    terminated = np.zeros(rows, bool)
    terminated[np.cumsum(lengths) - 1] = True
    names, last = (rng.integers(2, 2**62, rows + 1, dtype=np.uint64) for _ in range(2))
    reward, value = rng.normal(1.0, 0.5, rows), rng.normal(0.0, 3.0, rows)
    y = np.zeros(rows)
    running = 0.0
    for row in reversed(range(rows)):
        running = reward[row] + 0.98 * (running if carried or not terminated[row] else 0.0)
        y[row] = running
    made = Rollout(
        cycle=0, time=np.arange(1, rows + 1), stream=np.zeros(rows, int), copy=np.zeros(rows, int), observation=names[:-1],
        next_observation=np.where(terminated, last[1:], names[1:]), final_observation=np.zeros(rows, np.uint64), reward=reward, terminated=terminated,
        truncated=np.zeros(rows, bool), resets=np.zeros(rows, bool), action=None, silent=[], losses=[],
    )  # fmt: skip
    fit = fit_targets(made, Targets("critic", y, value))
    assert fit is not None
    assert fit.special["terminal"] == ({"go on": 2} if carried else {"stop": 2})


@pytest.mark.parametrize("seed", range(5))
def test_a_sum_that_goes_on_over_a_time_limit_is_named_but_where_the_rollout_is_over(seed):
    made, *parts = rollout(seed)
    fit = fit_targets(made, targets(made, returns(made, *parts, "sum goes on"), parts[1]))
    assert fit is not None
    last = made.truncated & (made.following < 0)
    told = {"sum goes on": int((made.truncated & ~last).sum()), "bootstrap": int(last.sum())}
    assert fit.special["cut"] == {name: count for name, count in told.items() if count}


def recomputed(convention: str, gae_lambda: float = LAMBDA, **ends: float):
    rollouts = []
    for seed in range(4):
        made, *parts = rollout(seed, **ends)
        y = returns(made, *parts, convention, gae_lambda=gae_lambda)
        value = parts[1][:-1].ravel()
        rollouts.append(trained_on(made, np.arange(len(value)), y.ravel() - value, y.ravel(), value))
    return ReturnsRecomputed().look(seen_on_policy(rollouts))


@pytest.mark.parametrize(
    ("ends", "where"),
    [({"cuts": 0.0}, "ends of episodes"), ({"ends": 0.0}, "time limits")],
)
def test_advantages_whose_sum_goes_on_over_an_end_are_named(ends, where):
    found = recomputed("sum goes on", **ends)
    assert found.status == "fail"
    assert where in found.summary
    assert "residuals of the next episode" in found.summary
    assert recomputed("right", **ends).status == "pass"


def test_an_end_that_is_valued_as_if_the_task_went_on_is_named():
    found = recomputed("ends valued")
    assert found.status == "fail"
    assert "as if it went on" in found.summary


@pytest.mark.parametrize("late", [False, True])
def test_a_network_that_is_asked_late_speaks_of_the_state_that_it_was_asked_about(late):
    """A critic that is called after the environment's step, about the observation before it."""
    made, *_ = rollout(3)
    times = made.time - 1 + late
    order = made.orders[0]
    assert made.located_at(made.observation[order], times[order]).tolist() == order.tolist()
    again, *_ = rollout(3)
    again.observation = np.repeat(
        again.observation[:1], len(again.time)
    )  # states that come again: only the moment tells
    assert again.located_at(again.observation, again.time - 1).tolist() == list(range(len(again.time)))


def test_a_sum_of_one_residual_has_nothing_that_could_go_on():
    """With lambda 0 the right recursion and the other one are the same."""
    assert recomputed("sum goes on", gae_lambda=0.0).status == "pass"


@pytest.mark.parametrize("carries", [True, False])
def test_sums_that_begin_with_the_episode_before_are_named(carries):
    """A running return that is set to 0 once, before the loop over episodes."""
    made, reward, value, _ = rollout(0)
    made.terminated, made.truncated = made.terminated | made.truncated, np.zeros_like(made.truncated)
    ended = made.terminated.reshape(STEPS, COPIES)
    y = np.zeros((STEPS, COPIES))
    for copy in range(COPIES):
        ends = [*np.flatnonzero(ended[:, copy]).tolist(), STEPS - 1]
        start, total = 0, 0.0
        for end in dict.fromkeys(ends):
            total = total if carries else 0.0
            for t in range(end, start - 1, -1):
                total = y[t, copy] = reward[t, copy] + GAMMA * total
            start = end + 1
    fit = fit_targets(made, targets(made, y, value))
    assert fit is not None
    assert fit.matched
    if carries:
        assert named(fit, "later end") == {"the sum before"}
    else:
        assert named(fit, "terminal") == {"stop"}
        assert "later end" not in fit.special


@pytest.mark.parametrize("masked", [True, False])
def test_empty_steps_that_a_mask_leaves_out_are_not_trained_on(masked):
    """The network may be asked about the whole table, and a mask picks rows of its answer."""
    made, reward, value, _ = rollout(0)
    made.resets = np.zeros(made.resets.shape, bool)
    made.resets[::7] = True
    rows = np.arange(len(made.time))
    weight = np.where(made.resets & masked, 0.0, 1.0 + rows)
    made = trained_on(made, rows, weight, reward.ravel(), value[:-1].ravel())
    assert _trained_empty_steps(seen_on_policy([made])) == (0 if masked else made.resets.sum())
