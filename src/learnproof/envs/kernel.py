"""The decorator of every kernel: compiled by numba on first use, kept on disk, typed for the reader.

No fastmath: NaN and the order of additions keep their meaning, so that equal seeds give equal bytes. Numba keeps what it
compiled in __pycache__ and looks only at the file of the kernel that Python calls: after a change to a kernel that others
call from another file, delete the *.nbi files in __pycache__.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    return compiled(function)


def compiled(function: Function, **options: Any) -> Function:
    """Kept on disk beside the file or in the user's cache folder; where both are read-only, compiled anew by each process."""
    try:
        return cast(Function, njit(cache=True, **options)(function))
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return cast(Function, njit(**options)(function))
