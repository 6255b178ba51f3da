"""Every setting, typed, frozen and documented; TOML in and out. Imports no torch.

    settings = load_settings("configs/cartpole.toml")            # a file
    settings = settings.replace({"ppo.learning_rate": 1e-3})      # one value, by its dotted name
    text = to_toml(settings)                                     # complete: every default is written out

The docstring under a field is its help text on the command line. The defaults are those of the reference task
(task allocation); ready settings for other tasks are in configs/.
"""

from __future__ import annotations

import os
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import tomli_w
from pydantic import BaseModel, Field, ValidationError

from ..errors import SettingsError, did_you_mean
from .algorithms import DQNSettings, LearningSettings, PPOSettings, REINFORCESettings, SACSettings
from .sections import (
    CheckpointSettings,
    CuriositySettings,
    CurriculumSettings,
    EnvSettings,
    EvaluationSettings,
    EvidenceSettings,
    OptimizerSettings,
    PolicySettings,
    ProofSettings,
    ScheduleSettings,
    Section,
    StoppingSettings,
)

if TYPE_CHECKING:
    from .engine import EngineSettings

ALGORITHMS = ("ppo", "dqn", "sac", "reinforce")


class Settings(Section):
    """Everything that decides a run: equal settings and seed give equal bytes on one machine."""

    env: EnvSettings = EnvSettings()
    algorithm: Literal["ppo", "dqn", "sac", "reinforce"] = "ppo"
    """How it is learnt; the section of that name holds its settings."""
    steps: int = Field(100_000, ge=1)
    """Environment steps to train for, over all instances."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Root of every random generator of the run."""
    backend: Literal["auto", "torch", "compiled"] = "auto"
    """What computes: torch, or machine code, which knows networks of plain layers only. auto = machine code where it can."""
    device: str = "cpu"
    """torch device."""
    threads: int = Field(1, ge=1, le=1024)
    """Threads of torch; small networks are fastest with 1."""
    policy: PolicySettings = PolicySettings()
    schedule: ScheduleSettings = ScheduleSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    ppo: PPOSettings = PPOSettings()
    dqn: DQNSettings = DQNSettings()
    sac: SACSettings = SACSettings()
    reinforce: REINFORCESettings = REINFORCESettings()
    curiosity: CuriositySettings = CuriositySettings()
    curriculum: CurriculumSettings = CurriculumSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    stopping: StoppingSettings = StoppingSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    proof: ProofSettings = ProofSettings()
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Also write metrics for these (each an extra); evidence.jsonl is always written."""

    @property
    def learning(self) -> LearningSettings:
        """The section of the chosen algorithm."""
        chosen: LearningSettings = getattr(self, self.algorithm)
        return chosen

    def replace(self, changes: Mapping[str, Any]) -> Settings:
        """A copy with values changed by dotted name: {"ppo.gamma": 0.98, "seed": 3}."""
        return replaced(self, changes)


Whole = TypeVar("Whole", bound=Section)
"""Settings, or those of an engine (engine.py)."""


def replaced(settings: Whole, changes: Mapping[str, Any]) -> Whole:
    tree = settings.model_dump()
    for dotted, value in changes.items():
        *path, leaf = dotted.split(".")
        node = tree
        for name in path:
            if not isinstance(node.get(name), dict):
                raise _unknown_setting(dotted, type(settings))
            node = node[name]
        node[leaf] = value
    return parsed(type(settings), tree, "the changed settings")


def parse_settings(tree: Mapping[str, Any], source: str) -> Settings:
    return parsed(Settings, tree, source)


def parsed(model: type[Whole], tree: Mapping[str, Any], source: str) -> Whole:
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise explained(error, source, model) from None


def explained(error: ValidationError, source: str, model: type[Section] = Settings) -> SettingsError:
    return SettingsError(f"In {source}: " + "; ".join(_explain(item, model) for item in error.errors()))


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


def to_toml(settings: Settings | EngineSettings) -> str:
    """The effective settings, complete but for the sections of algorithms that were not chosen.

    None has no TOML form: such a key is left out, which reads back as None.
    """
    others = {name for name in ALGORITHMS if name != settings.algorithm}
    return tomli_w.dumps(settings.model_dump(mode="json", exclude_none=True, exclude=others))


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


def value_of(settings: Settings, dotted: str) -> Any:
    """One value, by its dotted name; of env.kwargs those that are given, else None."""
    node: Any = settings
    for name in dotted.split("."):
        if isinstance(node, dict):
            node = node.get(name)
        elif isinstance(node, BaseModel) and name in type(node).model_fields:
            node = getattr(node, name)
        else:
            raise _unknown_setting(dotted)
    if isinstance(node, BaseModel):
        raise SettingsError(f"{dotted!r} is a section of settings. Name one of them: {_names_in(dotted)}.")
    return node


def field_type(dotted: str) -> frozenset[type]:
    """The types that a setting may have: {float}, {int, NoneType}, ...; an argument of an environment may be any."""
    value_of(Settings(), dotted)
    model: Any = Settings
    for name in dotted.split("."):
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return frozenset({int, float, str, bool})
        model = model.model_fields[name].annotation
    return frozenset(_leaves_of(model))


def _leaves_of(annotation: Any) -> list[type]:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return [leaf for part in typing.get_args(annotation) for leaf in _leaves_of(part)]
    if origin is Literal:
        return [type(value) for value in typing.get_args(annotation)]
    return [origin or annotation]


def _names_in(section: str) -> str:
    names = [name for name in setting_names() if name.startswith(f"{section}.")]
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def _unknown_setting(dotted: str, model: type[Section] = Settings) -> SettingsError:
    known = setting_names(model)
    leaf = dotted.rsplit(".", 1)[-1]
    hint = did_you_mean(dotted, known) or _same_leaf(leaf, known)
    listed = "`learnproof train --help`" if model is Settings else f"help(learnproof.{model.__name__})"
    return SettingsError(f"There is no setting {dotted!r}.{hint} {listed} lists them all.")


def _same_leaf(leaf: str, known: list[str]) -> str:
    near = [name for name in known if name.rsplit(".", 1)[-1] == leaf]
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _explain(item: Mapping[str, Any], model: type[Section]) -> str:
    location = tuple(part for part in item["loc"] if isinstance(part, str))
    dotted = ".".join(location)
    if item["type"] == "extra_forbidden":
        return str(_unknown_setting(dotted, model))
    default = _default_of(location, model)
    shown = f" The default is {default!r}." if default is not None else ""
    value = repr(item["input"])
    return f"{dotted or 'the whole'} = {value[:80]} cannot be used: {item['msg'].lower()}.{shown}"


def _default_of(location: tuple[str, ...], model: type[Section]) -> Any:
    node: Any = model()
    for name in location:
        node = getattr(node, name, None)
        if node is None or not isinstance(node, (Section, *typing.get_args(int | float | str | bool | tuple))):
            return None
    return None if isinstance(node, Section) else node
