"""Hooks that the script lays itself, on tensors, modules, optimizers and on every module there is: all of them count."""

import collections

import torch
from little_training import network, problem, weights
from torch import nn
from torch.nn.modules import module as every_module

counted = collections.Counter()


def count(name, answer=None):
    def hook(*given):
        counted[name] += 1
        return answer

    return hook


def learn(model, updates=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(count("step"))
    inputs, targets = problem()
    for _ in range(updates):
        optimizer.zero_grad()
        values = model(inputs)
        values.register_hook(count("tensor"))
        values.grad_fn.register_hook(count("node"))
        loss = (values - targets).pow(2).mean()
        loss.backward()
        optimizer.step()
    print(sorted(counted.items()), weights(model))
    counted.clear()


hooked = network()
hooked.register_forward_hook(count("forward"))
hooked[0].register_forward_pre_hook(count("before"))
hooked[2].register_full_backward_hook(count("backward"))
hooked[0].weight.register_hook(count("parameter"))
hooked[0].bias.register_post_accumulate_grad_hook(count("accumulated"))
learn(hooked)

counted_everywhere = [
    every_module.register_module_forward_hook(count("any forward")),
    every_module.register_module_forward_pre_hook(count("any before")),
]
learn(network())
for handle in counted_everywhere:
    handle.remove()

handle = every_module.register_module_full_backward_hook(count("any backward"))
learn(network())
handle.remove()

original = nn.Module.__call__


def counting_call(module, *arguments, **options):
    counted["call"] += 1
    return original(module, *arguments, **options)


nn.Module.__call__ = counting_call
learn(network())
print(nn.Module.__call__ is counting_call)
nn.Module.__call__ = original
learn(network())
