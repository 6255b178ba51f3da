"""EngineSettings: everything that decides what a TrainingEngine does with the episodes that it is given.

The sections are those of a run that collects its own (sections.py, algorithms.py). What each training call says itself has no
effect in them: the length of a rollout, the size of a minibatch, epochs, and how often a memory is trained from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from .algorithms import DQNSettings, LearningSettings, PPOSettings, SACSettings
from .sections import (
    EnvSettings,
    EvaluationSettings,
    EvidenceSettings,
    OptimizerSettings,
    PolicySettings,
    ProofSettings,
    ScheduleSettings,
    Section,
)
from .settings import Settings, replaced


class EngineDQNSettings(DQNSettings):
    """Deep Q-learning from given episodes."""

    learning_starts: int = Field(0, ge=0, le=0)
    """0: the episodes are there already, and the first call trains."""


class EngineSACSettings(SACSettings):
    """Soft actor-critic from given episodes."""

    learning_starts: int = Field(0, ge=0, le=0)
    """0: the episodes are there already, and the first call trains."""


class EngineSettings(Section):
    """Equal settings, seed and episodes give equal bytes on one machine."""

    algorithm: Literal["ppo", "dqn", "sac"] = "ppo"
    """How it is learnt; the section of that name holds its settings."""
    state_dim: int = Field(256, ge=1, le=1_000_000)
    """Numbers in an observation, where no observation space is given."""
    action_dim: int = Field(64, ge=1, le=65_536)
    """Actions to choose from, or dimensions of a continuous one, where no action space is given."""
    actions: Literal["discrete", "continuous"] = "discrete"
    """What action_dim counts; continuous ones lie between -1 and 1."""
    batch_size: int = Field(64, ge=2)
    """Transitions in a minibatch, where a training call does not say."""
    num_epochs: int = Field(4, ge=1)
    """Passes over the episodes of a training call, where it does not say; of a memory, as many minibatches as that."""
    expected_transitions: int = Field(100_000, ge=1)
    """What schedules of learning rate and exploration are stretched over; more may come, they then stay at their end."""
    name: str = Field("episodes", min_length=1, max_length=200)
    """What the episodes are of, for reports."""
    evaluation_env: str = ""
    """Gymnasium id of an environment in which verify_learning plays the policies; empty = none, or one that is given as an object."""
    metric: str = Field("return", min_length=1)
    """What performance means: "return", or a name in the episodes' metrics; higher is better."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Root of every random generator of the engine."""
    backend: Literal["auto", "torch", "compiled"] = "auto"
    """What computes: torch, or machine code, which knows networks of plain layers only. auto = machine code where it can."""
    device: str = "cpu"
    """torch device."""
    threads: int = Field(1, ge=1, le=1024)
    """Threads of torch; small networks are fastest with 1."""
    normalize_observations: bool = False
    """Subtract the mean and divide by the deviation of all observations given so far; saved with the policy."""
    normalize_rewards: bool = False
    """Divide rewards by the deviation of the discounted return of all episodes given so far."""
    keep_checkpoints: int = Field(5, ge=1)
    """Newest checkpoints kept."""
    max_snapshots: int = Field(16, ge=0)
    """Weight snapshots that can be held at once."""
    policy: PolicySettings = PolicySettings()
    schedule: ScheduleSettings = ScheduleSettings(kind="constant")
    optimizer: OptimizerSettings = OptimizerSettings()
    ppo: PPOSettings = PPOSettings()
    dqn: EngineDQNSettings = EngineDQNSettings()
    sac: EngineSACSettings = EngineSACSettings()
    evidence: EvidenceSettings = EvidenceSettings(max_inspections=96)
    evaluation: EvaluationSettings = EvaluationSettings(every_steps=0)
    """Only mode and max_episode_steps have an effect, where there is an environment to play."""
    proof: ProofSettings = ProofSettings()
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Also write metrics for these (each an extra); evidence.jsonl is always written."""

    @property
    def learning(self) -> LearningSettings:
        """The section of the chosen algorithm."""
        chosen: LearningSettings = getattr(self, self.algorithm)
        return chosen

    def replace(self, changes: Mapping[str, Any]) -> EngineSettings:
        """A copy with values changed by dotted name: {"ppo.gamma": 0.98, "seed": 3}."""
        return replaced(self, changes)

    def of_run(self) -> Settings:
        """The same in the form of a run's settings, for the parts that an engine shares with runs."""
        shared = [
            "algorithm",
            "seed",
            "backend",
            "device",
            "threads",
            "policy",
            "schedule",
            "optimizer",
            "ppo",
            "dqn",
            "sac",
        ]
        shared += ["evidence", "evaluation", "proof", "trackers"]
        env = EnvSettings(
            id=self.name,
            n_envs=1,
            normalize_observations=self.normalize_observations,
            normalize_rewards=self.normalize_rewards,
        )
        return Settings(env=env, steps=self.expected_transitions, **{name: getattr(self, name) for name in shared})

    @model_validator(mode="after")
    def _is_no_bandit(self) -> EngineSettings:
        if self.learning.gamma == 0:
            raise ValueError(
                f"{self.algorithm}.gamma = 0 credits an action with its next reward alone, which is a bandit: set it above 0"
            )
        return self

    @model_validator(mode="after")
    def _knows_of_no_evaluations(self) -> EngineSettings:
        if self.schedule.kind == "plateau":
            raise ValueError("schedule.kind = plateau waits for evaluations, and an engine makes none: use another one")
        return self
