"""`learnproof watch --placebo`: the command twice more, with learning made impossible, each in a folder of its own.

The script runs as it did, in the same working folder and with the same arguments; what it writes to files it writes again.
Its output goes to files beside the evidence. Whoever judges the run later reads the controls from disk again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import LearnproofError
from ..evidence import Evidence
from ..proof.controls import MEANINGS, Control, compare_with_control
from ..runs.folder import RunFolder
from ..seeding import generator

ASKED = "LEARNPROOF_WATCH_PLACEBO"


def run_controls(command: Sequence[str], folder: RunFolder, environment: Callable[[Path], dict[str, str]]) -> None:
    """Ctrl-C ends them; those that did not come to their end are then not compared, and nothing is proven without them."""
    for name in MEANINGS:
        _place(folder, name).mkdir(exist_ok=True)
    for name, meaning in MEANINGS.items():
        place = _place(folder, name)
        _say(f"control {name}: {meaning}")
        try:
            with open(place / "output.txt", "wb") as output:
                asked = {**environment(place), ASKED: name}
                done = subprocess.run(command, env=asked, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        except KeyboardInterrupt:
            _say(f"control {name} was interrupted; the controls are left as they are")
            return
        except OSError as error:
            _say(f"control {name} could not be run: {error.strerror or error}")
            continue
        if done.returncode != 0:
            _say(f"control {name} ended with {done.returncode}; its output is in {place / 'output.txt'}")


def read_controls(folder: RunFolder, real: Evidence, error_rate: float) -> list[Control]:
    """Of the controls that were asked for, what became of each; empty where none were."""
    return [
        compare_with_control(real, _read(_place(folder, name)), name, error_rate, generator(0, "control", name))
        for name in MEANINGS
        if _place(folder, name).is_dir()
    ]


def _place(folder: RunFolder, name: str) -> Path:
    return folder.path / f"placebo-{name}"


def _read(place: Path) -> Evidence | None:
    try:
        return Evidence.read(place)
    except (LearnproofError, OSError):
        return None


def _say(words: str) -> None:
    print(f"learnproof: {words}", file=sys.stderr, flush=True)
