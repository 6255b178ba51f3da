"""Where machine code is kept between processes, and when it is out of date.

numba keeps a compiled function beside its source and looks whether that one file has changed. Kernels call each other across files, so that
this is not enough: a change in a called one would leave old code in use, in silence. So all kernels share one folder, named after a digest of
every source that they could be made of; numba itself looks after its version and the machine.

The first of these places that can be written serves: NUMBA_CACHE_DIR, beside the package, the user's cache, and a folder among the temporary
files that nobody else can write (what is kept there is run). Where none can, every process compiles anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from numba import config

PACKAGE = Path(__file__).parent.parent
ROOMS = ("envs", "policies", "algorithms", "compiled")
"""Kernels, and what they take numbers from."""
PREFIX = "learnproof-kernels-"
KEPT = 3
"""Folders of other digests that stay: of another branch, of a version before this one."""


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """What is decorated meanwhile is kept in this folder."""
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before


@cache
def kernel_folder() -> Path | None:
    name = PREFIX + digest_of_sources()
    for place in _places():
        folder = place / name
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
            with suppress(OSError):
                _forget_old_ones(folder)
            return folder
    return None


def is_kept(function: str) -> bool:
    """Whether this kernel ("module.name") was compiled on this machine before, from these sources."""
    folder = kernel_folder()
    return folder is not None and any(folder.glob(f"*/{function}-*.nbc"))


@cache
def digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for room in ROOMS for path in (PACKAGE / room).rglob("*.py")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _places() -> Iterator[Path]:
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR)
    yield PACKAGE / "__pycache__"
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    yield Path(home) / "learnproof"
    with suppress(OSError):
        yield _own_temporary_folder()


def _own_temporary_folder() -> Path:
    """Ours and closed to others, or an OSError: whoever could write into it could have us run anything."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"learnproof-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or (hasattr(os, "getuid") and (seen.st_uid != user or seen.st_mode & 0o077)):
        raise PermissionError(f"{folder} is not this user's alone")
    return folder


def _forget_old_ones(folder: Path) -> None:
    """A process that still uses one of them compiles anew."""
    others = [other for other in folder.parent.glob(f"{PREFIX}*") if other != folder]
    by_age = sorted(others, key=lambda other: other.stat().st_mtime, reverse=True)
    for other in by_age[KEPT:]:
        shutil.rmtree(other, ignore_errors=True)
