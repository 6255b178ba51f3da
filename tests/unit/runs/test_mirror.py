"""A mirror holds a run that can be resumed at every moment, and its failure never stops training."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest
from sample_checkpoints import assert_is_sample, snapshot, write_sample

from learnproof.errors import CheckpointDamaged, MissingExtra, UsageError
from learnproof.runs.folder import RunFolder
from learnproof.runs.mirror import Mirror

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def run(tmp_path):
    run = RunFolder.create(tmp_path / "runs" / "one", "seed = 3\n", {"seed": 3})
    run.evidence.write_text('{"event":"run_started"}\n')
    run.samples.mkdir()
    (run.samples / "rollout-000000-000000000.safetensors").write_bytes(b"batch")
    write_sample(run.initial, 0)
    train_to(run, 10)
    return run


def train_to(run: RunFolder, step: int) -> None:
    with open(run.evidence, "a") as file:
        file.write(f'{{"event":"update","step":{step}}}\n')
    write_sample(run.best, step)
    write_sample(run.checkpoints(keep=2), step)


def mirrored_part(run: RunFolder) -> dict[str, bytes]:
    return {name: data for name, data in snapshot(run.path).items() if name not in (".lock", "timing.jsonl")}


def test_a_mirrored_folder_copied_back_is_the_run(run, tmp_path):
    mirror = Mirror(str(tmp_path / "second"), run, resumed=False)
    for step in (20, 30, 40):
        train_to(run, step)
        run.note_timing(step=step)
        result = mirror.copy()
        assert result.error is None
        assert mirrored_part(run) == snapshot(tmp_path / "second" / "one")
    shutil.rmtree(run.path)
    shutil.copytree(tmp_path / "second" / "one", run.path)
    back = RunFolder.open(run.path)
    assert back.checkpoints().steps() == [30, 40]
    for shelf in (back.checkpoints(), back.best, back.initial):
        shelf.newest().verify()
        assert_is_sample(shelf.newest())


def test_a_url_of_fsspec_works_the_same(run, tmp_path):
    mirror = Mirror("memory://mirror/runs", run, resumed=False)
    for step in (20, 30):
        train_to(run, step)
        assert mirror.copy().error is None
    fsspec.filesystem("memory").get("/mirror/runs/one", str(tmp_path / "back"), recursive=True)
    fsspec.filesystem("memory").rm("/mirror", recursive=True)
    assert mirrored_part(run) == snapshot(tmp_path / "back")
    assert_is_sample(RunFolder.open(tmp_path / "back").checkpoints().newest())


def test_only_what_is_new_is_sent(run, tmp_path):
    mirror = Mirror(str(tmp_path / "second"), run, resumed=False)
    first = mirror.copy()
    assert first.files == len(mirrored_part(run))
    assert first.bytes == sum(len(data) for data in mirrored_part(run).values())
    assert mirror.copy().files == 0
    train_to(run, 20)
    assert mirror.copy().files == 1 + 4 + 4  # the evidence, a best and a checkpoint of four files each


def test_after_a_resume_the_mirror_follows_the_run_that_went_back(run, tmp_path):
    train_to(run, 20)
    assert Mirror(str(tmp_path / "second"), run, resumed=False).copy().error is None
    run.checkpoints().forget_after(10)
    run.checkpoints(2).write(15, {"another": "future"}, {"weights": {}})
    run.checkpoints(2).write(20, {"another": "future"}, {"weights": {}})
    (run.samples / "rollout-000000-000000000.safetensors").write_bytes(b"other")
    assert Mirror(str(tmp_path / "second"), run, resumed=True).copy().error is None
    assert mirrored_part(run) == snapshot(tmp_path / "second" / "one")


def test_a_new_run_does_not_write_over_a_mirrored_one(run, tmp_path):
    assert Mirror(str(tmp_path / "second"), run, resumed=False).copy().error is None
    kept = snapshot(tmp_path / "second")
    other = RunFolder.create(tmp_path / "elsewhere" / "one", "seed = 4\n", {"seed": 4})
    write_sample(other.checkpoints(), 1)
    for resumed, reason in ((False, "another run of this name"), (True, "about.json differs")):
        result = Mirror(str(tmp_path / "second"), other, resumed=resumed).copy()
        assert reason in result.error
        assert result.files == 0
    assert snapshot(tmp_path / "second") == kept


def test_a_copy_cut_short_before_the_manifest_is_refused_on_the_way_back(run, tmp_path, monkeypatch):
    mirror = Mirror(str(tmp_path / "second"), run, resumed=False)
    assert mirror.copy().error is None
    train_to(run, 20)
    put_file = fsspec.implementations.local.LocalFileSystem.put_file

    def dying(self, source, target, **options):
        if "checkpoints/step-000000020/MANIFEST.json" in str(target):
            raise ConnectionError("the line is dead")
        put_file(self, source, target, **options)

    monkeypatch.setattr(fsspec.implementations.local.LocalFileSystem, "put_file", dying)
    assert "ConnectionError: the line is dead" in mirror.copy().error
    back = RunFolder.open(tmp_path / "second" / "one")
    with pytest.raises(CheckpointDamaged, match=r"MANIFEST.json is missing.*--step 10"):
        back.checkpoints().newest()
    assert_is_sample(back.checkpoints().open(10))
    monkeypatch.undo()
    assert mirror.copy().error is None
    assert_is_sample(back.checkpoints().newest())


def test_old_evidence_stays_until_the_new_one_is_complete(run, tmp_path, monkeypatch):
    mirror = Mirror(str(tmp_path / "second"), run, resumed=False)
    assert mirror.copy().error is None
    there = tmp_path / "second" / "one" / "evidence.jsonl"
    old = there.read_bytes()
    train_to(run, 20)

    def half(self, source, target, **options):
        Path(target).write_bytes(b"half")
        raise OSError("gone")

    monkeypatch.setattr(fsspec.implementations.local.LocalFileSystem, "put_file", half)
    assert mirror.copy().error
    assert there.read_bytes() == old


def test_a_mirror_that_fails_raises_nothing_and_recovers(run, tmp_path):
    (tmp_path / "second").write_text("a file in the way")
    mirror = Mirror(str(tmp_path / "second"), run, resumed=False)
    result = mirror.copy()
    assert "is not up to date" in result.error
    assert result.files == 0
    os.remove(tmp_path / "second")
    assert mirror.copy().error is None
    assert mirrored_part(run) == snapshot(tmp_path / "second" / "one")


def test_a_damaged_checkpoint_is_named_and_the_rest_is_copied(run, tmp_path):
    train_to(run, 20)
    (run.path / "checkpoints" / "step-000000010" / "state.json").unlink()
    result = Mirror(str(tmp_path / "second"), run, resumed=False).copy()
    assert "checkpoint of step 10 is damaged" in result.error
    assert_is_sample(RunFolder.open(tmp_path / "second" / "one").checkpoints().newest())


def test_no_message_shows_the_credentials_of_a_url(run):
    target = "ftp://the_user:the_password@127.0.0.1:1/place?token=the_token"
    mirror = Mirror(target, run, resumed=False)
    result = mirror.copy()
    assert "Refused" in result.error or "refused" in result.error
    for text in (mirror.place, result.place, result.error, repr(result)):
        assert not any(secret in text for secret in ("the_user", "the_password", "the_token"))


@pytest.mark.parametrize(
    ("target", "reason"), [("bogus://me:secret_word@x", "bogus"), ("s3://me:secret_word@x", "s3fs|Install")]
)
def test_a_place_that_cannot_be_reached_at_all_is_bad_usage(run, target, reason):
    if target.startswith("s3") and importlib.util.find_spec("s3fs"):
        pytest.skip("s3fs is installed")
    with pytest.raises(UsageError, match=reason) as told:
        Mirror(target, run, resumed=False)
    assert "secret_word" not in str(told.value)


def test_a_mirror_inside_the_run_is_bad_usage(run):
    for target in (run.path, run.path / "mirror", run.path.parent, f"file://{run.path.parent}"):
        with pytest.raises(UsageError, match="lies in the run itself"):
            Mirror(str(target), run, resumed=False)


def test_without_fsspec_the_extra_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtra, match=r"learnproof\[mirror\]"):
        Mirror("memory://x", run, resumed=False)
