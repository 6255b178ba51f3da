"""The run folder: what a run leaves on disk, where each thing lies, and who may write there.

    config.toml          the effective settings, complete; the last thing that creating a run writes
    about.json           versions, host, git revision, command line, seed, and the sha256 of config.toml
    evidence.jsonl       typed events         samples/   inspected batches
    timing.jsonl         seconds and the clock, kept apart
    checkpoints/  best/  initial/             see checkpoint.py
    verdict.json  learning_progress.png  report.html
    .lock                held by the process that trains

A path comes in; a RunFolder goes out, or a RunFolderError that says what is wrong with the path and what to do. A folder
that is not a run is never written into. The digest in about.json shows a config.toml that was edited by accident; it
does not stop somebody who edits both.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import RunFolderError, did_you_mean
from .atomic import HIDDEN, append_line, remove_leftovers, sync_folder, write_file
from .checkpoint import Shelf
from .untrusted import Refused, parse_json, read_bounded

FORMAT = "learnproof run"
VERSION = 1
LOCK = ".lock"
MAX_TEXT_BYTES = 1_000_000
SHELVES = ("checkpoints", "best", "initial")
_locks_held: set[int] = set()


class RunFolder:
    """Made by `create` or `open`, which check it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config_toml: str, about: Mapping[str, Any]) -> RunFolder:
        """Begin a run in a new or empty folder."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise RunFolderError(f"{path} cannot hold a run: there is a file of that name on the way.") from None
        except PermissionError:
            raise RunFolderError(f"{path} cannot be made: no permission. Choose another place with --out.") from None
        except OSError as error:
            why = error.strerror or str(error)
            raise RunFolderError(f"{path} cannot be made: {why.lower()}. Choose another place with --out.") from None
        _refuse_used(path)
        with hold_lock(path):
            _refuse_used(path)
            remove_leftovers(path)
            config = config_toml.encode()
            digest = hashlib.sha256(config).hexdigest()
            body = {**about, "format": FORMAT, "version": VERSION, "config_sha256": digest}
            write_file(path / "about.json", json.dumps(body, indent=2).encode() + b"\n")
            write_file(path / "config.toml", config)
            sync_folder(path.absolute().parent)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run, its settings unchanged since it began."""
        if not path.is_dir():
            runs = [place.name for place in path.parent.iterdir() if place.is_dir()] if path.parent.is_dir() else []
            hint = did_you_mean(path.name, runs)
            raise RunFolderError(f"There is no run folder {path}.{hint} `learnproof train ENV` begins a run.")
        run = cls(path)
        if not run.about.exists():
            raise RunFolderError(
                f"{path} is not a run of learnproof: it has no about.json. Give the folder that `learnproof train` "
                "named when it began."
            )
        run.read_about()
        if not run.config.exists():
            raise RunFolderError(
                f"{path} is half-written: it has no config.toml, so the run was stopped before it began and nothing "
                "was learnt. `learnproof train` with the same --out begins it again."
            )
        run.read_config()
        return run

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def about(self) -> Path:
        return self.path / "about.json"

    @property
    def evidence(self) -> Path:
        return self.path / "evidence.jsonl"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def timing(self) -> Path:
        return self.path / "timing.jsonl"

    @property
    def verdict(self) -> Path:
        return self.path / "verdict.json"

    @property
    def picture(self) -> Path:
        return self.path / "learning_progress.png"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def checkpoints(self, keep: int = 5) -> Shelf:
        """`keep` matters to a writer only."""
        return Shelf(self.path / "checkpoints", keep)

    @property
    def best(self) -> Shelf:
        return Shelf(self.path / "best", keep=1)

    @property
    def initial(self) -> Shelf:
        return Shelf(self.path / "initial", keep=1)

    def read_about(self) -> dict[str, Any]:
        try:
            body = parse_json(read_bounded(self.about, MAX_TEXT_BYTES))
        except Refused as reason:
            raise RunFolderError(
                f"{self.about} {reason}. Restore it from a copy; without it {self.path} is no run."
            ) from None
        if body.get("format") != FORMAT:
            raise RunFolderError(f"{self.path} is not a run of learnproof: its about.json is somebody else's.")
        if body.get("version") != VERSION:
            raise RunFolderError(
                f"{self.path} is a run in form {str(body.get('version'))[:20]}; this learnproof knows form {VERSION}. "
                f"Use the version that wrote it: {str(body.get('learnproof'))[:40]}."
            )
        return body

    def read_config(self) -> str:
        """The text of config.toml, if it is still the one that the run began with."""
        try:
            data = read_bounded(self.config, MAX_TEXT_BYTES)
            text = data.decode()
        except (Refused, UnicodeDecodeError) as reason:
            why = reason if isinstance(reason, Refused) else "is not text"
            raise RunFolderError(f"{self.config} {why}. Restore it from a copy.") from None
        digest, noted = hashlib.sha256(data).hexdigest(), str(self.read_about().get("config_sha256"))
        if digest != noted:
            raise RunFolderError(
                f"{self.config} was changed since the run began (its sha256 is {digest[:12]}…, about.json noted "
                f"{noted[:12]}…). A run goes on with its own settings only: restore the file, or begin a new run "
                f"with the changed ones: learnproof train --config {shlex.quote(str(self.config))}"
            )
        return text

    def note_timing(self, **fields: Any) -> None:
        """Add a line to timing.jsonl; the only place where the clock is written."""
        append_line(self.timing, json.dumps({"unix_time": round(time.time(), 3), **fields}).encode())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only process that writes here; what a killed one left unfinished is cleared away first."""
        with hold_lock(self.path):
            for folder in (self.path, *(self.path / name for name in SHELVES)):
                remove_leftovers(folder)
            yield


def fresh_path(base: Path, subject: str, *words: str) -> Path:
    """A name that no run has yet: base/CartPole-v1-ppo-seed0, then ...-seed0-2, -3."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", re.split(r"[/:]", subject)[-1]).strip(".-")[:80] or "run"
    first = base / "-".join([name, *words])
    path, number = first, 1
    while os.path.lexists(path):
        number += 1
        path = first.with_name(f"{first.name}-{number}")
    return path


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """An flock, which the system lets go of when its process dies, however it dies."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except PermissionError:
        raise RunFolderError(f"{path} cannot be written: no permission.") from None
    _locks_held.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
            raise RunFolderError(
                f"{path} is in use: process {holder} is writing there. Wait for it, stop it with `kill {holder}` (it "
                "leaves a resumable run), or train into another folder with --out."
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        if descriptor in _locks_held:  # a forked child has closed its copy already
            _locks_held.discard(descriptor)
            os.close(descriptor)


def _let_go_in_child() -> None:
    """A forked worker shares its parent's lock and would hold it after the parent was killed."""
    for descriptor in _locks_held:
        os.close(descriptor)
    _locks_held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


def _refuse_used(path: Path) -> None:
    """New, empty or abandoned before its config.toml was written: these three may be filled."""
    names = {name for name in os.listdir(path) if name != LOCK and not HIDDEN.fullmatch(name)}
    if not names:
        return
    if "about.json" not in names:
        raise RunFolderError(
            f"{path} is not empty and not a run: {', '.join(sorted(names)[:3])} would be mixed with the run's files. "
            "Choose an empty or new folder with --out."
        )
    about = RunFolder(path).read_about()
    if names != {"about.json"} and "engine" in about:
        raise RunFolderError(
            f"There is already an engine's run in {path}. Go on with it: learnproof.TrainingEngine.load({str(path)!r}); or choose another "
            "folder with out=."
        )
    if names != {"about.json"}:
        what = "verify" if "watched" in about else "resume"
        said = "Judge it again" if what == "verify" else "Go on with it"
        raise RunFolderError(
            f"There is already a run in {path}. {said}: learnproof {what} {shlex.quote(str(path))}; or choose another folder "
            "with --out."
        )
