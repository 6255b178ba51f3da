"""What a TrainingEngine carries over a kill: everything that decides what comes next, as arrays and JSON.

As of a run (saving.py), but without environments: weights, optimizer, memory, target networks, schedule, normalisers, counters,
every random generator, weight snapshots, and the position in the evidence file.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..algorithms.learner import Learner
from ..algorithms.schedules import Schedule
from ..config import EngineSettings, parsed
from ..errors import EvidenceError, UsageError
from ..policies.normalization import RewardScaler
from ..runs.checkpoint import Checkpoint
from ..runs.folder import RunFolder
from ..runs.tensorfile import layout_of
from ..seeding import generator_state, restore_generator
from .saving import Groups
from .snapshots import Snapshots


@dataclass
class EngineProgress:
    calls: int = 0
    """Training calls that ended in an update."""
    episodes: int = 0
    transitions: int = 0


@dataclass
class EngineState:
    """Every part of an engine that has state."""

    learner: Learner
    schedule: Schedule
    reward_scaler: RewardScaler | None
    snapshots: Snapshots
    noise: np.random.Generator
    """Of the actions that the engine draws."""
    progress: EngineProgress

    def to_json(self, evidence_position: int, evidence_digest: str) -> dict[str, Any]:
        return {
            "learner": self.learner.state(),
            "schedule": self.schedule.state(),
            "snapshots": list(self.snapshots.kept),
            "noise": generator_state(self.noise),
            "progress": {**asdict(self.progress), "finished": False},
            "evidence": {"position": evidence_position, "sha256": evidence_digest},
        }

    def to_tensors(self) -> Groups:
        return {**self._own_tensors(), "snapshots": self.snapshots.tensors()}

    def load(self, checkpoint: Checkpoint) -> None:
        """Everything is read and checked before the first part is changed."""
        state = checkpoint.state()
        names = [str(name) for name in state["snapshots"]]
        wanted = {**self._own_tensors(), "snapshots": self.snapshots.layout(names)}
        groups = {name: checkpoint.tensors(name, layout_of(own)) for name, own in wanted.items()}
        self.learner.load(state["learner"], groups)
        self.schedule.load(state["schedule"])
        self.snapshots.load(names, groups["snapshots"])
        restore_generator(self.noise, state["noise"])
        if self.reward_scaler is not None:
            self.reward_scaler.load(groups["reward_scaler"])
        if self.learner.actor.normalizer is not None:
            self.learner.actor.normalizer.moments.load(groups["observation_normalizer"])
        counts = state["progress"]
        self.progress = EngineProgress(int(counts["calls"]), int(counts["episodes"]), int(counts["transitions"]))

    def _own_tensors(self) -> Groups:
        groups = dict(self.learner.tensors())
        if self.reward_scaler is not None:
            groups["reward_scaler"] = self.reward_scaler.state()
        if self.learner.actor.normalizer is not None:
            groups["observation_normalizer"] = self.learner.actor.normalizer.moments.state()
        return groups


def read_engine_settings(folder: RunFolder) -> EngineSettings:
    if not is_engine(folder):
        raise UsageError(
            f"{folder.path} is not an engine's folder: the run in it collected its own episodes, or was watched. Go on with it by "
            "`learnproof resume`, or judge it by `learnproof verify`."
        )
    return parsed(EngineSettings, tomllib.loads(folder.read_config()), str(folder.config))


def refuse_other_evidence(folder: RunFolder, position: int, sha256: str) -> None:
    """The evidence up to a checkpoint must be what the engine wrote."""
    body = folder.evidence.read_bytes() if folder.evidence.exists() else b""
    if len(body) < position or hashlib.sha256(body[:position]).hexdigest() != sha256:
        raise EvidenceError(
            f"{folder.evidence} is not what the engine wrote: the checkpoint noted {position} bytes with sha256 {sha256[:12]}…. Something "
            "changed it; a verdict that rests on it would prove nothing. Restore it from a copy."
        )


def is_engine(folder: RunFolder) -> bool:
    return "engine" in folder.read_about()
