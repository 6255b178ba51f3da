"""Nodes of autograd's graph: walking from one to the next, and reading what they hold without changing it."""

from __future__ import annotations

from threading import get_ident
from typing import Any

THROUGH = (
    "ViewBackward0", "ReshapeAliasBackward0", "UnsafeViewBackward0", "SqueezeBackward0", "SqueezeBackward1",
    "SqueezeBackward2", "UnsqueezeBackward0", "ExpandBackward0", "CloneBackward0", "ToCopyBackward0", "AliasBackward0",
    "TransposeBackward0", "PermuteBackward0",
)  # fmt: skip
REDUCTIONS = {
    "MeanBackward0": "mean", "MeanBackward1": "mean", "SumBackward0": "sum", "SumBackward1": "sum",
    "NanmeanBackward0": "mean", "NansumBackward0": "sum",
}  # fmt: skip


def number_of(node: Any) -> Any:
    """Tells a node from all others without holding it: autograd counts them, in each thread for itself."""
    try:
        return None if node is None else (get_ident(), node._sequence_nr())
    except AttributeError:  # torch before 2.1
        return node


def walk(roots: list[Any], most: int) -> list[Any]:
    """Nodes breadth first from the roots."""
    seen = {root for root in roots if root is not None}
    order = list(seen)
    for node in order:
        if len(order) >= most:
            break
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                order.append(following)
    return order


def shape_of(node: Any, output: int) -> tuple[int, ...] | None:
    try:
        return tuple(int(size) for size in node._input_metadata[output].shape)
    except (AttributeError, IndexError, RuntimeError, TypeError):
        return None


def saved(node: Any, name: str) -> Any:
    """A saved tensor or number, or None where it was freed, changed in place, or never kept."""
    try:
        return getattr(node, "_saved_" + name)
    except (AttributeError, RuntimeError):
        return None


def operand(node: Any, position: int) -> Any:
    following = node.next_functions
    return following[position][0] if position < len(following) else None


# ---------------------------------------------------------------------- one node
