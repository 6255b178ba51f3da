"""How values are written for people: numbers with few digits and a dash for what is not known, text made harmless.

Text comes from files that may be a stranger's: `printable` takes out escape codes, direction overrides and whatever
else would let a name act on the terminal or the page that shows it.
"""

from __future__ import annotations

import math
from typing import Any

UNKNOWN = "–"
MAX_SHOWN_CHARACTERS = 2_000


def printable(value: Any, limit: int = MAX_SHOWN_CHARACTERS) -> str:
    """The text on one line, without control characters, and not longer than `limit`."""
    text = " ".join(str(value)[: limit + 1].split())
    text = "".join(character if character.isprintable() else "�" for character in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def number(value: Any) -> float | None:
    """The value as a float, or None for what is no number. JSON writes what is not finite as text: "nan", "inf"."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def figure(value: Any) -> str:
    """About four significant digits: 3e-4, 0.0123, 12.34, 475.2, 84,000."""
    x = number(value)
    if x is None:
        return UNKNOWN
    if not math.isfinite(x):
        return "not a number" if math.isnan(x) else ("infinite" if x > 0 else "minus infinite")
    size = abs(x)
    if x == int(x) and size < 1e7:
        return f"{int(x):,}"
    if size >= 1e7 or size < 1e-3:
        mantissa, exponent = f"{x:.2e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    if size >= 1000:
        return f"{x:,.0f}"
    places = 1 if size >= 100 else 2 if size >= 10 else 3 if size >= 0.1 else 4
    return f"{x:.{places}f}".rstrip("0").rstrip(".")


def signed(value: Any) -> str:
    """A difference: always with its sign."""
    x = number(value)
    return figure(x) if x is None or not x > 0 else f"+{figure(x)}"


def whole(value: Any) -> str:
    x = number(value)
    return UNKNOWN if x is None or not math.isfinite(x) else f"{int(x):,}"


def count(things: int, name: str) -> str:
    """1 update, 2 updates."""
    return f"{things:,} {name}" if things == 1 else f"{things:,} {name}s"


def percent(share: Any) -> str:
    """0.05 -> "5 %", 0.001 -> "0.1 %"."""
    x = number(share)
    return UNKNOWN if x is None or not math.isfinite(x) else f"{100 * x:.3g} %"


def p_value(value: Any) -> str:
    x = number(value)
    if x is None or math.isnan(x):
        return f"p {UNKNOWN}"
    return "p < 0.0001" if x < 1e-4 else f"p = {x:.2g}"


def interval(low: Any, high: Any) -> str:
    return f"{signed(low)} to {signed(high)}"


def span(seconds: float | None) -> str:
    """Time left or taken: "8 s", "3 min 20 s", "2 h 05 min"."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return UNKNOWN
    total = round(seconds)
    hours, minutes = total // 3600, total % 3600 // 60
    if hours >= 48:
        return f"{hours // 24} days {hours % 24} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {total % 60:02d} s" if minutes else f"{total} s"
