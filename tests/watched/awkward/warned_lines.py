"""Warnings that name the line of their caller; each line of this file is warned of once."""

import warnings

import torch
from little_env import Line
from little_training import problem
from torch import nn


class Warns(Line):
    def reset(self, *, seed=None, options=None):
        warnings.warn("this reset is deprecated", FutureWarning, stacklevel=2)
        return super().reset(seed=seed)

    def step(self, action):
        warnings.warn("this step is deprecated", FutureWarning, stacklevel=2)
        return super().step(action)


class Advises(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, inputs):
        warnings.warn("from forward", UserWarning, stacklevel=1)
        warnings.warn("from the line of the call", UserWarning, stacklevel=4)
        return self.layer(inputs)


torch.manual_seed(0)
inputs, targets = problem()
model = Advises()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
scheduler.step()
softmax = nn.Softmax()
env = Warns()
env.reset(seed=0)
for _ in range(3):
    env.step(1)
    loss = (model(inputs) - targets).pow(2).mean()
    probabilities = softmax(inputs)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    broadcast = nn.functional.mse_loss(model(inputs)[:, 0], targets)
model(inputs)
env.step(0)
print(loss.item(), probabilities.sum().item(), broadcast.item())
print(nn.KLDivLoss(reduction="mean")(probabilities.log(), probabilities).item())
