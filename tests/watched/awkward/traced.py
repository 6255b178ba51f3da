"""Sets a trace function and a profile function, and counts what they tell of this file."""

import collections
import sys

import torch
from little_env import Line
from little_training import network, problem
from torch import nn

counted = collections.Counter()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, inputs):
        return self.inner(inputs)


class Env(Line):
    def step(self, action):
        return super().step(action)

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


def tracer(frame, event, argument):
    if frame.f_code.co_filename != __file__:
        return None
    counted[("trace", event, frame.f_code.co_name)] += 1
    return tracer


def profiler(frame, event, argument):
    if frame.f_code.co_filename == __file__ and event in ("call", "return"):
        counted[("profile", event, frame.f_code.co_name)] += 1


def learn():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    inputs, targets = problem()
    env = Env()
    env.reset(seed=0)
    for _ in range(6):
        for _ in range(3):
            env.step(1)
        optimizer.zero_grad()
        (model(inputs) - targets).pow(2).mean().backward()
        optimizer.step()


sys.settrace(tracer)
learn()
print(sys.gettrace() is tracer)
sys.settrace(None)
sys.setprofile(profiler)
learn()
print(sys.getprofile() is profiler)
sys.setprofile(None)
for key in sorted(counted):
    print(*key, counted[key])
