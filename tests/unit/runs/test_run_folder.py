"""A run folder is begun once, opened only if it is a run and unchanged, and written by one process at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from sample_checkpoints import write_sample

from learnproof.config import Settings, to_toml
from learnproof.errors import RunFolderError
from learnproof.runs.folder import RunFolder, fresh_path

CONFIG = to_toml(Settings())
ABOUT = {"learnproof": "0.1.0", "seed": 3}


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "runs" / "one", CONFIG, ABOUT)


def test_a_created_run_opens_with_the_same_settings(run):
    again = RunFolder.open(run.path)
    assert again.read_config() == CONFIG
    assert again.read_about()["seed"] == 3
    assert sorted(os.listdir(run.path)) == [".lock", "about.json", "config.toml"]


def test_what_is_said_about_a_run_cannot_displace_its_marks(tmp_path):
    run = RunFolder.create(tmp_path / "x", CONFIG, {"format": "other", "version": 9, "config_sha256": ""})
    RunFolder.open(run.path)


def test_everything_has_its_place(run):
    places = [run.config, run.about, run.evidence, run.samples, run.timing, run.verdict, run.picture, run.report]
    shelves = [run.checkpoints(keep=7), run.best, run.initial]
    assert [p.name for p in places] == [
        "config.toml",
        "about.json",
        "evidence.jsonl",
        "samples",
        "timing.jsonl",
        "verdict.json",
        "learning_progress.png",
        "report.html",
    ]
    assert [(s.folder.name, s.keep) for s in shelves] == [("checkpoints", 7), ("best", 1), ("initial", 1)]
    assert {p.parent for p in places} | {s.folder.parent for s in shelves} == {run.path}


def test_an_empty_folder_may_become_a_run(tmp_path):
    RunFolder.create(tmp_path, CONFIG, ABOUT)
    RunFolder.open(tmp_path)


def test_a_run_is_not_begun_over_another(run):
    before = run.about.read_bytes()
    with pytest.raises(RunFolderError, match=rf"already a run .*learnproof resume {run.path}; .*--out"):
        RunFolder.create(run.path, CONFIG, {"seed": 4})
    assert run.about.read_bytes() == before


def test_a_foreign_folder_is_neither_filled_nor_opened(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunFolderError, match=r"thesis\.tex would be mixed.*--out"):
        RunFolder.create(tmp_path, CONFIG, ABOUT)
    with pytest.raises(RunFolderError, match=r"not a run of learnproof: it has no about.json"):
        RunFolder.open(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize("about", ["{}", '{"format": "other"}', "[]", "not json", '{"a":1,"a":2}', "[" * 100_000])
def test_an_about_that_is_not_ours_is_refused(run, about):
    run.about.write_text(about)
    for act in (lambda: RunFolder.open(run.path), lambda: RunFolder.create(run.path, CONFIG, ABOUT)):
        with pytest.raises(RunFolderError, match=r"about.json"):
            act()


def test_a_run_of_another_form_is_refused(run):
    run.about.write_text(json.dumps({**run.read_about(), "version": 2}))
    with pytest.raises(RunFolderError, match="form 2; this learnproof knows form 1"):
        RunFolder.open(run.path)


def test_a_missing_run_suggests_a_near_name(run):
    with pytest.raises(RunFolderError, match=r"no run folder .*/onne\. Did you mean 'one'\?"):
        RunFolder.open(run.path.with_name("onne"))
    with pytest.raises(RunFolderError, match="no run folder"):
        RunFolder.open(run.path / "no" / "where")


def test_a_file_is_not_a_run_folder(run):
    with pytest.raises(RunFolderError, match="no run folder"):
        RunFolder.open(run.config)
    for path in (run.config, run.config / "below"):
        with pytest.raises(RunFolderError, match="a file of that name"):
            RunFolder.create(path, CONFIG, ABOUT)


def test_a_run_killed_while_it_was_made_is_half_written_and_may_be_made_again(run):
    run.config.unlink()
    (run.path / ".config.toml.99.partial").write_text("half")
    with pytest.raises(RunFolderError, match=r"half-written: it has no config.toml"):
        RunFolder.open(run.path)
    RunFolder.create(run.path, CONFIG, ABOUT)
    assert RunFolder.open(run.path).read_config() == CONFIG
    assert sorted(os.listdir(run.path)) == [".lock", "about.json", "config.toml"]


def test_a_run_that_lost_its_settings_is_not_made_again(run):
    run.config.unlink()
    write_sample(run.checkpoints(), 10)
    with pytest.raises(RunFolderError, match="already a run"):
        RunFolder.create(run.path, CONFIG, ABOUT)


@pytest.mark.parametrize("change", [b"# a comment\n", b"\xff", b" "])
def test_changed_settings_are_refused(run, change):
    run.config.write_bytes(run.config.read_bytes() + change)
    with pytest.raises(RunFolderError, match=r"config\.toml (was changed since the run began|is not text)"):
        RunFolder.open(run.path)


def test_settings_behind_a_link_are_refused(run, tmp_path):
    os.rename(run.config, tmp_path / "elsewhere")
    run.config.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunFolderError, match=r"config\.toml is a symbolic link"):
        RunFolder.open(run.path)


def test_timing_is_noted_line_by_line(run):
    run.note_timing(phase="rollout", seconds=1.5)
    run.note_timing(phase="update", seconds=2.5)
    lines = [json.loads(line) for line in run.timing.read_text().splitlines()]
    assert [(line["phase"], line["seconds"]) for line in lines] == [("rollout", 1.5), ("update", 2.5)]
    assert all(abs(line["unix_time"] - time.time()) < 60 for line in lines)


def test_names_of_runs_come_from_what_they_are_and_never_collide(tmp_path):
    first = fresh_path(tmp_path, "CartPole-v1", "ppo", "seed0")
    assert first == tmp_path / "CartPole-v1-ppo-seed0"
    first.mkdir()
    second = fresh_path(tmp_path, "CartPole-v1", "ppo", "seed0")
    assert second.name == "CartPole-v1-ppo-seed0-2"
    second.mkdir()
    assert fresh_path(tmp_path, "CartPole-v1", "ppo", "seed0").name == "CartPole-v1-ppo-seed0-3"
    assert fresh_path(tmp_path, "CartPole-v1", "ppo", "seed1").name == "CartPole-v1-ppo-seed1"


@pytest.mark.parametrize(
    ("env_id", "name"),
    [
        ("learnproof/TaskAllocation-v1", "TaskAllocation-v1"),
        ("my_module:my_ns/My Env-v0", "My-Env-v0"),
        ("../../etc", "etc"),
        ("..", "run"),
        ("x" * 300, "x" * 80),
    ],
)
def test_no_environment_id_can_lead_a_run_elsewhere(tmp_path, env_id, name):
    assert fresh_path(tmp_path, env_id, "ppo", "seed0") == tmp_path / f"{name}-ppo-seed0"


HOLDER = """
import sys, time
from pathlib import Path
from learnproof.runs.folder import RunFolder
with RunFolder.open(Path(sys.argv[1])).lock():
    if sys.argv[2] == "fork":
        import os
        if os.fork():
            time.sleep(60)
        print(os.getpid(), flush=True)
    print("locked", flush=True)
    time.sleep(60)
