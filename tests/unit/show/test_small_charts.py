"""The small drawings of the report: well-formed, escaped, true to the numbers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from sample_run import compared, verdict

from learnproof.show.curves import Curve, curve
from learnproof.show.small_charts import curve_chart, performance_chart
from learnproof.show.verdict_reading import Performance, read_verdict


def performance(scores: dict[str, object] | None = None, **figures: object) -> Performance:
    body = {**verdict("proven")["performance"], **(scores or {})}
    made = read_verdict(verdict("proven", performance=body, findings=[compared(**figures)])).performance
    assert made is not None
    return made


def test_a_curve_is_drawn_with_its_highest_and_last_value() -> None:
    drawn = curve_chart(curve(enumerate([0.0, 4.0, 2.5])), "weight change")
    ElementTree.fromstring(drawn)
    assert "highest 4<" in drawn
    assert "last 2.5<" in drawn


def test_a_curve_is_cut_where_it_is_not_finite_and_the_place_is_marked() -> None:
    drawn = ElementTree.fromstring(curve_chart(curve(enumerate([1.0, 2.0, float("nan"), 3.0, 4.0])), "loss"))
    assert len(drawn.findall("path")) == 2
    assert len(drawn.findall("circle")) == 1


@pytest.mark.parametrize("values", [[1.0], [0.0, 0.0], [-3.0, -3.0], [1e99, -1e99]])
def test_odd_curves_are_drawn_inside_their_frame(values: list[float]) -> None:
    drawn = curve_chart(curve(enumerate(values)), "odd")
    ElementTree.fromstring(drawn)
    places = [float(number) for number in re.findall(r"[-0-9.e+]+", re.findall(r' d="([^"]*)"', drawn)[0]) if number]
    assert min(places) >= 0
    assert max(places) <= 320


def test_no_value_at_all_is_said_in_words() -> None:
    assert "not recorded" in curve_chart(Curve(np.array([]), np.array([])), "nothing")
    assert "not recorded" in curve_chart(curve([(1, float("nan"))]), "nothing good")


def test_a_name_is_escaped() -> None:
    assert "<script>" not in curve_chart(curve(enumerate([1.0, 2.0])), "<script>alert(1)</script>")
    assert "<script>" not in performance_chart(performance({"metric": "<script>"}))


def test_scores_lie_in_their_order_and_an_interval_beside_zero_stays_beside_it() -> None:
    drawn = ElementTree.fromstring(performance_chart(performance()))
    random, untrained, trained, over_untrained, over_random = (float(c.attrib["cx"]) for c in drawn.findall("circle"))
    assert untrained < random < trained
    assert over_random < over_untrained
    zero = next(float(line.attrib["x1"]) for line in drawn.findall("line") if line.attrib["class"] == "zero")
    assert all(float(bar.attrib["x"]) > zero for bar in drawn.findall("rect"))


UNKNOWN_BOUNDS = {"lead": 5.0, "interval": ["-inf", "inf"], "p_value": 0.5}
NO_LEAD = {"lead": 0.0, "interval": [0.0, 0.0], "p_value": 1.0}


@pytest.mark.parametrize(
    "made",
    [
        performance(against_initial=UNKNOWN_BOUNDS, against_random={"lead": 1.0, "interval": [1.0, "inf"]}),
        performance(against_initial=None, against_random=None),
        performance({"difference": None}, against_initial={}, against_random={}),
        performance({"initial": None, "random": "nan", "trained": None}),
        performance({"initial": 1.0, "random": 1.0, "trained": 1.0}, against_initial=NO_LEAD, against_random=NO_LEAD),
    ],
)
def test_a_comparison_of_which_little_is_known_is_drawn_too(made: Performance) -> None:
    drawn = performance_chart(made)
    ElementTree.fromstring(drawn)
    assert "nan" not in drawn.replace("not a number", "")
    assert "inf" not in drawn.replace("infinite", "")
