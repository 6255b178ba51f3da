"""Weight snapshots: copies of all trained weights under a name, and how far apart two of them are.

    engine.snapshot("before phase 2")
    engine.distance("before phase 2").total          # from there to the weights as they are now
    engine.distance("start", "before phase 2")       # the untrained weights are there by themselves

They are copies: taking one costs as much memory as the networks have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..algorithms.learner import Learner
from ..errors import UsageError, did_you_mean

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]
START = "start"


@dataclass(frozen=True)
class WeightDistance:
    total: float
    """Sum over parameters of the L2 distance, as weight_change is."""
    relative: float
    """The distance of all weights as one vector, over the length of the first one."""
    modules: dict[str, float]
    """The part of each module in the total: "policy", "value", "critic.first" ..."""


class Snapshots:
    def __init__(self, learner: Learner, most: int) -> None:
        self.learner = learner
        self.most = most
        self.kept: dict[str, Weights] = {}
        self.start = trained_weights(learner)

    @property
    def names(self) -> list[str]:
        return [START, *self.kept]

    def take(self, name: str) -> None:
        """Under a name that is there already, the newer one counts."""
        if name == START or not name:
            raise UsageError(
                f"A snapshot cannot be called {name!r}: that is the untrained weights. Choose another name."
            )
        if name not in self.kept and len(self.kept) >= self.most:
            raise UsageError(
                f"There are {self.most} snapshots already ({', '.join(self.kept)}); they are copies of all weights, kept in memory and in "
                "every checkpoint. Drop one (drop_snapshot), or raise max_snapshots."
            )
        self.kept[name] = trained_weights(self.learner)

    def drop(self, name: str) -> None:
        self._find(name)
        self.kept.pop(name, None)

    def distance(self, first: str, second: str | None = None) -> WeightDistance:
        """None = the weights as they are now."""
        a = self._find(first)
        b = trained_weights(self.learner) if second is None else self._find(second)
        apart = {name: float(np.linalg.norm(b[name].astype(np.float64) - a[name])) for name in a}
        length = float(np.sqrt(sum(float(np.sum(array.astype(np.float64) ** 2)) for array in a.values())))
        modules: dict[str, float] = {}
        for name, distance in apart.items():
            module = _module_of(name)
            modules[module] = modules.get(module, 0.0) + distance
        whole = float(np.sqrt(sum(distance**2 for distance in apart.values())))
        return WeightDistance(sum(apart.values()), whole / length if length else 0.0, modules)

    def _find(self, name: str) -> Weights:
        if name == START:
            return self.start
        if name not in self.kept:
            raise UsageError(
                f"There is no snapshot {name!r}.{did_you_mean(name, self.names)} There are: {', '.join(self.names)}."
            )
        return self.kept[name]

    # ------------------------------------------------------------------ over a kill

    def tensors(self) -> Weights:
        """All of them in one group; numbered, since a name may be any text."""
        everything = [self.start, *self.kept.values()]
        return {f"{number}.{name}": array for number, kept in enumerate(everything) for name, array in kept.items()}

    def layout(self, names: list[str]) -> Weights:
        """Arrays of the shapes that `tensors` has where these names are kept."""
        return {f"{number}.{name}": array for number in range(1 + len(names)) for name, array in self.start.items()}

    def load(self, names: list[str], arrays: Weights) -> None:
        loaded = [{name: arrays[f"{number}.{name}"] for name in self.start} for number in range(1 + len(names))]
        self.start, self.kept = loaded[0], dict(zip(names, loaded[1:], strict=True))


def trained_weights(learner: Learner) -> Weights:
    """A copy of everything that an optimizer trains, by parameter."""
    found: Weights = {}
    for group, arrays in learner.tensors().items():
        if group.endswith("weights"):
            prefix = group.removesuffix("weights").replace("_", ".")
            found |= {prefix + name: array.copy() for name, array in arrays.items()}
    return found


def _module_of(name: str) -> str:
    """critic.first of critic.first.layers.0.weight, policy of policy.layers.0.weight."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "critic" else parts[0]
