"""Runs the scripts beside this file, bare or under `learnproof watch`, and reads what they printed and what was seen."""

import fcntl
import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from learnproof.evidence import Evidence
from learnproof.evidence.reader import read_sample
from learnproof.evidence.watched import LossSeen

SCRIPTS = Path(__file__).parent / "scripts"
NAMES = tuple(sorted(path.stem for path in SCRIPTS.glob("*.py")))
TIMEOUT_SECONDS = 300
shared: list[Path] = []
"""The folder where runs are kept, one for all testing processes; conftest.py puts it here."""


@dataclass(frozen=True)
class Completed:
    stdout: str
    stderr: str
    returncode: int
    facts: dict[str, Any]
    """What the script counted itself; empty where it did not come to its last line."""
    sha: str
    folder: Path | None = None
    """Where the evidence is, of a watched run."""


def run(script: str, *args: str, watch_into: Path | None) -> Completed:
    """One run of scripts/<script>.py; with `watch_into`, a folder that does not exist yet, a watched one."""
    command = [sys.executable, str(SCRIPTS / f"{script}.py"), *args]
    if watch_into is not None:
        command = [
            sys.executable,
            "-m",
            "learnproof",
            "watch",
            "--out",
            str(watch_into),
            "--quiet",
            "--no-report",
            "--",
            *command,
        ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LEARNPROOF_WATCH_DEBUG": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_SECONDS)
    last = done.stdout.strip().rpartition("\n")[2]
    told = json.loads(last) if last.startswith("{") else {}
    return Completed(
        done.stdout, done.stderr, done.returncode, told.get("facts", {}), told.get("weights_sha256", ""), watch_into
    )


@functools.cache
def bare(script: str, *args: str) -> Completed:
    return _once(script, args, watch=False)


@functools.cache
def watched(script: str, *args: str) -> Completed:
    return _once(script, args, watch=True)


def _once(script: str, args: tuple[str, ...], watch: bool) -> Completed:
    """The run, made by whichever of the testing processes comes first; the others wait and read what it left."""
    name = "-".join([script, *args, "watched" if watch else "bare"])
    folder = shared[0]
    with open(folder / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        left = folder / f"{name}.json"
        if not left.exists():
            done = run(script, *args, watch_into=folder / name if watch else None)
            left.write_text(json.dumps({**vars(done), "folder": str(done.folder) if done.folder else None}))
        body = json.loads(left.read_text())
    return Completed(**{**body, "folder": Path(body["folder"]) if body["folder"] else None})


@functools.cache
def evidence_of(script: str, *args: str) -> Evidence:
    """The evidence of the watched run, however the judging of it went: that is test_unchanged.py's affair."""
    completed = watched(script, *args)
    assert completed.sha, completed.stderr[-3000:]
    assert completed.folder is not None
    return Evidence.read(completed.folder)


def batch_of(evidence: Evidence, loss: LossSeen) -> dict[str, np.ndarray]:
    assert evidence.folder is not None
    assert loss.file is not None, "a loss was read, but its batch was not kept"
    return read_sample(evidence.folder / "samples", loss.file, loss.sha256)


def losses_with_batches(evidence: Evidence) -> list[tuple[LossSeen, dict[str, np.ndarray]]]:
    return [(loss, batch_of(evidence, loss)) for loss in evidence.of(LossSeen) if loss.file is not None]


def debug_text(script: str) -> str:
    """Tracebacks of the watcher's own failures, for the message of a test that found some."""
    folder = watched(script).folder
    path = None if folder is None else folder / "debug.txt"
    return path.read_text()[-3000:] if path is not None and path.exists() else ""
