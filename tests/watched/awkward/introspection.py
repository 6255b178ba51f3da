"""Looks at functions of torch and gymnasium, and at its own, as documentation tools and argument checkers do."""

import inspect
import typing

import gymnasium
import torch
from gymnasium.utils.env_checker import check_env
from little_env import Line
from little_training import network, train
from torch import nn


class Own(Line):
    """An environment of this script."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        """Back to the middle."""
        return super().reset(seed=seed)

    def step(self, action: int) -> tuple:
        """One place further."""
        return super().step(action)


def look():
    for thing in (
        nn.Module.__call__,
        nn.Module.__init__,
        nn.Linear.forward,
        torch.optim.Optimizer.zero_grad,
        torch.optim.Adam.step,
        torch.autograd.backward,
        torch.distributions.Categorical.log_prob,
        gymnasium.Env.reset,
        gymnasium.Wrapper.step,
        Own.reset,
        Own.step,
    ):
        print(type(thing).__name__, thing.__module__, thing.__qualname__, thing.__name__, inspect.signature(thing))
        print("  ", len(inspect.getsource(thing)), inspect.getsourcefile(thing) == inspect.getfile(thing))
        print("  ", thing.__doc__ is None, thing.__defaults__, thing.__kwdefaults__)
    print(inspect.getsource(Own.reset))
    print(inspect.getfullargspec(Own.reset).args, inspect.getfullargspec(Own.step).args)
    print(Own.reset.__code__.co_argcount, Own.step.__code__.co_name, typing.get_type_hints(Own.reset))
    print(sorted(vars(Own)), Own.__mro__[1].__name__, Own.__doc__)


env = Own()
look()
env.reset(seed=0)
env.step(1)
model = network()
train(model, torch.optim.Adam(model.parameters()))
look()
check_env(Own(), skip_render_check=True)
print(callable(model), inspect.isfunction(type(model).__call__), inspect.ismethod(env.reset))
