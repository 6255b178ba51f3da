"""Errors that a script catches and prints whole, and the stack as a script sees it from inside its own code."""

import traceback

import gymnasium
import torch
from little_env import Line
from little_training import network, problem
from torch import nn


class Misnamed(nn.Module):
    def __init__(self):
        super().__init__(hidden=3)


class Unready(Line):
    def reset(self, *, seed=None, options=None):
        raise NotImplementedError("reset is still to be written")


class FragileBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        return values * 2

    @staticmethod
    def backward(ctx, gradient):
        raise ArithmeticError("no way back")


class Looks(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 1)

    def forward(self, inputs):
        here = [(frame.name, frame.lineno) for frame in traceback.extract_stack() if frame.filename == __file__]
        print("in forward", here)
        return self.inner(inputs)


def step_of_ended():
    env = gymnasium.make("CartPole-v1")
    env.step(0)


def bad_scheduler():
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
    torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=2.0)


def backward_twice():
    inputs, targets = problem()
    loss = (network()(inputs) - targets).pow(2).mean()
    loss.backward()
    loss.backward()


def broken_backward():
    FragileBackward.apply(network()(problem()[0])).sum().backward()


def no_gradient():
    torch.zeros(1).sum().backward()


def wrong_width():
    network()(torch.zeros(2, 3))


def wrong_action():
    env = Line()
    env.reset(seed=0)
    env.step("left")


def log_prob_of_nothing():
    torch.distributions.Categorical(logits=torch.zeros(2)).log_prob(torch.tensor(5.0))


ATTEMPTS = [
    lambda: Misnamed(),
    lambda: torch.optim.Adam([]),
    lambda: torch.optim.SGD(network().parameters(), lr=-1.0),
    lambda: Unready().reset(),
    lambda: Line().reset(17),
    step_of_ended,
    bad_scheduler,
    backward_twice,
    broken_backward,
    no_gradient,
    wrong_width,
    wrong_action,
    log_prob_of_nothing,
    lambda: torch.autograd.grad(torch.ones(1, requires_grad=True).sum(), torch.ones(1, requires_grad=True)),
]

for position, attempt in enumerate(ATTEMPTS):
    try:
        attempt()
    except Exception:
        print(position, traceback.format_exc())
    else:
        print(position, "no error")

model = Looks()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    loss = model(problem()[0]).mean()
    loss.backward()
    optimizer.step()
