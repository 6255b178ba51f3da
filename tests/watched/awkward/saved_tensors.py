"""Hooks on saved tensors and checkpointed forwards: whoever reads a graph too early makes them run again."""

import collections

import torch
from little_training import network, problem, random_states, weights
from torch import nn
from torch.utils.checkpoint import checkpoint

counted = collections.Counter()
inputs, targets = problem()


def pack(tensor):
    counted["packed"] += 1
    return tensor.clone()


def unpack(tensor):
    counted["unpacked"] += 1
    return tensor


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()
        self.drop = nn.Dropout(0.2)
        self.scale = nn.Parameter(torch.ones(1))

    def part(self, inputs):
        counted["part"] += 1
        values = self.drop(self.inner(inputs))
        weight = torch.linspace(0, 1, len(inputs))[:, None]
        return ((values - weight).pow(2) * weight).exp().clamp(0.1, 3.0) * self.scale

    def forward(self, inputs):
        return checkpoint(self.part, inputs, use_reentrant=False)


def learn(model, updates=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(updates):
        optimizer.zero_grad()
        loss = ((model(inputs) - targets).pow(2) * targets.abs()).mean()
        loss.backward()
        optimizer.step()
    print(sorted(counted.items()), repr(loss.item()), weights(model), random_states()[2])
    counted.clear()


learn(Checkpointed())
with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
    learn(network())
with torch.autograd.graph.save_on_cpu():
    learn(network())
