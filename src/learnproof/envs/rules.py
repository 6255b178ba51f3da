"""The rules of a shipped environment as settings: its arguments, checked by name, and as numbers that a kernel can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
from pydantic import ConfigDict, ValidationError

from ..config import Section
from ..errors import SettingsError, did_you_mean

Array = np.ndarray[Any, Any]
AnyRules = TypeVar("AnyRules", bound="Rules")


class Rules(Section):
    """Every field is an argument of the environment, and a number."""

    model_config = ConfigDict(allow_inf_nan=False)

    title: ClassVar[str]
    """How errors call the environment."""

    def as_numbers(self) -> dict[str, float]:
        return {name: float(value) for name, value in self.model_dump().items()}

    def as_record(self) -> Array:
        """[1]: a NumPy record that kernels read by field name; its type is the same whatever the values."""
        values = self.model_dump()
        kinds = [(name, np.int64 if isinstance(value, int) else np.float64) for name, value in values.items()]
        record = np.zeros(1, dtype=kinds)
        for name, value in values.items():
            record[name] = value
        return record


def make_rules(kind: type[AnyRules], arguments: Mapping[str, Any]) -> AnyRules:
    """Rules from an environment's arguments; an unknown or impossible one is refused by name."""
    unknown = [name for name in arguments if name not in kind.model_fields]
    if unknown:
        name = unknown[0]
        raise SettingsError(
            f"{kind.title} has no argument {name!r}.{did_you_mean(name, kind.model_fields)} "
            f"Known are: {', '.join(kind.model_fields)}."
        )
    try:
        return kind.model_validate(dict(arguments))
    except ValidationError as error:
        raise SettingsError(
            f"{kind.title} cannot be made with these arguments: "
            + "; ".join(
                f"{'.'.join(map(str, item['loc'])) or 'the whole'}: {item['msg'].lower()} (got {item['input']!r:.80})"
                for item in error.errors()
            )
        ) from None
