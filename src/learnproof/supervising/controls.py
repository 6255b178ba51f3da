"""`learnproof watch --placebo`: the command twice more, with learning made impossible, each in a folder of its own.

The script runs as it did, in the same working folder and with the same arguments; what it writes to files it writes again.
Its output goes to files beside the evidence.
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


def run_controls(
    command: Sequence[str],
    folder: RunFolder,
    environment: Callable[[Path], dict[str, str]],
    error_rate: float,
    say: Callable[[str], None] = lambda words: print(words, file=sys.stderr, flush=True),
) -> list[Control]:
    real = Evidence.read(folder.path)
    controls = []
    for name, meaning in MEANINGS.items():
        place = folder.path / f"placebo-{name}"
        place.mkdir(exist_ok=True)
        say(f"learnproof: control {name}: {meaning}")
        asked = {**environment(place), ASKED: name}
        with open(place / "output.txt", "wb") as output:
            code = subprocess.run(command, env=asked, stdin=subprocess.DEVNULL, stdout=output, stderr=output).returncode
        if code != 0:
            say(f"learnproof: control {name} ended with {code}; its output is in {place / 'output.txt'}")
        controls.append(compare_with_control(real, _read(place), name, error_rate, generator(0, "control", name)))
    return controls


def _read(place: Path) -> Evidence | None:
    try:
        return Evidence.read(place)
    except (LearnproofError, OSError):
        return None
