"""Counts operations: with a FLOP counter, with modes of the script's own, with a tensor subclass."""

import collections

import torch
from little_training import network, problem, random_states, weights
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

counted = collections.Counter()
inputs, targets = problem()


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        counted["functions"] += 1
        return function(*arguments, **(options or {}))


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        counted[str(function)] += 1
        return function(*arguments, **(options or {}))


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        counted["tagged"] += 1
        return super().__torch_function__(function, types, arguments, options)


def learn(given, updates=3):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(updates):
        optimizer.zero_grad()
        (model(given) - targets).pow(2).mean().backward()
        optimizer.step()
    print(weights(model))


with FlopCounterMode(display=False) as flops:
    learn(inputs)
print("flops", flops.get_total_flops())
with Functions():
    learn(inputs)
print(counted)
counted.clear()
with Dispatched():
    learn(inputs)
print(sorted(counted.items()))
counted.clear()
learn(inputs.as_subclass(Tagged))
print(counted, random_states()[2])
