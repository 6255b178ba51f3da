"""Which actions were tried: a policy cannot learn what it never does. Advice, never an accusation.

A policy that has learnt does little else than the right thing, so only the first part of the steps that were kept is looked at;
and a policy that is right from the start tries nothing else either.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ...evidence.watched import EnvironmentSeen
from ..check import Finding
from ..seen import Seen
from ..seen.losses import Array
from ..seen.spaces import box_bounds
from .base import SeenCheck

EARLY, MOST = 0.25, 40
"""Share of the rollouts and losses that were kept, in the order of training, and the largest number of them."""
ROWS_PER_ACTION = 50
"""Early steps for each action there is, from which an untried one is no chance: a policy without preference misses one of them with
probability exp(-50)."""
AT_THE_BOUND = 1e-3
"""Distance to a bound, over the range, at which an action counts as lying on it."""
SATURATED = 0.9
"""Share of numbers on a bound from which actions are as good as switched between two values."""
DISCRETE = re.compile(r"Discrete\((\d+)\)")
MULTI_DISCRETE = re.compile(r"MultiDiscrete\(\[([\d\s]+)\]\)")


class ActionsVary(SeenCheck):
    name = "actions_vary"
    concerns = "policies"
    question = "Were all actions tried early on, and not only the extreme ones?"
    family = "advice"
    accuses = "never"

    def lacks(self, seen: Seen) -> str:
        return "" if _early(seen) else "no actions were kept of an environment whose action space is known"

    def look(self, seen: Seen) -> Finding:
        known = _early(seen)
        if known is None:
            return self.finding("undecided", self.lacks(seen))
        space, actions = known
        choices, box = DISCRETE.fullmatch(space), box_bounds(space)
        if choices:
            return self._of_choices(actions[:, 0].astype(int), int(choices.group(1)))
        return self._of_forces(actions, *box) if box else self._unknown(space)

    def _unknown(self, space: str) -> Finding:
        return self.finding("undecided", f"Actions of {space} are not counted here.")

    def _of_choices(self, chosen: Array, count: int) -> Finding:
        tried = np.bincount(chosen, minlength=count)
        figures: dict[str, Any] = {"steps": len(chosen), "times_tried": tried[:64].tolist()}
        never = np.flatnonzero(tried == 0).tolist()
        if never and len(chosen) >= ROWS_PER_ACTION * count:
            return self.finding(
                "undecided",
                f"{len(never)} of {count} actions were not tried once in the {len(chosen)} early steps that were kept.",
                figures | {"never_tried": never[:64]},
                advice="Raise the entropy coefficient or the share of random actions, and look at how actions are numbered. In a task "
                "where those actions are never right, this is healthy.",
            )
        if never:
            return self.finding("undecided", f"{len(chosen)} early steps are too few for {count} actions.", figures)
        return self.finding("pass", f"All {count} actions were tried in {len(chosen)} early steps.", figures)

    def _of_forces(self, actions: Array, low: float, high: float) -> Finding:
        near = AT_THE_BOUND * (high - low)
        share = float(np.mean((actions <= low + near) | (actions >= high - near)))
        figures: dict[str, Any] = {"steps": len(actions), "share_on_a_bound": share}
        if share >= SATURATED:
            return self.finding(
                "undecided",
                f"{share:.0%} of the early actions lie on a bound of {low:g} to {high:g}: nothing between is tried.",
                figures,
                advice="Actions are scaled too large, or the policy's outputs start far from 0: look at its last layer, at the noise "
                "and at what is clipped. Where full force is right, this is healthy.",
            )
        return self.finding("pass", f"{share:.0%} of {len(actions)} early actions lie on a bound.", figures)


def _early(seen: Seen) -> tuple[str, Array] | None:
    """The action space that was acted in most, and the actions of the first part of what was kept, each step once."""
    parts = [(r.stream, r.time, r.copy, r.action) for r in _first(seen.rollouts) if r.action is not None]
    kept = [loss.arrays for loss in _first(seen.training_losses) if "t.action" in loss.event.roles]
    parts += [(a["t.stream"], a["t.time"], a["t.copy"], a["t.action"]) for a in kept]
    if not parts:
        return None
    stream, time, copy, action = (np.concatenate([part[column] for part in parts]) for column in range(4))
    most = int(np.bincount(stream.astype(int)).argmax())
    environment = seen.environments.get(most)
    space = "" if environment is None else _of_one(environment)
    if not (DISCRETE.fullmatch(space) or box_bounds(space)):
        return None
    mine = stream == most
    _, once = np.unique(np.stack([time[mine], copy[mine]], axis=1), axis=0, return_index=True)
    return space, action[mine][once]


def _first(listed: list[Any]) -> list[Any]:
    return listed[: min(MOST, max(1, int(EARLY * len(listed))))]


def _of_one(environment: EnvironmentSeen) -> str:
    """The action space of one copy of a vector whose copies are alike."""
    counts = MULTI_DISCRETE.fullmatch(environment.action_space)
    if environment.vector and counts and len(set(counts.group(1).split())) == 1:
        return f"Discrete({counts.group(1).split()[0]})"
    return environment.action_space
