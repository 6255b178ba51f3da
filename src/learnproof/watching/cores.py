"""The environment inside of its wrappers: what it pays itself and when it ends, beside what the wrappers make of that.

A wrapper may scale, shape or clip rewards, and it may turn them round by mistake, or call an end a time limit; the script sees only what
comes out. Where a wrapper stands around an environment that could change its answers, the rewards of the innermost one are summed up too,
episode by episode, and its own word on the end is kept.
"""

from __future__ import annotations

import weakref
from typing import Any

from .glances import held, is_a

DEEPEST = 32
PLAIN_WRAPPERS = ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker", "RecordEpisodeStatistics", "Autoreset", "Monitor")
"""Wrappers that leave observations, actions and rewards as they are."""
NOT_OF_REWARDS = ("ObservationWrapper", "ActionWrapper")


def cores_of(environment: Any, copies: int, vector: bool) -> list[Any]:
    """The innermost environment of each copy, where a wrapper around it may change rewards; empty where none does, or where
    some are in another process."""
    core, around = environment, False
    for _ in range(DEEPEST):
        listed = held(core, "envs")
        if is_a(listed, (list, tuple)):
            found = [_core(single, around) for single in listed]
            return found if len(found) == copies and None not in found else []
        inner = held(core, "venv") or (held(core, "env") if vector else None)
        if inner is None:
            break
        around = around or _changes_rewards(core)
        core = inner
    found = [] if vector else [_core(environment, False)]
    return found if None not in found else []


def _core(single: Any, around: bool) -> Any:
    core = single
    for _ in range(DEEPEST):
        inner = held(core, "env")
        if inner is None:
            return core if around else None
        around = around or _changes_rewards(core)
        core = inner
    return None


def _changes_rewards(wrapper: Any) -> bool:
    kinds = type(wrapper).__mro__
    if kinds[0].__name__ in PLAIN_WRAPPERS:
        return False
    owner = next((kind for kind in kinds if "step" in vars(kind) or "step_wait" in vars(kind)), None)
    return owner is not None and owner.__name__ not in (*NOT_OF_REWARDS, "Wrapper", "VectorWrapper", "VecEnvWrapper")


class Cores:
    """Rewards of innermost environments, summed up since somebody asked last."""

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}
        self.sums: dict[int, float] = {}
        self.ended: dict[int, bool] = {}
        """Whether the last step was an end of the task."""

    def watch(self, core: Any) -> None:
        self.known[id(core)] = weakref.ref(core)
        self.sums[id(core)] = 0.0

    def stepped(self, core: Any, answer: Any) -> None:
        known = self.known.get(id(core))
        if known is not None and known() is core:
            self.sums[id(core)] += float(answer[1])
            self.ended[id(core)] = len(answer) == 5 and bool(answer[2])

    def taken(self, core: int) -> float:
        found = self.sums.get(core, 0.0)
        self.sums[core] = 0.0
        return found
