"""Checkpoints: folders of arrays and counters, written whole, checked byte by byte when read, never unpickled.

    shelf = Shelf(run / "checkpoints", keep=5)
    shelf.write(10_000, {"updates": 5, ...}, {"weights": {...}, "optimizer": {...}}, kind={"algorithm": "ppo"})
    checkpoint = shelf.newest()
    checkpoint.state()                                         # counters, generator states
    checkpoint.tensors("weights", layout_of(current_weights))  # arrays that fit what is here

A shelf holds `step-000010000/` folders of one purpose (`checkpoints/`, `best/`, `initial/`). In each: one
`<group>.safetensors` per group, `state.json`, and MANIFEST.json, written last, with size and sha256 of every file.
Numbers in state.json that are not finite are written as Python's json writes them (NaN, Infinity) and come back equal.

Reading trusts nothing. Whatever differs from what was written is CheckpointDamaged, and the message names the file and
the nearest whole checkpoint, with the command that goes on from it. Arrays are compared with what is expected by the
header, before any of them is allocated. Writing needs the run's lock; reading does not.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import CheckpointDamaged, CheckpointError, CheckpointMismatch
from . import manifest as manifests
from .about import package_version
from .atomic import Draft, crash_point, publish_folder, remove_folder, replaced_place
from .manifest import Kind, Manifest
from .tensorfile import Array, Layout, differences, read_arrays, read_header, serialize
from .untrusted import Refused, open_regular, parse_json, read_bounded

STATE = "state.json"
MAX_STATE_BYTES = 1_000_000
GROUP = re.compile(r"[a-z0-9_]{1,64}")
STEP_FOLDER = re.compile(r"step-([0-9]{9,18})")
CHUNK_BYTES = 1 << 20


class Checkpoint:
    """One checkpoint. Opening it reads the manifest and the list of files; contents are checked as they are read."""

    def __init__(self, folder: Path, step: int, offer: Callable[[], str]) -> None:
        self.folder = folder
        self.step = step
        self._offer = offer
        with self._refusing(manifests.NAME):
            if not stat.S_ISDIR(os.lstat(folder).st_mode):
                raise Refused("is missing: what has the checkpoint's name is not a folder")
            self._manifest = manifests.read_manifest(folder / manifests.NAME)
            if self._manifest.step != step:
                raise Refused(f"is that of step {self._manifest.step}, in the folder of step {step}")
            self._check_file_list()

    @property
    def digest(self) -> str:
        """sha256 of the manifest: equal for equal checkpoints."""
        return self._manifest.digest

    @property
    def kind(self) -> Kind:
        """What it is a checkpoint of, as the writer said."""
        return self._manifest.kind

    @property
    def files(self) -> list[str]:
        """Names of the files, the manifest left out."""
        return sorted(self._manifest.files)

    @property
    def groups(self) -> list[str]:
        return [name.removesuffix(".safetensors") for name in self.files if name.endswith(".safetensors")]

    def expect_kind(self, expected: Kind) -> None:
        """Refuse a checkpoint of something else."""
        keys = sorted(self.kind.keys() | expected.keys())
        wrong = [
            f"{key} is {self.kind.get(key)!r}, wanted {expected.get(key)!r}"
            for key in keys
            if self.kind.get(key) != expected.get(key)
        ]
        if wrong:
            raise self._mismatch(wrong)

    def state(self) -> dict[str, Any]:
        with self._refusing(STATE):
            data = read_bounded(self.folder / STATE, MAX_STATE_BYTES)
            self._compare(STATE, len(data), hashlib.sha256(data).hexdigest())
            return manifests.migrate_state(parse_json(data), self._manifest.version)

    def layout(self, group: str) -> Layout:
        """Name -> (shape, dtype) as the header says; the contents are not read."""
        with self._reading(group) as (file, size):
            return read_header(file, size).layout

    def tensors(self, group: str, expected: Layout) -> dict[str, Array]:
        """The arrays of a group, if they are those expected. `layout(group)` as `expected` takes what is there."""
        with self._reading(group) as (file, size):
            header = read_header(file, size)
            wrong = differences(header.layout, expected)
            if wrong:
                # A flipped bit in the header also looks like another network: the digest tells which it is.
                file.seek(0)
                self._compare_stream(_file_name(group), file)
                raise self._mismatch([f"in {_file_name(group)}, {wrong[0]}", *wrong[1:]])
            digest = hashlib.sha256()
            arrays = read_arrays(file, header, digest)
            self._compare(_file_name(group), file.tell(), digest.hexdigest())
            return arrays

    def verify(self) -> None:
        """Check every byte of every file, in constant memory."""
        self.state()
        for group in self.groups:
            with self._reading(group) as (file, size):
                read_header(file, size)
                file.seek(0)
                self._compare_stream(_file_name(group), file)

    def _check_file_list(self) -> None:
        listed = {manifests.NAME, *self._manifest.files}
        if STATE not in listed:
            raise Refused(f"does not list {STATE}")
        for name, written in self._manifest.files.items():
            found = os.lstat(self.folder / name) if os.path.lexists(self.folder / name) else None
            if found is None:
                raise Refused(f"lists {name}, which is missing")
            if not stat.S_ISREG(found.st_mode):
                raise Refused(f"lists {name}, which is not a regular file")
            if found.st_size != written.bytes:
                raise Refused(f"lists {name} with {written.bytes:,} bytes; it has {found.st_size:,}")
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name not in listed:
                    raise Refused(f"does not list {entry.name!r}, which is in the folder")

    @contextmanager
    def _reading(self, group: str) -> Iterator[tuple[BinaryIO, int]]:
        name = _file_name(group)
        if name not in self._manifest.files:
            raise self._mismatch([f"there is no group {group!r}, only {', '.join(self.groups) or 'none'}"])
        with self._refusing(name):
            file, size = open_regular(self.folder / name)
            with file:
                self._compare(name, size, self._manifest.files[name].sha256)
                yield file, size

    def _compare_stream(self, name: str, file: BinaryIO) -> None:
        digest, size = hashlib.sha256(), 0
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
        self._compare(name, size, digest.hexdigest())

    def _compare(self, name: str, size: int, sha256: str) -> None:
        written = self._manifest.files[name]
        if size != written.bytes:
            raise Refused(f"has {size:,} bytes; {written.bytes:,} were written")
        if sha256 != written.sha256:
            raise Refused(f"is not what was written: its sha256 is {sha256[:12]}…, it was {written.sha256[:12]}…")

    @contextmanager
    def _refusing(self, name: str) -> Iterator[None]:
        try:
            yield
        except (Refused, OSError) as reason:
            why = str(reason) if isinstance(reason, Refused) else f"cannot be read ({reason.strerror})"
            raise CheckpointDamaged(
                f"The checkpoint of step {self.step} is damaged and was not used: {self.folder / name} {why}. The "
                f"likeliest cause is a fault of the disk, an interrupted copy or a change by hand. {self._offer()}"
            ) from None

    def _mismatch(self, wrong: list[str]) -> CheckpointMismatch:
        more = f" (and {len(wrong) - 3} more differences)" if len(wrong) > 3 else ""
        return CheckpointMismatch(
            f"The checkpoint {self.folder} is whole but is not of what runs here: {'; '.join(wrong[:3])}{more}. It was "
            "written with another network, environment or setting. Resume a run with its own config.toml, or start "
            "a new run."
        )


class Shelf:
    """The checkpoints of one purpose, by step; the newest `keep` stay."""

    def __init__(self, folder: Path, keep: int) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least one checkpoint has to stay.")
        self.folder = folder
        self.keep = keep

    def write(
        self,
        step: int,
        state: Mapping[str, Any],
        tensors: Mapping[str, Mapping[str, Array]],
        kind: Kind | None = None,
    ) -> Path:
        """Publish a checkpoint, then remove what it makes superfluous.

        Newer steps on the shelf go too: they belong to a future that was given up when the run went back to an
        earlier checkpoint. So the newest one is always the one written last.
        """
        text = json.dumps(state, sort_keys=True, separators=(",", ":")).encode()
        _refuse_to_write(step, tensors, len(text))

        def fill(draft: Draft) -> None:
            files = {_file_name(group): draft.put(_file_name(group), serialize(tensors[group])) for group in tensors}
            files[STATE] = draft.put(STATE, [text])
            crash_point("before-manifest")
            writer = package_version("learnproof") or "unknown"
            draft.put(manifests.NAME, [Manifest(step, kind or {}, files, writer).to_bytes()])

        final = self.folder / f"step-{step:09d}"
        publish_folder(final, fill)
        self.forget_after(step)
        for old in self.steps()[: -self.keep]:
            remove_folder(self._place(old))
        return final

    def forget_after(self, step: int) -> None:
        """Remove every checkpoint newer than `step`: a run that goes back to it starts with this."""
        for later in reversed(self.steps()):
            if later > step:
                remove_folder(self._place(later))

    def steps(self) -> list[int]:
        """The steps that are published, newest last. Whether they are whole shows when they are opened."""
        found = set()
        for name in os.listdir(self.folder) if self.folder.is_dir() else []:
            match = STEP_FOLDER.fullmatch(name.removeprefix(".").removesuffix(".replaced"))
            if match and name in (f"step-{int(match[1]):09d}", f".step-{int(match[1]):09d}.replaced"):
                found.add(int(match[1]))
        return sorted(found)

    def open(self, step: int) -> Checkpoint:
        if step not in self.steps():
            there = ", ".join(str(s) for s in self.steps()) or "none"
            raise CheckpointError(f"There is no checkpoint of step {step} in {self.folder}. Steps there: {there}.")
        return Checkpoint(self._place(step), step, lambda: self._offer(step))

    def newest(self) -> Checkpoint | None:
        """The newest one, opened; damaged, it is refused, and the error offers the one before it."""
        steps = self.steps()
        return self.open(steps[-1]) if steps else None

    def newest_whole(self) -> tuple[Checkpoint | None, list[CheckpointError]]:
        """The newest one in which every byte is right, and what was wrong with the newer ones."""
        problems: list[CheckpointError] = []
        for step in reversed(self.steps()):
            try:
                checkpoint = self.open(step)
                checkpoint.verify()
                return checkpoint, problems
            except CheckpointError as problem:
                problems.append(problem)
        return None, problems

    def _place(self, step: int) -> Path:
        """The folder of a step; where a writer was killed while it replaced it, the older one still counts."""
        final = self.folder / f"step-{step:09d}"
        return final if os.path.lexists(final) else replaced_place(final)

    def _offer(self, damaged: int) -> str:
        others = [step for step in self.steps() if step != damaged]
        for step in sorted(others, key=lambda s: (s > damaged, -s)):
            try:
                Checkpoint(self._place(step), step, lambda: "").verify()
            except CheckpointError:
                continue
            which = "The checkpoint before it" if step < damaged else "A later checkpoint"
            command = f"learnproof resume {shlex.quote(str(self.folder.parent))} --step {step}"
            return f"{which}, step {step}, is whole" + (f": {command}" if self.folder.name == "checkpoints" else ".")
        return f"No other checkpoint in {self.folder} is whole."


def _file_name(group: str) -> str:
    return f"{group}.safetensors"


def _refuse_to_write(step: int, tensors: Mapping[str, Mapping[str, Array]], state_bytes: int) -> None:
    """What could not be read back is not written."""
    if step < 0:
        raise ValueError(f"step is {step}; steps count from 0.")
    for group in tensors:
        if not GROUP.fullmatch(group):
            raise ValueError(f"{group!r} cannot name a group: lower-case letters, digits and _, at most 64.")
    if len(tensors) >= manifests.MAX_FILES:
        raise ValueError(f"{len(tensors)} groups; a checkpoint has fewer than {manifests.MAX_FILES} files.")
    if state_bytes > MAX_STATE_BYTES:
        raise CheckpointError(
            f"The state of step {step} is {state_bytes:,} bytes of JSON; {MAX_STATE_BYTES:,} is the limit. "
            "Large things belong into a group of arrays. The checkpoints written before are untouched."
        )
