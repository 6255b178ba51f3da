"""Objects that notice when they are looked at: proxies, outputs and environments with properties that count."""

import collections

import gymnasium
import torch
from little_env import Line
from little_training import network, problem, random_states, train, weights
from torch import nn

noticed = collections.Counter()


class Proxy:
    """Stands for something that is made on first use; even isinstance makes it."""

    @property
    def __class__(self):
        noticed["class"] += 1
        return int

    def __getattr__(self, name):
        noticed[name] += 1
        raise AttributeError(name)

    def __eq__(self, other):
        noticed["equal"] += 1
        return False

    __hash__ = None


class Answer:
    def __init__(self, values):
        self.values = values

    @property
    def logits(self):
        noticed["logits"] += 1
        return self.values


class Prickly(nn.Module):
    """Hashes and compares alike with every other of its class, and is false."""

    def __init__(self):
        super().__init__()
        self.inner = network()
        self.proxy = Proxy()

    def forward(self, inputs, **options):
        return Answer(self.inner(inputs))

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return 1

    def __len__(self):
        return 0


class Asked(gymnasium.Wrapper):
    """Notices who asks it for what it does not have, and for its space."""

    def __getattr__(self, name):
        noticed["env " + name] += 1
        raise AttributeError(name)

    @property
    def observation_space(self):
        noticed["observation_space"] += 1
        return self.env.observation_space


lazy = Proxy()
env = Asked(Line(slip=0))
env.reset(seed=0)
model, other = Prickly(), Prickly()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
inputs, targets = problem()
for _ in range(4):
    local = Proxy()
    env.step(1)
    optimizer.zero_grad()
    loss = (model(inputs, proxy=local).values - targets).pow(2).mean()
    loss.backward()
    optimizer.step()
plain = network()
plain.proxy = lazy
print(repr(train(plain, torch.optim.SGD(plain.parameters(), lr=0.1))))
print(sorted(noticed.items()))
print(weights(model), random_states()[2])
