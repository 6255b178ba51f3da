"""LBFGS with a closure, a subclass of Optimizer, a hand-written one, none, a sparse one; schedulers; groups added late."""

import torch
from little_training import network, problem, train, weights
from torch import nn

inputs, targets = problem()
evaluations = []


class Signs(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})
        self.cleared = 0

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad.sign(), alpha=-group["lr"])
        return "stepped"

    def zero_grad(self, set_to_none=True):
        self.cleared += 1
        super().zero_grad(set_to_none)


class ByHand:
    def __init__(self, parameters):
        self.parameters = list(parameters)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    def step(self):
        for parameter in self.parameters:
            parameter.data -= 0.1 * parameter.grad


def with_closure():
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=6, line_search_fn="strong_wolfe")

    def closure():
        evaluations.append(1)
        optimizer.zero_grad()
        loss = (model(inputs) - targets).pow(2).mean()
        loss.backward()
        return loss

    losses = [repr(optimizer.step(closure).item()) for _ in range(2)]
    return losses, len(evaluations), weights(model)


def signs():
    model = network()
    optimizer = Signs(model.parameters(), lr=0.01)
    last = train(model, optimizer, updates=2)
    return last, optimizer.step(), optimizer.cleared, weights(model)


def by_hand():
    model = network()
    return train(model, ByHand(model.parameters()), updates=30), weights(model)


def without():
    torch.manual_seed(0)
    weight = torch.zeros(4, 1, requires_grad=True)
    for _ in range(30):
        (gradient,) = torch.autograd.grad((inputs @ weight - targets).pow(2).mean(), weight)
        with torch.no_grad():
            weight -= 0.1 * gradient
    return weight.tolist()


def sparse():
    torch.manual_seed(0)
    table = nn.Embedding(12, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters())
    for step in range(2):
        optimizer.zero_grad()
        table(torch.tensor([step, step + 3])).pow(2).sum().backward()
        optimizer.step()
    return weights(table)


def scheduled():
    model, late = network(), nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01), capturable=False, foreach=False)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    optimizer.register_step_pre_hook(lambda *given: evaluations.append(2))
    train(model, optimizer, updates=2)
    optimizer.add_param_group({"params": late.parameters(), "lr": 0.5})
    for _ in range(2):
        optimizer.zero_grad()
        (model(inputs) + late(inputs) - targets).pow(2).mean().backward()
        optimizer.step()
        optimizer.step()
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(plain, 0.2, total_steps=8)
    for _ in range(4):
        train(model, plain, updates=1)
        schedule.step()
    return len(evaluations), schedule.get_last_lr(), scheduler.get_last_lr()[0].item(), weights(model), weights(late)


for attempt in (with_closure, signs, by_hand, without, sparse, scheduled):
    print(attempt.__name__, attempt())
