"""Numbers that make libraries complain when somebody converts them: complex weights, overflow, infinities, odd rewards."""

import gymnasium
import numpy as np
import torch
from little_training import network, train, weights


class Explodes(gymnasium.Env):
    """Its observations are too large for single precision, and at last not even finite."""

    def reset(self, *, seed=None, options=None):
        self.state = np.array([1.0, -1.0])
        return self.state, {}

    def step(self, action):
        with np.errstate(all="ignore"):
            self.state = self.state * 1e80
        return self.state, float(self.state[0]), False, bool(np.isinf(self.state[0])), {}


class ManyRewards(Explodes):
    def step(self, action):
        super().step(action)
        return self.state, np.array([self.state[0]]), np.array([False]), False, {}


class TextSeen(Explodes):
    def step(self, action):
        return "you are in a maze", np.float64("nan"), False, False, {}


torch.manual_seed(0)
weight = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    (weight * torch.tensor([1.0, 2.0j, 1.0 + 1.0j])).abs().sum().backward()
    optimizer.step()
print(weight.tolist())

for env in (Explodes(), ManyRewards(), TextSeen()):
    env.reset()
    print([env.step(0)[:4] for _ in range(6)])

model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=1e30)
print(repr(train(model, optimizer, updates=4)))
print(weights(model))
rate = torch.tensor(0.1, requires_grad=True)
optimizer = torch.optim.SGD(network().parameters(), lr=rate, differentiable=True)
np.seterr(all="raise")
model = network()
print(repr(train(model, torch.optim.Adam(model.parameters(), lr=1e-300))), weights(model))
