"""Temporal-difference targets made by right and wrong definitions: the fit must name each of them."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import made_loss

from learnproof.proof.seen.bootstrap import Bootstrapped, _of_equal_rewards, _read_from_reset, bootstraps, explain
from learnproof.proof.seen.futures import (
    NOT_SQUARED,
    ONE_FOR_ALL,
    SCALED_FIRST,
    SQUASHED_TWICE,
    _of_those_that_go_on,
    futures,
)
from learnproof.proof.seen.losses import Regression
from learnproof.proof.watched.bootstrap import BootstrapRecomputed, _always_the_largest

ROWS, ACTIONS, GAMMA, STEPS = 96, 3, 0.97, 3


def batch(seed: int, **more: np.ndarray) -> tuple[dict[str, np.ndarray], np.random.Generator]:
    rng = np.random.default_rng(seed)
    terminated = rng.random(ROWS) < 0.1
    arrays = {
        "t.row": np.arange(ROWS),
        "t.reward": rng.normal(0.5, 1.0, ROWS).astype(np.float32),
        "t.terminated": terminated,
        "t.truncated": ~terminated & (rng.random(ROWS) < 0.08),
        "t.final_observation": np.zeros(ROWS, np.uint64),
        "t.next_observation": rng.integers(1, 2**60, ROWS).astype(np.uint64),
        "t.action": rng.integers(0, ACTIONS, (ROWS, 1)).astype(np.float32),
        "n0.output": rng.normal(0, 2, (ROWS, ACTIONS)).astype(np.float32),
        "n1.output": rng.normal(0, 2, (ROWS, ACTIONS)).astype(np.float32),
        **more,
    }
    return arrays, rng


def explained(
    arrays: dict[str, np.ndarray],
    y: np.ndarray,
    names=("target", "online"),
    log_probs: int = 0,
    bound: float | None = None,
) -> Bootstrapped:
    loss = made_loss(
        arrays,
        silent=[{"module": name, "shape": [ROWS]} for name in names],
        silent_log_probs=[{"kind": "Normal", "shape": [ROWS]}] * log_probs,
    )
    prediction = np.zeros(ROWS)
    target = y.astype(np.float32).astype(float)
    found = explain(loss, Regression(prediction, target, None, None, None, "q", 0, (0,), True), {}, bound=bound)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_largest_value_of_the_target_network(seed):
    arrays, _ = batch(seed)
    y = arrays["t.reward"] + GAMMA * ~arrays["t.terminated"] * arrays["n0.output"].max(axis=1)
    (found,) = explained(arrays, y).explanations
    assert found.future == "largest of target"
    assert found.gamma == pytest.approx(GAMMA, abs=1e-5)
    assert found.reward_scale == pytest.approx(1.0, abs=1e-5)
    assert set(found.terminal) == {"stop"}
    assert set(found.cut) == {"go on"}
    assert found.inner["stop"] == 0


def test_a_maximum_without_a_dimension_is_one_number_for_all_rows():
    arrays, _ = batch(2)
    y = arrays["t.reward"] + GAMMA * ~arrays["t.terminated"] * arrays["n0.output"].max()
    found = explained(arrays, y).explanations
    assert found
    assert all(ONE_FOR_ALL in each.future for each in found)


def test_a_minimum_of_two_critics_without_a_dimension_is_told_from_the_smaller_of_two():
    arrays, rng = batch(3)
    arrays |= {name: rng.normal(0, 2, (ROWS, 1)).astype(np.float32) for name in ("n0.output", "n1.output")}
    smaller = np.minimum(arrays["n0.output"], arrays["n1.output"])[:, 0]
    for future, one in ((smaller, False), (np.full(ROWS, smaller.min()), True)):
        y = arrays["t.reward"] + GAMMA * ~arrays["t.terminated"] * future
        found = explained(arrays, y, names=("first", "second")).explanations
        assert found
        assert all((ONE_FOR_ALL in each.future) is one for each in found)


def test_double_q_learning_is_told_from_the_plain_one():
    arrays, _ = batch(1)
    chosen = arrays["n1.output"].argmax(axis=1)
    y = arrays["t.reward"] + GAMMA * ~arrays["t.terminated"] * arrays["n0.output"][np.arange(ROWS), chosen]
    (found,) = explained(arrays, y).explanations
    assert found.future == "target at the largest of online"


@pytest.mark.parametrize("seed", range(4))
def test_wrong_treatments_of_ends_are_named(seed):
    arrays, _ = batch(seed)
    future = GAMMA * arrays["n0.output"].max(axis=1)
    ended = arrays["t.terminated"] | arrays["t.truncated"]
    (never,) = explained(arrays, arrays["t.reward"] + future).explanations
    assert set(never.terminal) == {"go on"}
    (merged,) = explained(arrays, arrays["t.reward"] + ~ended * future).explanations
    assert set(merged.cut) == {"stop"}
    shifted = np.roll(arrays["t.terminated"], 1)
    (late,) = explained(arrays, arrays["t.reward"] + ~shifted * future).explanations
    assert late.terminal["go on"] > late.terminal["stop"]
    assert late.inner["stop"] > 0


@pytest.mark.parametrize("temperature", [0.0, 0.3])
@pytest.mark.parametrize("twin", [False, True])
def test_what_a_policy_over_whole_numbers_expects_of_one_critic_or_two(temperature, twin):
    arrays, rng = batch(5)
    arrays["n2.output"] = rng.normal(0, 2, (ROWS, ACTIONS)).astype(np.float32)
    logits, one, two = (arrays[f"n{i}.output"].astype(float) for i in range(3))
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    value = np.minimum(one, two) if twin else one
    future = (np.exp(log_p) * (value - temperature * log_p)).sum(axis=1)
    y = arrays["t.reward"] + GAMMA * ~arrays["t.terminated"] * future
    (found, *_) = explained(arrays, y, names=("actor", "first", "second")).explanations
    assert found.networks == (("first", "second") if twin else ("first",))
    assert "by actor" in found.future
    assert found.temperature == pytest.approx(temperature, abs=1e-3)
    assert set(found.terminal) == {"stop"}


def soft_batch(seed: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(100 + seed)
    before = rng.normal(0, 1, (ROWS, 2)).astype(np.float32)
    plain = (-0.5 * before**2).astype(np.float32)
    one, two = rng.normal(0, 2, (2, ROWS)).astype(np.float32)
    arrays, _ = batch(seed, **{"s0.value": plain, "s0.action": before, "n0.output": one, "n1.output": two})
    return arrays, np.minimum(one, two).astype(float), before.astype(float), plain.astype(float).sum(axis=1)


def test_the_smaller_of_two_critics_less_a_squashed_log_probability():
    arrays, smaller, before, plain = soft_batch(0)
    log_prob = plain - np.log(1 - np.tanh(before) ** 2 + 1e-6).sum(axis=1)
    y = arrays["t.reward"] + GAMMA * ~arrays["t.terminated"] * (smaller - 0.2 * log_prob)
    found = explained(arrays, y, ("one", "two"), log_probs=1).explanations
    assert {each.future for each in found} == {"smaller of one and two, less a log-probability"}
    assert found[0].temperature == pytest.approx(0.2, abs=1e-3)
    assert set(found[0].terminal) == {"stop"}


def test_a_bonus_outside_of_the_mask_and_a_wrong_squash_are_named():
    arrays, smaller, before, plain = soft_batch(1)
    log_prob = plain - np.log(1 - np.tanh(before) ** 2 + 1e-6).sum(axis=1)
    y = arrays["t.reward"] + GAMMA * ~arrays["t.terminated"] * smaller - GAMMA * 0.2 * log_prob
    found = explained(arrays, y, ("one", "two"), log_probs=1).explanations
    assert set(found[0].terminal) == {"bonus"}
    twice = plain - np.log(1 - np.tanh(np.tanh(before)) ** 2 + 1e-6).sum(axis=1)
    y = arrays["t.reward"] + GAMMA * ~arrays["t.terminated"] * (smaller - 0.2 * twice)
    found = explained(arrays, y, ("one", "two"), log_probs=1).explanations
    assert {each.soft for each in found} == {SQUASHED_TWICE}


@pytest.mark.parametrize(
    ("correction", "name"),
    [
        (lambda before: np.log(np.maximum(1 - (2 * np.tanh(before)) ** 2, 1e-6)), SCALED_FIRST),
        (lambda before: np.log(1 - np.tanh(before) + 1e-6), NOT_SQUARED),
        (lambda before: np.log(2 * (1 - np.tanh(before) ** 2) + 1e-6), "guarded tanh"),
    ],
)
def test_how_a_squashed_action_was_corrected_is_named(correction, name):
    arrays, smaller, before, plain = soft_batch(3)
    log_prob = plain - correction(before).sum(axis=1)
    y = arrays["t.reward"] + GAMMA * ~arrays["t.terminated"] * (smaller - 0.2 * log_prob)
    found = explained(arrays, y, ("one", "two"), log_probs=1, bound=2.0).explanations
    assert name in {each.soft for each in found} <= {name, "tanh"}


def test_rewards_alone_and_noise_are_told_apart():
    arrays, rng = batch(2)
    alone = explained(arrays, 0.5 * arrays["t.reward"])
    assert alone.reward_only < 1e-6
    noise = explained(arrays, rng.normal(size=ROWS))
    assert noise.explanations == []
    assert noise.reward_only > 0.1
    assert explained(arrays, np.zeros(ROWS)).reward_only > 0.1  # no reward times 0 explains a target of 0


def windows(seed: int, steps: int, constant: bool = False) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A batch of windows of rewards, a tenth of which ends inside; and the discounted sums up to the end."""
    arrays, rng = batch(seed)
    rewards = np.ones((ROWS, steps)) if constant else rng.normal(0.5, 1.0, (ROWS, steps))
    ends = np.where(rng.random(ROWS) < 0.2, rng.integers(0, steps, ROWS), steps)
    arrays |= {
        "t.rewards": rewards.astype(np.float32),
        "t.ends": ends,
        "t.ended_terminated": (ends < steps) & (rng.random(ROWS) < 0.6),
        "t.whole": np.ones(ROWS, bool),
    }
    inside = np.arange(steps) <= np.minimum(ends, steps - 1)[:, None]
    return arrays, (arrays["t.rewards"] * inside * GAMMA ** np.arange(steps)).sum(axis=1)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("steps", [2, 3, 5])
