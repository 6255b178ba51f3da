"""Asking a network once more, after the step: only where asking leaves no trace."""

from __future__ import annotations

from typing import Any

from .arrays import as_array
from .calls import Calls
from .session import Session, reading

PURE = (
    "Sequential", "Linear", "Bilinear", "Identity", "Flatten", "Unflatten", "Conv1d", "Conv2d", "Conv3d", "ReLU", "Tanh",
    "Sigmoid", "GELU", "SiLU", "ELU", "CELU", "SELU", "LeakyReLU", "PReLU", "Softplus", "Softsign", "Hardtanh", "Mish",
    "Softmax", "LogSoftmax", "LayerNorm", "GroupNorm", "RMSNorm", "MaxPool1d", "MaxPool2d", "AvgPool1d", "AvgPool2d",
    "AdaptiveAvgPool2d", "Embedding",
)  # fmt: skip
"""Layers whose forward pass has no effect but its result, in any mode."""


class Asking:
    def __init__(self, session: Session) -> None:
        self.session = session
        layers = session.torch.nn
        self.forwards = {getattr(layers, name): getattr(layers, name).forward for name in PURE if hasattr(layers, name)}

    @reading("asking again")
    def after(self, module: Any, given: Any) -> Any:
        """The module's answer after the step; only where asking leaves no trace."""
        if module is None or given is None or not self._pure(module):
            return None
        torch = self.session.torch
        calls: Calls = self.session.senses["calls"]
        depth = getattr(calls.local, "depth", 0)
        calls.local.depth = depth + 1
        calls.entry, entry = None, calls.entry
        try:
            with torch.no_grad():
                return as_array(module(given.detach()))
        finally:
            calls.local.depth = depth
            calls.entry = entry

    def _pure(self, module: Any) -> bool:
        """Made of plain layers only, as torch made them, without hooks."""
        torch = self.session.torch
        everywhere = torch.nn.modules.module
        if any(getattr(everywhere, f"_global_{kind}_hooks", None) for kind in ("forward", "forward_pre", "backward")):
            return False
        calls: Calls = self.session.senses["calls"]
        call = vars(torch.nn.Module).get("__call__")
        if call is not calls.original_call and not getattr(call, "_learnproof", False):
            return False
        for inner in module.modules():
            if self.forwards.get(type(inner)) is not type(inner).forward or "forward" in vars(inner):
                return False
            if getattr(inner, "inplace", False) or getattr(inner, "max_norm", None) is not None:
                return False
            if inner._forward_hooks or inner._forward_pre_hooks or inner._backward_hooks:
                return False
            if any(p is not None and type(p) is not torch.nn.Parameter for p in inner._parameters.values()):
                return False
        return True
