"""An environment that breaks in its ninth step, beneath a wrapper; nothing is caught."""

import gymnasium
from little_env import Line


class Breaks(Line):
    def step(self, action):
        if self.steps == 8:
            raise OSError("the simulator has gone")
        return super().step(action)


class Quiet(gymnasium.Wrapper):
    def step(self, action):
        return self.env.step(action)


env = Quiet(Breaks(slip=0.5))
env.reset(seed=1)
for number in range(20):
    _, reward, ended, cut, info = env.step(number % 2)
    print(number, reward, ended, cut, info)