def test_targets_over_several_steps(steps, constant):
    arrays, sums = windows(steps, steps, constant)
    left = GAMMA ** np.minimum(arrays["t.ends"] + 1, steps) * ~arrays["t.ended_terminated"]
    (found,) = explained(arrays, sums + left * arrays["n0.output"].max(axis=1)).explanations
    assert found.future == "largest of target"
    assert found.steps == steps
    assert found.gamma == pytest.approx(GAMMA, abs=1e-4)
    assert found.last_discount == pytest.approx(GAMMA**steps, abs=1e-4)
    assert set(found.terminal) == {"stop"}
    assert set(found.cut) == {"go on"}


def test_a_bootstrap_discounted_once_over_three_steps():
    arrays, sums = windows(0, 3)
    y = sums + GAMMA * (arrays["t.ends"] == 3) * arrays["n0.output"].max(axis=1)
    (found,) = explained(arrays, y).explanations
    assert found.gamma == pytest.approx(GAMMA, abs=1e-4)
    assert found.last_discount == pytest.approx(GAMMA, abs=1e-4)


def test_one_step_is_not_taken_for_several():
    arrays, _ = windows(0, 3)
    arrays["t.reward"] = arrays["t.rewards"][:, 0]
    y = arrays["t.reward"] + GAMMA * ~arrays["t.terminated"] * arrays["n0.output"].max(axis=1)
    (found,) = explained(arrays, y).explanations
    assert found.steps == 1