"""


def start_holder(run, how="plain"):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run.path), how], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert holder.stdout is not None
    child = int(holder.stdout.readline()) if how == "fork" else 0
    assert holder.stdout.readline() == "locked\n"
    return holder, child


def test_two_processes_never_write_the_same_run(run):
    holder, _ = start_holder(run)
    try:
        with pytest.raises(RunFolderError, match=f"in use: process {holder.pid} "), run.lock():
            pass
        RunFolder.open(run.path)  # reading needs no lock
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with run.lock():
        pass


def test_a_worker_forked_by_a_killed_trainer_does_not_hold_the_lock(run):
    holder, child = start_holder(run, "fork")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    try:
        os.kill(child, 0)
        with run.lock():
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        holder.communicate()


def test_the_lock_is_not_given_twice_to_one_process_and_is_let_go(run):
    with run.lock(), pytest.raises(RunFolderError, match=f"process {os.getpid()} "), run.lock():
        pass
    with pytest.raises(KeyError), run.lock():
        raise KeyError
    with run.lock():
        pass


def test_whoever_takes_the_lock_clears_what_a_killed_writer_left(run):
    write_sample(run.checkpoints(), 10)
    for place in (run.path / ".verdict.json.1.partial", run.checkpoints().folder / ".step-000000020.1.partial"):
        place.mkdir()
    os.rename(run.checkpoints().folder / "step-000000010", run.checkpoints().folder / ".step-000000010.replaced")
    with run.lock():
        assert os.listdir(run.checkpoints().folder) == ["step-000000010"]
        assert ".verdict.json.1.partial" not in os.listdir(run.path)
