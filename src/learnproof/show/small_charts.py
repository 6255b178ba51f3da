"""Small drawings for the report as inline SVG: a curve, and scores with their leads and intervals.

Their colours are classes that report.html defines for light and dark, so nothing here names a colour. All text goes
through markupsafe's escaping.
"""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup

from .curves import Curve, thinned
from .phrasing import figure, signed
from .verdict_reading import Performance

WIDTH = 320
HEIGHT = 110
EDGE = 8
POINTS_DRAWN = 240


def curve_chart(source: Curve, name: str) -> Markup:
    """One curve from zero (or its lowest value) to its highest, with both written at the side."""
    if not source.drawable:
        return Markup('<p class="absent">not recorded</p>')
    low, high = min(0.0, float(source.finite.min())), float(source.finite.max())
    shown = thinned(source, POINTS_DRAWN)
    across = Scale(float(shown.x[0]), float(shown.x[-1]), EDGE, WIDTH - EDGE)
    up = Scale(low, high if high > low else low + 1.0, HEIGHT - EDGE, EDGE)
    pieces = [_path([(across(x), up(y)) for x, y in piece]) for piece in _unbroken(shown)]
    marks = [
        Markup('<circle class="mark" cx="{:.1f}" cy="{}" r="2.5"/>').format(across(step), HEIGHT - EDGE)
        for step in source.spoilt[:: max(1, len(source.spoilt) // 40)]
    ]
    lines = Markup("").join(Markup('<path class="curve" d="{}"/>').format(piece) for piece in pieces)
    return Markup(
        '<svg viewBox="0 0 {w} {h}" role="img" aria-label="{name}: from {first} to {last}">'
        '<line class="axis" x1="{e}" y1="{base}" x2="{right}" y2="{base}"/>{lines}{marks}'
        '<text x="{e}" y="{top}">{high}</text><text class="end" x="{right}" y="{foot}">{last}</text></svg>'
    ).format(
        w=WIDTH,
        h=HEIGHT + 6,
        e=EDGE,
        right=WIDTH - EDGE,
        base=f"{up(max(low, 0.0)):.1f}",
        top=EDGE + 4,
        foot=HEIGHT + 4,
        name=name,
        first=figure(source.finite[0]),
        last=f"last {figure(source.finite[-1])}",
        high=f"highest {figure(high)}",
        lines=lines,
        marks=Markup("").join(marks),
    )


def performance_chart(performance: Performance) -> Markup:
    """Three scores on one axis; below, each lead with its interval against zero."""
    names = {"initial": "untrained", "random": "random"}
    scores = [(names[one.against], one.score, "dot") for one in reversed(performance.comparisons)]
    scores.append(("trained", performance.trained, "dot strong"))
    known = [score for _, score, _ in scores if score is not None and math.isfinite(score)]
    rows: list[Markup] = []
    y = 14
    if known:
        across = Scale(*_room(min(known), max(known)), 150, 640)
        for name, score, kind in scores:
            rows.append(_label(name, y))
            if score is not None and math.isfinite(score):
                rows.append(_ruled(y))
                rows.append(Markup('<circle class="{}" cx="{:.1f}" cy="{}" r="6"/>').format(kind, across(score), y))
            rows.append(_value(figure(score), y))
            y += 30
    leads = [one for one in performance.comparisons if one.lead is not None]
    ends = [v for one in leads for v in (one.lead, one.low, one.high) if v is not None and math.isfinite(v)]
    if leads and ends:
        y += 10
        across = Scale(*_room(min(0.0, *ends), max(0.0, *ends)), 150, 640)
        zero, top = across(0.0), y - 12
        for one in leads:
            rows.append(_label(f"over {names[one.against]}", y))
            rows.append(_ruled(y))
            if one.low is not None and one.high is not None:
                low, high = (min(max(across(end), 150), 640) for end in (one.low, one.high))
                bar = '<rect class="interval" x="{:.1f}" y="{}" width="{:.1f}" height="12" rx="6"/>'
                rows.append(Markup(bar).format(low - 6, y - 6, high - low + 12))
            if one.lead is not None and math.isfinite(one.lead):
                dot = '<circle class="dot strong" cx="{:.1f}" cy="{}" r="5"/>'
                rows.append(Markup(dot).format(across(one.lead), y))
            rows.append(_value(signed(one.lead), y))
            y += 30
        line = '<line class="zero" x1="{z:.1f}" y1="{}" x2="{z:.1f}" y2="{}"/>'
        rows.append(Markup(line).format(top, y - 16, z=zero))
        rows.append(Markup('<text class="mid" x="{:.1f}" y="{}">0</text>').format(zero, y - 2))
        y += 6
    label = f"scores of the random, untrained and trained policy in {performance.metric}"
    return Markup('<svg viewBox="0 0 760 {}" role="img" aria-label="{}">{}</svg>').format(
        y, label, Markup("").join(rows)
    )


class Scale:
    """A straight map from values to places in a drawing."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.start = low, start
        self.per_unit = (end - start) / (high - low) if high > low else 0.0

    def __call__(self, value: float) -> float:
        if not math.isfinite(value):
            return 1e6 if value > 0 else -1e6
        return self.start + (value - self.low) * self.per_unit


def _room(low: float, high: float) -> tuple[float, float]:
    """A little air at both ends."""
    air = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    return low - air, high + air


def _unbroken(source: Curve) -> list[list[tuple[float, float]]]:
    """The curve cut at its gaps."""
    gaps = np.flatnonzero(np.isnan(source.y))
    pieces = np.split(np.arange(len(source.y)), gaps)
    cut = [[i for i in piece if not np.isnan(source.y[i])] for piece in pieces]
    return [[(float(source.x[i]), float(source.y[i])) for i in piece] for piece in cut if piece]


def _path(points: list[tuple[float, float]]) -> str:
    if len(points) == 1:
        x, y = points[0]
        points = [(x - 1, y), (x + 1, y)]
    return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _label(text: str, y: int) -> Markup:
    return Markup('<text class="name" x="136" y="{}">{}</text>').format(y + 4, text)


def _value(text: str, y: int) -> Markup:
    return Markup('<text class="value" x="654" y="{}">{}</text>').format(y + 4, text)


def _ruled(y: int) -> Markup:
    return Markup('<line class="axis" x1="150" y1="{y}" x2="640" y2="{y}"/>').format(y=y)
