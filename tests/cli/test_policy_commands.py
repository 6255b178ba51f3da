"""What is done with a trained policy, by the real commands in an empty folder: enjoy and export."""

import os
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from PIL import Image

import learnproof
from learnproof.cli import main


def command(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "learnproof", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "100"},
    )


@pytest.fixture
def run(tmp_path, small_run):
    return shutil.copytree(small_run("dqn"), tmp_path / "run")


@pytest.mark.slow
def test_enjoy_draws_an_episode_and_prints_its_return(tmp_path, run):
    done = command(tmp_path, "enjoy", "run")
    assert done.returncode == 0, done.stderr
    assert "return" in done.stdout
    assert "run/enjoy.gif" in done.stdout
    assert "pygame" not in done.stdout + done.stderr
    with Image.open(run / "enjoy.gif") as film:
        assert film.n_frames > 3


@pytest.mark.slow
@pytest.mark.thorough
def test_export_in_a_process_of_its_own_says_nothing_but_what_it_wrote(tmp_path, run):
    done = command(tmp_path, "export", "run", "--observations", "100")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("run/policy.onnx")
    assert done.stderr == ""


@pytest.mark.slow
def test_export_writes_a_file_that_another_program_can_act_with(monkeypatch, capsys, tmp_path, run):
    monkeypatch.chdir(tmp_path)
    assert main(["export", "run", "--out", "there/policy.onnx", "--observations", "100"]) == 0
    assert "actions differ by at most" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(tmp_path / "there" / "policy.onnx", providers=["CPUExecutionProvider"])
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    (actions,) = session.run(["action"], {"observation": observations})
    np.testing.assert_array_equal(actions, learnproof.load_policy(run)(observations))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["enjoy", "nowhere"], 1, "There is no run folder"),
        (["export", "nowhere"], 1, "There is no run folder"),
        (["enjoy", "run", "--episodes", "0"], 2, "at least one"),
        (["enjoy", "run", "--form", "avi"], 2, "gif"),
        (["export", "run", "--observations", "1"], 2, "at least 10"),
    ],
)
def test_bad_usage_says_what_to_do(monkeypatch, capsys, tmp_path, run, words, code, said):
    monkeypatch.chdir(tmp_path)
    try:
        ended = main(words)
    except SystemExit as leaving:
        ended = leaving.code
    printed = capsys.readouterr()
    assert ended == code
    assert said in printed.out + printed.err
