"""Tensors as arrays that can be written down."""

from __future__ import annotations

from typing import Any


def as_array(tensor: Any) -> Any:
    """A copy on the CPU in float32, int64 or bool; None for what is complex, and as it is where it is no tensor."""
    if tensor is None:
        return None
    if not hasattr(tensor, "detach"):
        return tensor
    if tensor.is_complex():
        return None
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        tensor = tensor.float()
    elif str(tensor.dtype) != "torch.bool":
        tensor = tensor.long()
    return tensor.numpy().copy()
