"""Writes evidence: events line by line, batches as safetensors files, both bounded.

The recorder knows where it is in the file (`position`), so that a checkpoint can note it and a resume can cut the
file back to it. It never raises because of a cap: past `max_bytes` it keeps the event and drops the batch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from ..errors import DiskFull, EvidenceError
from ..runs.atomic import explaining_a_full_disk
from .events import Event, Inspection

Array = np.ndarray[Any, Any]
Heard = Callable[[Event, Mapping[str, Array] | None], None]
"""Told of each event when it is written, and of its batch where that is kept."""


class Recorder:
    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = 64_000_000,
        keep_samples: bool = True,
        heard: Heard | None = None,
    ) -> None:
        self.path = folder / "evidence.jsonl"
        self.samples = folder / "samples"
        self.max_bytes = max_bytes
        self.keep_samples = keep_samples
        self.heard = heard
        self.samples.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "ab")  # noqa: SIM115 (closed by close())
        self._hash = hashlib.sha256(self.path.read_bytes())
        self.sample_bytes = sum(f.stat().st_size for f in self.samples.glob("*.safetensors"))

    @property
    def position(self) -> int:
        """Bytes written so far; what a checkpoint notes."""
        return self._file.tell()

    @property
    def digest(self) -> str:
        """sha256 of everything up to `position`."""
        return self._hash.hexdigest()

    def write(self, event: Event, arrays: Mapping[str, Array] | None = None) -> None:
        body = event.to_line()
        with explaining_a_full_disk(self.path, lambda: len(body)):
            self._file.write(body)
        self._hash.update(body)
        if self.heard is not None:
            self.heard(event, arrays)

    def write_sample(self, event: Inspection, arrays: Mapping[str, Array]) -> None:
        """Keep a batch and the event that points to it. The file comes first: an event never points at nothing."""
        name = f"{event.kind}-{event.update:06d}-{event.optimizer_step:09d}.safetensors"
        batch = {role: np.ascontiguousarray(a) for role, a in arrays.items()}
        body = save(batch)
        kept = digest = None
        if self.keep_samples and self.sample_bytes + len(body) <= self.max_bytes:
            with explaining_a_full_disk(self.samples / name, lambda: len(body)):
                (self.samples / name).write_bytes(body)
            self.sample_bytes += len(body)
            kept, digest = name, hashlib.sha256(body).hexdigest()
        pointer = dataclasses.replace(event, file=kept, sha256=digest, roles=sorted(arrays))
        self.write(pointer, batch if kept else None)

    def flush(self) -> None:
        """Let a live reader see what is written."""
        with explaining_a_full_disk(self.path, lambda: 0):
            self._file.flush()

    def sync(self) -> None:
        """Put everything on the disk; called before a checkpoint notes the position."""
        self.flush()
        with explaining_a_full_disk(self.path, lambda: 0):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """What a full disk did not take comes after the last checkpoint, and a resume writes it again."""
        with suppress(DiskFull), explaining_a_full_disk(self.path, lambda: 0):
            self._file.close()


def cut_back(folder: Path, position: int) -> None:
    """Forget everything after a checkpoint: cut evidence.jsonl to its position, drop batches no line points to."""
    path = folder / "evidence.jsonl"
    size = path.stat().st_size if path.exists() else 0
    if size < position:
        raise EvidenceError(
            f"{path.name} has {size} bytes, but the checkpoint was written after {position}: the file was cut "
            "or replaced since. Restore it, or start a new run."
        )
    if path.exists():
        with open(path, "r+b") as file:
            file.truncate(position)
            file.flush()
            os.fsync(file.fileno())
    named = set()
    if path.exists():
        for line in path.read_bytes().splitlines():
            if b'"event":"inspection"' in line:
                named.add(json.loads(line).get("file"))
    for sample in (folder / "samples").glob("*"):
        if sample.name not in named:
            sample.unlink()
