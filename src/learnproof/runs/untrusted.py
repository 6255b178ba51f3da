"""Reads files that nobody vouches for: bounded, never blocking, never following a link, executing nothing.

A file comes in; its bytes or its JSON go out, or `Refused` with the reason in words that follow the file's name
("is a symbolic link, ..."). The caller turns that into its own typed error, with what to do next.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Refused(ValueError):
    """Why a file is not read on; the text is the rest of a sentence that begins with its name."""


def open_regular(path: Path) -> tuple[BinaryIO, int]:
    """The open file and its size. A pipe or a device is refused before opening it could block or do anything."""
    try:
        _refuse_special(os.lstat(path))
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Refused("is missing") from None
    except OSError as error:
        raise Refused(f"cannot be opened ({error.strerror})") from None
    file = os.fdopen(descriptor, "rb")
    try:
        found = os.fstat(descriptor)
        _refuse_special(found)
    except BaseException:
        file.close()
        raise
    return file, found.st_size


def read_bounded(path: Path, limit: int) -> bytes:
    """All bytes of a small file."""
    file, size = open_regular(path)
    with file:
        data = b"" if size > limit else file.read(limit + 1)
    if size > limit or len(data) > limit:
        raise Refused(f"has {max(size, len(data)):,} bytes, more than the {limit:,} that such a file may have")
    return data


def parse_json(data: bytes) -> dict[str, Any]:
    """A JSON object in which no key comes twice. Deep nesting ends in a refusal, not in a crash."""
    try:
        body = json.loads(data.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise Refused("is nested too deeply") from None
    except Refused:
        raise
    except ValueError as error:
        raise Refused(f"is not JSON ({error})") from None
    if not isinstance(body, dict):
        raise Refused("is not a JSON object")
    return body


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) != len(pairs):
        raise Refused("names a key twice")
    return body


def _refuse_special(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Refused(f"is {KINDS.get(stat.S_IFMT(found.st_mode), 'something else')}, not a regular file")
