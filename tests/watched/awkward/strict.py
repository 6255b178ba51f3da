"""Runs under -O, -W error, -X dev: an environment with one-element rewards and a small training."""

import sys
import warnings

import gymnasium
import numpy as np
from little_env import Line


class ArrayRewards(Line):
    def step(self, action):
        observation, reward, ended, cut, info = super().step(action)
        return observation.astype(np.float64), np.array([reward]), np.bool_(ended), np.array(cut), info


class Passes(gymnasium.Wrapper):
    pass


print(sys.flags.optimize, sys.flags.dev_mode, sys.warnoptions, __debug__)
env = Passes(ArrayRewards())
total = np.zeros(1)
env.reset(seed=0)
for number in range(60):
    _, reward, ended, cut, _ = env.step(number % 3 > 0)
    total += reward
    if ended or cut:
        env.reset()
print(total)
if not sys.flags.optimize:
    print("asserts hold", total.shape)
if "torch" in sys.argv:
    import torch
    from little_training import network, random_states, train

    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(3):
        print(repr(train(model, optimizer, updates=4)))
        scheduler.step()
    print(random_states()[2])
try:
    warnings.warn("the script's own", UserWarning, stacklevel=1)
except UserWarning as error:
    print("as an error:", error)