def test_windows_that_go_on_across_an_end():
    arrays, _ = windows(0, 3)
    arrays["t.ended_terminated"] = arrays["t.ends"] < 3
    sums = (arrays["t.rewards"] * GAMMA ** np.arange(3)).sum(axis=1)
    (found,) = explained(arrays, sums + GAMMA**3 * arrays["n0.output"].max(axis=1)).explanations
    assert found.terminal["across"] > 5


@pytest.mark.parametrize(("powers", "once"), [(4, False), (1, True)])
def test_a_future_discounted_once_is_told_where_all_rewards_are_alike(powers, once):
    gamma, steps = 0.99, 4
    total = float(np.sum(gamma ** np.arange(steps)))
    found = _of_equal_rewards(total, gamma**powers, steps)
    assert found == pytest.approx(gamma, abs=1e-9)
    assert (abs(gamma**powers - found**steps) > 1e-3) == once


def test_scaled_rewards_that_are_all_alike_tell_nothing():
    assert _of_equal_rewards(0.1 * 3.94, 0.99, 4) == pytest.approx(0.99**0.25)


def test_a_network_that_was_asked_only_about_rows_that_go_on_is_spread_over_the_batch():
    terminated = np.array([False, True, False, False, True, False])
    truncated = np.array([False, False, True, False, False, False])
    arrays = {"t.row": np.arange(6), "t.terminated": terminated, "t.truncated": truncated}
    loss = made_loss(arrays)
    spread = _of_those_that_go_on(loss, np.arange(4.0)[:, None], 6)
    np.testing.assert_array_equal(spread[~terminated, 0], np.arange(4.0))
    assert np.isnan(spread[terminated]).all()
    spread = _of_those_that_go_on(loss, np.arange(3.0)[:, None], 6)
    np.testing.assert_array_equal(spread[~(terminated | truncated), 0], np.arange(3.0))
    assert len(_of_those_that_go_on(loss, np.arange(5.0)[:, None], 6)) == 5  # of another subset nothing is known


