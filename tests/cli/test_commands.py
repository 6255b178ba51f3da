"""The real commands, in a subprocess, in an empty folder."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

SMALL = (
    "--policy.hidden", "16", "--env.n-envs", "4", "--ppo.n-steps", "64", "--ppo.minibatch-size", "64", "--ppo.epochs", "4",
    "--evaluation.episodes", "3", "--proof.episodes", "10",
)  # fmt: skip


def learnproof(folder, *words, timeout=120, **environment):
    return subprocess.run(
        [sys.executable, "-m", "learnproof", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "COLUMNS": "100", **environment},
    )


def test_help_starts_without_torch_and_lists_the_commands(tmp_path):
    code = "import sys; from learnproof.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    for command in ("train", "resume", "verify", "evaluate", "report", "envs"):
        assert command in done.stdout


def test_every_command_explains_itself(tmp_path):
    for command in ("train", "resume", "verify", "evaluate", "report", "envs"):
        done = learnproof(tmp_path, command, "--help")
        assert done.returncode == 0
        assert f"learnproof {command}" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "Did you mean 'train'?"),
        (["train", "CartPol-v1"], "CartPole-v1"),
        (["train", "CartPole-v1", "--ppo.gama", "1"], "--ppo.gamma"),
        (["train", "CartPole-v1", "--ppo.gamma", "2"], "gamma"),
        (["train", "CartPole-v1", "--steps", "many"], "steps"),
        (["train", "--config", "nowhere.toml"], "no settings file"),
        (["train"], "No environment was named"),
        (["train", "CartPole-v1", "--device", "warp"], "warp"),
    ],
)
def test_bad_usage_is_exit_code_2_and_says_what_to_do(tmp_path, words, said):
    done = learnproof(tmp_path, *words)
    assert done.returncode == 2
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: None, "There is no run folder"),
        (lambda p: p.mkdir(), "not a run"),
        (lambda p: (p.mkdir(), (p / "about.json").write_text("{")), "about.json"),
        (lambda p: (p.mkdir(), (p / "holiday.jpg").write_text("")), "not a run"),
    ],
    ids=["missing", "empty", "torn", "foreign"],
)
def test_a_folder_that_is_no_run_is_refused(tmp_path, make, said):
    make(tmp_path / "run")
    for command in ("resume", "verify", "evaluate", "report"):
        done = learnproof(tmp_path, command, "run")
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_run_from_training_to_report(tmp_path):
    done = learnproof(tmp_path, "train", "CartPole-v1", "--steps", "2000", "--out", "run", *SMALL)
    assert done.returncode in (0, 3), done.stderr
    run = tmp_path / "run"
    verdict = json.loads((run / "verdict.json").read_text())
    assert {0: "proven", 3: "unproven"}[done.returncode] == verdict["verdict"]
    for name in ("config.toml", "about.json", "evidence.jsonl", "timing.jsonl", "learning_progress.png", "report.html"):
        assert (run / name).stat().st_size > 0
    assert "\x1b" not in done.stdout

    before = (run / "verdict.json").read_bytes()
    verified = learnproof(tmp_path, "verify", "run", "--json", "copy.json")
    assert verified.returncode == done.returncode
    assert (run / "verdict.json").read_bytes() == before
    assert (tmp_path / "copy.json").read_bytes() == before

    evaluated = learnproof(tmp_path, "evaluate", "run", "--episodes", "5")
    assert evaluated.returncode == 0
    assert "deterministic" in evaluated.stdout
    assert learnproof(tmp_path, "report", "run").returncode == 0
    again = learnproof(tmp_path, "train", "CartPole-v1", "--out", "run")
    assert again.returncode == 1
    assert "learnproof resume run" in again.stderr

    with open(run / "evidence.jsonl", "r+b") as file:
        file.seek(200)
        file.write(b"9")
    tampered = learnproof(tmp_path, "verify", "run")
    assert tampered.returncode == 1
    assert "evidence.jsonl" in tampered.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_resumable_run_and_says_the_command(tmp_path, number):
    words = [
        sys.executable,
        "-u",
        "-m",
        "learnproof",
        "train",
        "CartPole-v1",
        "--steps",
        "6000",
        "--out",
        "run",
        *SMALL,
    ]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while (
        not (tmp_path / "run" / "evidence.jsonl").exists()
        or b'"update"' not in (tmp_path / "run" / "evidence.jsonl").read_bytes()
    ):
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "learnproof resume run" in output
    resumed = learnproof(tmp_path, "resume", "run")
    assert resumed.returncode in (0, 3), resumed.stderr
    assert "going on from step" in resumed.stdout
    assert (tmp_path / "run" / "verdict.json").exists()
