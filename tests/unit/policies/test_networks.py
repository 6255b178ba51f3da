"""The derivative written out in networks.py is the one that autograd finds."""

import itertools

import numpy as np
import pytest
import torch

from learnproof.config import PolicySettings
from learnproof.policies.flat import FlatParameters
from learnproof.policies.heads import BernoulliHead, BetaHead, CategoricalHead, GaussianHead, ProductHead
from learnproof.policies.networks import ActorCritic

ROWS, SIZE = 7, 5
HEADS = {
    "categorical": (lambda: CategoricalHead([3, 2]), torch.tensor([[2.0, 0.0]] * ROWS)),
    "bernoulli": (lambda: BernoulliHead(np.zeros(2), np.ones(2)), torch.tensor([[1.0, 0.0]] * ROWS)),
    "gaussian": (lambda: GaussianHead(2, -0.3), torch.linspace(-1, 1, 2 * ROWS).view(ROWS, 2)),
    "beta": (lambda: BetaHead(np.zeros(2), np.ones(2)), torch.linspace(0.1, 0.9, 2 * ROWS).view(ROWS, 2)),
    "product": (
        lambda: ProductHead([(GaussianHead(1, 0.2), [0]), (CategoricalHead([4]), [1])]),
        torch.tensor([[0.3, 3.0]] * ROWS),
    ),
}
SHAPES = list(itertools.product(("relu", "tanh"), (False, True), (False, True)))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(("activation", "layer_norm", "shared_trunk"), SHAPES)
def test_backward_equals_autograd(head, activation, layer_norm, shared_trunk):
    make, action = HEADS[head]
    noise = torch.Generator().manual_seed(3)
    settings = PolicySettings(hidden=(6, 4), activation=activation, layer_norm=layer_norm, shared_trunk=shared_trunk)
    network = ActorCritic(SIZE, make(), settings, noise)
    flat = FlatParameters(network)
    with torch.no_grad():  # away from the start, where a near-zero last layer would hide a mistake behind it
        flat.vector += 0.3 * torch.randn(flat.vector.shape, generator=noise)
    observation = torch.randn((ROWS, SIZE), generator=noise)
    to_log_prob, to_entropy, to_value = torch.randn((3, ROWS), generator=noise)

    log_prob, entropy, value = network(observation, action)
    flat.gradient.zero_()
    (log_prob * to_log_prob + entropy * to_entropy + value * to_value).sum().backward()
    expected = flat.gradient.clone()

    flat.gradient.fill_(float("nan"))  # whatever was there is written over
    outputs = network.keeping(observation)
    said = network.head.log_prob_and_entropy(outputs.params, action)
    network.backward(outputs, *said, to_log_prob, to_entropy, to_value)

    torch.testing.assert_close(outputs.value, value.detach())
    torch.testing.assert_close(said[0].detach(), log_prob.detach())
    torch.testing.assert_close(flat.gradient, expected, rtol=1e-4, atol=1e-6)
    for stretch in flat.stretches:
        assert expected[stretch.start : stretch.stop].abs().max() > 0, stretch.name


def test_observations_get_no_gradient_and_no_graph_is_kept():
    network = ActorCritic(SIZE, CategoricalHead([3]), PolicySettings(hidden=(4,)), torch.Generator().manual_seed(0))
    outputs = network.keeping(torch.randn(2, SIZE))
    assert outputs.params.is_leaf
    assert not outputs.value.requires_grad