def seen_with(training: list, sought: list) -> SimpleNamespace:
    return SimpleNamespace(
        notes={}, training_losses=training, sought_losses=sought, on_policy_cycles=set(), action_bound=None
    )


def with_target(seed: int, cut: int, stops: bool):
    """A loss one of whose rows was cut; the target stops there, or goes on."""
    arrays, _ = batch(seed)
    arrays["t.truncated"] = np.arange(ROWS) == cut
    arrays["t.terminated"] = np.zeros(ROWS, bool)
    goes_on = ~arrays["t.truncated"] if stops else np.ones(ROWS, bool)
    y = arrays["t.reward"] + GAMMA * goes_on * arrays["n0.output"].max(axis=1)
    loss = made_loss(arrays, update=seed, silent=[{"module": "target", "shape": [ROWS, ACTIONS]}])
    target = y.astype(np.float32).astype(float)
    loss.__dict__["regressions"] = [Regression(np.zeros(ROWS), target, None, None, None, "q", 0, (0,), True)]
    loss.__dict__["policies"] = []
    return loss


@pytest.mark.parametrize(("stops", "treatment"), [(True, "stop"), (False, "go on")])
def test_rows_that_were_sought_are_asked_what_became_of_them(stops, treatment):
    training = [with_target(seed, -1, stops) for seed in range(6)]
    sought = [with_target(seed, 7, stops) for seed in range(6, 10)]
    found = bootstraps(seen_with(training, sought))
    assert sum((each.explanations[0].cut for each in found), Counter()) == {treatment: 4}


def test_what_was_sought_is_left_out_where_nothing_explains_it():
    training = [with_target(seed, -1, False) for seed in range(6)]
    odd = with_target(6, 7, False)
    odd.regressions[0].target[:] = np.random.default_rng(0).normal(size=ROWS)
    assert len(bootstraps(seen_with(training, [odd]))) == len(training)


@pytest.mark.parametrize("last_discount", [GAMMA**STEPS, GAMMA])
def test_several_steps_with_next_states_of_those_rows_alone_that_go_on(last_discount):
    arrays, rng = batch(3)
    rewards = rng.normal(0, 1, (ROWS, STEPS)).astype(np.float32)
    ends = np.where(rng.random(ROWS) < 0.2, rng.integers(0, STEPS, ROWS), STEPS)
    asked = np.flatnonzero(ends == STEPS)
    values = rng.normal(0, 2, (len(asked), ACTIONS)).astype(np.float32)
    counted = np.arange(STEPS)[None, :] <= ends[:, None]
    y = (rewards * GAMMA ** np.arange(STEPS) * counted).sum(axis=1)
    y[asked] += last_discount * values.max(axis=1)
    arrays |= {
        "t.rewards": rewards, "t.ends": ends, "t.ended_terminated": ends < STEPS, "t.whole": np.ones(ROWS, bool),
        "n0.output": values, "n0.of": asked,
    }  # fmt: skip
    (found,) = explained(arrays, y).explanations
    assert found.future == "largest of target"
    assert (found.steps, found.gamma) == (STEPS, pytest.approx(GAMMA, abs=1e-4))
    assert found.last_discount == pytest.approx(last_discount, abs=1e-4)
    assert set(found.terminal) == {"stop"}


@pytest.mark.parametrize(("stale", "certain", "others"), [(True, True, ROWS), (True, False, 0), (False, True, 0)])
def test_where_states_come_again_another_action_shows_between_states_that_one_action_leads_to(stale, certain, others):
    arrays, _ = batch(2)
    y = arrays["t.reward"] + GAMMA * ~arrays["t.terminated"] * arrays["n0.output"].max(axis=1)
    taken = arrays["t.action"][:, 0].astype(np.int64)
    arrays |= {
        "t.repeats": np.ones(1, bool),
        "t.one_action": np.full(ROWS, certain),
        "k0": (taken + stale) % ACTIONS,
    }
    loss = made_loss(arrays, silent=[{"module": "target", "shape": [ROWS]}], constants=[{"role": "index"}])
    target = y.astype(np.float32).astype(float)
    found = explain(loss, Regression(np.zeros(ROWS), target, None, None, None, "q", 0, (0,), True), {})
    assert found is not None
    assert found.other_actions == others


