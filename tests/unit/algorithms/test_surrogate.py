"""The derivative in surrogate.py is that of its loss, and the loss is PPO's."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learnproof.algorithms.surrogate import Asked, Said, derivative, figures
from learnproof.config import PPOSettings

number = st.floats(-3, 3, width=32, allow_subnormal=False)  # training flushes them, and may have run in this process


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(number, number, number, number, number, number, number), min_size=1, max_size=12),
    clip_range=st.sampled_from([0.1, 0.2, 0.5]),
    clip_range_value=st.sampled_from([None, 0.2, 1.0]),
    weighed=st.booleans(),
)
def test_derivative_equals_autograd(rows, clip_range, clip_range_value, weighed):
    ppo = PPOSettings(clip_range=clip_range, clip_range_value=clip_range_value, entropy_coefficient=0.03)
    columns = torch.tensor(rows, dtype=torch.float64).T
    said = Said(*(column.clone().requires_grad_() for column in columns[:3]))
    weight = torch.linspace(0.1, 1, len(rows), dtype=torch.float64) if weighed else None
    asked = Asked(*columns[3:], weight)
    ratio = (columns[0] - asked.old_log_prob).exp()
    moved = (columns[2] - asked.old_value).abs()
    on_an_edge = (
        (ratio - 1).abs() - clip_range
    ).abs() < 1e-6  # where the loss has a corner, any slope between is right
    if clip_range_value is not None:
        on_an_edge |= (moved - clip_range_value).abs() < 1e-6

    figures(said, asked, ppo).loss.backward()
    ours = derivative(Said(*columns[:3]), asked, ppo)

    for own, leaf in zip(ours, said, strict=True):
        torch.testing.assert_close(own[~on_an_edge], leaf.grad[~on_an_edge], rtol=1e-9, atol=1e-12)


def test_figures_by_hand():
    """Two rows: one whose ratio is clipped, one that is free."""
    said = Said(torch.tensor([math.log(1.5), math.log(0.9)]), torch.tensor([0.4, 0.6]), torch.tensor([1.0, 3.0]))
    asked = Asked(torch.zeros(2), torch.tensor([2.0, -1.0]), torch.tensor([0.0, 0.0]), torch.tensor([0.0, 1.0]))
    settings = PPOSettings(clip_range=0.2, value_coefficient=0.5, entropy_coefficient=0.1)
    got = figures(said, asked, settings)
    assert float(got.policy_loss) == pytest.approx(-(2.0 * 1.2 - 0.9) / 2)
    assert float(got.value_loss) == pytest.approx((1.0 + 4.0) / 2)
    assert float(got.entropy) == pytest.approx(0.5)
    assert float(got.loss) == pytest.approx(-0.75 + 0.5 * 2.5 - 0.1 * 0.5)
    assert float(got.clip_fraction) == pytest.approx(0.5)
    slope = derivative(said, asked, settings)
    assert slope.log_prob.tolist() == pytest.approx([0.0, 0.45])
    assert slope.value.tolist() == pytest.approx([0.5, 1.0])
    assert slope.entropy.tolist() == pytest.approx([-0.05, -0.05])
