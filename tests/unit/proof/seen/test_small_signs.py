"""Pieces of checks of a watched loop, each on numbers made by hand: what is refused, and its healthy twin."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import made_loss

from learnproof.proof.watched.dependence import TOLD_APART, _shown, _told_apart
from learnproof.proof.watched.returns import one_number_for_both
from learnproof.proof.watched.temperature import TemperatureApart, _target_entropies, averaged_log_probs

generator = np.random.default_rng(0)


def transitions(steps, copies, streams=1):
    time = np.repeat(np.arange(1, steps + 1), copies)
    return {
        "time": time,
        "copy": np.tile(np.arange(copies), steps),
        "stream": np.arange(len(time)) % streams,
        "observation": np.arange(1, steps * copies + 1).astype(np.uint64),
        "resets": np.zeros(steps * copies, bool),
    }


@pytest.mark.parametrize(("copies", "streams"), [(1, 1), (4, 1)])
def test_answers_to_different_observations_are_counted(copies, streams):
    shown = _shown(transitions(40, copies, streams), "")
    time = np.repeat(np.arange(40), copies)
    fine = generator.standard_normal((len(time), 2)).astype(np.float32)
    coarse = np.zeros_like(fine)
    coarse[:, 0] = np.arange(len(time)) % 3
    assert _told_apart(shown, time, fine) == 1
    assert _told_apart(shown, time, coarse) < TOLD_APART


def test_environments_of_one_copy_each_are_told_apart_by_their_turn():
    arrays = transitions(40, 1, streams=4)
    time = np.repeat(np.arange(0, 40, 4), 4)  # one call for all four, then four steps
    answers = generator.standard_normal((40, 2)).astype(np.float32)
    assert _told_apart(_shown(arrays, ""), time, answers) == 1


def loss_with(weight, target, predicted):
    policy = SimpleNamespace(weight=weight)
    regression = SimpleNamespace(target=target, prediction=predicted)
    return SimpleNamespace(policies=[policy], regressions=[regression])


def test_a_value_that_is_fitted_to_the_weights_of_the_policy_is_known():
    returns, predicted = generator.standard_normal(64), 0.5 * generator.standard_normal(64)
    advantage = returns - predicted
    normalised = (advantage - advantage.mean()) / advantage.std()
    assert one_number_for_both(loss_with(normalised / 64, normalised, predicted))
    assert not one_number_for_both(loss_with(normalised / 64, returns, predicted))
    # a critic that still says nothing: returns and advantages are the same numbers, in health
    assert not one_number_for_both(loss_with(returns - returns.mean(), returns, np.full(64, 1e-6)))


@pytest.mark.parametrize("target", [-2.0, 2.0])
def test_the_target_entropy_is_read_from_the_temperatures_loss(target):
    drawn = generator.standard_normal((128, 2))
    value = -0.5 * drawn**2 - 0.919
    log_prob = value.sum(1) - np.log1p(1e-6 - np.tanh(drawn) ** 2).sum(1)
    policy = SimpleNamespace(even=True, action=drawn.astype(np.float32), value=value.astype(np.float32))
    actor = SimpleNamespace(update=6, policies=[policy])
    temperature = made_loss({"k0": (log_prob + target).astype(np.float32)[:, None]}, update=7)
    found = _target_entropies(SimpleNamespace(training_losses=[actor]), [temperature])
    assert found == [(pytest.approx(target, abs=1e-3), pytest.approx(2 * np.log(2)))]


@pytest.mark.parametrize(("sign", "status"), [(-1.0, "pass"), (1.0, "fail")])
@pytest.mark.parametrize("written", [1.0, -1.0], ids=["log_prob + target", "-log_prob - target"])
def test_a_temperature_that_goes_the_wrong_way_is_named(sign, status, written):
    own, losses = frozenset({"log_alpha"}), []
    for update in range(0, 12, 2):
        drawn = (0.5 + 0.1 * update) * generator.standard_normal((128, 2))
        value = -0.5 * drawn**2 - 0.919
        weight = (value - np.log1p(1e-6 - np.tanh(drawn) ** 2)).sum(1) - 2.0
        policy = SimpleNamespace(even=True, action=drawn.astype(np.float32), value=value.astype(np.float32))
        losses.append(SimpleNamespace(update=update, policies=[policy], reach=frozenset({"actor.weight"}), arrays={}))
        term = {"structure": ["MulBackward0", "ExpBackward0"], "reach": 0}
        temperature = made_loss(
            {"k0": (written * weight).astype(np.float32)[:, None]},
            update + 1,
            value=sign * 0.3 * float(weight.mean()),
            terms=[term],
        )
        temperature.reach = own
        losses.append(temperature)
    view = SimpleNamespace(
        training_losses=losses, owned={0: {"log_alpha"}}, optimizers={0: SimpleNamespace(n_owned=1)}, steps=[],
        notes={"actor_losses": []},
    )  # fmt: skip
    found = TemperatureApart().look(view)
    assert found.status == status, found.summary


@pytest.mark.parametrize(("dimensions", "averaged", "told"), [(3, True, 6), (3, False, 0), (1, True, 0)])
def test_log_probabilities_averaged_over_an_actions_dimensions_are_told_from_summed_ones(dimensions, averaged, told):
    own = frozenset({"log_alpha"})
    losses = []
    for update in range(0, 12, 2):
        drawn = generator.standard_normal((128, dimensions))
        value = -0.5 * drawn**2 - 0.919
        each = value - np.log1p(1e-6 - np.tanh(drawn) ** 2)
        used = each.mean(1) if averaged else each.sum(1)
        policy = SimpleNamespace(even=True, action=drawn.astype(np.float32), value=value.astype(np.float32))
        losses.append(SimpleNamespace(update=update, policies=[policy], reach=frozenset({"actor.weight"}), arrays={}))
        temperature = made_loss({"k0": -(used - dimensions).astype(np.float32)[:, None]}, update=update + 1)
        temperature.reach = own
        losses.append(temperature)
    view = SimpleNamespace(training_losses=losses, owned={0: {"log_alpha"}}, optimizers={0: SimpleNamespace(n_owned=1)})
    assert averaged_log_probs(view) == told


@pytest.mark.parametrize(("detached", "status"), [(True, "pass"), (False, "fail")])
def test_a_temperature_trained_in_one_pass_with_the_actor_is_judged_by_its_term(detached, status):
    own, actor, critic = frozenset({"log_alpha"}), frozenset({"actor.weight"}), frozenset({"q.weight"})
    terms = [actor, actor | critic, own if detached else own | actor]
    loss = SimpleNamespace(reach=own | actor | critic, term_reach=terms)
    view = SimpleNamespace(
        training_losses=[loss] * 6,
        notes={"actor_losses": [(loss, -1.0)]},
        owned={0: {"log_alpha"}, 1: {"actor.weight"}, 2: {"q.weight"}},
        optimizers=dict.fromkeys(range(3), SimpleNamespace(n_owned=1)),
    )
    view.owned[1].add("actor.bias")
    view.owned[2].add("q.bias")
    if detached:
        loss.arrays, loss.update, loss.policies = {}, 0, []
    assert TemperatureApart().look(view).status == status
