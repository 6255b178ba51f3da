"""A sweep's table and picture: every trial is marked as what became of it, and equal results look equal."""

import io
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "sweeping"))
from sample_sweep import mixed, mixed_results, trial

from learnproof.show.panel import COLOURS
from learnproof.show.sweep_picture import marks, sweep_png
from learnproof.show.sweep_sheet import SweepSheet, short_names, value_text


def sheet(width=120):
    out = io.StringIO()
    return out, SweepSheet(Console(file=out, width=width))


def has_colour(png, colour):
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)
    return bool((np.abs(pixels - wanted).sum(2) < 12).any())


def test_the_picture_is_a_png_of_a_readable_size_and_always_the_same():
    first = sweep_png(mixed_results())
    with Image.open(io.BytesIO(first)) as picture:
        assert picture.format == "PNG"
        assert picture.width >= 1_200
    assert sweep_png(mixed_results()) == first
    assert sweep_png(mixed_results([trial(0, 11.0), *mixed()[1:]])) != first


def test_each_verdict_has_its_colour_and_is_missing_where_no_trial_has_it():
    colours = COLOURS.verdicts
    whole = sweep_png(mixed_results())
    proven = sweep_png(mixed_results([one for one in mixed() if one["verdict"] == "proven"]))
    assert all(has_colour(whole, colour) for colour in colours.values())
    assert {verdict: has_colour(proven, colour) for verdict, colour in colours.items()} == {
        "proven": True,
        "unproven": False,
        "broken": False,
    }


def test_each_outcome_has_a_form_of_its_own():
    known = marks(COLOURS)
    assert len({(mark.shape, mark.colour) for mark in known.values()}) == len(known)


@pytest.mark.parametrize(
    "records", [[], [trial(0, None, "failed", None)], [trial(0)], [trial(0, 5.0), trial(1, 5.0)]],
    ids=["none", "failed", "one", "equal"],
)  # fmt: skip
def test_few_trials_are_drawn_without_a_warning(records):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sweep_png(mixed_results(records))[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_table_marks_every_trial_and_stars_the_best():
    out, made = sheet()
    made.summary(mixed_results(), "sweeps/x", None)
    lines = out.getvalue().splitlines()
    rows = {line.split()[1 if line.startswith("*") else 0]: line for line in lines if line[:8].strip(" *").isdigit()}
    assert rows["1"].startswith("*")
    for number, words in {"2": "broken", "3": "unproven", "4": "pruned", "5": "failed", "7": "paused"}.items():
        assert words in rows[number]
    text = out.getvalue()
    assert "Best: trial 1" in text
    assert "(trial 0) scored 10" in text
    assert "--config sweeps/x/best.toml --seed 1" in text
    assert "sweeps/x/results.json" in text


def test_no_trial_is_called_the_best_where_none_is_proven():
    out, made = sheet()
    made.summary(mixed_results([trial(0, 90.0, verdict="unproven")]), "sweeps/x", None)
    assert "No trial was proven" in out.getvalue()
    assert "Best:" not in out.getvalue()


def test_an_interrupted_sweep_says_how_to_go_on():
    out, made = sheet()
    made.summary(mixed_results(), "sweeps/x", "learnproof sweep --resume sweeps/x")
    assert "learnproof sweep --resume sweeps/x" in out.getvalue()


def test_a_trial_that_failed_says_why_as_it_ends():
    out, made = sheet()
    made.ended(trial(5, None, "failed", None, note="the simulator fell over"))
    assert "failed" in out.getvalue()
    assert "the simulator fell over" in out.getvalue()


def test_the_table_fits_into_eighty_columns():
    out, made = sheet(80)
    made.summary(mixed_results(), "sweeps/x", None)
    table = out.getvalue().split("8 trials")[0]
    assert all(len(line) <= 80 for line in table.splitlines())
    assert "unproven" in table
    assert "…" not in table


def test_names_are_as_short_as_they_can_be_and_values_as_they_are_typed():
    assert short_names(["ppo.gamma", "policy.hidden"]) == {"ppo.gamma": "gamma", "policy.hidden": "hidden"}
    assert short_names(["env.kwargs.kind", "schedule.kind"])["schedule.kind"] == "schedule.kind"
    assert [value_text(v) for v in (True, None, 3.0e-4, [64, 64], "relu", 512)] == [
        "yes",
        "none",
        "0.0003",
        "64-64",
        "relu",
        "512",
    ]
