"""The policy and the critics of soft actor-critic.

Continuous actions: a Gaussian squashed by tanh into the bounds of the Box. Discrete ones: a categorical head. Critics come as a
pair; they read the observation and the action scaled to -1..1, or value every discrete action at once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

from ..config import PolicySettings
from ..errors import UnsupportedSpace
from .encoders import Encoded, Encoder
from .heads import HALF_LOG_TWO_PI, CategoricalHead, Head
from .networks import MLP, PolicyNetwork
from .spaces import ActionLayout

LOG_STD_LOWEST, LOG_STD_HIGHEST = -20.0, 2.0
"""Where the network's log-deviation is cut off; the bounds of the authors' implementation."""
UNIT_EDGE = 1 - 1e-6
"""Actions are pulled this close to 0 before they are taken back through tanh, whose inverse has no value at 1."""


class SquashedGaussianHead(Head):
    """`params` = mean and log-deviation of u [B, 2A]; the action is tanh(u), stretched to the bounds."""

    middle: Tensor
    stretch: Tensor
    uniform: Tensor

    def __init__(self, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> None:
        super().__init__()
        self.n_actions = len(low)
        self.n_params = 2 * len(low)
        self.register_buffer("middle", torch.as_tensor((low + high) / 2, dtype=torch.float32), persistent=False)
        self.register_buffer("stretch", torch.as_tensor((high - low) / 2, dtype=torch.float32), persistent=False)
        self.register_buffer("uniform", torch.tensor(False))
        """Samples are uniform over the bounds: how a memory is filled before training starts."""

    def split(self, params: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-deviation."""
        return params[:, : self.n_actions], params[:, self.n_actions :].clamp(LOG_STD_LOWEST, LOG_STD_HIGHEST)

    def to_unit(self, actions: Tensor) -> Tensor:
        return (actions - self.middle) / self.stretch

    def log_prob_and_entropy(self, params: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Densities of the action in -1..1. The entropy has no closed form: what is given is that of u, plus the log of
        tanh's slope at the mean."""
        mean, log_std = self.split(params)
        u = torch.atanh(self.to_unit(actions).clamp(-UNIT_EDGE, UNIT_EDGE))
        log_prob = squashed_log_prob(u, (u - mean) * (-log_std).exp(), log_std)
        entropy = (log_std + HALF_LOG_TWO_PI + 0.5 + log_slope(mean)).sum(1)
        return log_prob, entropy

    def sample(self, params: Tensor, generator: np.random.Generator) -> Tensor:
        shape = (len(params), self.n_actions)
        if bool(self.uniform):
            unit = torch.from_numpy(generator.uniform(-1, 1, shape).astype(np.float32)).to(params.device)
        else:
            mean, log_std = self.split(params)
            noise = torch.from_numpy(generator.standard_normal(shape, dtype=np.float32)).to(params.device)
            unit = torch.tanh(mean + log_std.exp() * noise)
        return self.middle + self.stretch * unit

    def mode(self, params: Tensor) -> Tensor:
        return self.middle + self.stretch * torch.tanh(self.split(params)[0])


def log_slope(u: Tensor) -> Tensor:
    """log(1 - tanh(u)^2), without the loss of digits where tanh is near 1."""
    return 2 * (math.log(2) - u - F.softplus(-2 * u))


def squashed_log_prob(u: Tensor, noise: Tensor, log_std: Tensor) -> Tensor:
    """log-density [B] of tanh(u), u = mean + noise * deviation."""
    return (-0.5 * noise.square() - log_std - HALF_LOG_TWO_PI - log_slope(u)).sum(1)


class SoftPolicy(PolicyNetwork):
    def __init__(
        self, size: int, head: Head, settings: PolicySettings, noise: torch.Generator, encoder: Encoder | None = None
    ) -> None:
        super().__init__(encoder)
        self.policy = MLP(size if encoder is None else encoder.size, settings, head.n_params, 0.01, noise)
        self.head = head

    def policy_params(self, observation: Tensor) -> Tensor:
        out: Tensor = self.policy(self.read(observation))
        return out


class TwinCritic(Encoded):
    """Two critics of one form and different first weights; of an image both read what one encoder, their own, makes of it."""

    def __init__(
        self, size: int, head: Head, settings: PolicySettings, noise: torch.Generator, encoder: Encoder | None = None
    ) -> None:
        super().__init__(encoder)
        size = size if encoder is None else encoder.size
        self.discrete = isinstance(head, CategoricalHead)
        inputs, outputs = (size, head.n_params) if self.discrete else (size + head.n_actions, 1)
        self.first = MLP(inputs, settings, outputs, 1.0, noise)
        self.second = MLP(inputs, settings, outputs, 1.0, noise)

    def forward(self, fed: Tensor) -> tuple[Tensor, Tensor]:
        """[B, 1] each, or [B, n] of discrete actions."""
        return self.first(fed), self.second(fed)

    def of(self, observation: Tensor, unit: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The same of what was seen and, unless actions are discrete, the action scaled to -1..1."""
        read = self.read(observation)
        both: tuple[Tensor, Tensor] = self(read if unit is None else torch.cat([read, unit], 1))
        return both


def make_soft_head(layout: ActionLayout) -> Head:
    space = layout.space
    if isinstance(space, spaces.Discrete):
        return CategoricalHead([int(space.n)])
    if isinstance(space, spaces.Box):
        low = np.broadcast_to(space.low, space.shape).ravel().astype(np.float64)
        high = np.broadcast_to(space.high, space.shape).ravel().astype(np.float64)
        if (np.isfinite(low) & np.isfinite(high) & (high > low)).all():
            return SquashedGaussianHead(low, high)
        raise UnsupportedSpace(
            f"SAC squashes its actions into their bounds, and {space} has none. Give it bounds, or use ppo."
        )
    raise UnsupportedSpace(f"SAC chooses from a Box with bounds or from Discrete, and this is {space}. Use ppo.")
