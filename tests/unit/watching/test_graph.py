"""What is read off a loss's graph: terms with their signs, constants, broadcasts, reached parameters."""

import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

from learnproof.watching import graph, nodes


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def read(loss):
    return graph.read(torch, [loss.grad_fn])


def coefficients(reading):
    return [round(term.coefficient, 6) for term in reading.terms]


def constants(reading, role):
    return [constant for constant in reading.constants if constant.role == role]


def ppo_loss(network, *, entropy_sign=-1.0):
    observation, action = torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 1, 0])
    policy = Categorical(logits=network(observation))
    log_prob = policy.log_prob(action)
    old = log_prob.detach() - 0.1
    ratio = (log_prob - old).exp()
    advantage = torch.randn(6)
    value, target = network(observation)[:, 0], torch.randn(6)
    surrogate = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()
    value_loss = 0.5 * ((value - target) ** 2).mean()
    loss = surrogate + entropy_sign * 0.01 * policy.entropy().mean() + 0.5 * value_loss
    return loss, advantage, value, target


def test_terms_of_ppo_have_their_signs_and_coefficients(network):
    loss, *_ = ppo_loss(network)
    reading = read(loss)
    assert sorted(coefficients(reading)) == [0.01, 0.25, 1.0]  # entropy is -sum p log p: a bonus of 0.01 shows as +0.01
    flipped, *_ = ppo_loss(network, entropy_sign=1.0)
    assert -0.01 in coefficients(read(flipped))


def test_terms_sum_up_to_the_loss_for_plain_sums(network):
    outputs = network(torch.randn(4, 3))
    a, b = outputs[:, 0].mean(), outputs[:, 1].sum()
    assert sorted(coefficients(read(3 * a - b / 4))) == [-0.25, 3.0]
    assert coefficients(read(-(a - 2 * a))) in ([1.0], [-1.0, 2.0], [2.0, -1.0])


def test_the_constants_are_the_tensors_that_the_loss_was_given(network):
    loss, advantage, value, target = ppo_loss(network)
    reading = read(loss)
    weights = [constant.value for constant in constants(reading, "weight")]
    assert any(torch.allclose(w, -advantage) for w in weights)
    (difference,) = constants(reading, "difference")
    assert difference.sign == 1
    assert torch.allclose(value.detach() - difference.value, target, atol=1e-6)
    (ratio,) = constants(reading, "ratio")
    assert torch.allclose(ratio.value, torch.full((6,), 0.1).exp())
    assert [pytest.approx(0.8), pytest.approx(1.2)] in reading.clips  # entropy clamps its logits too


@pytest.mark.parametrize("masked_after", ["multiplied", "filled"])
def test_a_ratio_is_read_through_a_mask(network, masked_after):
    log_prob = Categorical(logits=network(torch.randn(6, 3))).log_prob(torch.tensor([0, 1, 0, 1, 1, 0]))
    mask = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    apart = log_prob - (log_prob.detach() - 0.1)
    apart = apart * mask if masked_after == "multiplied" else apart.masked_fill(mask == 0, 0.0)
    (ratio,) = constants(read((apart.exp() * torch.randn(6)).mean()), "ratio")
    assert torch.allclose(ratio.value, (0.1 * mask).exp())


@pytest.mark.parametrize("swapped", [False, True])
def test_a_regression_tells_prediction_from_target(network, swapped):
    prediction, target = network(torch.randn(5, 3))[:, 0], torch.randn(5)
    loss = F.mse_loss(target, prediction) if swapped else F.smooth_l1_loss(prediction, target)
    (constant,) = constants(read(loss), "target")
    assert torch.equal(constant.value, target)
    assert torch.equal(constant.partner, prediction.detach())


def test_a_target_with_a_gradient_is_noted(network):
    outputs = network(torch.randn(5, 3))
    assert read(F.mse_loss(outputs[:, 0], outputs[:, 1])).both_sides[0].name() == "MseLossBackward0"
    assert read(F.mse_loss(outputs[:, 0], outputs[:, 1].detach())).both_sides == []


def test_n_against_n_by_1_is_a_broadcast_and_matching_shapes_are_none(network):
    value, target = network(torch.randn(5, 3))[:, :1], torch.randn(5)
    with pytest.warns(UserWarning, match="target size"):
        assert read(F.mse_loss(value, target)).broadcasts
    assert read(((value - target) ** 2).mean()).broadcasts[0]["shape"] == [5, 5]
    assert not read(((value.squeeze(1) - target) ** 2).mean()).broadcasts
    assert not read((value @ value.T).mean()).broadcasts  # a square result alone is no broadcast


def test_the_mean_of_a_sum_that_became_square_is_that_of_both_and_no_broadcast(network):
    row, column = network(torch.randn(5, 3))[:, 0], network(torch.randn(5, 3))[:, :1]
    assert not read((0.2 * row - column).mean()).broadcasts
    assert not read(-(0.2 * row - column).mean() + row.mean()).broadcasts
    assert read((0.2 * row - column).sum()).broadcasts  # five times the gradient
    assert read((row * column).mean()).broadcasts
    assert read(((row - column) * torch.randn(5)).mean()).broadcasts
    assert read((row - column).abs().mean()).broadcasts


