"""Whoever records what torch does: compilers, tracers, modes and tensor subclasses of the script. They must not record us.

Where somebody records, the dear senses stand aside. What is read nevertheless (a loss whose mode has ended before its step,
a tensor subclass) is read without calling functions that the script has put between itself and torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


def standing_aside(torch: Any) -> Callable[[], bool]:
    """Whether somebody is recording what torch does: a compiler, a tracer, a mode that counts operations."""
    compiler = getattr(torch, "compiler", None)
    is_compiling = getattr(compiler, "is_compiling", None) or (lambda: False)
    is_tracing = getattr(torch._C, "_is_tracing", None) or (lambda: False)
    dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None) or (lambda: 0)
    function_modes = getattr(torch._C, "_len_torch_function_stack", None) or (lambda: 0)

    def look() -> bool:
        if is_compiling():
            return True
        return bool(is_tracing() or dispatch_modes() or (function_modes() and _counting_mode(torch)))

    return look


def _counting_mode(torch: Any) -> bool:
    """A default device is a mode too, and a harmless one."""
    modes = torch.overrides._get_current_function_mode_stack()
    return any(type(mode).__name__ != "DeviceContext" for mode in modes)


def unseen(torch: Any) -> Callable[[], Any]:
    """Makes contexts in which no mode and no __torch_function__ of a subclass is called.

    A subclass's __torch_dispatch__ stays: its tensors may have no numbers but through it.
    """
    without_functions = getattr(torch._C, "DisableTorchFunction", None) or contextlib.nullcontext
    dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None) or (lambda: 0)

    def context() -> Any:
        if not dispatch_modes():
            return without_functions()
        both = contextlib.ExitStack()
        both.enter_context(without_functions())
        try:
            from torch.utils._python_dispatch import _disable_current_modes
        except ImportError:
            return both
        both.enter_context(_disable_current_modes())
        return both

    return context
