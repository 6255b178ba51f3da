"""Everything a watcher saw, by what the checks ask of it. Built once per evidence.

A job may have several processes; the one that trained most is looked at, and the others are named.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...evidence import Evidence
from ...evidence.watched import (
    CalledAs,
    EnvironmentSeen,
    EnvironmentTotals,
    FollowerMoved,
    FollowerSeen,
    FollowerStorage,
    FollowerTotals,
    LossSeen,
    ModuleSeen,
    OptimizerSeen,
    OptimizerStep,
    OptimizerTotals,
    Reach,
    Watched,
)
from .losses import Loss
from .pooling import pooled
from .rollouts import Rollout, read_rollouts, read_short_rollouts
from .spaces import box_bounds


@dataclass(frozen=True)
class Follower:
    """A network that no optimizer trains and that has the form of one that is trained."""

    met: FollowerSeen
    storage: FollowerSeen
    """How it stood when last looked at as a whole."""
    moves: list[FollowerMoved]
    totals: FollowerTotals | None

    @property
    def name(self) -> str:
        return self.met.name


class Seen:
    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.notes: dict[str, Any] = {}
        """What several checks share and is dear to work out."""
        counts = Counter(event.process for event in evidence.of(OptimizerStep))
        self.process = counts.most_common(1)[0][0] if counts else 0
        self.steps = [e for e in evidence.of(OptimizerStep) if e.process == self.process]
        self.optimizers: dict[int, OptimizerSeen] = {}
        self.owned: dict[int, set[str]] = defaultdict(set)
        self.owned_whole = True
        """False where an optimizer owns more parameters than are listed by name."""
        for event in evidence.of(OptimizerSeen):
            if event.process == self.process:
                self.optimizers[event.index] = event
                self.owned[event.index].update(event.owns)
                self.owned_whole &= len(event.owns) == event.n_owned
        self.optimizer_totals = {e.optimizer: e for e in evidence.of(OptimizerTotals) if e.process == self.process}
        modules = [e for e in evidence.of(ModuleSeen) if e.process == self.process]
        self.modules = {event.name: event for event in modules}
        self.trainable = {str(name): bool(grad) for event in modules for name, _, grad in event.parameters}
        """parameter -> whether it asked for gradients when it was met."""
        self.environments = {e.index: e for e in evidence.of(EnvironmentSeen) if e.process == self.process}
        self.environment_totals = {e.index: e for e in evidence.of(EnvironmentTotals) if e.process == self.process}
        totals = [e for e in evidence.of(Watched) if e.process == self.process]
        self.totals = totals[-1] if totals else None
        self.reaches = {e.index: frozenset(e.parameters) for e in evidence.of(Reach) if e.process == self.process}

    @cached_property
    def losses(self) -> list[Loss]:
        return [loss for loss in self._all_losses if not loss.event.sought]

    @cached_property
    def sought_losses(self) -> list[Loss]:
        """Training losses beside them, read for the sake of a row in their batch that is rare: nothing is counted on them."""
        return [loss for loss in self._all_losses if loss.event.sought and loss.event.accumulates]

    @cached_property
    def _all_losses(self) -> list[Loss]:
        nothing: frozenset[str] = frozenset()
        return [
            Loss(
                event,
                self.evidence,
                self.reaches.get(event.reach, nothing),
                [self.reaches.get(int(term["reach"]), nothing) for term in event.terms],
            )
            for event in self.evidence.of(LossSeen)
            if event.process == self.process
        ]

    @cached_property
    def training_losses(self) -> list[Loss]:
        """Those that leave gradients behind; torch.autograd.grad does not."""
        return [loss for loss in self.losses if loss.event.accumulates]

    @cached_property
    def by_cycle(self) -> dict[int, list[Loss]]:
        found: dict[int, list[Loss]] = defaultdict(list)
        for loss in self.training_losses:
            found[loss.cycle].append(loss)
        return found

    @cached_property
    def all_owned(self) -> set[str]:
        return set().union(*self.owned.values()) if self.owned else set()

    def owners(self, parameters: frozenset[str]) -> set[int]:
        return {index for index, owned in self.owned.items() if owned & parameters}

    @cached_property
    def followers(self) -> list[Follower]:
        moves: dict[int, list[FollowerMoved]] = defaultdict(list)
        for moved in self.evidence.of(FollowerMoved):
            if moved.process == self.process:
                moves[moved.follower].append(moved)
        totals = {e.index: e for e in self.evidence.of(FollowerTotals) if e.process == self.process}
        storage = {e.index: e for e in self.evidence.of(FollowerStorage) if e.process == self.process}
        met_here = [
            met
            for met in self.evidence.of(FollowerSeen)
            if met.process == self.process and not isinstance(met, FollowerStorage)
        ]
        return [
            Follower(met, storage.get(met.index, met), moves[met.index], totals.get(met.index))
            for met in met_here
            if not any(_is_part_of(met, other) for other in met_here)
        ]

    def trained_under(self, words: str) -> dict[str, str]:
        """name -> module, of names with one of these words in them that came to stand for a network which an optimizer holds."""
        found = {}
        for event in self.evidence.of(CalledAs):
            parts = re.split(r"[_\d]+", event.name.lower())
            owned = any(name.startswith(event.module + ".") for name in self.all_owned)
            if event.process == self.process and owned and {part.rstrip("s") for part in parts} & set(words.split()):
                found[event.name] = event.module
        return found

    @cached_property
    def rollouts(self) -> list[Rollout]:
        """Cycles whose transitions were kept, each with the losses that were made of it."""
        long = read_rollouts(self.evidence, self.by_cycle)
        return [*long, *read_short_rollouts(self.by_cycle, {rollout.cycle for rollout in long})]

    @cached_property
    def pooled_rollouts(self) -> list[Rollout]:
        """The same, with short ones put together, for questions that need many rows."""
        return pooled(self.rollouts)

    @cached_property
    def on_policy(self) -> bool:
        """Whether log-probabilities of actions are trained on the rollouts in which they were taken."""
        return bool(self.on_policy_cycles)

    @cached_property
    def on_policy_cycles(self) -> set[int]:
        return {
            rollout.cycle
            for rollout in self.rollouts
            if any(not policy.even for loss in rollout.losses for policy in loss.policies)
        }

    def unmoved(self, cycle: int) -> list[Loss]:
        """The cycle's first loss with log-probabilities, where no loss before it has moved their network."""
        before: set[str] = set()
        for loss in self.by_cycle.get(cycle, []):
            if loss.policies:
                return [] if before & loss.reach else [loss]
            before |= loss.reach
        return []

    @cached_property
    def action_bound(self) -> float | None:
        """The one that all numbers of all actions have, on both sides; None where there is none such."""
        found = {box_bounds(environment.action_space) for environment in self.environments.values()}
        bounds = found.pop() if len(found) == 1 else None
        return bounds[1] if bounds is not None and bounds[0] == -bounds[1] else None

    @cached_property
    def limits_told(self) -> bool:
        """Whether the environments tell a time limit from an end; a home-made one merges them, and says `done` for both."""
        return all(environment.form != "home-made" for environment in self.environments.values())

    @property
    def updates(self) -> int:
        """Optimizer steps of the whole run, as far as they are known."""
        counted = sum(total.steps for total in self.optimizer_totals.values())
        last = max((step.update + 1 for step in self.steps), default=0)
        return max(counted, last, self.totals.updates if self.totals is not None else 0)


def seen(evidence: Evidence) -> Seen:
    known = evidence.derived.get(Seen)
    if known is None:
        known = evidence.derived[Seen] = Seen(evidence)
    return known


def _is_part_of(met: FollowerSeen, whole: FollowerSeen) -> bool:
    """Whether it is a part of a network that follows as a whole, met no later: what is said of the whole is said of it."""
    part = met.name[len(whole.name) :]
    together = met.name.startswith(whole.name + ".") and met.leader == whole.leader + part
    return together and whole.update <= met.update
