"""A table learns to walk a line: an environment, no torch, no network."""

import sys

import numpy as np
from little_env import Line

generator = np.random.default_rng(0)
env = Line()
table = np.zeros((7, 2))
for episode in range(60):
    observation, _ = env.reset(seed=episode)
    ended = cut = False
    while not (ended or cut):
        row = round(float(observation[0])) + 3
        action = int(generator.integers(2)) if generator.random() < 0.7 else int(table[row].argmax())
        observation, reward, ended, cut, _ = env.step(action)
        following = 0.0 if ended else table[round(float(observation[0])) + 3].max()
        table[row, action] += 0.2 * (reward + 0.95 * following - table[row, action])
print(table.tolist())
print(generator.bit_generator.state["state"], "torch" in sys.modules)
