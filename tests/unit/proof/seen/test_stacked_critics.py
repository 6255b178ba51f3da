"""Several critics in one tensor, [critics, rows]: read one by one, told when they are the same, and asked by an actor."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import made_loss

from learnproof.proof.seen.futures import futures
from learnproof.proof.watched.actors import _asks_a_critic
from learnproof.proof.watched.bootstrap import _always_alike

ROWS = 32


def of_two_critics(alike: bool, update: int = 0):
    rng = np.random.default_rng(update)
    output = rng.normal(size=(2, ROWS)).astype(np.float32)
    if alike:
        output[1] = output[0]
    target = rng.normal(size=ROWS).astype(np.float32)
    arrays = {"c0.output": output, "c0.gradient": output - target, "c0.rows": np.arange(ROWS, dtype=np.uint64)}
    arrays |= {"n0.output": output + 1}
    for position in range(2):
        arrays |= {f"k{position}": target, f"k{position}.partner": output[position]}
    constants = [{"role": "target", "calls": [0], "terms": [position]} for position in range(2)]
    silent = [{"module": "target", "shape": [2, ROWS]}]
    calls = [{"module": "critics", "shape": [2, ROWS]}]
    return made_loss(arrays, update, constants=constants, calls=calls, silent=silent, n_terms=2)


def test_each_prediction_gets_its_own_gradient():
    loss = of_two_critics(alike=False)
    for regression in loss.regressions:
        assert regression.gradient is not None
        assert np.allclose(regression.gradient, regression.prediction - regression.target, atol=1e-6)
        assert regression.rows is not None


def test_the_smaller_of_both_is_among_what_the_future_may_be():
    loss = of_two_critics(alike=False)
    found = {how: numbers for how, _, numbers, _, _ in futures(loss, ROWS)}
    assert np.allclose(found["smaller of target[0] and target[1]"], loss.arrays["n0.output"].min(axis=0))


@pytest.mark.parametrize("alike", [True, False])
def test_critics_that_always_say_the_same_are_told(alike):
    losses = [of_two_critics(alike, update) for update in range(6)]
    assert _always_alike(SimpleNamespace(training_losses=losses)) == (6 if alike else 0, 6)


def test_a_critic_that_was_asked_with_detached_weights_was_asked():
    def loss(*modules):
        calls = [{"module": name} for name in modules]
        return SimpleNamespace(event=SimpleNamespace(calls=calls), reach=frozenset({"actor.0.weight"}))

    assert _asks_a_critic(loss("actor", "critics"), {"critics"})
    assert not _asks_a_critic(loss("actor"), {"critics"})
