"""The real commands in an empty folder: help and refusals inside of this process, all else in one of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from learnproof.cli import FILES, main

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


def inside(monkeypatch, capsys, folder, *words):
    """Exit code and output, without the seconds that a process of its own takes to import torch."""
    monkeypatch.chdir(folder)
    try:
        code = main(words)
    except SystemExit as leaving:
        code = leaving.code
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_help_starts_without_torch_and_lists_the_commands(tmp_path):
    code = "import sys; from learnproof.cli import FILES, main; main(['--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    for command in ("train", "resume", "verify", "evaluate", "report", "envs"):
        assert command in done.stdout


def test_every_command_explains_itself(monkeypatch, capsys, tmp_path):
    for command in FILES:
        code, printed = inside(monkeypatch, capsys, tmp_path, command, "--help")
        assert code == 0
        assert f"learnproof {command}" in printed


def test_the_help_of_train_explains_every_schedule(monkeypatch, capsys, tmp_path):
    code, printed = inside(monkeypatch, capsys, tmp_path, "train", "--help")
    assert code == 0
    for word in ("constant", "linear", "cosine", "plateau", "warm-up"):
        assert word in printed


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
        (["train", "CartPole-v1", "--steps", "-5"], "steps = -5 cannot be used"),
        (["train", "CartPole-v1", "--seed", "-1"], "seed = -1 cannot be used"),
        (["train", "CartPole-v1", "--policy.hidden", "0"], "greater than or equal to 1"),
        (["train", "CartPole-v1", "--proof.waive", "ratio_is_on", "because"], "ratio_is_one"),
        (["train", "nowhere:Env-v0"], "nowhere"),
        (
            ["train", "CartPole-v1", "--schedule.kind", "plateau", "--evaluation.every-steps", "0"],
            "every_steps above 0",
        ),
        (["train", "CartPole-v1", "--schedule.kind", "cosin"], "cosine"),
    ],
)
def test_bad_usage_is_exit_code_2_and_says_what_to_do(monkeypatch, capsys, tmp_path, words, said):
    code, printed = inside(monkeypatch, capsys, tmp_path, *words)
    assert code == 2
    assert said in printed


def test_an_environment_that_raises_shows_where(monkeypatch, capsys, tmp_path):
    (tmp_path / "their_world.py").write_text(
        "import gymnasium as gym\n"
        "class World(gym.Env):\n"
        "    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        raise KeyError('wind')\n"
        "gym.register('World-v0', World)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    code, printed = inside(monkeypatch, capsys, tmp_path, "train", "their_world:World-v0", "--out", "run", *SMALL)
    assert code == 1
    assert "raised KeyError" in printed
    assert 'their_world.py", line 5' in printed


def test_bad_usage_has_its_exit_code_in_a_process_too(tmp_path):
    done = learnproof(tmp_path, "train", "CartPol-v1")
    assert done.returncode == 2
    assert "CartPole-v1" in done.stderr
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
def test_a_folder_that_is_no_run_is_refused(monkeypatch, capsys, tmp_path, make, said):
    make(tmp_path / "run")
    for command in ("resume", "verify", "evaluate", "report"):
        code, printed = inside(monkeypatch, capsys, tmp_path, command, "run")
        assert code == 1
        assert said in printed


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
    classic = learnproof(tmp_path, "verify", "run", "--profile", "classic", "--json", "classic.json")
    assert "profile classic" in classic.stdout
    assert (run / "verdict.json").read_bytes() == before
    assert (tmp_path / "classic.json").read_bytes() != before

    evaluated = learnproof(tmp_path, "evaluate", "run", "--episodes", "5")
    assert evaluated.returncode == 0
    assert "deterministic" in evaluated.stdout
    assert learnproof(tmp_path, "report", "run").returncode == 0
    again = learnproof(tmp_path, "train", "CartPole-v1", "--out", "run")
    assert again.returncode == 1
    assert "learnproof resume run" in again.stderr


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, copied for each test that spoils it."""
    folder = tmp_path_factory.mktemp("finished")
    done = learnproof(folder, "train", "CartPole-v1", "--steps", "1000", "--out", "run", *SMALL)
    assert done.returncode in (0, 3), done.stderr
    return folder / "run"


def flip(path, position=-1):
    body = bytearray(path.read_bytes())
    body[position] ^= 1
    path.write_bytes(bytes(body))


def checkpoint_file(run, name):
    return sorted((run / "checkpoints").iterdir())[-1] / name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda run: flip(run / "evidence.jsonl", 200), "evidence.jsonl"),
        (lambda run: (run / "evidence.jsonl").open("a").write('{"event":"episode"}\n'), "evidence.jsonl"),
        (lambda run: shutil.rmtree(run / "checkpoints"), "no checkpoint"),
        (lambda run: flip(checkpoint_file(run, "weights.safetensors")), "weights.safetensors"),
        (lambda run: flip(checkpoint_file(run, "MANIFEST.json"), 100), "MANIFEST.json"),
        (lambda run: flip(run / "config.toml", 5), "config.toml"),
        (lambda run: next((run / "samples").iterdir()).unlink(), "samples"),
        (lambda run: flip(next((run / "best").iterdir()) / "policy.safetensors"), "policy.safetensors"),
    ],
    ids=[
        "evidence",
        "evidence added",
        "no checkpoints",
        "weights",
        "manifest",
        "settings",
        "sample gone",
        "best policy",
    ],
)
def test_verify_refuses_a_run_that_was_changed(tmp_path, finished, spoil, said):
    shutil.copytree(finished, tmp_path / "run")
    spoil(tmp_path / "run")
    done = learnproof(tmp_path, "verify", "run")
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_report_refuses_a_verdict_that_is_none_or_not_of_this_evidence(tmp_path, finished):
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "verdict.json").write_text('{"verdict":"proven"}')
    forged = learnproof(tmp_path, "report", "run")
    assert forged.returncode == 1
    assert "not a verdict" in forged.stderr
    shutil.copy(finished / "verdict.json", tmp_path / "run" / "verdict.json")
    assert learnproof(tmp_path, "report", "run").returncode == 0
    flip(tmp_path / "run" / "evidence.jsonl", 300)
    assert "other evidence" in learnproof(tmp_path, "report", "run").stderr


@pytest.mark.slow
def test_resume_of_a_finished_run_proves_it_again_and_brings_a_lost_best_policy_back(tmp_path, finished):
    shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "best")
    done = learnproof(tmp_path, "resume", "run")
    assert done.returncode in (0, 3), done.stderr
    assert "proven anew" in done.stdout
    assert (tmp_path / "run" / "verdict.json").read_bytes() == (finished / "verdict.json").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
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
