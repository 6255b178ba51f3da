"""A disk that takes no more ends the run with a reason, keeps the checkpoint before, and the run can go on from it."""

import resource
import subprocess
import sys

import pytest

from crashes import SMALL_RUN, THIRD_PARTY

pytestmark = pytest.mark.slow


def learnproof(*words, largest_file=None):
    def limit():
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    command = [sys.executable, "-m", "learnproof", *words]
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, timeout=300)


def test_the_previous_checkpoint_survives_and_the_run_goes_on(tmp_path):
    run = str(tmp_path / "run")
    words = ["train", *THIRD_PARTY, "--steps", "6000", "--out", run, *SMALL_RUN]
    full = learnproof(*words, largest_file=60_000)
    assert full.returncode == 1
    assert "could not be written" in full.stderr
    assert f"learnproof resume {run}" in full.stderr
    assert "Traceback" not in full.stderr
    steps = [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()]
    assert steps
    resumed = learnproof("resume", run)
    assert resumed.returncode in (0, 3), resumed.stderr
    assert "going on from step" in resumed.stdout
