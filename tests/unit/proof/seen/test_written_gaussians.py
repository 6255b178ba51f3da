"""A Gaussian that is written out has a squared distance in it, and is no value that is drawn to a target."""

import numpy as np
import pytest
from made_losses import made_loss, made_view

from learnproof.proof.watched.direction import ValueDirection

ROWS = 64


def loss(update: int, weight: np.ndarray, pushed: np.ndarray):
    """weight * (prediction - y)^2, where `pushed` says how much of that each row's gradient is."""
    rng = np.random.default_rng(update)
    prediction, y = rng.normal(size=(2, ROWS, 1)).astype(np.float32)
    gradient = (2 * (prediction - y) * pushed[:, None] / ROWS).astype(np.float32)
    return made_loss(
        {"c0.output": prediction, "c0.gradient": gradient, "c0.rows": np.arange(ROWS, dtype=np.uint64) + 1000 * update,
         "k0": prediction - y, "k1": weight.astype(np.float32)},
        update,
        calls=[{"module": "net", "shape": [ROWS, 1], "terms": [0]}],
        terms=[{"coefficient": 1.0, "structure": ["MulBackward0", "SumBackward1", "PowBackward0"]}], n_terms=1,
        constants=[
            {"role": "difference", "sign": 1, "beside": "AddmmBackward0", "terms": [0], "calls": [0]},
            {"role": "weight", "sign": 1, "beside": "SumBackward1", "terms": [0], "calls": [0]},
        ],
        transitions_of=None,
    )  # fmt: skip


def view(weigh):
    losses = []
    for update in range(12):
        weight = weigh(np.random.default_rng(100 + update))
        losses.append(loss(update, weight, weight))
    return made_view(losses)


def test_weights_of_both_signs_are_advantages():
    there = view(lambda rng: rng.normal(size=ROWS))
    assert all(not each.regressions for each in there.training_losses)
    assert ValueDirection().lacks(there)


@pytest.mark.parametrize("sign", [1, -1])
def test_importance_weights_of_errors_are_still_read(sign):
    there = view(lambda rng: sign * rng.uniform(0.1, 1.0, ROWS))
    assert all(each.regressions for each in there.training_losses)
    assert ValueDirection().look(there).status == ("pass" if sign > 0 else "fail")
