"""Errors that are clamped before they are squared, and losses that look alike and are healthy."""

import numpy as np
import pytest
from made_losses import made_loss, made_view

from learnproof.proof.watched.direction import ValueDirection

SUB, CLAMP, POW = "SubBackward0", "ClampBackward1", "PowBackward0"


def judged(structure: list[str], without: float):
    """Losses of such a form, in which a share of the rows gets no gradient."""
    losses = []
    for update in range(12):
        gradient = np.random.default_rng(update).normal(size=(50, 2)).astype(np.float32)
        gradient[: round(50 * without)] = 0
        term = {"structure": structure, "coefficient": 1.0, "reach": 0}
        losses.append(made_loss({"c0.gradient": gradient}, update, terms=[term], calls=[{"module": "q"}]))
    view = made_view(losses)
    check = ValueDirection()
    return "" if check.lacks(view) else check.look(view).status


def test_the_largest_errors_without_a_gradient_are_named():
    assert judged([POW, CLAMP, SUB], 0.2) == "fail"


@pytest.mark.parametrize(
    ("structure", "without"),
    [
        ([POW, CLAMP, SUB], 0.0),  # a clamp that never acts
        ([POW, SUB, "AddBackward0", CLAMP], 0.2),  # a clipped value of PPO
        (["SmoothL1LossBackward0", SUB], 0.2),
    ],
)
def test_other_losses_are_no_fault(structure, without):
    assert judged(structure, without) != "fail"
