"""The sections of a run's settings that every algorithm shares."""

from __future__ import annotations

import itertools
import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class EnvSettings(Section):
    """What there is to learn."""

    id: str = ""
    """Gymnasium id, e.g. CartPole-v1 or learnproof/TaskAllocation-v1."""
    kwargs: dict[str, int | float | str | bool] = {}
    """Arguments for the environment, as pairs: --env.kwargs n_agents 3."""
    n_envs: int = Field(4, ge=1, le=65_536)
    """Instances stepped side by side."""
    per_agent: bool = False
    """Each agent of a team decides by itself, all by one shared network, valued by a critic that sees the whole team (ppo,
    reinforce). For task allocation, or for a function that makes a PettingZoo parallel environment: module:function as id. n_envs and
    steps then count teams."""
    rewards: Literal["individual", "shared"] = "individual"
    """What an agent is paid (per_agent): its own reward, or the sum over its team."""
    vectorization: Literal["auto", "native", "sync", "async"] = "auto"
    """How instances are stepped: auto = one native batch for shipped environments, else one after the other."""
    cast_observations: bool = False
    """Accept observations of another dtype than the space declares, and convert them."""
    normalize_observations: bool = False
    """Subtract the running mean and divide by the running deviation; saved with the policy."""
    normalize_rewards: bool = False
    """Divide rewards by the running deviation of the discounted return."""


class PolicySettings(Section):
    """The networks."""

    hidden: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = Field((256, 256, 128), min_length=1, max_length=32)
    """Widths of the hidden layers, of the policy and of the value network alike."""
    activation: Literal["relu", "tanh"] = "relu"
    """Nonlinearity between layers."""
    shared_trunk: bool = False
    """One trunk for policy and value instead of two."""
    layer_norm: bool = False
    """Layer normalisation before each nonlinearity."""
    box_head: Literal["auto", "gaussian", "beta", "bernoulli"] = "auto"
    """Distribution over a Box of actions. auto = what the environment says fits it, else gaussian."""
    encoder: Literal["auto", "cnn", "none"] = "auto"
    """What reads observations before the layers do. auto = convolutions for every image (a 3-d Box) in them, nothing for the rest;
    none = images flat too. Policy and value share it."""
    recurrent: bool = False
    """Remember what was seen before (a GRU behind the encoder, which policy and value share); ppo and reinforce."""
    memory_size: int = Field(128, ge=1, le=65_536)
    """Numbers that a recurrent policy remembers."""
    log_std_init: float = Field(0.0, ge=-5, le=2)
    """Starting log standard deviation of the gaussian head."""


class ScheduleSettings(Section):
    """How the learning rate changes over the run."""

    kind: Literal["constant", "linear", "cosine", "plateau"] = "linear"
    """constant; linear or cosine: falls over the step budget, evenly or slowly first and last; plateau: is cut whenever
    evaluations stop improving, and so needs evaluation.every_steps."""
    final_fraction: float = Field(0.1, ge=0, le=1)
    """What is left of the learning rate at the end (linear, cosine) or at the least (plateau)."""
    warmup_fraction: float = Field(0.0, ge=0, lt=1)
    """Share of the budget over which the learning rate first rises from a tenth (warm-up); with any kind, 0 = none."""
    plateau_patience: int = Field(5, ge=1)
    """Evaluations without a new best before a cut (plateau); keep it below stopping.plateau_patience, which ends the run."""
    plateau_factor: float = Field(0.5, gt=0, lt=1)
    """Factor of one cut (plateau)."""


class OptimizerSettings(Section):
    """How gradients become steps."""

    kind: Literal["adam", "adamw", "muon"] = "adam"
    """muon = orthogonalised momentum for the matrices of hidden layers, Adam for the rest."""
    weight_decay: float = Field(0.0, ge=0)
    """Weights shrink by this share of the learning rate at each step (adamw, muon)."""
    grokfast: float = Field(0.0, ge=0)
    """Gradients are amplified by this much of their slow part (Grokfast); 0 = off, its authors use 2."""
    grokfast_alpha: float = Field(0.98, gt=0, lt=1)
    """How slow the slow part is."""


class CuriositySettings(Section):
    """A bonus for states that are new (random network distillation; PPO and REINFORCE)."""

    coefficient: float = Field(0.0, ge=0)
    """Weight of the bonus beside the reward; 0 = none. Its discounted sums have a deviation of about 1 per unit."""
    learning_rate: float = Field(1e-4, gt=0, le=10)
    """Step size of the network that learns which states are known; larger = novelty wears off sooner."""
    features: int = Field(32, ge=1, le=4_096)
    """Numbers that are predicted of each state."""
    minibatch_size: int = Field(256, ge=1)
    """States in one gradient step of it; each rollout is passed over once."""


