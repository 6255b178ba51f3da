"""A verdict in the terminal: understandable by somebody who has never seen the tool, at 80 columns."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sample_run import compared, finding, healthy, verdict

from learnproof.proof.performance import PairedScores
from learnproof.proof.verdict import judge
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
        ("unproven", "No defect was found, but the trained policy is not shown to be better than both"),
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
    assert "lead over untrained +477.8 90 % interval +466.2 to +486.9 p < 0.0001" in text
    assert "lead over random +464.9 90 % interval +452.1 to +476.4 p = 0.013" in text
    assert "lower is better" not in text


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
    listed = text[text.index("Checks") :]
    assert listed.index("weights_move") < listed.index("entropy_decreasing") < listed.index("finiteness")
    assert "did not apply here: target_network" in text


def test_a_healthy_run_is_not_given_causes_and_advice() -> None:
    text = printed(verdict("proven"))
    assert "cause:" not in text
    assert "✗" not in text


def test_the_unproven_run_is_told_what_is_missing_and_the_proven_one_nothing() -> None:
    assert "About 410 episodes would settle it." in joined(printed(verdict("unproven")))
    assert "Still missing" not in printed(verdict("proven"))


def test_a_verdict_without_the_list_of_what_is_missing_still_says_it() -> None:
    undecided = finding("performance", "undecided", "It is not shown to be better.", advice="Run 300 more episodes.")
    body = verdict("unproven", findings=[undecided], mechanism={"missing": ["policy_direction has not passed."]})
    del body["missing"]
    text = joined(printed(body))
    assert "· It is not shown to be better. Run 300 more episodes." in text
    assert "· policy_direction has not passed." in text


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
    assert "1 passed: update_direction; 24 of 30 updates inspected." in text
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


def test_where_only_the_harder_comparison_is_told_it_goes_to_the_policy_it_belongs_to() -> None:
    told = {
        "metric": "return",
        "initial": 1.0,
        "random": 2.0,
        "trained": 4.0,
        "difference": 2.0,
        "interval": [1.0, 3.0],
    }
    performance = read_verdict({"performance": told}).performance
    assert performance is not None
    initial, random = performance.comparisons
    assert (initial.score, initial.lead, initial.low) == (1.0, 3.0, None)
    assert (random.score, random.lead, random.low, random.high) == (2.0, 2.0, 1.0, 3.0)


def test_a_proof_by_fixed_rules_does_not_claim_a_comparison() -> None:
    rules = [finding("weights_changing", "pass", "Yes, by the classic rule on 30 records.")]
    assert "Every rule of the chosen profile holds." in printed(verdict("proven", findings=rules))
    assert "better than the untrained" not in printed(verdict("proven", findings=rules))


def test_a_better_policy_without_enough_inspections_is_told_so() -> None:
    body = verdict("unproven", findings=[compared()], missing=["policy_direction has not passed."])
    assert "The trained policy is better, but too little was seen" in joined(printed(body))


def test_the_verdict_that_the_judge_writes_is_understood() -> None:
    """Guards the names of the fields: a figure under another name would be missing here."""
    seeds = range(40)
    scores = PairedScores(
        "return", seeds, [9.0 + s % 3 for s in seeds], [200.0 + s for s in seeds], [20.0] * 40, "sampled"
    )
    judged = judge(healthy(), scores)
    text = joined(printed(judged.to_json()))
    assert judged.verdict.upper() in text
    assert "return, 40 fresh episodes, sampled policy" in text
    assert "random policy 20 untrained policy 9.975 trained policy 219.5" in text
    assert re.search(r"lead over untrained \+209\.5 90 % interval \+2\d\d[.\d]* to \+2\d\d[.\d]* p [=<] 0\.0", text)
    assert "lead over random +199.5 90 % interval" in text
    assert "0 of 30 updates inspected" in text
    assert judged.missing
    assert all(joined(sentence) in text for sentence in judged.missing)
