"""Stepper: a module's parameters as one flat vector under one optimizer, with everything a learner owes about it.

norm = stepper.step(learning_rate)              # clip, refuse what is not finite, step
modules = stepper.report(before, learning_rate)  # norms, changes and steps of each module
arrays = stepper.tensors()                       # weights, optimizer state and starting point, for a checkpoint
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from ..config import LearningSettings, OptimizerSettings
from ..errors import TrainingFault
from ..policies.flat import FlatParameters
from .learner import Array, ModuleReport
from .optimizers import FlatAdam, load_optimizer_tensors, make_optimizer, optimizer_tensors


class Stepper:
    def __init__(self, module: nn.Module, settings: LearningSettings, optimizer: OptimizerSettings) -> None:
        self.flat = FlatParameters(module)
        self.start = self.flat.vector.detach().clone()
        self.max_grad_norm = settings.max_grad_norm
        self.optimizer = make_optimizer(self.flat, optimizer, settings.adam_epsilon)
        owners = np.array([self.flat.module_of(stretch.name) for stretch in self.flat.stretches])
        self.owned = {str(module): np.flatnonzero(owners == module) for module in dict.fromkeys(owners)}
        """Which parameters each module has."""
        self.steps = 0
        self.scale = 1.0
        """What clipping last multiplied the gradients by."""

    def step(self, learning_rate: float) -> float:
        """Take the gradients that the module holds, clipped; their norm before that."""
        norm = float(torch.linalg.vector_norm(self.flat.gradient))
        if not math.isfinite(norm):
            raise self.not_finite()
        self.scale = min(1.0, self.max_grad_norm / (norm + 1e-6))
        if self.scale < 1.0:
            self.flat.gradient.mul_(self.scale)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        if isinstance(self.optimizer, FlatAdam):
            self.optimizer.advance()
        else:
            self.optimizer.step()
        self.steps += 1
        return norm

    def moments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Adam's, as they live on: means, squares, and the number of steps that they have seen."""
        assert isinstance(self.optimizer, FlatAdam)
        return self.optimizer.moments()

    def weights(self) -> Tensor:
        """A copy of all of them, as they are now."""
        return self.flat.vector.detach().clone()

    def report(self, before: Tensor, learning_rate: float, prefix: str = "") -> dict[str, ModuleReport]:
        """What the iteration that began at `before` did to each module."""
        after = self.flat.vector.detach()
        norms, changes, steps, gradients = self.norms(after, after - self.start, after - before, self.flat.gradient)
        modules: dict[str, ModuleReport] = {}
        for module, own in self.owned.items():
            modules[prefix + module] = ModuleReport(
                weight_norm=math.sqrt(float((norms[own] ** 2).sum())),
                weight_change=float(changes[own].sum()),
                weight_step=float(steps[own].sum()),
                grad_norm=math.sqrt(float((gradients[own] ** 2).sum())),
                learning_rate=learning_rate,
            )
        return modules

    def parameter_figures(self, before: Tensor) -> dict[str, list[float]]:
        """name -> [gradient norm before clipping, weight norm, size of the step]."""
        gradients, weights, moved = self.norms(self.flat.gradient, before, self.flat.vector.detach() - before)
        names = [stretch.name for stretch in self.flat.stretches]
        figures: list[list[float]] = np.stack([gradients / self.scale, weights, moved], axis=1).tolist()
        return dict(zip(names, figures, strict=True))

    def norms(self, *vectors: Tensor) -> list[Array]:
        """Of each of these flat vectors, the norm of each parameter's part."""
        return [self.flat.norms(vector).double().cpu().numpy() for vector in vectors]

    def sizes(self) -> dict[str, int]:
        return {stretch.name: stretch.stop - stretch.start for stretch in self.flat.stretches}

    # ------------------------------------------------------------------ over a kill

    def weight_tensors(self) -> dict[str, Array]:
        return {
            s.name: self.flat.vector.detach()[s.start : s.stop].view(s.shape).cpu().numpy() for s in self.flat.stretches
        }

    def optimizer_tensors(self) -> dict[str, Array]:
        state = {name: tensor.detach().cpu().numpy() for name, tensor in optimizer_tensors(self.optimizer).items()}
        return {**{name: np.atleast_1d(array) for name, array in state.items()}, "start": self.start.cpu().numpy()}

    def load(self, weights: dict[str, Array], optimizer: dict[str, Array]) -> None:
        with torch.no_grad():
            for stretch in self.flat.stretches:
                self.flat.vector[stretch.start : stretch.stop] = self._tensor(weights[stretch.name]).flatten()
        self.start = self._tensor(optimizer["start"]).clone()
        state = {name: self._tensor(array) for name, array in optimizer.items() if name != "start"}
        load_optimizer_tensors(self.optimizer, state)

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.flat.vector.device)

    def not_finite(self) -> TrainingFault:
        bad = [name for name, piece in self.flat.named(self.flat.gradient) if not bool(torch.isfinite(piece).all())]
        return TrainingFault(
            f"Gradient step {self.steps} gave gradients that are not finite in "
            f"{', '.join(bad[:4]) or 'no single parameter (their norm overflows)'}. The step was not taken and the weights "
            "are as they were. Likeliest cause: a learning rate that is too high, or rewards or observations of huge size. "
            "Lower the learning rate, or set env.normalize_observations and env.normalize_rewards."
        )
