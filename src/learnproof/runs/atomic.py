"""The only place that publishes bytes: a file or a folder appears whole or not at all, whenever the process dies.

    write_file(path, data)             one file: temporary beside it, fsync, rename, fsync of the folder
    publish_folder(final, write)       one folder: `write` puts files into a hidden draft beside it, each fsynced,
                                       then the draft gets its name; an older folder of that name is replaced
    remove_folder(path)                one folder: out of sight first, deleted then, so that no half of it is ever seen
    remove_leftovers(folder)           what a killed writer left behind

What is not finished has a hidden name: `.NAME.PID.partial` (being written), `.NAME.replaced` (the older folder while
the new one takes its name; it comes back if the new one never did) and `.NAME.removed` (being deleted). Each folder of
checkpoints has one writer at a time (the lock of the run sees to it), so what that writer finds there is dead.

A disk that takes no more (full, quota, limit on the size of a file) raises DiskFull; the draft is removed, and what was
there before is still there.

Crash points. Random kills rarely land inside a save, so a test can ask for one: with LEARNPROOF_CRASH_AT="name:count"
in the environment, the process SIGKILLs itself the count-th time that it passes the point of that name. The points, in
the order of one publication:

    mid-write         half of a file is written (once per file)
    before-fsync      a file is written and perhaps only in memory (once per file)
    before-manifest   every file of a checkpoint but MANIFEST.json is there
    before-rename     the draft is complete and still hidden
    between-renames   the older folder has stepped aside, the new one is not yet in its place
    after-rename      published, the parent folder not yet fsynced
    during-retention  an old checkpoint is out of sight and not yet deleted

write_file passes mid-write, before-fsync, before-rename and after-rename as well; passages are counted over the whole
process. Without the variable a crash point does nothing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import DiskFull

CRASH_VARIABLE = "LEARNPROOF_CRASH_AT"
HIDDEN = re.compile(r"\.(?P<name>.+)\.(?:[0-9]+\.partial|(?P<state>replaced|removed))")
FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your quota is used up",
    errno.EFBIG: "the file would be larger than this system allows (ulimit -f)",
}
_passages: Counter[str] = Counter()


def crash_point(name: str) -> None:
    """Die here, if the environment asks for it. See the list in the module's docstring."""
    wanted = os.environ.get(CRASH_VARIABLE)
    if wanted is None:
        return
    _passages[name] += 1
    if wanted == f"{name}:{_passages[name]}":
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Written:
    """What went into a file."""

    bytes: int
    sha256: str


class Draft:
    """A folder that is being written and has no name yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes = 0

    def put(self, name: str, buffers: Iterable[bytes | memoryview]) -> Written:
        """Write one file, on the disk when this returns. The digest is that of the bytes in memory, not read back."""
        views = [memoryview(buffer) for buffer in buffers]
        size = sum(view.nbytes for view in views)
        self.bytes += size
        _write_durably(self.folder / name, views)
        digest = hashlib.sha256()
        for view in views:
            digest.update(view)
        return Written(size, digest.hexdigest())


def write_file(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, or leave it as it was."""
    draft = _draft_place(path)
    with explaining_a_full_disk(path, lambda: len(data)):
        try:
            _write_durably(draft, [memoryview(data)])
            crash_point("before-rename")
            os.rename(draft, path)
        except BaseException:
            _delete(draft)
            raise
        crash_point("after-rename")
        sync_folder(path.parent)


def publish_folder(final: Path, write: Callable[[Draft], None]) -> None:
    """Let `write` fill a draft, then give it the name `final`, in place of an older folder of that name."""
    draft = Draft(_draft_place(final))
    aside = replaced_place(final)
    with explaining_a_full_disk(final, lambda: draft.bytes):
        final.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(final.parent)
        try:
            draft.folder.mkdir()
            write(draft)
            sync_folder(draft.folder)
            crash_point("before-rename")
            if os.path.lexists(final):
                os.rename(final, aside)
                crash_point("between-renames")
            os.rename(draft.folder, final)
        except BaseException:
            remove_leftovers(final.parent)
            raise
        crash_point("after-rename")
        sync_folder(final.parent)
        _delete(aside)


def remove_folder(path: Path) -> None:
    doomed = path.with_name(f".{path.name}.removed")
    _delete(doomed)
    os.rename(path, doomed)
    crash_point("during-retention")
    _delete(doomed)


def replaced_place(final: Path) -> Path:
    """Where the older folder waits while a new one takes its name; a reader looks here when the name is missing."""
    return final.with_name(f".{final.name}.replaced")


def remove_leftovers(folder: Path) -> list[str]:
    """Clear away what a killed writer left, bring back what it had set aside. The caller is the only writer here."""
    if not folder.is_dir():
        return []
    handled = []
    for name in sorted(os.listdir(folder)):
        match = HIDDEN.fullmatch(name)
        if match is None:
            continue
        final = folder / match["name"]
        if match["state"] == "replaced" and not os.path.lexists(final):
            os.rename(folder / name, final)
        else:
            _delete(folder / name)
        handled.append(name)
    return handled


def sync_folder(folder: Path) -> None:
    """Put a folder's list of names on the disk; without it a rename may be forgotten when the power fails."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file that is not worth an fsync. A line that a kill cut short is ended first."""
    with explaining_a_full_disk(path, lambda: len(line)), open(path, "a+b") as file:
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = b"\n" + line
        file.write(line + b"\n")


def _draft_place(final: Path) -> Path:
    return final.with_name(f".{final.name}.{os.getpid()}.partial")


def _write_durably(path: Path, views: list[memoryview]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        first, second = _halves(views)
        _write_all(descriptor, first)
        crash_point("mid-write")
        _write_all(descriptor, second)
        crash_point("before-fsync")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _halves(views: list[memoryview]) -> tuple[list[memoryview], list[memoryview]]:
    """The same bytes in two equal parts, without a copy."""
    left = sum(view.nbytes for view in views) // 2
    first: list[memoryview] = []
    second: list[memoryview] = []
    for view in views:
        if view.nbytes == 0:
            continue
        flat = view.cast("B")
        first.append(flat[:left])
        second.append(flat[left:])
        left = max(0, left - flat.nbytes)
    return first, second


def _write_all(descriptor: int, views: list[memoryview]) -> None:
    for view in views:
        while view.nbytes:
            view = view[os.write(descriptor, view) :]


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def explaining_a_full_disk(target: Path, needed: Callable[[], int]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        place = next(folder for folder in target.absolute().parents if folder.is_dir())
        room = os.statvfs(place)
        raise DiskFull(
            f"{target} could not be written: {FULL[error.errno]}. It needed at least {needed():,} bytes, and "
            f"{room.f_bavail * room.f_frsize:,} are free in {place}. What was there before is still there. "
            "Make room, or move the run to a larger disk; then go on where it stopped."
        ) from error
