"""Every setting, typed, frozen and documented; TOML in and out. Imports no torch.

    settings = load_settings("configs/cartpole.toml")            # a file
    settings = settings.replace({"ppo.learning_rate": 1e-3})      # one value, by its dotted name
    text = to_toml(settings)                                     # complete: every default is written out

The docstring under a field is its help text on the command line. The defaults are those of the reference task
(task allocation); ready settings for other tasks are in configs/.
"""

from __future__ import annotations

import os
import re
import tomllib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from .errors import SettingsError, did_you_mean


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

    hidden: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = Field((256, 256, 128), max_length=32)
    """Widths of the hidden layers, of the policy and of the value network alike."""
    activation: Literal["relu", "tanh"] = "relu"
    """Nonlinearity between layers."""
    shared_trunk: bool = False
    """One trunk for policy and value instead of two."""
    layer_norm: bool = False
    """Layer normalisation before each nonlinearity."""
    box_head: Literal["auto", "gaussian", "beta", "bernoulli"] = "auto"
    """Distribution over a Box of actions. auto = what the environment says fits it, else gaussian."""
    log_std_init: float = Field(0.0, ge=-5, le=2)
    """Starting log standard deviation of the gaussian head."""


class ScheduleSettings(Section):
    """How the learning rate changes over the run."""

    kind: Literal["constant", "linear", "cosine", "plateau"] = "linear"
    """constant, linear or cosine decay over the step budget, or plateau: cut when evaluations stop improving."""
    final_fraction: float = Field(0.1, ge=0, le=1)
    """What is left of the learning rate at the end (linear, cosine) or at the least (plateau)."""
    warmup_fraction: float = Field(0.0, ge=0, lt=1)
    """Share of the budget over which the learning rate first rises from 0."""
    plateau_patience: int = Field(5, ge=1)
    """Evaluations without improvement before a cut (plateau)."""
    plateau_factor: float = Field(0.5, gt=0, lt=1)
    """Factor of one cut (plateau)."""


class PPOSettings(Section):
    """Proximal policy optimisation."""

    n_steps: int = Field(2048, ge=1)
    """Steps of each environment in one rollout."""
    minibatch_size: int = Field(64, ge=2)
    """Transitions in one gradient step."""
    epochs: int = Field(10, ge=1)
    """Passes over each rollout."""
    learning_rate: float = Field(3e-4, ge=0, le=10)
    """Step size of Adam at the start of its schedule."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """Trace decay of generalised advantage estimation."""
    clip_range: float = Field(0.2, gt=0, lt=1)
    """How far the probability ratio may move before its gradient is cut."""
    clip_range_value: float | None = Field(None, gt=0)
    """The same for the value function; None = not clipped."""
    normalize_advantage: bool = True
    """Zero mean and unit deviation in each minibatch."""
    entropy_coefficient: float = Field(0.01, ge=0)
    """Weight of the entropy bonus."""
    value_coefficient: float = Field(0.5, ge=0)
    """Weight of the value loss."""
    max_grad_norm: float = Field(0.5, gt=0)
    """Gradients are scaled down to this norm."""
    target_kl: float | None = Field(None, gt=0)
    """Stop the epochs of a rollout when approx_kl passes 1.5 times this; None = never."""
    adam_epsilon: float = Field(1e-5, gt=0)
    """Adam's epsilon."""


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


class Settings(Section):
    """Everything that decides a run: equal settings and seed give equal bytes on one machine."""

    env: EnvSettings = EnvSettings()
    algorithm: Literal["ppo"] = "ppo"
    """How it is learnt."""
    steps: int = Field(100_000, ge=1)
    """Environment steps to train for, over all instances."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Root of every random generator of the run."""
    backend: Literal["auto", "torch"] = "auto"
    """What computes the updates."""
    device: str = "cpu"
    """torch device."""
    threads: int = Field(1, ge=1, le=1024)
    """Threads of torch; small networks are fastest with 1."""
    policy: PolicySettings = PolicySettings()
    schedule: ScheduleSettings = ScheduleSettings()
    ppo: PPOSettings = PPOSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    stopping: StoppingSettings = StoppingSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    proof: ProofSettings = ProofSettings()
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Also write metrics for these (each an extra); evidence.jsonl is always written."""

    def replace(self, changes: Mapping[str, Any]) -> Settings:
        """A copy with values changed by dotted name: {"ppo.gamma": 0.98, "seed": 3}."""
        tree = self.model_dump()
        for dotted, value in changes.items():
            *path, leaf = dotted.split(".")
            node = tree
            for name in path:
                if not isinstance(node.get(name), dict):
                    raise _unknown_setting(dotted)
                node = node[name]
            node[leaf] = value
        return parse_settings(tree, "the changed settings")


def parse_settings(tree: Mapping[str, Any], source: str) -> Settings:
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise explained(error, source) from None


def explained(error: ValidationError, source: str) -> SettingsError:
    return SettingsError(f"In {source}: " + "; ".join(_explain(item) for item in error.errors()))


def load_settings(path: str | os.PathLike[str]) -> Settings:
    """Read a TOML file; what it leaves out keeps its default."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError(
            f"There is no settings file {str(path)!r}. Ready ones are in configs/ of the project."
        ) from None
    except IsADirectoryError:
        raise SettingsError(f"{str(path)!r} is a folder; give the TOML file in it.") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{str(path)!r} is not a text file; settings are TOML in UTF-8.") from None
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{str(path)!r} is not valid TOML: {error}.") from None
    return parse_settings(tree, repr(str(path)))


def to_toml(settings: Settings) -> str:
    """The effective settings, complete. None has no TOML form: such a key is left out, which reads back as None."""
    return tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True))


def setting_names(model: type[BaseModel] = Settings, prefix: str = "") -> list[str]:
    """Every dotted name: ["env.id", "env.n_envs", ..., "seed", ...]."""
    names: list[str] = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            names += setting_names(inner, f"{prefix}{name}.")
        else:
            names.append(prefix + name)
    return names


def _unknown_setting(dotted: str) -> SettingsError:
    known = setting_names()
    leaf = dotted.rsplit(".", 1)[-1]
    hint = did_you_mean(dotted, known) or _same_leaf(leaf, known)
    return SettingsError(f"There is no setting {dotted!r}.{hint} `learnproof train --help` lists them all.")


def _same_leaf(leaf: str, known: list[str]) -> str:
    near = [name for name in known if name.rsplit(".", 1)[-1] == leaf]
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _explain(item: Mapping[str, Any]) -> str:
    location = tuple(part for part in item["loc"] if isinstance(part, str))
    dotted = ".".join(location)
    if item["type"] == "extra_forbidden":
        return str(_unknown_setting(dotted))
    default = _default_of(location)
    shown = f" The default is {default!r}." if default is not None else ""
    value = repr(item["input"])
    return f"{dotted or 'the whole'} = {value[:80]} cannot be used: {item['msg'].lower()}.{shown}"


def _default_of(location: tuple[str, ...]) -> Any:
    node: Any = Settings()
    for name in location:
        node = getattr(node, name, None)
        if node is None or not isinstance(node, (Section, *typing.get_args(int | float | str | bool | tuple))):
            return None
    return None if isinstance(node, Section) else node
