"""Which settings a sweep searches, and where. Imports neither torch nor Optuna.

    ppo.learning_rate = "1e-4..1e-3:log"         a range; :log for what is a matter of factors
    ppo.n_steps = "512..4096:doubling"           512, 1024, 2048, 4096
    policy.activation = ["relu", "tanh"]         choices; on the command line policy.activation=relu/tanh
    policy.hidden = [[64, 64], [256, 256]]       on the command line policy.hidden=64,64/256,256

On the command line each is one word after --vary; in a TOML file the names may be tables, as in a settings file. Every end
of every range and every choice is put into the settings once before a sweep begins, so that what cannot be is said then.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..config import Settings, field_type, value_of
from ..errors import SettingsError

Scale = Literal["linear", "log", "doubling"]
SCALES = ("linear", "log", "doubling")
MEASURES = ("evaluation.", "proof.", "evidence.", "checkpoint.", "trackers", "stopping.")
ELSEWHERE = {
    "seed": "Several seeds for each trial: --seeds 3.",
    "env.id": "Scores of two environments cannot be compared: sweep each by itself.",
    "algorithm": "Each algorithm has settings of its own: sweep each by itself, then `learnproof compare` the best.",
    "steps": "Every trial has the same budget; trials that fall behind are given up early (--pruner).",
}
FORM = "Write LOW..HIGH, LOW..HIGH:log, LOW..HIGH:doubling, or choices as ONE/TWO/THREE."


@dataclass(frozen=True)
class Range:
    low: float
    high: float
    scale: Scale = "linear"
    integer: bool = False

    @property
    def ends(self) -> tuple[Any, ...]:
        return (int(self.low), int(self.high)) if self.integer else (self.low, self.high)

    def holds(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not self.low <= value <= self.high:
            return False
        return self.scale != "doubling" or math.log2(value / self.low).is_integer()

    @property
    def typed(self) -> str:
        """As it is typed."""
        low, high = (f"{end:g}" if not self.integer else str(end) for end in self.ends)
        return f"{low}..{high}" + ("" if self.scale == "linear" else f":{self.scale}")


@dataclass(frozen=True)
class Choices:
    values: tuple[Any, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.values

    def holds(self, value: Any) -> bool:
        return value in self.values

    @property
    def typed(self) -> list[Any]:
        """As it is written in TOML."""
        return ["none" if value is None else value for value in self.values]


Dimension = Range | Choices
Space = dict[str, Dimension]

READY: dict[str, dict[str, str]] = {
    "ppo": {
        "ppo.learning_rate": "1e-4..1e-3:log",
        "ppo.clip_range": "0.1..0.3",
        "ppo.gae_lambda": "0.9..0.99",
        "ppo.minibatch_size": "32..256:doubling",
        "ppo.n_steps": "512..4096:doubling",
    },
    "reinforce": {
        "reinforce.learning_rate": "1e-4..1e-3:log",
        "reinforce.gae_lambda": "0.9..0.99",
        "reinforce.n_steps": "512..4096:doubling",
    },
    "dqn": {"dqn.learning_rate": "1e-4..1e-3:log", "dqn.minibatch_size": "32..256:doubling"},
    "sac": {"sac.learning_rate": "1e-4..1e-3:log", "sac.minibatch_size": "32..256:doubling"},
}
"""The usual ranges, of each algorithm those settings that it has."""


def parse_words(words: Iterable[str], base: Settings) -> Space:
    """From the command line: ["ppo.clip_range=0.1..0.3", "policy.activation=relu/tanh"]."""
    space: Space = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not text.strip():
            raise SettingsError(f"--vary {word} names no values. {FORM} E.g. --vary ppo.learning_rate=1e-4..1e-3:log")
        space |= parse_space({name.strip().replace("-", "_"): text.strip()}, base)
    return space


def read_space(path: Path, base: Settings) -> Space:
    """From a TOML file whose tables are those of a settings file, with ranges in place of values."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}.") from None
    space = parse_space(_flat(tree), base)
    if not space:
        raise SettingsError(f"{path} names no settings to search.")
    return space


