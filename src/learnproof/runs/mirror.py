"""A second place for a run: any fsspec URL or a plain folder. Copied back, it is a run that can be resumed.

    mirror = Mirror("s3://bucket/runs", run, resumed=False)     # bad usage is said here, before training begins
    result = mirror.copy()                                      # after each checkpoint; never raises
    if result.error: ...                                        # shown and noted by the loop, which trains on

The run goes to `<target>/<name of the run folder>/`. The order makes each moment safe: about.json and config.toml,
batches, evidence.jsonl, then the checkpoints, in each of them MANIFEST.json last, then retention, MANIFEST.json first.
So the mirror never holds a checkpoint whose evidence is missing, and a half-copied or half-deleted checkpoint has no
manifest and is refused when somebody resumes from it. A new run never writes over a run that is mirrored there already.

Credentials belong into the environment or fsspec's own configuration. Where a URL holds them, no message shows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import LearnproofError, MissingExtra, RunFolderError, UsageError
from . import manifest as manifests
from .checkpoint import Checkpoint, Shelf
from .folder import RunFolder
from .redaction import redact_place

LOCAL = ("file", "local")


@dataclass(frozen=True)
class MirrorResult:
    """What one copy did."""

    place: str
    """Where to, without credentials."""
    files: int
    bytes: int
    error: str | None
    """Why it is not complete; None = everything is there."""


class Mirror:
    def __init__(self, target: str, run: RunFolder, *, resumed: bool) -> None:
        try:
            from fsspec.core import split_protocol, strip_protocol
            from fsspec.registry import get_filesystem_class
        except ImportError:
            raise MissingExtra("fsspec", "mirror", "A mirror of the checkpoints") from None
        self._url = target.rstrip("/") + "/" + run.path.resolve().name
        self.place = redact_place(self._url, target)
        self._target = target
        self._run = run
        self._resumed = resumed
        self._owned = False
        self._sent: dict[str, tuple[int, int] | str] = {}
        """What this process has copied: file -> (size, mtime), checkpoint -> digest."""
        protocol = split_protocol(target)[0] or "file"
        try:
            get_filesystem_class(protocol)
        except (ValueError, ImportError) as error:
            raise UsageError(
                f"The mirror {self.place} cannot be used: {redact_place(str(error), target)}. Install the package "
                "that fsspec names for it, or give a folder."
            ) from None
        if protocol in LOCAL:
            own, there = run.path.resolve(), Path(strip_protocol(self._url)).resolve()
            if there == own or own in there.parents:
                raise UsageError(
                    f"The mirror {self.place} lies in the run itself. Give a folder elsewhere, on another disk at best."
                )

    def copy(self) -> MirrorResult:
        """Bring the mirror up to date; to be called when the evidence that the newest checkpoint counts on is flushed.

        Whatever a backend raises becomes the result's error: training goes on.
        """
        job = _Job()
        try:
            self._copy(job)
        except Exception as error:  # every backend has exceptions of its own, with no common base
            kind = "" if isinstance(error, LearnproofError) else f"{type(error).__name__}: "
            job.problems.append(redact_place(f"{kind}{error}", self._target))
        problems = "; ".join(job.problems)
        told = f"The mirror {self.place} is not up to date: {problems}. The run itself is not touched by this."
        return MirrorResult(self.place, job.files, job.bytes, told if problems else None)

    def _copy(self, job: _Job) -> None:
        from fsspec.core import url_to_fs

        job.fs, job.root = url_to_fs(self._url)
        self._claim(job)
        run = self._run
        for path in (run.about, run.config):
            self._send_changed(job, path)
        for path in sorted(run.samples.glob("*.safetensors")):
            self._send_changed(job, path)
        self._send_changed(job, run.evidence)
        for shelf in (run.initial, run.best, run.checkpoints()):
            self._copy_shelf(job, shelf)

    def _claim(self, job: _Job) -> None:
        """Make sure that what lies there, if anything does, is this run."""
        if self._owned:
            return
        about = f"{job.root}/{self._run.about.name}"
        if job.fs.exists(about):
            if not self._resumed:
                raise RunFolderError(
                    "another run of this name is mirrored there, and a new run does not write over it; move it away, "
                    "or choose another --out or mirror"
                )
            if job.fs.cat_file(about) != self._run.about.read_bytes():
                raise RunFolderError("the run mirrored there is not this one: its about.json differs")
        self._owned = True

    def _send_changed(self, job: _Job, path: Path) -> None:
        if not path.is_file():
            return
        found = path.stat()
        name = path.relative_to(self._run.path).as_posix()
        if self._sent.get(name) == (found.st_size, found.st_mtime_ns):
            return
        job.send_whole(path, name)
        self._sent[name] = (found.st_size, found.st_mtime_ns)

    def _copy_shelf(self, job: _Job, shelf: Shelf) -> None:
        steps = shelf.steps()
        for step in steps:
            name = f"{shelf.folder.name}/step-{step:09d}"
            try:
                checkpoint = shelf.open(step)
            except LearnproofError as error:
                job.problems.append(str(error))
                continue
            if self._sent.get(name) != checkpoint.digest:
                job.send_checkpoint(checkpoint, name)
                self._sent[name] = checkpoint.digest
        kept = {f"step-{step:09d}" for step in steps}
        for there in job.step_folders(shelf.folder.name):
            if there not in kept:
                job.remove_checkpoint(f"{shelf.folder.name}/{there}")


class _Job:
    """One copy in progress: the file system, and what has been done."""

    def __init__(self) -> None:
        self.fs: Any = None
        self.root = ""
        self.files = 0
        self.bytes = 0
        self.problems: list[str] = []

    def send_whole(self, path: Path, name: str) -> None:
        """A file that an older checkpoint over there may need: the old one stays until the new one is complete."""
        target = f"{self.root}/{name}"
        self._send(path, f"{target}.partial")
        self.fs.mv(f"{target}.partial", target)

    def send_checkpoint(self, checkpoint: Checkpoint, name: str) -> None:
        manifest, target = checkpoint.folder / manifests.NAME, f"{self.root}/{name}/{manifests.NAME}"
        if self.fs.exists(target) and self.fs.cat_file(target) == manifest.read_bytes():
            return
        if self.fs.exists(f"{self.root}/{name}"):  # of a future given up, or of a copy cut short
            self.remove_checkpoint(name)
        for file in checkpoint.files:
            self._send(checkpoint.folder / file, f"{self.root}/{name}/{file}")
        self._send(manifest, target)

    def step_folders(self, shelf: str) -> list[str]:
        if not self.fs.exists(f"{self.root}/{shelf}"):
            return []
        listed = self.fs.ls(f"{self.root}/{shelf}", detail=False)
        names = [str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in listed]
        return [name for name in names if name.startswith("step-")]

    def remove_checkpoint(self, name: str) -> None:
        if self.fs.exists(f"{self.root}/{name}/{manifests.NAME}"):
            self.fs.rm_file(f"{self.root}/{name}/{manifests.NAME}")
        self.fs.rm(f"{self.root}/{name}", recursive=True)

    def _send(self, path: Path, target: str) -> None:
        self.fs.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
        self.fs.put_file(str(path), target)
        self.files += 1
        self.bytes += path.stat().st_size
