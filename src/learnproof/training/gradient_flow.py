"""One look at one loss: which parameters does its gradient reach, and is it sound there?

    flow = learnproof.gradient_flow(loss, model)
    if not flow.healthy:
        print("\\n".join(flow.problems))

The gradients that the model holds are left as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

EXPLODING_NORM = 100.0


@dataclass(frozen=True)
class ParameterFlow:
    """The gradient of one parameter; norm is None where the loss does not reach it at all."""

    name: str
    norm: float | None
    mean: float | None
    std: float | None
    nan: int
    inf: int
    problem: str | None
    """no gradient, NaN, Inf, zero gradient, exploding, or None."""


@dataclass(frozen=True)
class GradientFlow:
    parameters: list[ParameterFlow]
    total_norm: float
    problems: list[str]

    @property
    def healthy(self) -> bool:
        return not self.problems


def gradient_flow(loss: Tensor, model: nn.Module) -> GradientFlow:
    """Differentiate `loss` once, without touching `.grad`; frozen parameters (requires_grad=False) are left out."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not loss.requires_grad:
        parts = [ParameterFlow(name, None, None, None, 0, 0, "no gradient") for name, _ in named]
        return GradientFlow(parts, 0.0, ["the loss has no graph: it was detached, rebuilt, or computed under no_grad"])
    gradients = torch.autograd.grad(loss, [p for _, p in named], retain_graph=True, allow_unused=True)
    parts = [_describe(name, gradient) for (name, _), gradient in zip(named, gradients, strict=True)]
    total = sum(part.norm**2 for part in parts if part.norm is not None) ** 0.5
    problems = [f"{part.name}: {part.problem}" for part in parts if part.problem]
    return GradientFlow(parts, total, problems)


def _describe(name: str, gradient: Tensor | None) -> ParameterFlow:
    if gradient is None:
        return ParameterFlow(name, None, None, None, 0, 0, "no gradient")
    values = gradient.detach().double()
    norm, mean = float(values.norm()), float(values.mean())
    std = float(values.std(correction=0))
    nan, inf = int(values.isnan().sum()), int(values.isinf().sum())
    problem = None
    if nan:
        problem = "NaN"
    elif inf:
        problem = "Inf"
    elif norm == 0:
        problem = "zero gradient"
    elif norm >= EXPLODING_NORM:
        problem = "exploding"
    return ParameterFlow(name, norm, mean, std, nan, inf, problem)
