"""Environments of the script's own making, which belong to no library: objects with a `reset` and a `step`.

They are looked for where the script holds them, in the variables of the code that calls a network: as long as no environment of a
library has been stepped, or around the one that is. What `step` answers decides: (observation, reward, end), with a second flag or an info behind it or
not. An object that answers otherwise (a trainer, an agent with a memory) is none, and is left alone from then on.

Such an environment may say `done` for its time limit too. Episodes that end with the length of the longest ones, again and again, then
count as cut, and whether a cut episode's value is carried on or not is nobody's fault. Where it answers with two flags, or
holds an environment of Gymnasium's that does, limits are told.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

from .glances import is_a
from .names import in_sight
from .session import Session, reading

FRAMES = 6
LOOKS = 2_048
"""Calls of networks after which nothing is looked for any more; in between, at the first, second, fourth, ... one."""
HOME_MADE, LIMITS_TOLD = "home-made", "home-made, limits told"
"""Forms of their streams: one flag for ends and limits, or two, or a library's environment inside that tells them apart."""
INSIDE = ("env", "_env", "environment", "gym_env")
"""What a class around a library's environment calls it."""
AT_THE_LIMIT = 3
"""Episodes of the greatest length, from which on that length counts as a limit."""
INSTALLED = ("site-packages", "dist-packages")
CUT = ("TimeLimit.truncated", "truncated", "timeout", "time_limit")
"""What an info may call a time limit."""


class HomeMade:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.calls = 0

    def before_call(self) -> None:
        """A network is called from outside of all networks."""
        self.calls += 1
        if self.calls <= LOOKS and not self.calls & (self.calls - 1):
            self.look()

    @reading("home-made environments")
    def look(self) -> None:
        from .environments import watcher_of

        found = {type(thing): thing for thing in _things() if _may_be_one(self.session.torch, type(thing))}
        for kind, thing in found.items():
            watcher = watcher_of(self.session)
            if not self.session.env_steps or watcher.is_stepped(watcher.inside_of(thing)):
                watcher.classes.watch_home_made(kind)


def _things() -> Any:
    for _, value in in_sight(FRAMES):
        yield value
        if is_a(value, (list, tuple)) and len(value) > 0:
            yield value[0]


def _may_be_one(torch: Any, kind: type) -> bool:
    if issubclass(kind, (torch.nn.Module, torch.optim.Optimizer)) or _is_installed(kind):
        return False
    return all(_defines(kind, name) for name in ("reset", "step"))


def _defines(kind: type, name: str) -> bool:
    owner = next((each for each in kind.__mro__ if name in vars(each)), None)
    return owner is not None and type(vars(owner)[name]) is FunctionType


def _is_installed(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    file = str(getattr(module, "__file__", None) or "")
    return any(part in file for part in INSTALLED) or file.startswith(f"{sys.base_prefix}/lib/python")


def is_a_step(answer: Any) -> bool:
    """Whether an answer has the form (observation, reward, end, ...)."""
    if not is_a(answer, tuple) or not 3 <= len(answer) <= 5:
        return False
    return _is_number(answer[1]) and _is_flag(answer[2])


def _is_number(value: Any) -> bool:
    if is_a(value, (list, tuple)):
        return len(value) > 0 and all(is_a(each, (int, float)) for each in value)
    return is_a(value, (int, float)) or (_has_numbers(value) and getattr(value, "ndim", 9) <= 1)


def _is_flag(value: Any) -> bool:
    if is_a(value, (list, tuple)):
        return len(value) > 0 and all(is_a(each, (bool, int)) for each in value)
    if is_a(value, bool) or (is_a(value, int) and value in (0, 1)):
        return True
    return _has_numbers(value) and getattr(value, "ndim", 9) <= 1 and "float" not in str(value.dtype)


def _has_numbers(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in ("numpy", "torch") and hasattr(value, "dtype")


def has_two_flags(answer: Any) -> bool:
    return len(answer) > 3 and _is_flag(answer[3])


def copies_of(reward: Any) -> int | None:
    """Of a home-made vector: one reward for each; None for a single environment."""
    if is_a(reward, (list, tuple)):
        return len(reward)
    return int(reward.shape[0]) if getattr(reward, "ndim", 0) == 1 and reward.shape[0] > 1 else None


def parts_of(numpy: Any, answer: Any, vector: bool) -> tuple[Any, Any, Any, Any, Any]:
    """Observation, reward, whether the task ended, whether it was cut, info."""
    observation, reward, ended, *rest = answer
    cut = next((part for part in rest[:1] if _is_flag(part)), None)
    info: dict[Any, Any] = next((part for part in rest if is_a(part, dict)), {})
    if vector:
        reward, ended = (numpy.asarray(_plain(part)) for part in (reward, ended))
        cut = numpy.zeros(len(reward), bool) if cut is None else numpy.asarray(_plain(cut), bool)
        return observation, reward.astype(float), ended.astype(bool), cut, info
    told = any(is_a(info.get(name), bool) and info[name] for name in CUT)
    ended, cut = bool(ended), told or (cut is not None and bool(cut))
    return observation, float(reward), ended and not cut, cut, info


def _plain(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(type(value), "detach") else value