class CurriculumStage(Section):
    """An easier form of the task, and what ends it: a score, a share of the budget, or whichever comes first."""

    kwargs: dict[str, int | float | str | bool] = {}
    """Arguments of the environment in this stage, over env.kwargs."""
    difficulty: float | None = Field(None, ge=0, le=1)
    """For environments with a method set_difficulty(level), 1 = the full task."""
    until_score: float | None = None
    """The next stage begins when this score is reached (curriculum.measure)."""
    until_fraction: float | None = Field(None, gt=0, lt=1)
    """The next stage begins at this share of the step budget, at the latest."""

    @model_validator(mode="after")
    def _begins_and_ends(self) -> CurriculumStage:
        if not self.kwargs and self.difficulty is None:
            raise ValueError(
                "a stage says what is easier in it, by kwargs or difficulty; the full task comes last by itself"
            )
        if self.until_score is None and self.until_fraction is None:
            raise ValueError("a stage says what ends it, by until_score or until_fraction")
        return self


class CurriculumSettings(Section):
    """Easier forms of the task first, in stages that a settings file lists; after the last one the full task. Evaluations and the proof are
    always of the full task."""

    stages: tuple[CurriculumStage, ...] = ()
    """In a settings file, each as [[curriculum.stages]] with kwargs or difficulty, and until_score or until_fraction."""
    measure: Literal["training", "evaluation"] = "training"
    """What until_score is compared with: the mean of the stage's newest training episodes, or evaluations on the full task."""
    episodes: int = Field(20, ge=1, le=100_000)
    """Training episodes of that mean."""

    @model_validator(mode="after")
    def _shares_rise(self) -> CurriculumSettings:
        shares = [stage.until_fraction for stage in self.stages if stage.until_fraction is not None]
        if any(later <= earlier for earlier, later in itertools.pairwise(shares)):
            raise ValueError(
                f"until_fraction counts from the start of the run and must rise from stage to stage, not {shares}"
            )
        return self


class EvaluationSettings(Section):
    """Measuring the policy on seeds of its own while training runs."""

    every_steps: int = Field(10_000, ge=0)
    """Steps between evaluations (SB3's eval_freq); 0 = none before the end."""
    episodes: int = Field(10, ge=1)
    """Episodes of one evaluation."""
    mode: Literal["deterministic", "sampled"] = "deterministic"
    """Which of the two measured modes chooses the best model, stops the run, and is proven."""
    max_episode_steps: int = Field(100_000, ge=1)
    """An evaluation episode that has not ended by then is an error."""


class StoppingSettings(Section):
    """When to stop before the step budget is spent."""

    plateau_patience: int = Field(10, ge=0)
    """Stop after this many evaluations without improvement; 0 = never."""
    plateau_min_improvement: float = Field(0.001, ge=0)
    """What counts as an improvement of the evaluation score."""
    target: float | None = None
    """Stop when an evaluation reaches this score; None = never."""
    decline_patience: int = Field(5, ge=0)
    """Stop after this many evaluations in a row that have lost decline_fraction of what was gained; 0 = never."""
    decline_fraction: float = Field(0.5, gt=0, le=1)
    """Share of the gain (best minus first evaluation) whose loss counts as decline."""


class CheckpointSettings(Section):
    """What is kept to go on from."""

    every_steps: int = Field(10_000, ge=1)
    """Steps between checkpoints."""
    keep: int = Field(5, ge=1)
    """Newest checkpoints kept."""
    mirror: str | None = None
    """A second place for each checkpoint: a folder or any fsspec URL (needs the extra 'mirror')."""

    @field_validator("mirror")
    @classmethod
    def _no_password(cls, value: str | None) -> str | None:
        if value is not None and re.search(r"://[^/]*:[^/]*@", value):
            raise ValueError(
                "a password in the URL would stand in config.toml: give it through the environment instead"
            )
        return value


class EvidenceSettings(Section):
    """What is written down of the training, for the verdict."""

    enabled: bool = True
    """Record evidence. Without it no run can be proven."""
    keep: Literal["samples", "statistics"] = "samples"
    """samples = also keep inspected batches (they may hold your data); statistics = numbers only."""
    max_inspections: int = Field(48, ge=0, le=10_000)
    """Iterations inspected in a run, at most."""
    updates_per_inspection: int = Field(2, ge=1, le=1_000)
    """Gradient steps looked at in an inspected iteration."""
    max_megabytes: float = Field(64.0, gt=0)
    """Inspected batches kept, at most."""
    check_every_episodes: int = Field(10, ge=1)
    """Finished episodes between two looks at the five classic checks."""


class ProofSettings(Section):
    """How the verdict is reached."""

    episodes: int = Field(100, ge=10)
    """Fresh seeds on which trained, initial and random policy are compared."""
    error_rate: float = Field(0.05, gt=0, lt=0.5)
    """Chance of calling a run proven whose policy is not better."""
    accusation_rate: float = Field(0.001, gt=0, lt=0.5)
    """Chance of calling a healthy run broken, over all checks together."""
    profile: Literal["default", "classic"] = "default"
    """default = statistics; classic = the five fixed rules of the first system decide."""
    waive: dict[str, str] = {}
    """Findings that are meant, as pairs of check and reason."""
