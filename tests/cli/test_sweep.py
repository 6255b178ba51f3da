"""The real command in an empty folder: a sweep that is killed in its process goes on, and refusals say what to do."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from learnproof.cli import main

SMALL = (
    "--steps", "800", "--policy.hidden", "16", "--env.n-envs", "4", "--ppo.n-steps", "32", "--ppo.epochs", "4",
    "--evaluation.every-steps", "256", "--evaluation.episodes", "3", "--checkpoint.every-steps", "256",
    "--proof.episodes", "10", "--episodes", "10", "--trials", "1", "--vary", "ppo.learning_rate=1e-4..1e-2:log",
)  # fmt: skip


@pytest.mark.slow
def test_a_sweep_killed_in_the_middle_of_a_trial_goes_on_with_it(monkeypatch, capsys, tmp_path):
    words = [sys.executable, "-u", "-m", "learnproof", "sweep", "CartPole-v1", "--out", "sweep", *SMALL]
    environment = {**os.environ, "COLUMNS": "100"}
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    while not list(tmp_path.glob("sweep/trials/0000/seed0/checkpoints/step-*")):
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "--resume", "sweep"]) in (0, 3)
    printed = capsys.readouterr()
    assert "trial 0 was killed" in printed.out
    assert "\x1b" not in printed.out
    assert printed.err == ""
    results = json.loads((tmp_path / "sweep" / "results.json").read_text())
    assert [trial["state"] for trial in results["trials"]] == ["finished"]
    assert results["trials"][0]["interrupted"] == ["killed"]
    for name in ("sweep.png", "study.db", "sweep.toml", "trials/0000/seed0/report.html"):
        assert (tmp_path / "sweep" / name).stat().st_size > 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["CartPol-v1"], 2, "CartPole-v1"),
        (["CartPole-v1", "--vary", "ppo.gama=0..1"], 2, "ppo.gamma"),
        (["CartPole-v1", "--vary", "ppo.gamma"], 2, "names no values"),
        (["CartPole-v1", "--space", "nowhere.toml"], 2, "cannot be read"),
        (["CartPole-v1", "--trials", "0"], 2, "trials = 0"),
        (["CartPole-v1", "--evaluation.every-steps", "0"], 2, "--pruner none"),
        (["--resume", "nowhere"], 1, "no sweep in nowhere"),
        (["CartPole-v1", "--resume", "nowhere"], 2, "leave the environment away"),
        (["--resume", "nowhere", "--vary", "ppo.gamma=0.9..1"], 2, "leave --vary away"),
        (["--resume", "nowhere", "--ppo.gamma", "0.9"], 2, "leave the settings of the trials away"),
    ],
)
def test_bad_usage_says_what_to_do_and_leaves_nothing(monkeypatch, capsys, tmp_path, words, code, said):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *words]) == code
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
    assert list(tmp_path.iterdir()) == []
