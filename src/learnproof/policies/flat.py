"""One flat vector behind all parameters of a module, and one behind all their gradients.

The vector is the truth that checkpoints, optimizers and other backends share; the module's parameters are views of it.
One flat tensor also makes Adam, gradient clipping and distances one operation each instead of one per layer.
`.to()`, `deepcopy` and `load_state_dict(assign=True)` break the aliasing silently, so `check_aliasing` is asserted
every iteration.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..errors import TrainingFault


@dataclass(frozen=True)
class Stretch:
    """Where one parameter lives in the flat vector."""

    name: str
    start: int
    stop: int
    shape: torch.Size


class FlatParameters:
    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.stretches: list[Stretch] = []
        position = 0
        for name, parameter in module.named_parameters():
            stop = position + parameter.numel()
            self.stretches.append(Stretch(name, position, stop, parameter.shape))
            position = stop
        holders = {
            id(parameter): (inner, name)
            for inner in reversed(list(module.modules()))
            for name, parameter in inner._parameters.items()
        }
        self._holders = [holders[id(parameter)] for parameter in module.parameters()]
        """Who holds each parameter, under which name: quicker than asking for all of them, every iteration."""
        device = next(module.parameters()).device
        self.vector = nn.Parameter(torch.empty(position, device=device))
        self.gradient = torch.zeros(position, device=device)
        self.vector.grad = self.gradient
        with torch.no_grad():
            for stretch, parameter in zip(self.stretches, module.parameters(), strict=True):
                view = self.vector[stretch.start : stretch.stop].view(stretch.shape)
                view.copy_(parameter)
                parameter.data = view
                parameter.grad = self.gradient[stretch.start : stretch.stop].view(stretch.shape)

    def check_aliasing(self) -> None:
        """Every parameter and gradient still lives in the flat vectors."""
        base, grad_base = self.vector.data_ptr(), self.gradient.data_ptr()
        for stretch, (holder, name) in zip(self.stretches, self._holders, strict=True):
            parameter = holder._parameters[name]
            gradient = None if parameter is None else parameter.grad
            moved = parameter is None or parameter.data_ptr() != base + 4 * stretch.start
            if moved or gradient is None or gradient.data_ptr() != grad_base + 4 * stretch.start:
                raise TrainingFault(
                    f"The parameter {stretch.name!r} no longer lives in the learner's flat vector, so that the "
                    "optimizer would train a copy. Something called .to(), zero_grad(set_to_none=True) or "
                    "load_state_dict(assign=True) on the network: use the learner's own state instead."
                )

    def named(self, vector: Tensor) -> list[tuple[str, Tensor]]:
        """Any flat vector of the same layout, cut up by parameter."""
        return [(s.name, vector[s.start : s.stop]) for s in self.stretches]

    def norms(self, vector: Tensor) -> Tensor:
        """L2 norm of each parameter's stretch."""
        return torch.stack(torch._foreach_norm([piece for _, piece in self.named(vector)]))

    def module_of(self, name: str) -> str:
        return name.split(".", 1)[0]
