"""A writer that is killed at any moment leaves the old checkpoint or the new one, whole, and nothing in the way."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sample_checkpoints import assert_is_sample, read_all, sample_shelf, sample_state, sample_tensors, write_sample

from learnproof.runs import atomic
from learnproof.runs.checkpoint import Shelf

PER_FILE = [f"{point}:{count}" for point in ("mid-write", "before-fsync") for count in (1, 2, 3, 4)]
ONCE = ["before-manifest:1", "before-rename:1", "after-rename:1"]


def die_while(crash_at: str, action) -> None:
    """Run `action` in a forked child that must die by its own SIGKILL at the crash point."""
    child = os.fork()
    if child == 0:
        try:
            atomic._passages.clear()
            os.environ[atomic.CRASH_VARIABLE] = crash_at
            action()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"{crash_at} was never passed"
    assert os.WTERMSIG(status) == signal.SIGKILL


def assert_clean(shelf: Shelf) -> None:
    atomic.remove_leftovers(shelf.folder)
    assert all(name.startswith("step-") for name in os.listdir(shelf.folder))


@pytest.mark.parametrize("crash_at", [*PER_FILE, *ONCE])
def test_a_new_step(tmp_path, crash_at):
    shelf = sample_shelf(tmp_path, (10,))
    die_while(crash_at, lambda: write_sample(shelf, 20))
    published = crash_at.startswith("after-rename")
    assert shelf.steps() == ([10, 20] if published else [10])
    assert_is_sample(shelf.newest())
    assert_clean(shelf)
    write_sample(shelf, 20)
    assert shelf.steps() == [10, 20]
    assert_is_sample(shelf.newest())


@pytest.mark.parametrize("crash_at", [*PER_FILE, *ONCE, "between-renames:1"])
@pytest.mark.parametrize("cleaned_first", [True, False])
def test_the_same_step_again_where_only_one_is_kept(tmp_path, crash_at, cleaned_first):
    """The hardest case: the folder that is replaced is the only one there is."""
    shelf = sample_shelf(tmp_path, (10,), keep=1)
    die_while(crash_at, lambda: shelf.write(10, {"new": True}, sample_tensors(10)))
    if cleaned_first:
        assert_clean(shelf)
    state, _ = read_all(shelf.newest())
    assert state == ({"new": True} if crash_at.startswith("after-rename") else sample_state(10))
    shelf.write(10, {"third": True}, sample_tensors(10))
    assert shelf.newest().state() == {"third": True}
    assert os.listdir(shelf.folder) == ["step-000000010"]


@pytest.mark.parametrize("count", [1, 2])
def test_during_retention(tmp_path, count):
    shelf = sample_shelf(tmp_path, (10, 20, 30))
    shelf.keep = 2
    die_while(f"during-retention:{count}", lambda: write_sample(shelf, 40))
    assert shelf.steps() == [10, 20, 30, 40][count:]
    for step in shelf.steps():
        assert_is_sample(shelf.open(step))
    assert_clean(shelf)
    write_sample(shelf, 50)
    assert shelf.steps() == [40, 50]


def test_while_the_future_is_forgotten(tmp_path):
    shelf = sample_shelf(tmp_path, (10, 20, 30, 40))
    die_while("during-retention:1", lambda: shelf.forget_after(10))
    assert shelf.steps() == [10, 20, 30]
    shelf.forget_after(10)
    assert shelf.steps() == [10]


def test_without_the_variable_a_crash_point_does_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(atomic.CRASH_VARIABLE, "mid-write:1000000")
    sample_shelf(tmp_path)
    monkeypatch.delenv(atomic.CRASH_VARIABLE)
    atomic.crash_point("mid-write")


WRITER = """
import sys
from pathlib import Path
import numpy as np
from learnproof.runs.checkpoint import Shelf
shelf, step = Shelf(Path(sys.argv[1]), keep=2), int(sys.argv[2])
print("ready", flush=True)
while True:
    step += 1
    arrays = {f"w{i}": np.full(100_000, step, "f4") for i in range(5)}
    shelf.write(step, {"step": step}, {"weights": arrays, "optimizer": arrays})
"""


@pytest.mark.slow
def test_random_kills(tmp_path):
    """At random moments, in a process of its own that does nothing but save 4 MB again and again."""
    shelf, last, rng = Shelf(tmp_path / "checkpoints", 2), 0, random.Random(0)
    for _ in range(12):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(shelf.folder), str(last)], stdout=subprocess.PIPE, cwd=Path.cwd()
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.05 + 0.2 * rng.random())
        writer.kill()
        writer.wait()
        writer.stdout.close()
        newest = shelf.newest()
        if newest is None:
            continue
        assert newest.step >= last
        last = newest.step
        for group in ("weights", "optimizer"):
            for array in newest.tensors(group, newest.layout(group)).values():
                assert (array == last).all()
        assert newest.state() == {"step": last}
        assert_clean(shelf)
    assert last > 12
