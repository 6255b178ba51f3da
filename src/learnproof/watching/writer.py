"""Puts events and batches on disk, in the form that evidence/events.py describes.

Every event is one `write` of one whole line: a process that is killed, or leaves through os._exit, has lost nothing that
was seen. The first process of a job that has something to say takes evidence.jsonl; every other one (workers, ranks) has
its own evidence-<pid>.jsonl beside it. A disk that is full or gone ends the writing, never the script.

Batches are safetensors files, written here by hand: eight bytes of length, a JSON header, the numbers. The library that
does this well may not be installed where the script runs.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Mapping
from typing import Any

FORM = 1
"""Version of the evidence form; the same as EVIDENCE_VERSION in evidence/events.py."""
MAX_EVENT_BYTES = 24_000_000
RESERVED_BYTES = 1_000_000
"""Of MAX_EVENT_BYTES, kept for the last words: totals, what was not seen, how it ended."""
MAX_SAMPLE_BYTES = 48_000_000
MAX_SAMPLE_FILES = 8_000
MAX_WINDOW_BYTES = 1_500_000
"""For the losses of one window; less where less is left, so that the last window of a long run still gets its share."""
DTYPES = {
    "float32": "F32",
    "float64": "F64",
    "int64": "I64",
    "int32": "I32",
    "uint64": "U64",
    "bool": "BOOL",
    "uint8": "U8",
}


class Writer:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.suffix = ""
        self.file: int | None = None
        self.event_bytes = 0
        self.sample_bytes = 0
        self.sample_files = 0
        self.window_left = MAX_WINDOW_BYTES
        self.dropped_events = 0
        self.dropped_samples = 0
        self.opened: tuple[int, int] | None = None
        self.failed = ""
        """Why writing ended, if it did."""

    def open(self) -> bool:
        """Take a file of this process's own; True where this is the first process of the job."""
        os.makedirs(os.path.join(self.folder, "samples"), exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        try:
            self.file = os.open(os.path.join(self.folder, "evidence.jsonl"), flags, 0o644)
            return True
        except FileExistsError:
            self.suffix = f"-{os.getpid()}"
            name = f"evidence{self.suffix}.jsonl"
            self.file = os.open(os.path.join(self.folder, name), flags & ~os.O_EXCL, 0o644)
            return False
        finally:
            self.opened = _place(self.file)

    def event(self, kind: str, body: Mapping[str, Any], last: bool = False) -> None:
        if self.file is None or self.failed:
            return
        line = json.dumps({"event": kind, **plain(body)}, separators=(",", ":"), allow_nan=False, default=str)
        data = line.encode("utf-8", "replace") + b"\n"
        if self.event_bytes + len(data) > MAX_EVENT_BYTES - (0 if last else RESERVED_BYTES):
            self.dropped_events += 1
            return
        if _place(self.file) != self.opened:
            self.failed = "the script closed our file, and may have one of its own under the same number"
            return
        try:
            written = os.write(self.file, data)
            while written < len(data):  # a signal or a nearly full disk may take a part only
                written += os.write(self.file, data[written:])
        except OSError as error:
            self.failed = str(error)
            return
        self.event_bytes += len(data)

    def begin_window(self) -> None:
        self.window_left = min(MAX_WINDOW_BYTES, (MAX_SAMPLE_BYTES - self.sample_bytes) // 8)

    def sample(self, kind: str, update: int, step: int, arrays: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """Keep a batch of NumPy arrays; its file name and sha256, or twice None where it was not kept."""
        size = sum(array.nbytes for array in arrays.values())
        full = self.sample_bytes + size > MAX_SAMPLE_BYTES or self.sample_files >= MAX_SAMPLE_FILES
        full = full or (kind == "loss" and size > self.window_left)
        if self.file is None or self.failed or full:
            self.dropped_samples += 1
            return None, None
        data = safetensors_bytes(arrays)
        name = f"{kind}{self.suffix.replace('-', '_')}-{update:06d}-{step:09d}.safetensors"
        path = os.path.join(self.folder, "samples", name)
        try:
            with open(path, "xb") as file:
                file.write(data)
        except FileExistsError:  # two threads at the same count
            self.dropped_samples += 1
            return None, None
        except OSError as error:
            self.failed = str(error)
            return None, None
        self.sample_bytes += len(data)
        self.window_left -= len(data)
        self.sample_files += 1
        return name, hashlib.sha256(data).hexdigest()

    def close(self) -> None:
        if self.file is not None and _place(self.file) == self.opened:
            try:
                os.close(self.file)
            except OSError:
                pass
        self.file = None


def _place(file: int | None) -> tuple[int, int] | None:
    """Which file a descriptor stands for."""
    if file is None:
        return None
    try:
        status = os.fstat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def safetensors_bytes(arrays: Mapping[str, Any]) -> bytes:
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    position = 0
    for name in sorted(arrays):
        body = arrays[name].tobytes()
        header[name] = {
            "dtype": DTYPES[str(arrays[name].dtype)],
            "shape": list(arrays[name].shape),
            "data_offsets": [position, position + len(body)],
        }
        parts.append(body)
        position += len(body)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def plain(value: Any) -> Any:
    """JSON of a value; a number that is not finite becomes the text "nan", "inf" or "-inf"."""
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
