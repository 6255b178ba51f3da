"""Everything a watcher saw, by what the checks ask of it. Built once per evidence.

A job may have several processes; the one that trained most is looked at, and the others are named.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

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

PLAYED_BY_NETWORKS = 0.25
"""Share of a rollout's steps before which a network was asked; the calls of a long one may not all have been kept."""
MOSTLY = 0.5


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
        reaches = {e.index: frozenset(e.parameters) for e in evidence.of(Reach) if e.process == self.process}
        self.deputies = self._deputies(set().union(*reaches.values()))
        self.reaches = {i: frozenset(self._acting_for(name) for name in names) for i, names in reaches.items()}

    def _deputies(self, reached: set[str]) -> dict[str, str]:
        """Networks that a loss reaches -> the one that takes their gradients over. Workers of an asynchronous learner differentiate copies of
        the network and hand the gradients to the original: its optimizer finds gradients, though no loss reaches what it holds."""
        fed = {step.optimizer for step in self.steps if step.grad_norm and step.parameters}
        held = set().union(*(self.owned[index] for index in fed if not self.owned[index] & reached))
        forms: dict[Any, list[ModuleSeen]] = defaultdict(list)
        for module in self.modules.values():
            form = [(str(name).removeprefix(module.name), str(shape)) for name, shape, _ in module.parameters]
            forms[module.kind, tuple(form)].append(module)
        found: dict[str, str] = {}
        for alike in forms.values():
            names = {module.name: {str(name) for name, _, _ in module.parameters} for module in alike}
            principal = next((name for name, own in names.items() if own and own <= held), None)
            if principal is not None:
                found |= {name: principal for name, own in names.items() if own & reached and not own & self.all_owned}
        return found

    def _acting_for(self, name: str) -> str:
        """A module or parameter by the name that it has in the network which takes its gradients over."""
        for deputy, principal in self.deputies.items():
            if name == deputy or name.startswith(deputy + "."):
                return principal + name[len(deputy) :]
        return name

    def _renamed(self, event: LossSeen) -> LossSeen:
        if not self.deputies:
            return event
        calls, silent = (
            [{**about, "module": self._acting_for(str(about.get("module")))} for about in listed]
            for listed in (event.calls, event.silent)
        )
        return replace(event, calls=calls, silent=silent)

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
                self._renamed(event),
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

    def drawn(self, cycle: int) -> list[Loss]:
        """The cycle's `unmoved` losses, where the actions that they score were drawn by a network in it. Who trains on a data set learns
        log-probabilities of what a script or another policy did, in this cycle or in an earlier one."""
        return [loss for loss in self.unmoved(cycle) if not self._of_a_data_set(cycle, loss)]

    def _of_a_data_set(self, cycle: int, loss: Loss) -> bool:
        played = next((rollout for rollout in self.rollouts if rollout.cycle == cycle), None)
        rows = loss.policies[0].rows
        if played is None or loss.policies[0].time is not None or cycle not in self._long_cycles:
            return False
        copies = len(np.unique(np.stack([played.stream, played.copy]), axis=1).T)
        playing = [(times < played.time.max(), times, asked) for times, asked in self._asked[cycle]]
        moments = {int(moment) for then, times, _ in playing for moment in np.unique(times[then])}
        if len(moments) < PLAYED_BY_NETWORKS * len(played.time) / copies:
            return True
        shown = np.concatenate([played.observation, *(asked[then] for then, _, asked in playing)])
        return rows is not None and bool(np.isin(rows, shown).mean() < MOSTLY)

    @cached_property
    def _long_cycles(self) -> set[int]:
        """Those whose silent calls were written down with the rollout, if there were any."""
        return {sample.event.update for sample in self.evidence.samples("transitions")}

    @cached_property
    def _asked(self) -> dict[int, list[tuple[Any, Any]]]:
        """cycle -> moments and rows of the silent calls that were kept of it."""
        found: dict[int, list[tuple[Any, Any]]] = defaultdict(list)
        for sample in self.evidence.samples("calls"):
            names = (f"m{position}." for position in range(len(sample.event.modules)))
            pairs = ((sample.arrays.get(name + "time"), sample.arrays.get(name + "rows")) for name in names)
            found[sample.event.update] += [pair for pair in pairs if pair[0] is not None and pair[1] is not None]
        return found

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
