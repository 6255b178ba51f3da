"""MANIFEST.json: what a checkpoint consists of, written last, and in one byte-exact form.

    {"digest":"…","files":{"weights.safetensors":{"bytes":…,"sha256":"…"}, …},"format":"learnproof checkpoint",
     "kind":{…},"learnproof":"0.1.0","step":10000,"version":1}

Keys are sorted, there is no white space, and `digest` is the sha256 of the same text without it. A reader writes the
text anew from what it understood and compares: any other byte, anywhere, is refused. The digest protects against damage,
not against a forger, who can compute it as well; against him there are limits on everything that is read.

Versions. `format`, `version` and `digest` keep their meaning for ever, so that each version can tell damage from another
version. A version that is not known here is refused before anything else is read; an older one is carried over by
MIGRATIONS, step by step. Version 1 is the first.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointVersion
from .atomic import Written
from .untrusted import Refused, parse_json, read_bounded

NAME = "MANIFEST.json"
FORMAT = "learnproof checkpoint"
VERSION = 1
MAX_BYTES = 256_000
MAX_FILES = 64
FILE_NAME = re.compile(r"[a-z0-9_]{1,64}\.(?:safetensors|json)")
SHA256 = re.compile(r"[0-9a-f]{64}")

Kind = Mapping[str, str | int | float | bool | None]
"""What a checkpoint is of, e.g. {"algorithm": "ppo", "env": "CartPole-v1"}."""


@dataclass(frozen=True)
class Migration:
    """From one version of the form to the next: what becomes of the manifest's body and of state.json."""

    manifest: Callable[[dict[str, Any]], dict[str, Any]]
    state: Callable[[dict[str, Any]], dict[str, Any]]


MIGRATIONS: dict[int, Migration] = {}
"""By the version that is left behind. Empty: version 1 is the first."""


@dataclass(frozen=True)
class Manifest:
    step: int
    kind: Kind
    files: Mapping[str, Written]
    learnproof: str
    version: int = VERSION
    """The form that it was written in; older than VERSION where a migration carried it over."""
    digest: str = ""

    def to_bytes(self) -> bytes:
        """The file's text, with its digest."""
        body = {
            "format": FORMAT,
            "version": VERSION,
            "learnproof": self.learnproof,
            "step": self.step,
            "kind": dict(self.kind),
            "files": {name: {"bytes": w.bytes, "sha256": w.sha256} for name, w in self.files.items()},
        }
        return _canonical({**body, "digest": _digest(body)})


def read_manifest(path: Path) -> Manifest:
    """The checked manifest. Raises Refused for damage, CheckpointVersion for a form that is not known here."""
    data = read_bounded(path, MAX_BYTES)
    body = parse_json(data)
    digest = body.pop("digest", None)
    try:
        unchanged = data == _canonical({**body, "digest": digest}) and digest == _digest(body)
    except RecursionError:
        raise Refused("is nested too deeply") from None
    if not unchanged or body.get("format") != FORMAT:
        raise Refused("is not what was written: its digest or its form is wrong")
    written_in = body.get("version")
    if type(written_in) is not int or written_in > VERSION:
        raise _unknown_version(path, body)
    for version in range(written_in, VERSION):
        if version not in MIGRATIONS:
            raise _unknown_version(path, body)
        body = MIGRATIONS[version].manifest(body)
    try:
        return _typed(body, written_in, digest)
    except (KeyError, TypeError, AttributeError):
        raise Refused("lacks a field that every manifest has, or has one of another type") from None


def migrate_state(state: dict[str, Any], written_in: int) -> dict[str, Any]:
    """state.json of an older version in today's form."""
    for version in range(written_in, VERSION):
        state = MIGRATIONS[version].state(state)
    return state


def _typed(body: dict[str, Any], written_in: int, digest: str) -> Manifest:
    files = {name: Written(entry["bytes"], entry["sha256"]) for name, entry in body["files"].items()}
    if len(files) > MAX_FILES:
        raise Refused(f"lists {len(files)} files; {MAX_FILES} is the limit")
    for name, entry in files.items():
        if not FILE_NAME.fullmatch(name):
            raise Refused(f"lists {name[:80]!r}, which is not the name of a file of a checkpoint")
        if type(entry.bytes) is not int or entry.bytes < 0 or not SHA256.fullmatch(entry.sha256):
            raise Refused(f"gives no proper size and digest for {name}")
    step, kind, learnproof = body["step"], body["kind"], body["learnproof"]
    if type(step) is not int or step < 0 or not isinstance(kind, dict) or not isinstance(learnproof, str):
        raise TypeError
    return Manifest(step, kind, files, learnproof, written_in, digest)


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(body)).hexdigest()


def _unknown_version(path: Path, body: dict[str, Any]) -> CheckpointVersion:
    writer = str(body.get("learnproof", "an unknown version"))[:40]
    return CheckpointVersion(
        f"{path.parent} is a checkpoint in form {str(body.get('version'))[:20]}, written by learnproof {writer}. This "
        f"learnproof reads form {VERSION} and knows no way from one to the other. Nothing of it was read. "
        f"Resume it with the version that wrote it: pip install learnproof=={writer}"
    )
