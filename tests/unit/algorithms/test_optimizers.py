"""Our optimizers compute what their formulas say, and go on where a checkpoint left them."""

import pytest
import torch
from torch import nn

from learnproof.algorithms.optimizers import FlatAdam, load_optimizer_tensors, make_optimizer, optimizer_tensors
from learnproof.config import OptimizerSettings
from learnproof.policies.flat import FlatParameters


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def gradients(count, size):
    return torch.randn(count, size, generator=torch.Generator().manual_seed(1))


def test_the_straight_way_to_step_is_torchs_adam():
    flat = FlatParameters(network())
    ours = make_optimizer(flat, OptimizerSettings(), 1e-5)
    assert isinstance(ours, FlatAdam)
    vector = nn.Parameter(flat.vector.detach().clone())
    peer = torch.optim.Adam([vector], eps=1e-5, fused=True)
    for number, gradient in enumerate(gradients(7, len(vector))):
        flat.gradient.copy_(gradient)
        vector.grad = gradient.clone()
        ours.param_groups[0]["lr"] = peer.param_groups[0]["lr"] = 1e-2 / (number + 1)
        ours.advance()
        peer.step()
        assert torch.equal(flat.vector, vector)


@pytest.mark.parametrize("settings", [{}, {"kind": "adamw"}, {"kind": "muon"}, {"grokfast": 2.0}])
def test_an_optimizer_goes_on_where_its_tensors_were_taken(settings):
    weights, steps = [], gradients(8, FlatParameters(network()).vector.numel())
    for interrupted in (False, True):
        flat = FlatParameters(network())
        optimizer = make_optimizer(flat, OptimizerSettings(**settings), 1e-8)
        for number, gradient in enumerate(steps):
            if interrupted and number == 4:
                kept = {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer).items()}
                optimizer = make_optimizer(flat, OptimizerSettings(**settings), 1e-8)
                load_optimizer_tensors(optimizer, kept)
            for group in optimizer.param_groups:
                group["lr"] = 1e-2
            flat.gradient.copy_(gradient)
            optimizer.advance() if isinstance(optimizer, FlatAdam) else optimizer.step()
        weights.append(flat.vector.detach().clone())
    assert torch.equal(*weights)


def test_grokfast_hands_on_the_gradient_and_its_slow_part():
    flat = FlatParameters(network())
    optimizer = make_optimizer(flat, OptimizerSettings(grokfast=2.0, grokfast_alpha=0.9), 1e-8)
    slow = torch.zeros_like(flat.gradient)
    for gradient in gradients(3, flat.vector.numel()):
        flat.gradient.copy_(gradient)
        optimizer.step()
        slow = 0.9 * slow + 0.1 * gradient
        torch.testing.assert_close(flat.gradient, gradient + 2.0 * slow)
