"""Action heads: what a network's output means as a distribution over actions.

A head takes the network's output `params` [B, n_params] and raw actions [B, n_actions] (policies/spaces.py) and gives
log-probabilities [B], entropies [B], samples and modes. Noise comes from the NumPy generator that the caller owns.

    Discrete, MultiDiscrete   CategoricalHead
    MultiBinary               BernoulliHead
    Box                       GaussianHead, BetaHead, BernoulliHead (only the two ends), or a mix by dimension
    Dict, Tuple               ProductHead of the above

A Box whose values are compared with a threshold wants a Bernoulli: under a Gaussian the deterministic action (the mean)
can fall on the other side of the threshold from most samples, so that the two modes are different policies.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from ..errors import SettingsError, UnsupportedSpace
from .spaces import ActionLayout

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
BETA_EDGE = 1e-6  # samples stay this far from 0 and 1, where the density of a Beta has no finite logarithm


class Head(nn.Module, ABC):
    """One distribution. `max_entropy` is that of the uniform policy, or None where actions are continuous."""

    n_params: int
    n_actions: int
    max_entropy: float | None = None

    @abstractmethod
    def log_prob_and_entropy(self, params: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]: ...

    @abstractmethod
    def sample(self, params: Tensor, generator: np.random.Generator) -> Tensor: ...

    @abstractmethod
    def mode(self, params: Tensor) -> Tensor:
        """The deterministic action: the likeliest one, or the mean where that is what fits a bounded action."""


class CategoricalHead(Head):
    """One choice for each entry of `sizes`, independent given the observation."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = [int(size) for size in sizes]
        self.n_params = sum(self.sizes)
        self.n_actions = len(self.sizes)
        self.max_entropy = float(sum(math.log(size) for size in self.sizes))

    def log_prob_and_entropy(self, params: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        log_prob: Tensor | float = 0.0
        entropy: Tensor | float = 0.0
        for column, logits in enumerate(self._split(params)):
            log_p = torch.log_softmax(logits, dim=1)
            log_prob = log_prob + log_p.gather(1, actions[:, column : column + 1].long()).squeeze(1)
            entropy = entropy - (log_p.exp() * log_p).sum(1)
        assert isinstance(log_prob, Tensor)
        assert isinstance(entropy, Tensor)
        return log_prob, entropy

    def sample(self, params: Tensor, generator: np.random.Generator) -> Tensor:
        noise = generator.random((len(params), self.n_actions), dtype=np.float32)
        chosen = np.empty((len(params), self.n_actions), np.float32)
        for column, logits in enumerate(self._split(params)):
            cumulative = torch.softmax(logits, dim=1).cumsum(1).cpu().numpy()
            below = cumulative < noise[:, column : column + 1] * cumulative[:, -1:]
            chosen[:, column] = np.minimum(below.sum(1), self.sizes[column] - 1)
        return torch.from_numpy(chosen).to(params.device)

    def mode(self, params: Tensor) -> Tensor:
        return torch.stack([logits.argmax(1) for logits in self._split(params)], dim=1).to(torch.float32)

    def _split(self, params: Tensor) -> Sequence[Tensor]:
        return [params] if len(self.sizes) == 1 else torch.split(params, self.sizes, dim=1)


class BernoulliHead(Head):
    """Two values for each dimension: 0 and 1, or the two ends of a Box."""

    low: Tensor
    span: Tensor

    def __init__(self, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> None:
        super().__init__()
        self.n_params = self.n_actions = len(low)
        self.max_entropy = len(low) * math.log(2)
        self.register_buffer("low", torch.as_tensor(low, dtype=torch.float32), persistent=False)
        self.register_buffer("span", torch.as_tensor(high - low, dtype=torch.float32), persistent=False)

    def log_prob_and_entropy(self, params: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        up = (actions - self.low) / self.span
        log_p_up, log_p_down = F.logsigmoid(params), F.logsigmoid(-params)
        log_prob = (up * log_p_up + (1 - up) * log_p_down).sum(1)
        p_up = params.sigmoid()
        entropy = -(p_up * log_p_up + (1 - p_up) * log_p_down).sum(1)
        return log_prob, entropy

    def sample(self, params: Tensor, generator: np.random.Generator) -> Tensor:
        noise = torch.from_numpy(generator.random(tuple(params.shape), dtype=np.float32)).to(params.device)
        return self.low + self.span * (noise < params.sigmoid())

    def mode(self, params: Tensor) -> Tensor:
        return self.low + self.span * (params > 0)


class GaussianHead(Head):
    """A normal round the network's output with a learnt deviation; the environment sees it clipped to its bounds."""

    def __init__(self, size: int, log_std_init: float) -> None:
        super().__init__()
        self.n_params = self.n_actions = size
        self.log_std = nn.Parameter(torch.full((size,), log_std_init))

    def log_prob_and_entropy(self, params: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        scaled = (actions - params) * (-self.log_std).exp()
        log_prob = (-0.5 * scaled.square()).sum(1) - (self.log_std.sum() + self.n_actions * HALF_LOG_TWO_PI)
        entropy = self.log_std.sum() + self.n_actions * (HALF_LOG_TWO_PI + 0.5)
        return log_prob, entropy.expand(len(params))

    def sample(self, params: Tensor, generator: np.random.Generator) -> Tensor:
        noise = torch.from_numpy(generator.standard_normal(tuple(params.shape), dtype=np.float32)).to(params.device)
        return params + self.log_std.exp() * noise

    def mode(self, params: Tensor) -> Tensor:
        return params


class BetaHead(Head):
    """A Beta on a bounded interval, always with one hump: both shape parameters are 1 + softplus(network output)."""

    low: Tensor
    span: Tensor

    def __init__(self, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> None:
        super().__init__()
        self.n_actions = len(low)
        self.n_params = 2 * len(low)
        self.register_buffer("low", torch.as_tensor(low, dtype=torch.float32), persistent=False)
        self.register_buffer("span", torch.as_tensor(high - low, dtype=torch.float32), persistent=False)
        self._log_volume = float(np.log(high - low).sum())

    def log_prob_and_entropy(self, params: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self._shapes(params)
        unit = ((actions - self.low) / self.span).clamp(BETA_EDGE, 1 - BETA_EDGE)
        total = a + b
        log_beta = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(total)
        log_prob = ((a - 1) * unit.log() + (b - 1) * torch.log1p(-unit) - log_beta).sum(1) - self._log_volume
        entropy = (
            log_beta - (a - 1) * torch.digamma(a) - (b - 1) * torch.digamma(b) + (total - 2) * torch.digamma(total)
        ).sum(1) + self._log_volume
        return log_prob, entropy

    def sample(self, params: Tensor, generator: np.random.Generator) -> Tensor:
        a, b = self._shapes(params)
        unit = generator.beta(a.cpu().numpy(), b.cpu().numpy()).astype(np.float32)
        unit = np.clip(unit, BETA_EDGE, 1 - BETA_EDGE)
        return self.low + self.span * torch.from_numpy(unit).to(params.device)

    def mode(self, params: Tensor) -> Tensor:
        a, b = self._shapes(params)
        return self.low + self.span * (a / (a + b))

    def _shapes(self, params: Tensor) -> tuple[Tensor, Tensor]:
        shapes = 1 + F.softplus(params)
        return shapes[:, : self.n_actions], shapes[:, self.n_actions :]


class ProductHead(Head):
    """Independent heads, each on its own columns of the raw action."""

    def __init__(self, parts: Sequence[tuple[Head, Sequence[int]]]) -> None:
        super().__init__()
        self.heads = nn.ModuleList([head for head, _ in parts])
        self.columns = [torch.as_tensor(list(columns)) for _, columns in parts]
        self.widths = [head.n_params for head, _ in parts]
        self.n_params = sum(self.widths)
        self.n_actions = sum(head.n_actions for head, _ in parts)
        entropies = [head.max_entropy for head, _ in parts]
        self.max_entropy = None if None in entropies else float(sum(e for e in entropies if e is not None))

    def log_prob_and_entropy(self, params: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        parts = [
            head.log_prob_and_entropy(own, actions.index_select(1, columns))
            for head, own, columns in self._parts(params)
        ]
        return torch.stack([p for p, _ in parts]).sum(0), torch.stack([e for _, e in parts]).sum(0)

    def sample(self, params: Tensor, generator: np.random.Generator) -> Tensor:
        return self._merge(params, [head.sample(own, generator) for head, own, _ in self._parts(params)])

    def mode(self, params: Tensor) -> Tensor:
        return self._merge(params, [head.mode(own) for head, own, _ in self._parts(params)])

    def _parts(self, params: Tensor) -> list[tuple[Any, Tensor, Tensor]]:
        owned = torch.split(params, self.widths, dim=1)
        return list(zip(self.heads, owned, self.columns, strict=True))

    def _merge(self, params: Tensor, pieces: list[Tensor]) -> Tensor:
        merged = params.new_empty((params.shape[0], self.n_actions))  # len() would fix the size in an exported graph
        for columns, piece in zip(self.columns, pieces, strict=True):
            merged[:, columns] = piece
        return merged


def make_head(
    layout: ActionLayout, box_head: str, log_std_init: float, environment_heads: Sequence[str] | None
) -> Head:
    """The head for an action space. `environment_heads` is what the environment says fits each column of its Box."""
    parts: list[tuple[Head, Sequence[int]]] = []
    for leaf in layout.leaves:
        columns = range(leaf.start, leaf.stop)
        if isinstance(leaf.space, spaces.Box):
            kinds = _box_kinds(leaf.space, box_head, environment_heads, columns)
            for kind in dict.fromkeys(kinds):
                chosen = [i for i, k in enumerate(kinds) if k == kind]
                parts.append((_box_part(leaf.space, kind, chosen, log_std_init), [leaf.start + i for i in chosen]))
        else:
            parts.append((_discrete_part(leaf.space), columns))
    return parts[0][0] if len(parts) == 1 else ProductHead(parts)


def _box_kinds(space: spaces.Box, box_head: str, suggested: Sequence[str] | None, columns: range) -> list[str]:
    if box_head != "auto":
        return [box_head] * len(columns)
    if suggested is not None and len(suggested) >= columns.stop:
        return [str(suggested[i]) for i in columns]
    return ["gaussian"] * len(columns)


def _box_part(space: spaces.Box, kind: str, chosen: list[int], log_std_init: float) -> Head:
    if kind == "gaussian":
        return GaussianHead(len(chosen), log_std_init)
    low = np.broadcast_to(space.low, space.shape).ravel()[chosen].astype(np.float64)
    high = np.broadcast_to(space.high, space.shape).ravel()[chosen].astype(np.float64)
    if not (np.isfinite(low) & np.isfinite(high) & (high > low)).all():
        raise SettingsError(
            f"policy.box_head = {kind!r} needs an action Box with finite bounds, and this one is {space}. "
            "Use gaussian, or give the environment bounds."
        )
    return BetaHead(low, high) if kind == "beta" else BernoulliHead(low, high)


def _discrete_part(space: gym.Space[Any]) -> Head:
    match space:
        case spaces.Discrete():
            return CategoricalHead([int(space.n)])
        case spaces.MultiDiscrete():
            return CategoricalHead([int(n) for n in space.nvec.ravel()])
        case spaces.MultiBinary():
            width = int(np.prod(space.shape))
            return BernoulliHead(np.zeros(width), np.ones(width))
        case _:
            raise UnsupportedSpace(f"No action head fits {space}.")
