"""Names for things that have none: modules, parameters, optimizers.

A parameter is called by the outermost module that holds it and its path there ("agent.critic.0.weight"). The outermost
module is called by the variable or attribute that holds it in the code that made the optimizer, where that can be found,
else by its class. A tensor that is trained without a module (a temperature, say) is called by its variable, else by its
shape. Two of the same name are told apart by the order in which they were made.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .glances import attributes, is_a

MODULES_KEPT = 20_000
"""References to modules; past it the dead ones are swept out."""


class Names:
    def __init__(self) -> None:
        self.made = 0
        """Modules made since watching began; grows, so that others know when to look again."""
        self._modules: dict[int, tuple[Any, int]] = {}
        """id -> reference and number, of every module made or unpickled, inner ones too."""
        self._variables: dict[int, tuple[Any, str]] = {}
        self._parameters: dict[int, tuple[Any, str]] = {}
        self._holders: dict[str, Any] = {}
        """name -> reference to the parameter that has it."""

    def module_found(self, module: Any) -> None:
        """One that was made before watching began."""
        for inner in module.modules():
            reference, _ = self._modules.get(id(inner), (None, 0))
            if reference is None or reference() is not inner:
                self.module_made(inner)

    def module_made(self, module: Any) -> None:
        self.made += 1
        self._modules[id(module)] = (weakref.ref(module), self.made)
        if len(self._modules) > MODULES_KEPT:
            self._modules = {key: kept for key, kept in self._modules.items() if kept[0]() is not None}

    def modules(self) -> list[Any]:
        """Those alive, in the order of their making."""
        alive = [(number, reference()) for reference, number in list(self._modules.values())]
        return [module for _, module in sorted((a for a in alive if a[1] is not None), key=lambda a: a[0])]

    def outermost(self) -> list[Any]:
        """Modules with parameters that are part of no other."""
        alive = self.modules()
        inner = {id(child) for module in alive for child in module.children()}
        return [m for m in alive if id(m) not in inner and next(m.parameters(), None) is not None]

    def name_parameters(self) -> None:
        """Give every parameter of every module a name; those known keep theirs while they live."""
        taken: dict[str, int] = {}
        for module in self.outermost():
            base = self._variable(module) or type(module).__name__
            taken[base] = taken.get(base, 0) + 1
            prefix = base if taken[base] == 1 else f"{base}#{taken[base]}"
            for path, parameter in module.named_parameters():
                if self._known(parameter) is None:
                    self._call(parameter, f"{prefix}.{path}")

    def _call(self, parameter: Any, name: str) -> str:
        """By this name, or, where another one that lives has it (a layer that was replaced, and that an optimizer still holds), by one more."""
        number = 1
        while True:
            own = name if number == 1 else f"{name}#{number}"
            holder = self._holders.get(own)
            if holder is None or holder() is None:
                break
            number += 1
        self._holders[own] = weakref.ref(parameter)
        self._parameters[id(parameter)] = (self._holders[own], own)
        return own

    def of_parameter(self, parameter: Any) -> str:
        known = self._known(parameter)
        if known is None:
            shape = "x".join(str(size) for size in parameter.shape) or "scalar"
            known = self._call(parameter, self._variable(parameter) or f"tensor-{shape}#{len(self._parameters)}")
        return known

    def of_module(self, module: Any) -> str:
        """As its parameters are called, without their own part."""
        path, parameter = next(module.named_parameters(), ("", None))
        if parameter is None:
            return type(module).__name__
        whole = self.of_parameter(parameter)
        return whole[: -len(path) - 1] if whole.endswith("." + path) else whole

    def of_follower(self, module: Any, leader: Any) -> str:
        """A network that shares parameters with another one is called after them; then its variable's name is better."""
        name = self.of_module(module)
        return name if name != self.of_module(leader) else self._variable(module) or f"the follower of {name}"

    def knows(self, parameters: list[Any]) -> bool:
        return all(self._known(parameter) is not None for parameter in parameters)

    def learn(self, torch: Any) -> None:
        """Look for modules and tensors in the code that is calling, and name all parameters that are new."""
        for thing in self._look_into_frames(lambda value: is_a(value, (torch.nn.Module, torch.Tensor))):
            if is_a(thing, torch.nn.Module):
                self.module_found(thing)
        self.name_parameters()

    def called_like(self, torch: Any, words: Any) -> list[tuple[str, Any]]:
        """Modules in the code that is calling, under the names there that `words` (a compiled pattern) finds."""
        found: dict[tuple[str, int], tuple[str, Any]] = {}
        for frame in _strangers_frames(6):
            for space in _spaces(frame):
                for name, value in list(space.items()):
                    if type(name) is str and words.search(name.lower()) and is_a(value, torch.nn.Module):
                        found[(name, id(value))] = (name, value)
        return list(found.values())

    def _look_into_frames(self, wanted: Callable[[Any], bool], depth: int = 12) -> list[Any]:
        """Read variable names: locals, then attributes of `self`, then globals."""
        found = []
        for frame in _strangers_frames(depth):
            for space in _spaces(frame):
                for name, value in list(space.items()):
                    ours = (
                        type(name) is str and not name.startswith("_") and name not in ("self", "cls") and wanted(value)
                    )
                    if ours and self._variable(value) is None:
                        self._variables[id(value)] = (weakref.ref(value), name)
                        found.append(value)
        return found

    def _known(self, parameter: Any) -> str | None:
        reference, name = self._parameters.get(id(parameter), (None, ""))
        return name if reference is not None and reference() is parameter else None

    def _variable(self, thing: Any) -> str | None:
        reference, name = self._variables.get(id(thing), (None, ""))
        return name if reference is not None and reference() is thing else None


def in_sight(depth: int) -> Iterator[tuple[str, Any]]:
    """The variables of the code that is calling, with their names."""
    for frame in _strangers_frames(depth):
        for space in _spaces(frame):
            yield from list(space.items())


def _strangers_frames(depth: int) -> Iterator[Any]:
    """Frames above us that belong neither to this package nor to torch."""
    frame: Any | None = sys._getframe(2)
    while frame is not None and depth > 0:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(("torch.", "_learnproof_watching", "learnproof.watching")):
            depth -= 1
            yield frame
        frame = frame.f_back


def _spaces(frame: Any) -> Iterator[dict[str, Any]]:
    local = frame.f_locals
    yield local
    own = attributes(local.get("self"))
    yield own
    modules = own.get("_modules")
    if modules is not None and is_a(modules, dict):
        yield modules
    yield frame.f_globals
