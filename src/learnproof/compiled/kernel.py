"""The decorator of this backend's kernels.

As envs/kernel.py's, and besides: sums may be added in any order, so that they go eight at a time, and a division by zero is
inf as in NumPy. What is not a number stays one: `nnan` and `ninf` are not among the liberties, since a gradient that is not
finite has to be seen. One machine gives the same bytes each time; another one may round otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from ..envs.kernel import compiled

Function = TypeVar("Function", bound=Callable[..., object])
LIBERTIES = {"reassoc", "contract", "arcp", "nsz"}


def kernel(function: Function) -> Function:
    return compiled(function, fastmath=LIBERTIES, error_model="numpy", nogil=True)


@kernel
def finite(x: float) -> bool:
    """As math.isfinite, which subtracts a number from itself: of a sum, added in any order, that leaves 0 and no NaN."""
    return bool(abs(x) < np.inf)
