"""A memory for policies that do not see everything at once: a gated recurrent unit between rows and towers.

    memory = unit.step(features, memory)                  # acting: one step of N instances; a new instance's memory is zero
    features = network.read(sequences)                    # learning: the same numbers over stretches of a rollout

The towers read what the unit remembers and, beside it, what is seen now. Nothing is remembered between calls: whoever acts holds the
memory and gives it back, and sets it to zero where an episode begins.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LONG_MEMORY = 1.0
"""First bias of the gate that keeps what is remembered: a fresh unit forgets half of it in two steps instead of one."""


@dataclass(frozen=True)
class Sequences:
    """Stretches of S episodes side by side, L steps each. Rows that stand for nothing are read too, but not chosen."""

    rows: Tensor
    """[L, S, D]"""
    memory: Tensor
    """[S, H]: before the first step."""
    begins: Tensor
    """[L, S] bool: an episode begins with this step, and nothing is remembered."""
    chosen: Tensor
    """[B]: the rows l * S + s that are asked for, in the order of the batch."""


class GatedUnit(nn.Module):
    """h' = u h + (1 - u) tanh(W x + r (V h)); r and u are sigmoids of x and h (Cho et al. 2014)."""

    def __init__(self, size: int, width: int, noise: torch.Generator) -> None:
        super().__init__()
        self.width = width
        self.size = size + width
        """What the towers are fed: features and memory."""
        self.seen = _three_gates(size, width, noise)
        self.held = _three_gates(width, width, noise)
        with torch.no_grad():
            self.seen.bias[width : 2 * width] = LONG_MEMORY

    def step(self, features: Tensor, memory: Tensor) -> Tensor:
        return self._step(F.linear(features, self.seen.weight, self.seen.bias), memory)

    def over(self, features: Tensor, memory: Tensor, begins: Tensor) -> Tensor:
        """[L, S, D] -> what is remembered after each step, [L, S, H]."""
        seen = F.linear(features, self.seen.weight, self.seen.bias)
        keeps = (~begins).to(memory.dtype).unsqueeze(2)
        remembered = []
        for now, keep, any_begins in zip(seen.unbind(0), keeps.unbind(0), begins.any(1).tolist(), strict=True):
            memory = self._step(now, memory * keep if any_begins else memory)
            remembered.append(memory)
        return torch.stack(remembered)

    def _step(self, seen: Tensor, memory: Tensor) -> Tensor:
        held = F.linear(memory, self.held.weight, self.held.bias)
        both = 2 * self.width
        gates = torch.sigmoid(seen[:, :both] + held[:, :both])
        fresh, keep = gates[:, : self.width], gates[:, self.width :]
        new = torch.tanh(torch.addcmul(seen[:, both:], fresh, held[:, both:]))
        return torch.lerp(new, memory, keep)

    def empty(self, count: int) -> Tensor:
        """The memory of `count` instances that have seen nothing."""
        return self.held.weight.new_zeros(count, self.width)


def _three_gates(size: int, width: int, noise: torch.Generator) -> nn.Linear:
    """What to let through of the memory, what to keep of it, and what is new: three matrices in one, each orthogonal."""
    layer = nn.utils.skip_init(nn.Linear, size, 3 * width)  # type: ignore[no-untyped-call]
    assert isinstance(layer, nn.Linear)
    for gate in range(3):
        nn.init.orthogonal_(layer.weight.detach()[gate * width : (gate + 1) * width], 1.0, generator=noise)
    nn.init.zeros_(layer.bias)
    return layer
