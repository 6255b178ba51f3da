"""The decorator of every kernel: compiled by numba on first use, kept on disk (kernel_cache.py), typed for the reader.

No fastmath: NaN and the order of additions keep their meaning, so that equal seeds give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

from .kernel_cache import kept_in, kernel_folder

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    return compiled(function)


def compiled(function: Function, **options: Any) -> Function:
    """Where nothing can be kept, compiled anew by each process."""
    folder = kernel_folder()
    if folder is None:
        return cast(Function, njit(**options)(function))
    with kept_in(folder):
        return cast(Function, njit(cache=True, **options)(function))
