"""A stranger's training function: found by its name, called with what it asks for."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import UsageError, did_you_mean
from .environment import ProbeEnv

OFFERED = ("env", "make_env", "steps", "seed", "gamma")


def find_function(named: str) -> Callable[..., Any]:
    """`module:function` or `path/to/file.py:function`, found from the working folder."""
    place, colon, name = named.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"{named!r} names no function. Give it as module:function or file.py:function.")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise UsageError(f"{place} cannot be imported: {error}. Start from the folder it is in.") from None
    except UsageError:
        raise
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(line.filename).name}:{line.lineno}"
        raise UsageError(
            f"{place} cannot be imported: it raised {type(error).__name__}: {error} ({where}). Mend that first; what trains "
            "belongs into the function."
        ) from None
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            offered = [word for word in dir(found) if not word.startswith("_") and callable(getattr(found, word))]
            raise UsageError(f"{place} has no {name!r}.{did_you_mean(name, offered)}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{named} is a {type(found).__name__}, not a function that trains.")
    function: Callable[..., Any] = found
    return function


def _load_file(path: Path) -> Any:
    if not path.exists():
        raise UsageError(f"There is no file {path}.")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be loaded as a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def arguments_for(
    train: Callable[..., Any], env: ProbeEnv, make_env: Callable[[], ProbeEnv], steps: int, seed: int, gamma: float
) -> dict[str, Any]:
    """Those of what we offer that the function takes, by name; the environment under whatever name comes first."""
    offered = {"env": env, "make_env": make_env, "steps": steps, "seed": seed, "gamma": gamma}
    try:
        parameters = inspect.signature(train).parameters
    except (TypeError, ValueError):
        return {"env": env}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return offered
    taken = {name: offered[name] for name in parameters if name in offered}
    if "env" not in taken and "make_env" not in taken:
        first = next(iter(parameters), None)
        if first is None or first in offered:
            raise UsageError(
                f"{_name(train)} takes no environment. It is called with what it names of: {', '.join(OFFERED)}."
            )
        taken = {first: env, **taken}
    for name, parameter in parameters.items():
        if (
            name not in taken
            and parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ):
            raise UsageError(
                f"{_name(train)} wants {name!r}, which is not known here. It is called with what it names of: "
                f"{', '.join(OFFERED)}; give the others a default."
            )
    return taken


def _name(train: Callable[..., Any]) -> str:
    return getattr(train, "__qualname__", type(train).__name__)
