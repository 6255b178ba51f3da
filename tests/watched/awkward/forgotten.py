"""Things that the script deletes must die at once, without the help of the garbage collector, and their memory with them."""

import gc
import weakref

import torch
from little_env import Line
from little_training import network, problem, train
from torch import nn

gc.disable()
inputs, targets = problem()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, inputs):
        return self.inner(inputs)


def alive(references):
    return [name for name, reference in references.items() if reference() is not None]


def between_forward_and_backward():
    model = Net()
    given = inputs.clone()
    output = model(given)
    references = {
        "model": weakref.ref(model),
        "layer": weakref.ref(model.inner[0]),
        "weight": weakref.ref(model.inner[0].weight),
        "input": weakref.ref(given),
        "output": weakref.ref(output),
    }
    del model, output, given
    return references


def after_backward():
    model = Net()
    loss = (model(inputs) - targets).pow(2).mean()
    loss.backward()
    references = {"model": weakref.ref(model), "weight": weakref.ref(model.inner[0].weight), "loss": weakref.ref(loss)}
    references["gradient"] = weakref.ref(model.inner[0].weight.grad)
    del model, loss
    return references


def after_training(updates):
    model, target = Net(), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer, updates=updates)
    with torch.no_grad():
        silent = target(inputs)
    references = {
        "model": weakref.ref(model),
        "target": weakref.ref(target),
        "weight": weakref.ref(target.inner[0].weight),
        "optimizer": weakref.ref(optimizer),
        "silent": weakref.ref(silent),
        "momentum": weakref.ref(optimizer.state[model.inner[0].weight]["momentum_buffer"]),
    }
    del model, target, silent
    return references, optimizer


def environment():
    env = Line()
    env.reset(seed=0)
    observation = env.step(1)[0]
    references = {"env": weakref.ref(env), "observation": weakref.ref(observation)}
    del env, observation
    return references


for attempt in (between_forward_and_backward, after_backward, environment):
    print(attempt.__name__, alive(attempt()))
keeper = network()
kept = torch.optim.SGD(keeper.parameters(), lr=0.1)
for updates in (1, 3, 40):
    references, optimizer = after_training(updates)
    print("optimizer still held", alive(references))
    del optimizer
    print("let go", alive(references))
    gc.collect()
    print("collected", alive(references))
    print(repr(train(keeper, kept, updates=2)))
    late = between_forward_and_backward()
    print("at once", alive(late))
    train(keeper, kept, updates=1)
    print("an update later", alive(late))