@pytest.mark.parametrize("beside", [True, False], ids=["a vector that resets itself", "one that the script resets"])
@pytest.mark.parametrize("wrong", [True, False])
def test_a_future_read_from_the_next_episodes_start_is_counted(beside, wrong):
    rows, cut = np.arange(32), np.zeros(32, bool)
    cut[[3, 17, 30]] = True
    true_last, start = np.arange(100, 132).astype(np.uint64), np.arange(200, 232).astype(np.uint64)
    following = np.where(
        cut & beside, start, true_last
    )  # a vector returns the next start, and tells the last one beside it
    asked = np.where(cut & wrong, start, true_last)
    arrays = {
        "t.row": rows, "t.truncated": cut, "t.terminated": np.zeros(32, bool), "t.next_observation": following,
        "t.final_observation": np.where(cut & beside, true_last, np.uint64(0)), "n0.rows": asked,
    }  # fmt: skip
    loss = made_loss(arrays, silent=[{"module": "target"}])
    assert _read_from_reset(loss, rows) == (3 if wrong else 0)
    arrays["n0.rows"] = np.arange(300, 332).astype(
        np.uint64
    )  # observations that were changed on their way tell nothing
    assert _read_from_reset(loss, rows) == 0


def test_a_log_probability_that_the_actor_gives_behind_its_action_is_a_part_of_the_future():
    rng = np.random.default_rng(0)
    arrays = {
        "n0.output": rng.standard_normal((16, 2)), "n0.beside": rng.standard_normal(16).astype(np.float32),
        "n1.output": rng.standard_normal((16, 1)),
    }  # fmt: skip
    loss = made_loss(arrays, silent=[{"module": "actor"}, {"module": "target"}], silent_log_probs=[])
    found = {(how, soft): columns for how, _, _, soft, columns in futures(loss, 16)}
    (column,) = found["target, less a log-probability", "plain"]
    assert np.array_equal(column, arrays["n0.beside"].astype(np.float64))
    del arrays["n0.beside"]
    assert all(soft != "plain" for _, _, _, soft, _ in futures(loss, 16))


@pytest.mark.parametrize(("how", "rows"), [("largest", 640), ("one-hot", 0), ("index", 0)])
def test_a_loss_that_always_moves_the_largest_value_is_told_from_one_that_reads_the_action_taken(how, rows):
    rng = np.random.default_rng(0)
    losses = []
    for update in range(20):
        q, taken = rng.standard_normal((32, 4)), rng.integers(0, 4, 32)
        at = q.argmax(axis=1) if how == "largest" else taken
        gradient = np.zeros((32, 4))
        gradient[np.arange(32), at] = rng.standard_normal(32)
        gradient[5] = 0  # a row whose error is 0
        arrays = {"c0.output": q, "c0.gradient": gradient, "k0": rng.standard_normal(32)}
        constants = [{"role": "target"}]
        if how == "index":
            arrays["k1"], constants = taken, [*constants, {"role": "index"}]
        loss = made_loss(
            arrays, update, calls=[{"module": "online"}], constants=constants, silent=[{"module": "target"}]
        )
        loss.__dict__["regressions"] = [SimpleNamespace(target=arrays["k0"], call=None)]
        loss.__dict__["policies"] = []
        losses.append(loss)
    found = _always_the_largest(SimpleNamespace(training_losses=losses, on_policy_cycles=set()))
    assert found == (rows - 20 if rows else 0)


@pytest.mark.parametrize("swapped", [True, False])
def test_networks_of_double_q_learning_that_exchanged_their_parts_are_named(swapped):
    judge, chooser = ("online", "target") if swapped else ("target", "online")
    explanation = SimpleNamespace(
        future=f"{judge} at the largest of {chooser}", networks=(judge, chooser), steps=1, soft="", gamma=0.9, temperature=0.0,
        reward_scale=1.0, terminal=Counter(), cut=Counter(), inner=Counter(), error=1e-7,
    )  # fmt: skip
    matched = [SimpleNamespace(explanations=[explanation], module="online") for _ in range(12)]
    view = SimpleNamespace(
        followers=[SimpleNamespace(name="target", met=SimpleNamespace(leader="online"))], notes={"targets": []}
    )
    told = []
    BootstrapRecomputed()._wrong_networks(view, matched, [explanation.future], lambda *words: told.append(words))
    assert bool(told) == swapped
    assert not told or "exchanged" in told[0][1]
