"""Machine code that is kept is that of the sources as they are now, and is kept where only we can write."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from numba import config

from learnproof.envs import kernel as kernels
from learnproof.envs import kernel_cache


@pytest.fixture
def anew():
    for one in (kernel_cache.kernel_folder, kernel_cache.digest_of_sources):
        one.cache_clear()
    yield
    for one in (kernel_cache.kernel_folder, kernel_cache.digest_of_sources):
        one.cache_clear()


def doubled(x):
    return 2 * x


def folder_for(tmp_path, monkeypatch, called_body):
    """A package of which one kernel, in a file of its own, has this body."""
    room = tmp_path / "package" / "envs"
    room.mkdir(parents=True, exist_ok=True)
    (room / "calling.py").write_text("from .called import called\n")
    (room / "called.py").write_text(called_body)
    monkeypatch.setattr(kernel_cache, "PACKAGE", tmp_path / "package")
    kernel_cache.kernel_folder.cache_clear()
    kernel_cache.digest_of_sources.cache_clear()
    return kernel_cache.kernel_folder()


def test_a_change_in_any_file_of_kernels_is_another_folder(tmp_path, monkeypatch, anew):
    first = folder_for(tmp_path, monkeypatch, "x = 1\n")
    assert first == folder_for(tmp_path, monkeypatch, "x = 1\n")
    assert first != folder_for(tmp_path, monkeypatch, "x = 2\n")


def test_folders_of_old_sources_do_not_pile_up(tmp_path, monkeypatch, anew):
    for number in range(8):
        newest = folder_for(tmp_path, monkeypatch, f"x = {number}\n")
    left = list(newest.parent.glob(f"{kernel_cache.PREFIX}*"))
    assert newest in left
    assert len(left) == kernel_cache.KEPT + 1


def test_a_kernel_called_from_another_file_is_compiled_anew_after_a_change(tmp_path):
    """Two processes, the package copied: between them only the file of the called kernel changes."""
    package = tmp_path / "learnproof"
    (package / "envs").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "envs" / "__init__.py").touch()
    for name in ("kernel.py", "kernel_cache.py"):
        (package / "envs" / name).write_text((kernel_cache.PACKAGE / "envs" / name).read_text())
    (package / "envs" / "calling.py").write_text(
        textwrap.dedent("""
        from .called import called
        from .kernel import kernel

        @kernel
        def calling(x):
            return called(x)
        """)
    )

    def answer(number):
        body = f"from .kernel import kernel\n\n@kernel\ndef called(x):\n    return x + {number}\n"
        (package / "envs" / "called.py").write_text(body)
        asked = "from learnproof.envs.calling import calling; print(calling(0), sum(calling.stats.cache_hits.values()))"
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", asked], capture_output=True, text=True, env=environment, check=True
        )
        return done.stdout.split()

    assert answer(1) == ["1", "0"]
    assert answer(1) == ["1", "1"], "the second process compiled again"
    assert answer(2) == ["2", "0"]


def test_what_cannot_be_written_is_passed_over(tmp_path, monkeypatch, anew):
    (tmp_path / "file").touch()
    monkeypatch.setattr(kernel_cache, "_places", lambda: iter([tmp_path / "file" / "below", tmp_path / "free"]))
    assert kernel_cache.kernel_folder().parent == tmp_path / "free"


def test_where_nothing_can_be_kept_a_kernel_is_compiled_all_the_same(tmp_path, monkeypatch, anew):
    (tmp_path / "file").touch()
    monkeypatch.setattr(kernel_cache, "_places", lambda: iter([tmp_path / "file" / "below"]))
    assert kernel_cache.kernel_folder() is None
    assert kernels.compiled(doubled)(2) == 4


def test_the_setting_of_the_user_stays(anew):
    before = config.CACHE_DIR
    kernels.compiled(doubled)
    assert before == config.CACHE_DIR


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="users are told apart by their number")
def test_a_temporary_folder_that_others_can_write_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = kernel_cache._own_temporary_folder()
    assert folder.stat().st_mode & 0o077 == 0
    folder.chmod(0o777)
    with pytest.raises(PermissionError):
        kernel_cache._own_temporary_folder()
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        kernel_cache._own_temporary_folder()
