"""What a checkpoint of a training run holds, and how a run goes on from one.

Everything that decides the future is in it: weights, optimizer, schedule, normalisers, counters, the best policy so far,
patience, every random generator, the environments' state where it can be had, and the position in the evidence file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..algorithms.learner import Learner
from ..algorithms.schedules import Schedule
from ..policies.actor import NetworkActor
from ..policies.normalization import ObservationNormalizer, RewardScaler
from ..runs.checkpoint import Checkpoint
from ..runs.tensorfile import layout_of
from .curriculum import Curriculum, require_same_kind
from .rollout import Collector
from .stopping import Stopping

Array = np.ndarray[Any, Any]
Groups = dict[str, dict[str, Array]]


@dataclass
class BestPolicy:
    """The policy that evaluated best, as copies and never views; the untrained one until there was an evaluation."""

    score: float | None
    step: int
    policy: dict[str, Array]


@dataclass
class Progress:
    """Where a run is."""

    iteration: int = 0
    episodes: int = 0
    next_evaluation: int = 0
    next_checkpoint: int = 0
    finished: bool = False


@dataclass
class RunState:
    """Every part of a run that has state, in one place."""

    learner: Learner
    collector: Collector
    schedule: Schedule
    stopping: Stopping
    reward_scaler: RewardScaler | None
    best: BestPolicy
    progress: Progress
    curriculum: Curriculum | None = None

    def to_json(self, evidence_position: int, evidence_digest: str) -> dict[str, Any]:
        stage = {} if self.curriculum is None else {"curriculum": self.curriculum.state()}
        return {
            **stage,
            "learner": self.learner.state(),
            "collector": self.collector.state(),
            "schedule": self.schedule.state(),
            "stopping": self.stopping.state(),
            "best": {"score": self.best.score, "step": self.best.step},
            "progress": vars(self.progress),
            "evidence": {"position": evidence_position, "sha256": evidence_digest},
        }

    def to_tensors(self) -> Groups:
        groups = {**self.learner.tensors(), "best_policy": self.best.policy}
        if self.reward_scaler is not None:
            groups["reward_scaler"] = self.reward_scaler.state()
        normalizer = self.learner.actor.normalizer
        if normalizer is not None:
            groups["observation_normalizer"] = normalizer.moments.state()
        environment = self.collector.tensors()
        if environment:
            groups["environment"] = environment
        return groups

    def load(self, checkpoint: Checkpoint) -> bool:
        """Take over a checkpoint; False where the environments had to begin their episodes anew.

        Everything is read and checked before the first part is changed, so that a damaged file leaves nothing half-loaded.
        """
        state = checkpoint.state()
        require_same_kind(state.get("curriculum"), self.curriculum)
        if self.curriculum is not None:
            self.curriculum.load(state["curriculum"])
            self.collector.enter(self.curriculum.environment())
        if self.collector.can_snapshot:
            self.collector.start()  # so that there is a state whose shapes can be compared
        groups = {name: checkpoint.tensors(name, layout_of(own)) for name, own in self.to_tensors().items()}
        self.learner.load(state["learner"], groups)
        self.schedule.load(state["schedule"])
        self.stopping.load(state["stopping"])
        if self.reward_scaler is not None:
            self.reward_scaler.load(groups["reward_scaler"])
        if self.learner.actor.normalizer is not None:
            self.learner.actor.normalizer.moments.load(groups["observation_normalizer"])
        self.best = BestPolicy(state["best"]["score"], int(state["best"]["step"]), groups["best_policy"])
        self.progress = Progress(**state["progress"])
        return self.collector.load(state["collector"], groups.get("environment", {}))


def policy_tensors(actor: NetworkActor) -> dict[str, Array]:
    """A copy of what an actor needs to act: its weights and its normaliser, in one group."""
    arrays = {f"network.{k}": v.detach().cpu().numpy().copy() for k, v in actor.named_tensors()}
    if actor.normalizer is not None:
        arrays |= {f"normalizer.{k}": v.copy() for k, v in actor.normalizer.moments.state().items()}
    return arrays


def load_policy_tensors(actor: NetworkActor, arrays: dict[str, Array]) -> None:
    """Put a policy into an actor in place: the parameters keep their storage, and so their learner."""
    with torch.no_grad():
        for name, tensor in actor.named_tensors():
            tensor.copy_(torch.from_numpy(arrays[f"network.{name}"]))
    if actor.normalizer is not None:
        normalizer = ObservationNormalizer(actor.observations.size)
        prefix = "normalizer."
        normalizer.moments.load({k[len(prefix) :]: v for k, v in arrays.items() if k.startswith(prefix)})
        actor.normalizer = normalizer


def load_policy_checkpoint(actor: NetworkActor, checkpoint: Checkpoint) -> None:
    """The policy of a best/ or initial/ checkpoint, digest-checked."""
    load_policy_tensors(actor, checkpoint.tensors("policy", layout_of(policy_tensors(actor))))
