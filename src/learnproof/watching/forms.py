"""Functions of our own in the form of others: with the same parameters and defaults, whoever looks.

inspect.signature follows __wrapped__ and is content with any wrapper; getfullargspec, __defaults__, __code__ and the
errors of a wrong call are not. So a wrapper that the script may look at is compiled with the parameters of what it wraps.
"""

from __future__ import annotations

import functools
import inspect
from types import CodeType, FunctionType
from typing import Any

OURS = "our_"
"""How the names in a body begin, which no parameter may."""


def in_the_form_of(original: FunctionType, body: str, **bound: Any) -> FunctionType | None:
    """A function with the parameters of `original` that does what `body` says; None where there can be none.

    In the body, {passed} stands for the parameters as a call hands them on, {given} for a tuple of those that have a place,
    {named} for a dictionary of the others.
    """
    text = _text(original.__code__, body, tuple(bound))
    made = None if text is None else _binder(text)(**bound)
    if made is not None:
        made.__defaults__, made.__kwdefaults__ = original.__defaults__, original.__kwdefaults__
    return made


def _text(code: CodeType, body: str, bound: tuple[str, ...]) -> str | None:
    names = list(code.co_varnames)
    placed, names = names[: code.co_argcount], names[code.co_argcount :]
    named, names = names[: code.co_kwonlyargcount], names[code.co_kwonlyargcount :]
    more = [f"*{names.pop(0)}"] if code.co_flags & inspect.CO_VARARGS else []
    others = [f"**{names.pop(0)}"] if code.co_flags & inspect.CO_VARKEYWORDS else []
    declared = [*placed, *(more or (["*"] if named else [])), *named, *others]
    if code.co_posonlyargcount:
        declared.insert(code.co_posonlyargcount, "/")
    if any(name.strip("*").startswith(OURS) for name in declared):
        return None
    body = body.format(
        passed=", ".join([*placed, *more, *(f"{name}={name}" for name in named), *others]),
        given=f"({''.join(f'{part}, ' for part in [*placed, *more])})",
        named=f"{{{', '.join([*(f'{name!r}: {name}' for name in named), *others])}}}",
    )
    head = f"def bind({', '.join(bound)}):\n def function({', '.join(declared)}):\n  "
    return head + "\n  ".join(body.strip().splitlines()) + "\n return function\n"


@functools.lru_cache(maxsize=64)
def _binder(text: str) -> Any:
    space: dict[str, Any] = {"__name__": __name__}
    exec(text, space)
    return space["bind"]
