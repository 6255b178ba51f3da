"""Numbers and foreign text, as people read them."""

from __future__ import annotations

import pytest

from learnproof.show.phrasing import UNKNOWN, count, figure, number, p_value, percent, printable, signed, span, whole


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (3e-4, "3e-4"),
        (0.0123, "0.0123"),
        (0.5, "0.5"),
        (12.345, "12.35"),
        (475.24, "475.2"),
        (-9.42, "-9.42"),
        (84_000, "84,000"),
        (12_345.6, "12,346"),
        (3.21e9, "3.21e9"),
        (float("nan"), "not a number"),
        ("inf", "infinite"),
        (None, UNKNOWN),
        ("text", UNKNOWN),
        (True, UNKNOWN),
        ([1], UNKNOWN),
    ],
)
def test_a_figure_has_few_digits_and_says_when_it_is_none(value: object, written: str) -> None:
    assert figure(value) == written


def test_a_difference_shows_its_sign() -> None:
    assert signed(3.8) == "+3.8"
    assert signed(-3.8) == "-3.8"
    assert signed(0.0) == "0"


def test_a_tiny_p_value_is_not_written_as_zero() -> None:
    assert p_value(1e-30) == "p < 0.0001"
    assert p_value(0.0123) == "p = 0.012"
    assert p_value(None) == f"p {UNKNOWN}"


def test_shares_and_spans_read_as_people_say_them() -> None:
    assert [percent(0.05), percent(0.001), percent(None)] == ["5 %", "0.1 %", UNKNOWN]
    assert [span(8), span(200), span(7_500), span(200_000)] == ["8 s", "3 min 20 s", "2 h 05 min", "2 days 7 h"]
    assert [span(None), span(float("inf")), span(-1)] == [UNKNOWN] * 3
    assert [whole(84_000.7), whole(float("nan"))] == ["84,000", UNKNOWN]


def test_one_thing_is_not_several() -> None:
    assert [count(0, "update"), count(1, "update"), count(1_200, "update")] == [
        "0 updates",
        "1 update",
        "1,200 updates",
    ]


def test_numbers_too_large_for_a_float_are_not_known() -> None:
    assert number(10**400) is None
    assert number("nan") != number("nan")


def test_printable_keeps_ordinary_text() -> None:
    assert printable("CartPole-v1: über 475 ✓") == "CartPole-v1: über 475 ✓"


@pytest.mark.parametrize("hostile", ["\x1b[31mred", "a\x00b", "a\u202eb", "a\x9b31mb", "lone \ud800 surrogate"])
def test_printable_disarms_what_would_act_on_a_terminal(hostile: str) -> None:
    shown = printable(hostile)
    assert shown.isprintable()
    assert "�" in shown


def test_printable_keeps_to_one_line_and_to_its_limit() -> None:
    assert printable("two\nlines\r\n\there") == "two lines here"
    assert printable("x" * 50, 10) == "x" * 9 + "…"
