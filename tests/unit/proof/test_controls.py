"""Controls: a lead over a run that could not learn is a lead; no lead takes a proof away; what was not cut is not compared."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from learnproof.evidence import Episode, Evidence, RunStarted
from learnproof.evidence.watched import PlaceboTotals, Played
from learnproof.proof.controls import Control, compare_with_control, with_controls
from learnproof.proof.verdict import judge


def watched(returns: np.ndarray, cuts: int | None = None) -> Evidence:
    run = RunStarted(
        producer="watch", algorithm="unknown", environment="unknown", seed=0, metric="return", n_envs=1,
        constants={}, parameters={}, marked="inferred",
    )  # fmt: skip
    evidence = Evidence(run=run)
    for position, value in enumerate(returns.tolist()):
        evidence.add(Episode(step=10 * position, env=0, return_=value, length=10, terminated=True, update=position + 1))
    if cuts is not None:
        evidence.add(PlaceboTotals(kind="frozen", cuts=cuts))
    return evidence


def noise(seed: int, count: int = 200) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 5, count)


def compare(real: Evidence, control: Evidence | None, name: str = "frozen") -> Control:
    return compare_with_control(real, control, name, 0.05, np.random.default_rng(0))


def test_a_run_that_learns_beats_its_control() -> None:
    control = compare(watched(np.linspace(0, 100, 200) + noise(0)), watched(noise(1), cuts=50))
    assert control.status == "beaten"
    assert control.figures["real"] > control.figures["control"]


def test_equal_runs_rarely_beat_each_other() -> None:
    beaten = sum(
        compare(watched(noise(2 * s)), watched(noise(2 * s + 1), cuts=9)).status == "beaten" for s in range(100)
    )
    assert beaten <= 12


def test_what_was_not_cut_or_is_too_short_is_not_compared() -> None:
    real = watched(np.linspace(0, 100, 200))
    assert compare(real, None).status == "not compared"
    uncut = compare(real, watched(noise(1), cuts=0), "shuffled")
    assert uncut.status == "not compared"
    assert "could not be cut" in uncut.summary
    assert compare(real, watched(noise(1, 12), cuts=5)).status == "not compared"


def test_greedy_policies_are_compared_on_the_same_seeds() -> None:
    def played(level: float) -> Played:
        seeds = list(range(24))
        scores = [level + seed % 3 for seed in seeds]
        return Played(
            seeds=seeds, untrained=[1.0] * 24, trained=scores, random=[1.0] * 24, rule="greedy", steps=100, module="q"
        )

    real, control = watched(noise(0)), watched(noise(1), cuts=5)
    real.add(played(50.0))
    control.add(played(10.0))
    found = compare(real, control)
    assert found.status == "beaten"
    assert "greedy" in found.summary


@pytest.mark.parametrize(
    ("statuses", "left"),
    [
        (("beaten", "beaten"), "proven"),
        (("beaten", "not compared"), "proven"),
        (("beaten", "not beaten"), "unproven"),
        (("not compared", "not compared"), "unproven"),
    ],
)
def test_a_proof_needs_every_control_that_could_be_compared(statuses: tuple[str, ...], left: str) -> None:
    proven = dataclasses.replace(judge(watched(noise(0)), None), verdict="proven")
    controls = [Control(name, status, "", {}) for name, status in zip(("frozen", "shuffled"), statuses, strict=True)]  # type: ignore[arg-type]
    judged = with_controls(proven, controls)
    assert judged.verdict == left
    assert [control["status"] for control in judged.controls] == list(statuses)
    broken = dataclasses.replace(proven, verdict="broken")
    assert with_controls(broken, controls).verdict == "broken"
