"""Healthy scripts in different styles, judged by what was seen of them: none is accused, and each that learns enough is proven."""

import functools
import json
import subprocess
import sys

import pytest
import watched_runs

import learnproof
from learnproof.proof.verdict import Verdict, judge

pytestmark = pytest.mark.slow

PROVEN = ("ppo_clean", "a2c_classes", "dqn_functions", "dqn_polyak", "reinforce", "sb3_ppo")
"""The others are too short to show a better policy, or have no environment."""
EXPLAINED = {
    "ppo_clean": ("returns_recomputed", "ratio_is_one", "policy_direction", "value_direction"),
    "ppo_continuous_native": ("returns_recomputed", "ratio_is_one", "policy_direction", "entropy_sign"),
    "a2c_classes": ("returns_recomputed", "policy_direction", "entropy_sign"),
    "reinforce": ("returns_recomputed", "policy_direction"),
    "dqn_functions": ("bootstrap_recomputed", "value_direction", "target_networks"),
    "dqn_polyak": ("bootstrap_recomputed", "value_direction", "target_networks"),
    "sac": ("bootstrap_recomputed", "value_direction", "actor_climbs", "entropy_sign", "target_networks"),
    "sb3_ppo": ("returns_recomputed", "ratio_is_one", "policy_direction", "value_direction"),
    "sb3_sac": ("bootstrap_recomputed", "value_direction", "actor_climbs", "entropy_sign", "target_networks"),
    "transformer_pg": ("policy_direction", "tokens_masked", "reference_apart"),
}


@functools.cache
def verdict_on(script: str) -> Verdict:
    return judge(watched_runs.evidence_of(script), None)


@pytest.mark.parametrize("script", watched_runs.NAMES)
def test_nobody_is_accused(script):
    accused = [(f.check, f.summary) for f in verdict_on(script).findings if f.status == "fail"]
    assert accused == []


def test_an_action_may_be_scored_after_the_environment_has_taken_it():
    findings = {f.check: f for f in judge(watched_runs.evidence_of("reinforce", "--score-late"), None).findings}
    assert [f.summary for f in findings.values() if f.status == "fail"] == []
    assert findings["returns_recomputed"].status == "pass"


@pytest.mark.parametrize("script", PROVEN)
def test_a_script_that_learns_is_proven(script):
    verdict = verdict_on(script)
    assert verdict.verdict == "proven", verdict.missing


@pytest.mark.parametrize(
    ("script", "check"), [(script, check) for script, checks in EXPLAINED.items() for check in checks]
)
def test_its_numbers_are_explained(script, check):
    finding = next(f for f in verdict_on(script).findings if f.check == check)
    assert finding.status == "pass", finding.summary


@pytest.mark.parametrize("script", watched_runs.NAMES)
def test_no_check_fails_to_cope(script):
    assert [f.summary for f in verdict_on(script).findings if "could not cope" in f.summary] == []


def test_a_proof_beats_its_placebos(tmp_path):
    script = watched_runs.SCRIPTS / "ppo_clean.py"
    out = tmp_path / "run"
    command = [sys.executable, "-m", "learnproof", "watch", "--placebo", "--quiet", "--no-report", "--out", str(out)]
    subprocess.run([*command, "--", sys.executable, str(script), "--updates", "25"], check=True, capture_output=True)
    verdict = json.loads((out / "verdict.json").read_text())
    assert verdict["verdict"] == "proven"
    assert [(control["name"], control["status"]) for control in verdict["controls"]] == [
        ("frozen", "beaten"),
        ("shuffled", "beaten"),
    ]
    again = learnproof.verify(out)
    assert [control["status"] for control in again.controls] == ["beaten", "beaten"]
    before = (out / "verdict.json").read_bytes()
    learnproof.verify(out, profile="classic")
    assert (out / "verdict.json").read_bytes() == before
    for name in ("frozen", "shuffled"):
        (out / f"placebo-{name}" / "evidence.jsonl").unlink()
    assert learnproof.verify(out).verdict == "unproven"
