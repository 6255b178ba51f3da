"""Predictions and their targets: rows of one number, rows of which one number counts, and losses with an arm of the wrong slope."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import made_loss

from learnproof.proof.watched.direction import ValueDirection

ROWS, ACTIONS = 32, 3


def whole_rows(update: int):
    """Predictions of all actions, drawn to copies of themselves with another number at the action taken."""
    rng = np.random.default_rng(update)
    predicted = rng.normal(size=(ROWS, ACTIONS)).astype(np.float32)
    wanted, taken = predicted.copy(), rng.integers(ACTIONS, size=ROWS)
    wanted[np.arange(ROWS), taken] = rng.normal(size=ROWS)
    arrays = {"k0": wanted, "k0.partner": predicted, "c0.output": predicted, "c0.gradient": predicted - wanted}
    arrays["c0.rows"] = rng.integers(1, 2**60, ROWS).astype(np.uint64)
    about = {"constants": [{"role": "target", "calls": [0], "terms": [0]}]}
    return (
        made_loss(arrays, update, calls=[{"module": "q", "shape": [ROWS, ACTIONS]}], n_terms=1, **about),
        wanted,
        taken,
    )


def test_of_whole_rows_the_number_that_was_put_in_is_the_target():
    loss, wanted, taken = whole_rows(0)
    (regression,) = loss.regressions
    assert np.allclose(regression.target, wanted[np.arange(ROWS), taken])
    assert regression.gradient is not None
    assert np.allclose(regression.gradient, regression.prediction - regression.target, atol=1e-6)


def view(losses):
    return SimpleNamespace(training_losses=losses, steps=[])


def test_whole_rows_move_toward_their_targets():
    assert ValueDirection().look(view([whole_rows(update)[0] for update in range(8)])).status == "pass"


def single(update: int, slope):
    rng = np.random.default_rng(update)
    predicted, wanted = rng.normal(size=(2, ROWS)) * 3
    off = predicted - wanted
    arrays = {"k0": wanted, "k0.partner": predicted, "c0.output": predicted, "c0.gradient": slope(off) / ROWS}
    about = {"constants": [{"role": "target", "calls": [0], "terms": [0]}]}
    return made_loss(arrays, update, calls=[{"module": "v", "shape": [ROWS]}], n_terms=1, **about)


@pytest.mark.parametrize(
    ("slope", "status"),
    [
        (lambda off: off, "pass"),
        (lambda off: np.clip(off, -1, 1), "pass"),
        (lambda off: np.sign(off) * (np.arange(ROWS) % 3), "pass"),
        (lambda off: np.where(off > 0, 0.9, 0.1) * off, "pass"),
        (lambda off: np.where(np.abs(off) < 1, off, -1.0), "fail"),
        (lambda off: np.full(ROWS, -1.0), "fail"),
    ],
    ids=["squares", "huber", "weighed", "expectile", "an arm without its absolute value", "a straight line"],
)
def test_a_loss_must_fall_toward_the_target_on_both_sides(slope, status):
    found = ValueDirection().look(view([single(update, slope) for update in range(8)]))
    assert found.status == status, found.summary
