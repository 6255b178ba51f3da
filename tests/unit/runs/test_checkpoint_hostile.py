"""Hostile checkpoints: refused with the one before offered, nothing executed, memory grows by less than 64 MB."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_checkpoints import ATTACKS
from sample_checkpoints import forge, sample_shelf

VICTIM = """
import json, re, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from sample_checkpoints import assert_is_sample, read_all
from learnproof.errors import LearnproofError
from learnproof.runs.checkpoint import Shelf

def peak_kilobytes():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

def told(act):
    try:
        act()
    except LearnproofError as error:
        return [type(error).__name__, str(error)]
    return ["accepted", ""]

assert_is_sample(Shelf(Path(sys.argv[2]) / "good" / "checkpoints", 5).newest())
before, results = peak_kilobytes(), {}
for run in sorted(Path(sys.argv[2]).iterdir()):
    shelf = Shelf(run / "checkpoints", 5)
    results[run.name] = [
        told(lambda: read_all(shelf.newest())), told(lambda: shelf.newest().verify()), shelf.newest_whole()[0].step
    ]
print(json.dumps({"grown_kilobytes": peak_kilobytes() - before, "results": results}))
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """Every attack, met by one process whose memory is measured at its peak."""
    runs = tmp_path_factory.mktemp("hostile")
    sample_shelf(runs / "good")
    for name, attack in ATTACKS.items():
        shutil.copytree(runs / "good", runs / name)
        attack(runs / name / "checkpoints" / "step-000000020")
    victim = subprocess.run(
        [sys.executable, "-c", VICTIM, str(Path(__file__).parent), str(runs)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert victim.returncode == 0, victim.stderr
    return {"runs": runs, **json.loads(victim.stdout)}


@pytest.mark.parametrize("name", list(ATTACKS))
def test_it_is_refused_and_the_checkpoint_before_it_offered(outcome, name):
    reading, verifying, whole = outcome["results"][name]
    if name == "header_of_many_arrays":  # in good form, only of another network
        assert reading[0] == "CheckpointMismatch"
        return
    assert reading[0] == "CheckpointDamaged"
    assert f"learnproof resume {outcome['runs'] / name} --step 10" in reading[1]
    assert len(reading[1]) < 1_000 + len(str(outcome["runs"])) * 3
    assert verifying[0] == "CheckpointDamaged"
    assert whole == 10


def test_the_untouched_one_is_accepted_by_the_same_process(outcome):
    assert outcome["results"]["good"] == [["accepted", ""], ["accepted", ""], 20]


def test_nothing_was_executed(outcome):
    assert len(ATTACKS) >= 20
    assert list(outcome["runs"].rglob("executed")) == []


def test_memory_grows_by_less_than_64_megabytes(outcome):
    assert outcome["grown_kilobytes"] < 64_000


@pytest.mark.parametrize("filling", [b"[],", b"{},", b'{"":0},', b"1e9,", b'"ab",', b'"\xc3\xa9",', b"999,"])
def test_the_greediest_legal_state_stays_below_64_megabytes(tmp_path, filling):
    folder = sample_shelf(tmp_path, (10,)).folder / "step-000000010"
    count = 990_000 // len(filling)
    (folder / "state.json").write_bytes(b'{"a":[' + filling * count + b"0]}")
    forge(folder)
    code = """
import re, sys
from pathlib import Path
from learnproof.runs.checkpoint import Shelf

def peak_kilobytes():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

before = peak_kilobytes()
state = Shelf(Path(sys.argv[1]), 5).newest().state()
print(peak_kilobytes() - before, len(state["a"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder.parent)], capture_output=True, text=True, check=True, timeout=60
    )
    grown, length = map(int, done.stdout.split())
    assert length == count + 1
    assert grown < 64_000
