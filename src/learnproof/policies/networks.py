"""Networks from flat rows to numbers: the MLP and the actor-critic built of it.

Forward passes call the functional forms: at these sizes a module call costs as much as the product it wraps.
"""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import PolicySettings
from .heads import Head


class MLP(nn.Module):
    """Hidden layers with orthogonal weights; `out` = 0 leaves the last layer away (a trunk)."""

    def __init__(self, size: int, settings: PolicySettings, out: int, out_gain: float, noise: torch.Generator) -> None:
        super().__init__()
        widths = [size, *settings.hidden]
        gain = math.sqrt(2)
        self.layers = nn.ModuleList(_linear(a, b, gain, noise) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(nn.LayerNorm(w) for w in settings.hidden) if settings.layer_norm else None
        self.out = _linear(widths[-1], out, out_gain, noise) if out else None
        self.width = out or widths[-1]
        self.activation = torch.relu if settings.activation == "relu" else torch.tanh

    def forward(self, x: Tensor) -> Tensor:
        for position, layer in enumerate(self.layers):
            x = F.linear(x, layer.weight, layer.bias)  # type: ignore[arg-type]
            if self.norms is not None:
                x = self.norms[position](x)
            x = self.activation(x)
        return x if self.out is None else F.linear(x, self.out.weight, self.out.bias)


def _linear(size: int, out: int, gain: float, noise: torch.Generator) -> nn.Linear:
    layer = nn.utils.skip_init(nn.Linear, size, out)  # type: ignore[no-untyped-call]
    nn.init.orthogonal_(layer.weight, gain, generator=noise)
    nn.init.zeros_(layer.bias)
    assert isinstance(layer, nn.Linear)
    return layer


class ActorCritic(nn.Module):
    """Policy and value, on trunks of their own or on a shared one.

    The last policy layer starts a hundred times smaller than the rest, so that the first policy is near uniform.
    """

    def __init__(self, size: int, head: Head, settings: PolicySettings, noise: torch.Generator) -> None:
        super().__init__()
        if settings.shared_trunk:
            self.trunk: MLP | None = MLP(size, settings, 0, 1.0, noise)
            self.policy: nn.Module = _linear(self.trunk.width, head.n_params, 0.01, noise)
            self.value: nn.Module = _linear(self.trunk.width, 1, 1.0, noise)
        else:
            self.trunk = None
            self.policy = MLP(size, settings, head.n_params, 0.01, noise)
            self.value = MLP(size, settings, 1, 1.0, noise)
        self.head = head

    def forward(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log-probability [B] and entropy [B] of the policy, value [B]."""
        features = observation if self.trunk is None else self.trunk(observation)
        log_prob, entropy = self.head.log_prob_and_entropy(self.policy(features), action)
        return log_prob, entropy, self.value(features).squeeze(1)

    def policy_params(self, observation: Tensor) -> Tensor:
        out: Tensor = self.policy(observation if self.trunk is None else self.trunk(observation))
        return out

    def values(self, observation: Tensor) -> Tensor:
        out: Tensor = self.value(observation if self.trunk is None else self.trunk(observation)).squeeze(1)
        return out
