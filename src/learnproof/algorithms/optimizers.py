"""Optimizers by name, as torch optimizers: Adam, AdamW, Muon, and Grokfast around any of them.

    optimizer = make_optimizer(flat, settings, epsilon)

Adam and AdamW work on the whole flat vector in one fused operation. Muon orthogonalises the momentum of each hidden
layer's matrix, so it works on the matrices themselves, which are views of the same vector; the rest (biases,
normalisations, the first and the last layer) is left to Adam, as Muon's author advises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adam import adam

from ..config import OptimizerSettings
from ..errors import SettingsError
from ..policies.flat import FlatParameters

MUON_RATE = 10.0
"""Muon's steps have the size of the matrix, Adam's that of a number: its learning rate is this much larger."""


def make_optimizer(flat: FlatParameters, settings: OptimizerSettings, epsilon: float) -> Optimizer:
    made: Optimizer
    match settings.kind:
        case "adam":
            made = FlatAdam(flat.vector, epsilon)
        case "adamw":
            made = torch.optim.AdamW([flat.vector], lr=0.0, eps=epsilon, weight_decay=settings.weight_decay, fused=True)
        case "muon":
            made = MuonWithAdam(flat, epsilon, settings.weight_decay)
    if settings.grokfast:
        return Grokfast(made, settings.grokfast, settings.grokfast_alpha)
    return made


class FlatAdam(torch.optim.Adam):
    """torch's Adam on one vector, with a way to step that goes straight to the computation.

    `step` sorts its parameters, asks for hooks and opens a profiler's record each time; at 70,000 parameters that is a third of it.
    """

    def __init__(self, vector: Tensor, epsilon: float) -> None:
        super().__init__([vector], lr=0.0, eps=epsilon, fused=True)
        self.vector = vector

    def moments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Means, squares and the number of steps, made where there was none yet."""
        state = self.state[self.vector]
        if not state:
            state.update(_first_state(self, self.vector))
        return state["exp_avg"], state["exp_avg_sq"], state["step"]

    def advance(self) -> None:
        """What `step` does."""
        state, group = self.state[self.vector], self.param_groups[0]
        if not state:
            self.step()
            return
        gradient = self.vector.grad
        assert gradient is not None
        with torch.no_grad():
            adam(
                [self.vector], [gradient], [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"]],
                fused=True, amsgrad=False, beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"],
                weight_decay=0.0, eps=group["eps"], maximize=False,
            )  # fmt: skip


class Grokfast(Optimizer):
    """Amplifies the slow part of the gradients before another optimizer steps (Lee et al. 2024, the moving-average form).

    slow <- alpha slow + (1 - alpha) g;  the inner optimizer sees g + amplify slow
    """

    def __init__(self, inner: Optimizer, amplify: float = 2.0, alpha: float = 0.98) -> None:
        self.inner = inner
        super().__init__(inner.param_groups, {"amplify": amplify, "alpha": alpha})
        self.param_groups = inner.param_groups  # one list: a learning rate set on either is set on both
        for group in self.param_groups:
            group.setdefault("amplify", amplify)
            group.setdefault("alpha", alpha)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = _asked(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    slow = self.state[parameter].setdefault("slow", torch.zeros_like(parameter))
                    slow.lerp_(parameter.grad, 1 - group["alpha"])
                    parameter.grad.add_(slow, alpha=group["amplify"])
        self.inner.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        return {"filter": super().state_dict(), "inner": self.inner.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.inner.load_state_dict(state_dict["inner"])
        super().load_state_dict(state_dict["filter"])
        self.param_groups = self.inner.param_groups


class MuonWithAdam(Optimizer):
    """torch's Muon on the matrices of hidden layers, Adam on everything else, behind one step."""

    def __init__(self, flat: FlatParameters, epsilon: float, weight_decay: float) -> None:
        if not hasattr(torch.optim, "Muon"):
            raise SettingsError(
                f"optimizer.kind = 'muon' needs torch 2.9 or newer, and this is {torch.__version__}. "
                "Use adam, or install a newer torch."
            )
        named = list(flat.module.named_parameters())
        matrices = [p for name, p in named if p.ndim == 2 and is_hidden(name, p)]
        chosen = {id(p) for p in matrices}
        others = [p for _, p in named if id(p) not in chosen]
        self.parts: list[Optimizer] = []
        if matrices:
            self.parts.append(torch.optim.Muon(matrices, lr=0.0, weight_decay=weight_decay))
        self.parts.append(torch.optim.Adam(others, lr=0.0, eps=epsilon))
        super().__init__([{"params": [p for _, p in named]}], {"lr": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = _asked(closure)
        rate = self.param_groups[0]["lr"]
        for part in self.parts:
            scale = MUON_RATE if isinstance(part, torch.optim.Muon) else 1.0
            for group in part.param_groups:
                group["lr"] = rate * scale
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for part, own in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(own)


def _asked(closure: Callable[[], float] | None) -> float | None:
    """The loss, where the caller has it computed by the step."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def is_hidden(name: str, parameter: Tensor) -> bool:
    """A matrix between two hidden layers; by the names of policies/networks.py the first is `layers.0`, the last `out`."""
    return ".layers." in f".{name}" and not name.endswith("layers.0.weight") and parameter.shape[0] > 1


# ---------------------------------------------------------------------- over a kill


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Every tensor of an optimizer's state, under one name each; of the same shapes before its first step as after."""
    found: dict[str, Tensor] = {}
    for where, part in _parts(optimizer):
        for position, parameter in enumerate(p for group in part.param_groups for p in group["params"]):
            for name, empty in _first_state(part, parameter).items():
                found[f"{where}{position}.{name}"] = part.state[parameter].get(name, empty)
    return found


def load_optimizer_tensors(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    for where, part in _parts(optimizer):
        for position, parameter in enumerate(p for group in part.param_groups for p in group["params"]):
            part.state[parameter] = {
                name: tensors[f"{where}{position}.{name}"].clone().view(empty.shape)
                for name, empty in _first_state(part, parameter).items()
            }


def _parts(optimizer: Optimizer) -> list[tuple[str, Optimizer]]:
    if isinstance(optimizer, Grokfast):
        return [("grokfast.", optimizer), *_parts(optimizer.inner)]
    if isinstance(optimizer, MuonWithAdam):
        return [(f"{type(part).__name__.lower()}.", part) for part in optimizer.parts]
    return [("", optimizer)]


def _first_state(optimizer: Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """What torch makes at the first step."""
    if isinstance(optimizer, Grokfast):
        return {"slow": torch.zeros_like(parameter)}
    if not isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)):
        return {"momentum_buffer": torch.zeros_like(parameter)}
    return {
        "step": torch.zeros(()),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }
