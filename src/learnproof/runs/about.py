"""What about.json says of a run: versions, host, git revision, command line, seed. Imports none of what it reports.

Nothing here depends on the clock; when a run began is in timing.jsonl.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .redaction import redact_arguments
from .untrusted import Refused, read_bounded

PACKAGES = ("torch", "numpy", "numba", "scipy", "gymnasium", "safetensors", "pydantic")
REVISION = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
MAX_GIT_BYTES = 4_000_000


def describe_run(seed: int | None, command: Sequence[str], folder: Path) -> dict[str, Any]:
    """The body of about.json. `command` is the command line as typed, `folder` where it was typed."""
    return {
        "learnproof": package_version("learnproof"),
        "versions": {"python": platform.python_version(), **{name: package_version(name) for name in PACKAGES}},
        "host": {
            "platform": platform.platform(),
            "machine": platform.machine(),
            "processor": _processor_name(),
            "cores": os.cpu_count(),
        },
        "git_revision": git_revision(folder),
        "command": redact_arguments(command),
        "seed": seed,
    }


@functools.cache
def package_version(name: str) -> str | None:
    """The installed version, read from the package's metadata; None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def git_revision(folder: Path) -> str | None:
    """The commit that is checked out where `folder` lies, or None. Reads git's files: no process that could hang."""
    for place in (folder.absolute(), *folder.absolute().parents):
        if (place / ".git").exists():
            try:
                return _head(place / ".git")
            except (Refused, UnicodeDecodeError):
                return None
    return None


def _head(git: Path) -> str | None:
    if git.is_file():  # a worktree or submodule: the file says where the real folder is
        git = git.parent / _text(git).removeprefix("gitdir:").strip()
    head = _text(git / "HEAD").strip()
    if REVISION.fullmatch(head):
        return head
    reference = head.removeprefix("ref:").strip()
    shared = git / _text(git / "commondir").strip() if (git / "commondir").is_file() else git
    for home in (git, shared):
        if (home / reference).is_file():
            found = _text(home / reference).strip()
            return found if REVISION.fullmatch(found) else None
    if (shared / "packed-refs").is_file():
        for line in _text(shared / "packed-refs").splitlines():
            revision, _, name = line.partition(" ")
            if name == reference and REVISION.fullmatch(revision):
                return revision
    return None


def _text(path: Path) -> str:
    return read_bounded(path, MAX_GIT_BYTES).decode()


def _processor_name() -> str:
    """Equal bytes are promised on one machine only, so a report should say which processor it was."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
