"""The compiled kernels give the losses, gradients and weights that autograd and torch's Adam give, whatever the shapes and settings."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from same_numbers import KINDS, flat_gradient, flat_weights, make_case, shapes

from learnproof.algorithms.experience import normalised
from learnproof.compiled.acting import said_of
from learnproof.compiled.adam import Stride
from learnproof.compiled.descending import Pace, descend, differentiate
from learnproof.compiled.network import make_room, make_told
from learnproof.compiled.objectives import Goal

goals = st.builds(
    Goal,
    clipped=st.booleans(),
    clip_range=st.sampled_from((0.05, 0.2)),
    clip_range_value=st.sampled_from((float("inf"), 0.2)),
    value_coefficient=st.sampled_from((0.0, 0.5, 1.0)),
    entropy_coefficient=st.sampled_from((0.0, 0.01, 0.3)),
)


def loss_of(network, rows, goal, normalise):
    """As the two papers write it, for autograd."""
    log_prob, entropy, value = network(rows["observation"], rows["action"])
    advantage = normalised(rows["advantage"], len(value)) if normalise else rows["advantage"]
    weight = rows["weight"] if len(rows["weight"]) else torch.ones_like(value)
    ratio = (log_prob - rows["old_log_prob"]).exp()
    clipped = ratio.clamp(1 - goal.clip_range, 1 + goal.clip_range)
    gained = torch.min(advantage * ratio, advantage * clipped) if goal.clipped else advantage * log_prob
    moved = (value - rows["value"]).clamp(-goal.clip_range_value, goal.clip_range_value)
    error = rows["value"] + moved - rows["target"]
    policy_loss, value_loss = -(weight * gained).mean(), error.square().mean()
    loss = policy_loss + goal.value_coefficient * value_loss - goal.entropy_coefficient * entropy.mean()
    kl = (ratio - 1 - (log_prob - rows["old_log_prob"])).mean()
    share = (clipped != ratio).to(value.dtype).mean() if goal.clipped else torch.zeros(())
    return loss, [float(figure) for figure in (policy_loss, value_loss, entropy.mean(), kl, share)]


def relative(got, wanted):
    return np.linalg.norm(got - wanted) / max(np.linalg.norm(wanted), 1e-6)


@settings(max_examples=60, deadline=None)
@given(shape=shapes, goal=goals, normalise=st.booleans())
def test_losses_and_gradients_are_autograds(shape, goal, normalise):
    case = make_case(**shape)
    rows = len(case.rows.value)
    loss, figures = loss_of(case.network, case.tensors, goal, normalise)
    loss.backward()

    sums, told = np.zeros(5), make_told(case.net, rows)
    differentiate(case.net, case.rows, np.arange(rows), goal, normalise, make_room(case.net, rows), told, sums)

    assert relative(case.net.gradient, flat_gradient(case.network)) < 1e-5
    np.testing.assert_allclose(sums / rows, figures, rtol=1e-4, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(shape=shapes, goal=goals, normalise=st.booleans(), size=st.integers(2, 17), limit=st.sampled_from((0.1, 1e9)))
def test_ten_updates_in_float64_give_the_weights_that_torch_gives(shape, goal, normalise, size, limit):
    case = make_case(**shape, real=torch.float64)
    rows = len(case.rows.value)
    generator = np.random.default_rng(shape["seed"])
    size = min(size, rows)
    per_pass = -(-rows // size)
    orders = np.stack([generator.permutation(rows) for _ in range(-(-10 // per_pass))])
    norms, sums = np.zeros((len(orders), per_pass)), np.zeros((len(orders), 5))
    optimizer = torch.optim.Adam(case.network.parameters(), lr=1e-2, eps=1e-5)
    room, told = make_room(case.net, size), make_told(case.net, size)
    cut = generator.integers(0, 11)
    for first, last in ((0, cut), (cut, 10)):  # a call may go on in the middle of a pass
        pace = Pace(size, normalise, Stride(1e-2, 1e-5, limit), first)
        scale = descend(case.net, case.moments, case.rows, orders, first, last, goal, pace, room, told, sums, norms)
    for number in range(10):
        epoch, minibatch = divmod(number, per_pass)
        picked = torch.from_numpy(orders[epoch, minibatch * size : (minibatch + 1) * size])
        own = {name: t[picked] if len(t) else t for name, t in case.tensors.items()}
        optimizer.zero_grad()
        loss_of(case.network, own, goal, normalise)[0].backward()
        norm = float(torch.nn.utils.clip_grad_norm_(case.network.parameters(), limit))
        assert norms[epoch, minibatch] == pytest.approx(norm, rel=1e-6, abs=1e-9)
        optimizer.step()
    if cut < 10:
        assert scale == pytest.approx(min(1.0, limit / (norm + 1e-6)))
    np.testing.assert_allclose(case.net.vector, flat_weights(case.network), rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_what_the_network_says_of_rows_is_the_same_for_any_number_of_them(kind, activation):
    case = make_case(4, (7, 5), activation, [kind], False, 50, False, 3)
    with torch.no_grad():
        log_prob, _, value = case.network(case.tensors["observation"], case.tensors["action"])
    for at_once in (1, 16, 64):
        got, values = said_of(case.net, case.rows.observation, case.rows.action, make_room(case.net, at_once))
        np.testing.assert_allclose(got, log_prob.numpy(), atol=1e-5)
        np.testing.assert_allclose(values, value.numpy(), atol=1e-5)


def test_a_gradient_that_is_not_finite_stops_before_the_weights():
    case = make_case(3, (8,), "relu", ["choice"], False, 30, False, 0)
    case.rows.target[17] = np.nan
    before, orders, norms = case.net.vector.copy(), np.arange(30)[None], np.zeros((1, 3))
    pace = Pace(10, True, Stride(1e-2, 1e-5, 0.5), 0)
    room, told = make_room(case.net, 10), make_told(case.net, 10)
    goal = Goal(True, 0.2, float("inf"), 0.5, 0.01)
    sums = np.zeros((1, 5))
    scale = descend(case.net, case.moments, case.rows, orders, 0, 3, goal, pace, room, told, sums, norms)
    assert np.isnan(scale)
    assert np.isfinite(norms[0, 0])
    assert not np.isfinite(norms[0, 1])
    assert np.isfinite(case.net.vector).all()
    assert not np.array_equal(case.net.vector, before), "the step before it was taken"
