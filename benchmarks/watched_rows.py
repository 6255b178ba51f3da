"""What benchmarks share: a program under `learnproof watch`, and one row kept per run.

A row is written as soon as its run has ended, so that an interrupted benchmark goes on where it was. It says which code watched the
run and which judged it; where the evidence was kept, another can judge it again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
SOURCES = Path(__file__).parent.parent / "src" / "learnproof"
LONGEST = 3_600
"""Seconds after which a program counts as hanging."""
Row = dict[str, Any]


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """What was typed, with the options that all benchmarks of watched programs have."""
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="keep the evidence of each run in this folder")
    parser.add_argument("--again", action="store_true", help="judge what is in that folder again, run nothing")
    parser.add_argument("--show", action="store_true", help="only print what is known")
    options = parser.parse_args()
    if options.again and options.keep is None:
        parser.error("--again needs --keep FOLDER: the evidence that is to be judged again")
    return options


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
        if done.returncode < 0:
            raise SystemExit(f"{' '.join(command)} was ended by signal {-done.returncode}: no row is kept of it.")
        if not place.exists():
            raise SystemExit(f"{' '.join(command)} has no verdict:\n{done.stderr[-2000:]}")
        verdict = json.loads(place.read_text())
    return {
        **_told(verdict),
        "exit": done.returncode,
        "seconds": round(time.monotonic() - began, 1),
        "watched_by": code_of("watching"),
    }


def judge_again(kept: Path) -> Row:
    """The verdict of today's code on evidence that was kept."""
    from learnproof.runs.folder import RunFolder
    from learnproof.supervising.conclusion import judge_watched

    return _told(judge_watched(RunFolder.open(kept), report=False).to_json())


def _told(verdict: dict[str, Any]) -> Row:
    return {
        "verdict": verdict["verdict"],
        "failed": [finding["check"] for finding in verdict["findings"] if finding["status"] == "fail"],
        "missing": [sentence[:200] for sentence in verdict["missing"][:3]],
        "judged_by": code_of("evidence", "proof"),
    }


def apart(function: Callable[..., Row], *arguments: Any) -> Row:
    """What it gives, and how long it took, in a process of its own: threads, generators and CPU time belong to one run."""
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        told = pool.apply(function, arguments)
    return {**told, "seconds": round(time.monotonic() - began, 1)}


@cache
def code_of(*rooms: str) -> str:
    """A digest of the source of some rooms: equal digests, equal code."""
    files = sorted(path for room in rooms for path in (SOURCES / room).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:8]


class Rows:
    """Those of a file in benchmarks/results; `names` are the fields that tell one run from another."""

    def __init__(self, file: str, *names: str) -> None:
        self.path = RESULTS / file
        self.names = names
        self.rows: list[Row] = []
        if self.path.exists():
            self.rows = [json.loads(line) for line in self.path.read_text().splitlines()]

    def name_of(self, run: Row) -> str:
        return "-".join(str(run[name]) if run[name] != "" else "healthy" for name in self.names)

    def carry_out(self, options: argparse.Namespace, runs: Sequence[Row], measure: Callable[..., Row]) -> None:
        """Measure the runs that have no row yet, with `measure(run, keep)`, or judge again those whose evidence was kept."""
        if options.again:
            self.judge_again(options.keep, options.jobs)
        elif not options.show:
            keep = options.keep
            self.measure(
                runs,
                lambda run: {**run, **measure(run, None if keep is None else keep / self.name_of(run))},
                options.jobs,
            )

    def measure(self, runs: Sequence[Row], measure: Callable[[Row], Row], jobs: int) -> None:
        RESULTS.mkdir(exist_ok=True)
        known = {self.name_of(row) for row in self.rows}
        wanted = [run for run in runs if self.name_of(run) not in known]
        with ThreadPoolExecutor(jobs) as pool:
            try:
                for position, done in enumerate(as_completed([pool.submit(measure, run) for run in wanted])):
                    row = done.result()
                    self.rows.append(row)
                    with open(self.path, "a") as file:
                        file.write(json.dumps(row) + "\n")
                    told = f"{row.get('verdict', '')} {row.get('failed', '')} {row['seconds']} s"
                    print(f"{position + 1}/{len(wanted)} {self.name_of(row)}: {told}", flush=True)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def judge_again(self, keep: Path, jobs: int) -> None:
        """Replace the verdict of each row whose evidence was kept."""
        again = [row for row in self.rows if (keep / self.name_of(row)).exists()]
        with ProcessPoolExecutor(jobs) as pool:
            judged = pool.map(judge_again, [keep / self.name_of(row) for row in again])
            for row, told in zip(again, judged, strict=True):
                if told["verdict"] != row["verdict"]:
                    print(f"{self.name_of(row)}: {row['verdict']} -> {told['verdict']} {told['failed']}", flush=True)
                row.update(told)
        self.path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        print(f"{len(again)} of {len(self.rows)} runs were judged again.")
