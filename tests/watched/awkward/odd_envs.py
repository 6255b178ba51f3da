"""Environments of unusual form: no super().reset, four values, no library at all, wrappers, and rewards that are tensors."""

import gymnasium
import numpy as np
import torch
from little_env import Line
from little_training import network, random_states, train, weights


class NoSuper(gymnasium.Env):
    """Never calls super().reset, has no spaces, keeps its own generator, and its observation is one array, reused."""

    def __init__(self):
        self.generator = np.random.default_rng(0)
        self.state = np.zeros(3)

    def reset(self, seed=None, options=None):
        self.state[:] = 0
        return self.state, {}

    def step(self, action):
        self.state += self.generator.normal(size=3)
        return self.state, float(self.state.sum()), bool(self.state[0] > 2), False, {}


class FourValues(gymnasium.Env):
    def reset(self):
        self.left = 5
        return [self.left]

    def step(self, action):
        self.left -= 1
        return [self.left], 1, self.left == 0, {"TimeLimit.truncated": True}


class HomeMade:
    def reset(self):
        self.left = 5
        return np.array([self.left], np.float32)

    def step(self, action):
        self.left -= 1
        return np.array([self.left], np.float32), 0.5, self.left == 0, {}


class Scaled(gymnasium.Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.total = 0

    def step(self, action):
        observation, reward, ended, cut, info = self.env.step(action)
        self.total += 1
        return observation, 10 * reward, ended, cut, info


class Scores(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward - 0.5


class Differentiable(gymnasium.Env):
    """Its reward has a gradient, as in analytic policy gradients."""

    def reset(self, *, seed=None, options=None):
        self.state = torch.zeros(2)
        return self.state, {}

    def step(self, action):
        self.state = self.state + action
        return self.state, -(self.state - 1).pow(2).sum(), False, False, {}


class Recursive(Line):
    """Steps itself within its own step, and resets itself at the end of an episode."""

    def step(self, action):
        if action == 2:
            self.step(1)
            return self.step(1)
        observation, reward, ended, cut, info = super().step(action)
        if ended or cut:
            observation, _ = self.reset()
        return observation, reward, ended, cut, info


def play(env, actions):
    print(type(env).__name__, env.reset())
    return [env.step(action) for action in actions]


model = network()
optimizer = torch.optim.Adam(model.parameters())
for env in (NoSuper(), FourValues(), HomeMade(), Scores(Scaled(Line(slip=0))), Scaled(Line(slip=0)), Recursive(slip=0)):
    print(play(env, [1, 0, 1, 2 if isinstance(env, Recursive) else 1]))
    print(repr(train(model, optimizer, updates=2)))

actions = torch.nn.Linear(2, 2)
with torch.no_grad():
    actions.weight.fill_(0.1)
    actions.bias.fill_(0.2)
descent = torch.optim.SGD(actions.parameters(), lr=0.05)
env = Differentiable()
for _ in range(4):
    observation, _ = env.reset()
    total = 0
    for _ in range(3):
        observation, reward, *_ = env.step(actions(observation))
        total = total + reward
    descent.zero_grad()
    (-total).backward()
    descent.step()
    print(repr(total.item()))
print(weights(actions), random_states())
