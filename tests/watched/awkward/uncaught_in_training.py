"""Fails in the middle of training: where, its argument says. Nothing is caught."""

import sys

import torch
from little_training import network, problem
from torch import nn


class Fragile(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()
        self.calls = 0

    def forward(self, inputs):
        self.calls += 1
        if self.calls == 4:
            raise ValueError(f"call {self.calls} was one too many")
        return self.inner(inputs)


def update(where, model, optimizer, inputs, targets, number):
    predicted = model(inputs)
    if where == "loop" and number == 3:
        raise RuntimeError("update 3 failed")
    loss = (predicted - targets).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("update", number, repr(loss.item()))


def main(where):
    model = Fragile() if where == "forward" else network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    inputs, targets = problem()
    for number in range(6):
        update(where, model, optimizer, inputs, targets, number)


main(sys.argv[1])