def test_all_columns_for_every_row_is_one_too(network):
    values, actions, rows = network(torch.randn(5, 3)), torch.tensor([0, 1, 1, 0, 1]), torch.arange(5)
    assert read(((values[:, actions] - torch.randn(5)) ** 2).mean()).broadcasts[0]["shape"] == [5, 5]
    assert not read(((values[rows, actions] - torch.randn(5)) ** 2).mean()).broadcasts
    assert not read((values[:, torch.tensor([0, 1])] ** 2).mean()).broadcasts


def test_weights_of_rows_that_were_averaged_before_are_noted(network):
    value, target, weights = network(torch.randn(5, 3))[:, 0], torch.randn(5), torch.rand(5)
    for one_number in (F.huber_loss(value, target), ((value - target) ** 2).mean(), -((value - target) ** 2).sum()):
        assert read((weights * one_number).mean()).broadcasts == [{"node": "MulBackward0", "shape": [5], "operand": []}]
    assert not read((weights * F.huber_loss(value, target, reduction="none")).mean()).broadcasts
    assert not read(0.5 * F.huber_loss(value, target)).broadcasts
    assert not read((torch.rand(3) * F.huber_loss(value, target)).sum()).broadcasts  # not as many as there are rows


def test_numbers_picked_down_the_batch_are_noted(network):
    values, actions = network(torch.randn(8, 3)), torch.randint(2, (8, 1))
    assert read(values.gather(0, actions).sum()).broadcasts[0]["node"] == "GatherBackward0"
    assert not read(values.gather(1, actions).sum()).broadcasts
    order = torch.randperm(8)[:, None]
    assert not read(values.gather(0, order).sum()).broadcasts  # rows in another order


def test_a_term_without_gradient_that_is_added_row_by_row_is_counted(network):
    values, aside = network(torch.randn(5, 3))[:, 0], torch.rand(5)
    assert len(read((values**2 + aside).mean()).added) == 1
    assert read((values**2).mean() + aside.mean()).added == []
    assert read((values**2 + values).mean()).added == []
    assert read(((values - aside) ** 2).mean()).added == []  # a target, not a term


def test_a_mean_error_that_is_squared_is_noted(network):
    value, target = network(torch.randn(5, 3))[:, 0], torch.randn(5)
    assert read((target - value).mean() ** 2).means_squared == 1
    assert read(((target - value) ** 2).mean()).means_squared == 0
    assert read((value.mean() - 0.5) ** 2).means_squared == 0  # a mean that is drawn to a number


def test_a_ratio_to_itself_is_noted(network):
    log_prob = network(torch.randn(5, 3)).log_softmax(-1)[:, 0]
    assert read((log_prob - log_prob).exp().mean()).ratios_to_themselves == 1
    assert read((log_prob - log_prob.detach()).exp().mean()).ratios_to_themselves == 0
    assert read((log_prob[:4] - log_prob[1:]).exp().mean()).ratios_to_themselves == 0


def test_the_parameters_reached_are_those_with_a_gradient(network):
    frozen = nn.Linear(3, 3)
    frozen.requires_grad_(False)
    reading = read(network(frozen(torch.randn(2, 3))).sum())
    assert {id(p) for p in reading.parameters} == {id(p) for p in network.parameters()}


def test_log_probabilities_by_gather_are_found(network):
    index = torch.tensor([[0], [1]])
    loss = -torch.log_softmax(network(torch.randn(2, 3)), 1).gather(1, index).mean()
    reading = read(loss)
    assert len(reading.gathers) == 1
    assert torch.equal(constants(reading, "index")[0].value, index)


def test_reading_leaves_the_gradients_as_they_would_be(network):
    loss, *_ = ppo_loss(network)
    expected = torch.autograd.grad(loss, list(network.parameters()), retain_graph=True)
    read(loss)
    loss.backward()
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        assert torch.equal(parameter.grad, gradient)


def test_a_huge_graph_is_cut_off_and_says_so(network, monkeypatch):
    monkeypatch.setattr(graph, "NODES_WALKED", 50)
    x = network(torch.randn(2, 3)).sum()
    for _ in range(200):
        x = x * 1.001
    assert read(x).truncated


def test_a_reading_that_has_let_go_keeps_no_weight_and_still_knows_its_nodes():
    weight = torch.ones(3, requires_grad=True)
    output = weight * 2
    number = nodes.number_of(output.grad_fn)
    reading = read(F.mse_loss(output, torch.zeros(3)))
    alive = weakref.ref(weight)
    reading.let_go()
    del weight, output
    assert alive() is None
    assert number in reading.terms[0].members
    assert number in reading.constants[0].near


@pytest.mark.parametrize("loss_of", [F.huber_loss, F.smooth_l1_loss, F.mse_loss])
def test_an_error_that_is_drawn_to_zeros_is_a_difference(network, loss_of):
    prediction, target = network(torch.randn(6, 3))[:, 0], torch.randn(6)
    error = prediction - target
    reading = read(loss_of(error, torch.zeros_like(error)))
    assert not constants(reading, "target")
    assert torch.equal(constants(reading, "difference")[0].value, error.detach())
    drawn_to_zero = read(loss_of(prediction, torch.zeros(6)))
    assert torch.equal(constants(drawn_to_zero, "target")[0].value, torch.zeros(6))
