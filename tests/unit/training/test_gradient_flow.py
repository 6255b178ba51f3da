"""One look at one loss names what is dead in it and leaves the model's gradients alone."""

import torch
from torch import nn

import learnproof


class TwoBranches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.alive = nn.Linear(3, 1)
        self.dead = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.alive(x)


def test_a_dead_branch_is_named_and_the_living_one_is_not():
    model = TwoBranches()
    flow = learnproof.gradient_flow(model(torch.ones(4, 3)).sum(), model)
    assert not flow.healthy
    assert flow.problems == ["dead.weight: no gradient", "dead.bias: no gradient"]
    by_name = {part.name: part for part in flow.parameters}
    assert by_name["alive.weight"].norm > 0
    assert by_name["dead.weight"].norm is None


def test_a_sound_loss_has_no_problems_and_gradients_stay_as_they_were():
    model = nn.Linear(3, 1)
    loss = model(torch.ones(4, 3)).pow(2).mean()
    flow = learnproof.gradient_flow(loss, model)
    assert flow.healthy
    assert model.weight.grad is None
    loss.backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    assert abs(flow.total_norm - float(expected)) < 1e-5


def test_a_branch_multiplied_by_zero_nan_inf_and_explosion_are_told_apart():
    def problem(factor: float) -> str | None:
        model = nn.Linear(2, 1, bias=False)
        return learnproof.gradient_flow((model(torch.ones(1, 2)) * factor).sum(), model).parameters[0].problem

    assert problem(0.0) == "zero gradient"
    assert problem(float("nan")) == "NaN"
    assert problem(float("inf")) == "Inf"
    assert problem(1e4) == "exploding"
    assert problem(1.0) is None


def test_a_loss_without_a_graph_is_said_to_be_one():
    model = nn.Linear(2, 1)
    flow = learnproof.gradient_flow(torch.tensor(model(torch.ones(1, 2)).item()), model)
    assert flow.problems == ["the loss has no graph: it was detached, rebuilt, or computed under no_grad"]
