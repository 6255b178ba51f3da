"""Errors that were clamped before they were squared: beyond the limit the loss is flat, so that the largest errors teach nothing.

Clamping the gradient (a Huber loss) and clamping the error look alike on paper. The graph tells them apart, and so do the rows: those
beyond the limit get a gradient of exactly 0.
"""

from __future__ import annotations

import numpy as np

from ..seen import Seen

CLAMPED = ("PowBackward0", ("ClampBackward0", "ClampBackward1"), ("SubBackward0", "RsubBackward1"))
"""(v - y).clamp(-c, c) ** 2, from the outside in. A clipped value of PPO has its clamp further in."""
MANY = 0.05
"""Share of the rows without a gradient from which the clamp acts; a few beyond it may be meant as outliers."""


def clamped_errors(seen: Seen) -> tuple[int, float]:
    """Losses with such a term, and the share of their rows that get no gradient."""
    shares = []
    for loss in seen.training_losses:
        if not any(_is_clamped(term["structure"]) for term in loss.event.terms):
            continue
        gradients = [loss.arrays.get(f"c{position}.gradient") for position in range(len(loss.event.calls))]
        shares += [
            float((g.reshape(len(g), -1) == 0).all(axis=1).mean()) for g in gradients[:1] if g is not None and g.ndim
        ]
    share = float(np.mean(shares)) if shares else 0.0
    return (len(shares), share) if share > MANY else (0, share)


def _is_clamped(structure: list[str]) -> bool:
    square, clamps, differences = CLAMPED
    return len(structure) > 2 and structure[0] == square and structure[1] in clamps and structure[2] in differences
