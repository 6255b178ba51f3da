"""Looks whether libraries are installed before it imports them, then trains."""

import importlib.util
import sys

for name in ("torch", "gymnasium", "gym", "stable_baselines3"):
    found = importlib.util.find_spec(name)
    print(name, None if found is None else (found.name, type(found.loader).__name__), name in sys.modules)

import gymnasium  # noqa: E402
import torch  # noqa: E402
from little_training import network, train  # noqa: E402

for module in (torch, gymnasium):
    print(module.__name__, type(module.__loader__).__name__, type(module.__spec__.loader).__name__)
    print(module.__spec__.loader is module.__loader__, module.__spec__.origin == module.__file__)
model = network()
print(repr(train(model, torch.optim.Adam(model.parameters()))))
