"""A file or folder appears whole or not at all, and a full disk costs nothing that was there."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import resource
import subprocess
from pathlib import Path

import pytest

from learnproof.errors import DiskFull
from learnproof.runs import atomic
from learnproof.runs.atomic import Draft, append_line, publish_folder, remove_folder, remove_leftovers, write_file


def fill_with(**files: bytes):
    def fill(draft: Draft) -> None:
        for name, data in files.items():
            draft.put(name, [data])

    return fill


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    write_file(tmp_path / "a", b"old")
    write_file(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_a_folder_is_published_with_all_its_files_and_their_digests(tmp_path):
    seen = {}

    def fill(draft: Draft) -> None:
        seen["x"] = draft.put("x", [b"one", b"", memoryview(b"two")])
        assert not (tmp_path / "final").exists()

    publish_folder(tmp_path / "final", fill)
    assert (tmp_path / "final" / "x").read_bytes() == b"onetwo"
    assert (seen["x"].bytes, seen["x"].sha256) == (6, hashlib.sha256(b"onetwo").hexdigest())
    assert names(tmp_path) == ["final"]


def test_an_older_folder_is_replaced_as_a_whole(tmp_path):
    publish_folder(tmp_path / "final", fill_with(a=b"1", b=b"2"))
    publish_folder(tmp_path / "final", fill_with(c=b"3"))
    assert names(tmp_path / "final") == ["c"]
    assert names(tmp_path) == ["final"]


def test_a_writer_that_raises_leaves_the_older_folder_alone(tmp_path):
    publish_folder(tmp_path / "final", fill_with(a=b"1"))

    def fill(draft: Draft) -> None:
        draft.put("b", [b"2"])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish_folder(tmp_path / "final", fill)
    assert names(tmp_path) == ["final"]
    assert names(tmp_path / "final") == ["a"]


def test_a_rename_that_fails_brings_the_older_folder_back(tmp_path, monkeypatch):
    publish_folder(tmp_path / "final", fill_with(a=b"1"))
    rename = os.rename

    def failing(source, target):
        if ".partial" in str(source):
            raise OSError(errno.EIO, "broken")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="broken"):
        publish_folder(tmp_path / "final", fill_with(b=b"2"))
    assert names(tmp_path) == ["final"]
    assert names(tmp_path / "final") == ["a"]


def test_leftovers_are_cleared_and_a_folder_set_aside_comes_back(tmp_path):
    for name in (".a.12.partial", ".b.removed", ".c.replaced", ".d.replaced", "d"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / ".e.json.7.partial").write_text("")
    (tmp_path / ".f.7.partial").symlink_to(tmp_path / "d")
    (tmp_path / ".lock").write_text("")
    (tmp_path / ".mine").write_text("")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [".lock", ".mine", "c", "d"]
    assert (tmp_path / "c" / "file").read_text() == ".c.replaced"
    assert (tmp_path / "d" / "file").read_text() == "d"
    assert remove_leftovers(tmp_path) == []
    assert remove_leftovers(tmp_path / "missing") == []


def test_a_removed_folder_is_gone_even_if_an_earlier_removal_was_cut_short(tmp_path):
    for name in ("a", ".a.removed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    remove_folder(tmp_path / "a")
    assert names(tmp_path) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_full_disk_keeps_what_was_there_and_says_so(tmp_path, monkeypatch, code, call):
    write_file(tmp_path / "file", b"old")
    publish_folder(tmp_path / "folder", fill_with(a=b"old"))

    def full(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(atomic.os, call, full)
    with pytest.raises(DiskFull, match="still there"):
        write_file(tmp_path / "file", b"new")
    with pytest.raises(DiskFull, match="still there") as told:
        publish_folder(tmp_path / "folder", fill_with(a=b"new" * 100))
    assert re.search(r"at least 300 bytes, and [\d,]+ are free", str(told.value))
    monkeypatch.undo()
    assert names(tmp_path) == ["file", "folder"]
    assert (tmp_path / "file").read_bytes() == b"old"
    assert (tmp_path / "folder" / "a").read_bytes() == b"old"


def test_other_errors_of_the_system_pass_through(tmp_path, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(atomic.os, "fsync", broken)
    with pytest.raises(OSError, match="broken"):
        write_file(tmp_path / "file", b"new")
    assert names(tmp_path) == []


def test_the_limit_on_the_size_of_a_file_is_a_full_disk_too(tmp_path):
    write_file(tmp_path / "file", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(DiskFull, match="ulimit"):
            write_file(tmp_path / "file", bytes(20_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_a_disk_that_is_really_full(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        publish_folder(disk / "folder", fill_with(a=bytes(50_000)))
        with pytest.raises(DiskFull, match="disk is full"):
            publish_folder(disk / "folder", fill_with(a=bytes(100_000), b=bytes(300_000)))
        assert names(disk) == ["folder"]
        assert (disk / "folder" / "a").read_bytes() == bytes(50_000)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_line_cut_short_by_a_kill_does_not_swallow_the_next(tmp_path):
    append_line(tmp_path / "log", b"1")
    with open(tmp_path / "log", "ab") as file:
        file.write(b"tor")
    append_line(tmp_path / "log", b"2")
    assert (tmp_path / "log").read_bytes() == b"1\ntor\n2\n"
