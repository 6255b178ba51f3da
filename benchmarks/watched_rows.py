"""What benchmarks share: a program under `learnproof watch`, and one row kept per run.

A row is written as soon as its run has ended, so that an interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
LONGEST = 1_800
"""Seconds after which a program counts as hanging."""
Row = dict[str, Any]


def watch(command: Sequence[str], keep: Path | None = None, **variables: str) -> Row:
    """What the verdict on a program says. `keep` is a folder for its evidence, `variables` are added to its environment."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run" if keep is None else keep
        shutil.rmtree(out, ignore_errors=True)  # left by a benchmark that was interrupted: a finished run has its row
        watching = [sys.executable, "-m", "learnproof", "watch", "--quiet", "--no-report", "--out", str(out), "--"]
        done = subprocess.run(
            [*watching, *command],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        )
        place = out / "verdict.json"
        if not place.exists():
            raise SystemExit(f"{' '.join(command)} has no verdict:\n{done.stderr[-2000:]}")
        verdict = json.loads(place.read_text())
    return {
        "verdict": verdict["verdict"],
        "failed": [finding["check"] for finding in verdict["findings"] if finding["status"] == "fail"],
        "missing": [sentence[:200] for sentence in verdict["missing"][:3]],
        "exit": done.returncode,
        "seconds": round(time.monotonic() - began, 1),
    }


class Rows:
    """Those of a file in benchmarks/results."""

    def __init__(self, name: str) -> None:
        self.path = RESULTS / name
        self.rows: list[Row] = []
        if self.path.exists():
            self.rows = [json.loads(line) for line in self.path.read_text().splitlines()]

    def keys(self, *names: str) -> set[tuple[Any, ...]]:
        return {tuple(row[name] for name in names) for row in self.rows}

    def measure(self, wanted: Sequence[Any], run: Callable[[Any], Row], tell: Callable[[Row], str], jobs: int) -> None:
        RESULTS.mkdir(exist_ok=True)
        with ThreadPoolExecutor(jobs) as pool:
            try:
                for position, done in enumerate(as_completed([pool.submit(run, each) for each in wanted])):
                    row = done.result()
                    self.rows.append(row)
                    with open(self.path, "a") as file:
                        file.write(json.dumps(row) + "\n")
                    told = f"{tell(row)}: {row.get('verdict', '')} {row.get('failed', '')} {row['seconds']} s"
                    print(f"{position + 1}/{len(wanted)} {told}", flush=True)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
