"""The fast part of benchmarks/faults.py: real faults in several styles are called broken, and named; their twins are not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FAULTS = Path(__file__).parent.parent.parent / "benchmarks" / "faults"
CASES = [
    ("second/ppo_tanks", "min_of_negated", 12_000, "ratio_is_one"),
    ("second/ppo_tanks", "clip_after_step", 12_000, "clipping_acts"),
    ("second/a2c_tmaze", "no_tail_bootstrap", 16_000, "returns_recomputed"),
    ("first/ppo_flat", "last_value", 12_000, "returns_recomputed"),
    ("first/ppo_pendulum", "logprob_column", 8_000, "no_accidental_broadcast"),
    ("first/a2c_functional", "features_left_out", 12_000, "weights_owned"),
    ("first/dqn_class", "shared_features", 3_000, "target_networks"),
    ("first/dqn_courier", "unsynced_start", 2_000, "target_networks"),
    ("first/sac_trainer", "stale_alpha", 2_000, "optimizers_fed"),
]


def verdict_on(folder: Path, script: str, steps: int, *words: str) -> dict:
    command = [sys.executable, str(FAULTS / f"{script}.py"), "--steps", str(steps), *words]
    watch = [sys.executable, "-m", "learnproof", "watch", "--quiet", "--no-report", "--out", str(folder / "seen"), "--"]
    done = subprocess.run(
        [*watch, *command], cwd=folder, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads((folder / "seen" / "verdict.json").read_text())


RELATED = {"first/ppo_pendulum", "first/a2c_functional", "first/dqn_courier", "second/a2c_tmaze"}
"""Left to `make thorough`: others among the cases are of the same algorithm."""


def marked(script: str, *words):
    return pytest.param(script, *words, marks=[pytest.mark.thorough] if script in RELATED else [])


@pytest.mark.parametrize(("script", "fault", "steps", "check"), [marked(*case) for case in CASES])
def test_a_fault_is_called_broken_and_named(tmp_path, script, fault, steps, check):
    verdict = verdict_on(tmp_path, script, steps, "--fault", fault)
    failed = {finding["check"]: finding for finding in verdict["findings"] if finding["status"] == "fail"}
    assert verdict["verdict"] == "broken"
    assert check in failed
    assert failed[check]["cause"]
    assert failed[check]["advice"]


@pytest.mark.parametrize("script", [marked(script) for script in sorted({script for script, *_ in CASES})])
def test_the_healthy_twin_is_not(tmp_path, script):
    steps = next(steps for name, _, steps, _ in CASES if name == script)
    assert verdict_on(tmp_path, script, steps)["verdict"] != "broken"
