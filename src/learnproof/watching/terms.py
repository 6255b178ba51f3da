"""A loss taken apart into the terms that are added up, each with its factor."""

from __future__ import annotations

from typing import Any

from .nodes import REDUCTIONS, THROUGH, number_of, operand, saved, shape_of

DEEPEST = 60


class Term:
    def __init__(self, node: Any, coefficient: float, reductions: list[str]) -> None:
        self.node = node
        self.coefficient = coefficient
        self.reductions = reductions
        self.shape = shape_of(node, 0)
        self.nodes: list[Any] = []
        self.members: set[Any] = set()
        """Their numbers."""
        self.structure: list[str] = []


def split(
    torch: Any,
    node: Any,
    coefficient: float,
    reductions: list[str],
    terms: list[Term],
    depth: int,
    values: bool,
) -> None:
    """The terms that are added up to a loss, each with its factor and how its rows were put together."""
    name = node.name()
    if depth < 60 and len(terms) < 64:
        if name in ("AddBackward0", "SubBackward0"):
            alpha = float(saved(node, "alpha") or 1.0)
            for position, sign in ((0, 1.0), (1, alpha if name == "AddBackward0" else -alpha)):
                below = operand(node, position)
                if below is not None:
                    split(torch, below, coefficient * sign, reductions, terms, depth + 1, values)
            return
        if name in REDUCTIONS:
            split(torch, operand(node, 0), coefficient, [*reductions, REDUCTIONS[name]], terms, depth + 1, values)
            return
        if name in ("CatBackward0", "StackBackward0"):
            below_all = [below for below, _ in node.next_functions if below is not None]
            if len({below.name() for below in below_all}) == 1 and len(below_all) > 4:
                terms.append(Term(node, coefficient, reductions))  # many alike: one term, not one each
                return
            for below in below_all:
                split(torch, below, coefficient, [*reductions, "stack"], terms, depth + 1, values)
            return
        scale = _scale(torch, node, name) if values or name in THROUGH or name == "NegBackward0" else None
        if scale is not None:
            split(torch, scale[0], coefficient * scale[1], reductions, terms, depth + 1, values)
            return
    terms.append(Term(node, coefficient, reductions))


def _scale(torch: Any, node: Any, name: str) -> tuple[Any, float] | None:
    """The node below and the factor, where this one only multiplies by a number or passes on."""
    first, second = operand(node, 0), operand(node, 1)
    if name == "NegBackward0":
        return first, -1.0
    if name in ("RsubBackward0", "RsubBackward1") and first is not None and second is None:
        return first, -1.0
    if name in THROUGH:
        return (first, 1.0) if first is not None else None
    return factor_of(torch, node)


def factor_of(torch: Any, node: Any) -> tuple[Any, float] | None:
    """The node below and the factor, where this one multiplies by one number or divides by it."""
    name, first, second = node.name(), operand(node, 0), operand(node, 1)
    if name == "MulBackward0" and (first is None) != (second is None):
        factor = one_number(torch, saved(node, "other") if second is None else saved(node, "self"))
        return None if factor is None else (first if second is None else second, factor)
    if name == "DivBackward0" and first is not None and second is None:
        divisor = one_number(torch, saved(node, "other"))
        return None if not divisor else (first, 1.0 / divisor)
    return None


def one_number(torch: Any, value: Any) -> float | None:
    if isinstance(value, (int, float)):
        return float(value)
    if torch.is_tensor(value) and value.numel() == 1:
        return float(value.detach())
    return None


def additions(root: Any) -> list[int]:
    """Numbers of rows of what was added to the objective row by row and has no gradient: it teaches nothing. Masks and weights that stand
    above it are looked through."""
    found: list[int] = []
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if node is None or depth > DEEPEST:
            continue
        name = node.name()
        both = [operand(node, 0), operand(node, 1)]
        if name in ("AddBackward0", "SubBackward0"):
            rows = max(shape_of(node, 0) or (1,), default=1)
            if rows > 1 and (both[0] is None) != (both[1] is None):
                found.append(rows)
            waiting += [(below, depth + 1) for below in both]
        elif name in REDUCTIONS or name in THROUGH or name == "NegBackward0":
            waiting.append((both[0], depth + 1))
        elif name in ("MulBackward0", "DivBackward0") and (both[0] is None) != (both[1] is None):
            waiting += [(below, depth + 1) for below in both]
    return found


def averaged_sums(torch: Any, root: Any, values: bool) -> set[Any]:
    """Sums of which the loss is a mean and nothing else: the mean of (N, 1) + (N,) is that of both, and has their gradients, though it is N x N."""
    found: set[Any] = set()
    waiting = [(root, False, 0)]
    while waiting:
        node, averaged, depth = waiting.pop()
        if node is None or depth > DEEPEST:
            continue
        name = node.name()
        if name in ("AddBackward0", "SubBackward0"):
            if averaged:
                found.add(number_of(node))
            waiting += [(operand(node, position), averaged, depth + 1) for position in (0, 1)]
        elif name in REDUCTIONS:
            if REDUCTIONS[name] == "mean":
                waiting.append((operand(node, 0), True, depth + 1))
        else:
            scale = _scale(torch, node, name) if values or name in THROUGH or name == "NegBackward0" else None
            if scale is not None:
                waiting.append((scale[0], averaged, depth + 1))
    return found
