"""A verdict in the terminal: understandable by somebody who has never seen the tool, at 80 columns."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sample_run import finding, verdict

from learnproof.show.verdict_reading import read_verdict
from learnproof.show.verdict_table import print_verdict


def printed(body: dict[str, Any], width: int = 80, **options: Any) -> str:
    stream = io.StringIO()
    print_verdict(body, title="CartPole-v1, ppo", console=Console(file=stream, width=width), **options)
    return stream.getvalue()


def joined(text: str) -> str:
    """Without the line breaks that the width made."""
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("proven", "The trained policy is better than the untrained one it started from and than random play"),
        ("broken", "The check weights_move found a defect. No weight moved in 30 updates."),
        ("unproven", "No defect was found, but learning is not established. The trained policy is not shown to be"),
    ],
)
def test_the_headline_says_the_verdict_and_why(kind: str, why: str) -> None:
    text = printed(verdict(kind))
    assert text.splitlines()[1].split() == [kind.upper(), "CartPole-v1,", "ppo"]
    assert why in joined(text)


def test_the_performance_is_told_with_both_comparisons() -> None:
    text = joined(printed(verdict("proven")))
    assert "return, 100 fresh episodes, deterministic policy" in text
    assert "random policy 22.31 untrained policy 9.42 trained policy 487.2" in text
    assert "trained over untrained +477.8 interval +466.2 to +486.9 p < 0.0001" in text
    assert "trained over random +464.9 interval +452.1 to +476.4 p = 0.013" in text


def test_failing_checks_come_first_with_place_cause_and_advice_in_full() -> None:
    text = printed(verdict("broken"))
    lines = text[text.index("Checks") :].splitlines()
    assert lines[1].split()[:2] == ["✗", "weights_move"]
    for part in (
        "where: updates 0 to 29, policy.0.weight",
        "cause: The optimizer's step is missing.",
        "advice: Call optimizer.step() after backward().",
    ):
        assert part in joined(text)
    assert text.index("weights_move") < text.index("entropy_decreasing") < text.index("finiteness")
    assert "did not apply here: target_network" in text


def test_a_healthy_run_is_not_given_causes_and_advice() -> None:
    text = printed(verdict("proven"))
    assert "cause:" not in text
    assert "✗" not in text


def test_the_unproven_run_is_told_what_is_missing_and_the_proven_one_nothing() -> None:
    assert "About 410 episodes would settle it." in joined(printed(verdict("unproven")))
    assert "Still missing" not in printed(verdict("proven"))


def test_waived_findings_are_printed_with_their_reason_and_are_not_the_defect() -> None:
    body = verdict(
        "proven",
        findings=[finding("time_limit", "fail", "Time limits count as terminal.", cause="a cause")],
        waived=[{"check": "time_limit", "reason": "the limit is part of the task"}],
    )
    text = joined(printed(body))
    assert "1 waived" in text
    assert "time_limit: the limit is part of the task" in text
    assert "failed" not in text


def test_mechanism_controls_checklist_and_rates_are_told() -> None:
    text = joined(
        printed(verdict("proven", controls=[{"name": "placebo", "summary": "The run beats 5 of 5 placebos."}]))
    )
    assert "1 checks passed: update_direction; 24 of 30 updates inspected." in text
    assert "placebo: The run beats 5 of 5 placebos." in text
    assert "✓ weights_changing" in text
    assert "· entropy_decreasing" in text
    assert "Chance of a false proof: at most 5 %; of a false accusation: at most 0.1 %." in text


def test_the_places_of_report_and_verdict_are_printed_whole_where_they_exist(tmp_path: Path) -> None:
    folder = tmp_path / ("a-long-name-" * 8)
    folder.mkdir()
    (folder / "report.html").touch()
    text = printed(verdict("proven"), folder=folder)
    assert f"report   {folder / 'report.html'}" in text
    assert "verdict.json" not in text


@pytest.mark.parametrize("kind", ["proven", "broken", "unproven"])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits_its_width_and_has_no_escape_codes_outside_a_terminal(kind: str, width: int) -> None:
    text = printed(verdict(kind), width)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= min(width, 100)


def test_a_terminal_gets_colours() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, color_system="standard", _environ={})
    print_verdict(verdict("broken"), console=console)
    assert "\x1b[" in stream.getvalue()


def test_foreign_text_cannot_act_on_the_terminal_nor_be_read_as_markup() -> None:
    hostile = "\x1b[2J[bold]x[/bold]:smile:"
    body = verdict("broken", findings=[finding(hostile, "fail", hostile, cause=hostile)], missing=[hostile])
    text = printed(body)
    assert "\x1b" not in text
    assert "[bold]x[/bold]:smile:" in text


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"verdict": "proven"},
        {"verdict": 5, "findings": [None, "text", {"status": "odd"}], "performance": [], "mechanism": 3, "waived": "x"},
        {"verdict": "unproven", "performance": {"trained": "text", "interval": [1]}, "missing": "text", "checklist": 1},
    ],
)
def test_half_a_verdict_is_printed_as_far_as_it_goes(body: dict[str, Any]) -> None:
    assert printed(body).strip()


def test_a_single_comparison_is_the_one_with_the_untrained_policy() -> None:
    one = {"metric": "return", "initial": 1.0, "random": 2.0, "trained": 4.0, "difference": 3.0, "interval": [2.0, 4.0]}
    performance = read_verdict({"performance": one}).performance
    assert performance is not None
    initial, random = performance.comparisons
    assert (initial.difference, initial.low, initial.high) == (3.0, 2.0, 4.0)
    assert (random.score, random.difference, random.low) == (2.0, None, None)