def parse_space(given: Mapping[str, Any], base: Settings) -> Space:
    """By dotted name: a text as on the command line, a list of choices, or {low, high, scale}."""
    space = {name: _dimension(name, value, base) for name, value in given.items()}
    for name, dimension in space.items():
        for end in dimension.ends:
            base.replace({name: end})
    return space


def ready_space(base: Settings) -> Space:
    return parse_space(READY[base.algorithm], base)


def values_of_base(space: Space, base: Settings) -> dict[str, Any] | None:
    """What the base settings have in these places, or None where one of it lies outside."""
    values = {name: value_of(base, name) for name in space}
    return values if all(dimension.holds(values[name]) for name, dimension in space.items()) else None


def _dimension(name: str, given: Any, base: Settings) -> Dimension:
    _refuse_unsearchable(name, base)
    kinds = field_type(name)
    match given:
        case str() if ".." in given:
            text, _, scale = given.partition(":")
            low, _, high = text.partition("..")
            return _range(name, low, high, scale or "linear", kinds)
        case str() if "/" in given:
            return _choices(name, [_literal(word) for word in given.split("/")], base)
        case list():
            return _choices(name, given, base)
        case {"low": low, "high": high, **more} if set(more) <= {"scale"}:
            return _range(name, low, high, str(more.get("scale", "linear")), kinds)
    raise SettingsError(f"{name} = {str(given)[:80]!r} is neither a range nor a list of choices. {FORM}")


def _range(name: str, low: Any, high: Any, scale: str, kinds: frozenset[type]) -> Range:
    if scale not in SCALES:
        raise SettingsError(f"{name}: a range is linear, log or doubling, not {scale!r}.")
    try:
        first, last = float(low), float(high)
    except (TypeError, ValueError):
        raise SettingsError(f"{name} = {low}..{high}: the ends of a range are numbers. {FORM}") from None
    if not kinds & {int, float}:
        raise SettingsError(f"{name} has no range: it is not a number. Give choices: {name}=ONE/TWO")
    written_whole = all(re.fullmatch(r"\s*[+-]?\d+\s*", str(end)) for end in (low, high))
    integer = float not in kinds or (name.startswith("env.kwargs.") and written_whole)
    if not (math.isfinite(first) and math.isfinite(last) and first < last):
        raise SettingsError(f"{name} = {low}..{high}: the first end is to be below the second, and both finite.")
    if integer and not (first.is_integer() and last.is_integer()):
        raise SettingsError(
            f"{name} = {low}..{high}: this setting is a whole number, and so are the ends of its range."
        )
    if scale != "linear" and first <= 0:
        raise SettingsError(
            f"{name} = {low}..{high}:{scale}: factors have no meaning from {first:g} on. Begin above 0."
        )
    if scale == "doubling" and not math.log2(last / first).is_integer():
        raise SettingsError(
            f"{name} = {low}..{high}:doubling: doubling {first:g} again and again never gives {last:g}."
        )
    return Range(first, last, scale, integer)  # type: ignore[arg-type]


def _choices(name: str, given: list[Any], base: Settings) -> Choices:
    """As the settings hold them: 64,64 becomes a tuple, 1 becomes 1.0 where that is the setting's type."""
    nothing = type(None) in field_type(name)  # TOML has no word for it
    plain = [None if nothing and value == "none" else value for value in given]
    values = tuple(value_of(base.replace({name: value}), name) for value in plain)
    if len(values) < 2 or any(value in values[:i] for i, value in enumerate(values)):
        raise SettingsError(f"{name}: give at least two choices, each once.")
    return Choices(values)


def _refuse_unsearchable(name: str, base: Settings) -> None:
    field_type(name)
    if name in ELSEWHERE:
        raise SettingsError(f"{name} cannot be searched. {ELSEWHERE[name]}")
    if name.startswith(MEASURES):
        raise SettingsError(f"{name} cannot be searched: it says how a run is measured or kept, not how it learns.")
    section = name.split(".")[0]
    if section in READY and section != base.algorithm:
        raise SettingsError(f"{name} has no effect: the algorithm is {base.algorithm}. Add --algorithm {section}.")


def _literal(word: str) -> Any:
    word = word.strip()
    if "," in word:
        return [_literal(part) for part in word.split(",") if part.strip()]
    try:
        return json.loads(word)
    except ValueError:
        return word


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and not {"low", "high"} <= set(value):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
