"""Looking at the script's objects without running its code.

Properties, __getattr__ and __class__ may be made to notice who asks: proxies that build something on first use, counters,
properties that print. Even isinstance asks an object for its __class__, unless its type is enough.
"""

from __future__ import annotations

from types import FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

LIBRARIES = ("gymnasium", "gym", "stable_baselines3")
"""Their own properties may be asked for: they notice nobody, unless they pass the question on."""


def is_a(thing: Any, kinds: Any) -> bool:
    """isinstance, by the true type alone."""
    return issubclass(type(thing), kinds)


def attributes(thing: Any) -> dict[str, Any]:
    """What an object holds in its dictionary; empty where it has none, or shows another one than its own."""
    for kind in type(thing).__mro__:
        shown = vars(kind).get("__dict__")
        if shown is not None:
            return shown.__get__(thing) if type(shown) is GetSetDescriptorType else {}
    return {}


def held(thing: Any, name: str) -> Any:
    """What an object holds under a name, in its dictionary or a slot; None where it would have to compute it."""
    own = attributes(thing)
    if name in own:
        return own[name]
    kind = _defining(type(thing).__mro__, name)
    found = None if kind is None else vars(kind)[name]
    if type(found) is MemberDescriptorType:
        try:
            return found.__get__(thing)
        except AttributeError:  # an empty slot
            return None
    return None if _computes(found) else found


def asked(environment: Any, name: str, even_if_computed: bool = False) -> Any:
    """An attribute of an environment; None where code of the script would have to answer.

    `even_if_computed` allows for a property of the script; its __getattr__ is never asked.
    """
    return getattr(environment, name, None) if _answers_unnoticed(environment, name, even_if_computed) else None


def _answers_unnoticed(thing: Any, name: str, even_if_computed: bool) -> bool:
    kinds = type(thing).__mro__
    if any(type(vars(kind).get("__getattribute__")) is FunctionType for kind in kinds):
        return False
    kind = _defining(kinds, name)
    if name in attributes(thing) and (kind is None or not hasattr(type(vars(kind)[name]), "__set__")):
        return True  # a property computed once and kept is kept here
    if kind is not None and (even_if_computed or not _computes(vars(kind)[name])):
        return True
    kind = kind or _defining(kinds, "__getattr__")
    if kind is None:
        return True
    inner = attributes(thing).get("env", attributes(thing).get("venv"))
    of_a_library = kind.__module__.partition(".")[0] in LIBRARIES
    return of_a_library and (inner is None or _answers_unnoticed(inner, name, even_if_computed))


def _defining(kinds: tuple[type, ...], name: str) -> type | None:
    return next((kind for kind in kinds if name in vars(kind)), None)


def _computes(found: Any) -> bool:
    return hasattr(type(found), "__get__") and type(found) is not MemberDescriptorType
