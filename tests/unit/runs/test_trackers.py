"""Trackers write what they are given, in files that their own readers open; one that fails is dropped with a word."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys

import pytest

from learnproof.errors import MissingExtra, SettingsError
from learnproof.runs import trackers as module
from learnproof.runs.trackers import open_trackers


class Broken:
    def __init__(self, folder, config, resume_step):
        self.left = 1

    def log(self, step, metrics):
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("no route to https://key:secret_word@host")

    def close(self):
        raise ConnectionError("still no route")


def read_scalars(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_reads_back_every_tag_and_step(tmp_path):
    trackers = open_trackers(("tensorboard",), tmp_path, {"seed": 1}, None)
    trackers.log(10, {"rollout/ep_rew_mean": 1.5, "train/approx_kl": 0.25})
    trackers.log(20, {"rollout/ep_rew_mean": 2.5, "train/approx_kl": float("nan")})
    assert read_scalars(tmp_path)["rollout/ep_rew_mean"] == [(10, 1.5), (20, 2.5)]  # a live reader sees it already
    trackers.close()
    scalars = read_scalars(tmp_path)
    assert list(scalars) == ["rollout/ep_rew_mean", "train/approx_kl"]
    assert scalars["train/approx_kl"][0] == (10, 0.25)


def test_tensorboard_strikes_out_what_came_after_the_checkpoint(tmp_path):
    for resume_step, steps in ((None, (10, 20, 30, 40)), (20, (30, 50))):
        trackers = open_trackers(("tensorboard",), tmp_path, {}, resume_step)
        for step in steps:
            trackers.log(step, {"x": float(step if resume_step is None else -step)})
        trackers.close()
    assert read_scalars(tmp_path)["x"] == [(10, 10.0), (20, 20.0), (30, -30.0), (50, -50.0)]


def test_tensorboard_needs_no_torch(tmp_path):
    code = (
        "import sys; from pathlib import Path; from learnproof.runs.trackers import open_trackers;"
        "t = open_trackers(('tensorboard',), Path(sys.argv[1]), {}, None); t.log(1, {'a': 1.0}); t.close();"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_tracker_that_fails_is_dropped_with_one_warning_and_the_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setitem(module.OPENERS, "broken", Broken)
    warned = []
    trackers = open_trackers(("broken", "tensorboard"), tmp_path, {}, None, warned.append)
    for step in range(5):
        trackers.log(step, {"x": 1.0})
    assert trackers.names == ["tensorboard"]
    trackers.close()
    assert len(warned) == 1
    assert "broken failed and is switched off" in warned[0]
    assert "ConnectionError" in warned[0]
    assert "secret_word" not in warned[0]
    assert len(read_scalars(tmp_path)["x"]) == 5


def test_a_tracker_that_fails_to_open_or_close_does_not_stop_the_run(tmp_path, monkeypatch):
    monkeypatch.setitem(module.OPENERS, "broken", Broken)
    (tmp_path / "tensorboard").write_text("a file in the way")
    warned = []
    trackers = open_trackers(("broken", "tensorboard"), tmp_path, {}, None, warned.append)
    assert trackers.names == ["broken"]
    trackers.close()
    assert [("tensorboard" in text, "broken" in text) for text in warned] == [(True, False), (False, True)]


def test_by_default_the_warning_is_python_s_own(tmp_path, monkeypatch):
    monkeypatch.setitem(module.OPENERS, "broken", Broken)
    with pytest.warns(UserWarning, match="switched off"):
        open_trackers(("broken",), tmp_path, {}, None).close()


def test_no_trackers_is_no_work(tmp_path):
    trackers = open_trackers((), tmp_path, {}, None)
    trackers.log(1, {"x": 1.0})
    trackers.close()
    assert os.listdir(tmp_path) == []


def test_an_unknown_tracker_suggests_a_known_one(tmp_path):
    with pytest.raises(SettingsError, match="Did you mean 'tensorboard'"):
        open_trackers(("tensorbord",), tmp_path, {}, None)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("tensorboard", "tensorboard.summary.writer.event_file_writer"),
        ("wandb", "wandb"),
        ("trackio", "trackio"),
    ],
)
def test_a_tracker_that_is_not_installed_names_its_extra(tmp_path, monkeypatch, name, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=rf"learnproof\[{name}\]"):
        open_trackers((name,), tmp_path, {}, None)


def test_a_missing_extra_closes_those_already_open(tmp_path, monkeypatch):
    closed = []

    class Healthy(Broken):
        def close(self):
            closed.append(True)

    monkeypatch.setitem(module.OPENERS, "healthy", Healthy)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra):
        open_trackers(("healthy", "wandb"), tmp_path, {}, None)
    assert closed == [True]


def run_alone(tmp_path, name, **environment):
    """These two keep threads, processes and global state; each gets an interpreter of its own."""
    code = f"""
import sys
from pathlib import Path
from learnproof.runs.trackers import open_trackers
for resume_step in (None, 1):
    t = open_trackers(({name!r},), Path(sys.argv[1]), {{"seed": 1, "api_key": "secret_word"}}, resume_step)
    for step in (1, 2) if resume_step is None else (2, 3):
        t.log(step, {{"rollout/ep_rew_mean": float(step)}})
    assert t.names == [{name!r}]
    t.close()
"""
    (tmp_path / "run").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_wandb_writes_offline_inside_the_run_and_says_nothing(tmp_path):
    pytest.importorskip("wandb")
    done = run_alone(tmp_path, "wandb", WANDB_MODE="online", HOME=str(tmp_path / "home"))
    assert (done.stdout, done.stderr) == ("", "")
    sessions = list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(sessions) == 2
    assert all(b"rollout/ep_rew_mean" in path.read_bytes() for path in sessions)
    assert not any(b"secret_word" in path.read_bytes() for path in sessions)


@pytest.mark.slow
def test_trackio_writes_to_its_local_database_and_prints_nothing(tmp_path):
    pytest.importorskip("trackio")
    done = run_alone(
        tmp_path, "trackio", TRACKIO_DIR=str(tmp_path / "db"), TRACKIO_SERVER_URL="http://127.0.0.1:1/?write_token=x"
    )
    assert done.stdout == ""
    with contextlib.closing(sqlite3.connect(tmp_path / "db" / "learnproof.db")) as database:
        rows = database.execute("select run_name, step, metrics from metrics order by id").fetchall()
    assert [(run, step) for run, step, _ in rows] == [("run", 1), ("run", 2), ("run", 2), ("run", 3)]
    assert json.loads(rows[0][2]) == {"rollout/ep_rew_mean": 1.0}
