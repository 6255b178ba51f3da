"""What watching costs: CPU seconds of scripts bare and under `learnproof watch`, children counted, the judging apart.

    python benchmarks/watching.py [--only cost|short|memory] [--jobs ppo dqn ...] [--quick]

    cost    runs of a minute or more, bare and watched at the same time on the same core, so that whatever slows one slows
            both; a pair on each core, repeated until the interval of the mean ratio is narrower than 4 points
    short   runs of a few seconds: how many CPU seconds watching adds, and judging at the end
    memory  100,000 updates: peak memory bare and watched, and the watched process's growth over its last half

One row per pair is kept in benchmarks/results/watching.jsonl; an interrupted benchmark goes on where it was. Rows of another
watcher or another judge than today's are kept and do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from watched_rows import code_of

HERE = Path(__file__).parent
ROWS = HERE / "results" / "watching.jsonl"
SCRIPTS = HERE.parent / "tests" / "watched" / "scripts"
NARROW = 0.04
MOST_PAIRS = 24
LONG_RUNS: dict[str, tuple[str, list[str], float]] = {
    "ppo": ("ppo_clean", ["--updates", "1150"], 1.10),
    "dqn": ("dqn_functions", ["--steps", "110000"], 1.10),
    "sac": ("sac", ["--steps", "30000"], 1.10),
    "ppo, 1.2M": ("ppo_clean", ["--hidden", "768", "--updates", "420"], 1.05),
}
"""Script, a size that takes a minute on a fast machine, and the ratio that is allowed."""
MOST_ADDED, MOST_JUDGING = 3.0, 5.0
"""CPU seconds: on short runs while the script runs, and at the end of any run."""
SUPERVISED = """
import resource, sys
from learnproof.cli import main
code = main()
own = resource.getrusage(resource.RUSAGE_SELF)
open("judging", "w").write(str(own.ru_utime + own.ru_stime))
sys.exit(code)
"""
"""`learnproof`, leaving behind what its own process used: starting the script, judging, drawing, writing."""
SHORT_RUNS = ("ppo_clean", "dqn_functions", "sac", "reinforce")


def start(script: str, arguments: list[str], watched: bool, core: int, folder: str) -> subprocess.Popen[bytes]:
    place = SCRIPTS if (SCRIPTS / f"{script}.py").exists() else HERE
    command = [sys.executable, str(place / f"{script}.py"), *arguments]
    if watched:
        command = [sys.executable, "-c", SUPERVISED, "watch", "--quiet", "--out", "run", "--", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages are compiled once, the watcher too
    return subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )


def finish(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds of a process and of all that it waited for."""
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"a script ended with {process.returncode}:\n{errors.decode()[-3000:]}")
    return usage.ru_utime + usage.ru_stime


def pair(script: str, arguments: list[str], core: int) -> dict[str, Any]:
    """Both on one core at once: the scheduler deals its moments, fast and slow ones, to both alike."""
    with tempfile.TemporaryDirectory() as bare_folder, tempfile.TemporaryDirectory() as watched_folder:
        bare = start(script, arguments, False, core, bare_folder)
        watched = start(script, arguments, True, core, watched_folder)
        row = {"bare": finish(bare), "together": finish(watched)}
        judging = float((Path(watched_folder) / "judging").read_text())
        return {**row, "watched": row["together"] - judging, "judging": judging}


def pairs_of(
    rows: list[dict[str, Any]], what: str, script: str, arguments: list[str], most: int
) -> list[dict[str, Any]]:
    sought = {"what": what, "script": script, "arguments": arguments, **todays_code()}
    own = [row for row in rows if sought.items() <= row.items()]
    cores = sorted(os.sched_getaffinity(0))[:2]
    with ThreadPoolExecutor(len(cores)) as pool:
        while len(own) < most and (len(own) < 4 or width(own) > NARROW):
            for found in pool.map(lambda core: pair(script, arguments, core), cores):
                row = {**sought, **found}
                own.append(row)
                keep(row)
                print(
                    f"  {script} {len(own)}: bare {row['bare']:.1f} s, watched {row['watched']:.1f} s, "
                    f"judging {row['judging']:.1f} s",
                    flush=True,
                )
    return own


def todays_code() -> dict[str, str]:
    return {"watched_by": code_of("watching"), "judged_by": code_of("evidence", "proof", "supervising", "show")}


def width(own: list[dict[str, Any]]) -> float:
    ratios = np.array([row["watched"] / row["bare"] for row in own])
    return float(2 * 1.96 * ratios.std(ddof=1) / np.sqrt(len(ratios)))


def keep(row: dict[str, Any]) -> None:
    ROWS.parent.mkdir(exist_ok=True)
    with open(ROWS, "a") as file:
        file.write(json.dumps(row) + "\n")


def cost(rows: list[dict[str, Any]], jobs: list[str], quick: bool) -> bool:
    met = True
    table = []
    for job in jobs:
        file, arguments, allowed = LONG_RUNS[job]
        own = pairs_of(rows, "quick" if quick else "cost", file, [] if quick else arguments, 2 if quick else MOST_PAIRS)
        ratios = np.array([row["watched"] / row["bare"] for row in own])
        together = np.array([row["together"] / row["bare"] for row in own])
        judging = float(np.median([row["judging"] for row in own]))
        fine = bool(ratios.mean() <= allowed) and judging <= MOST_JUDGING
        met &= fine
        table.append(
            f"{job:16} {np.mean([row['bare'] for row in own]):7.1f} s bare  ratio {ratios.mean():.3f} "
            f"± {width(own) / 2:.3f} ({len(own)} pairs)  allowed {allowed:.2f}  judging +{judging:.1f} s, "
            f"together {together.mean():.3f}  {'met' if fine else 'MISSED'}"
        )
    print("\nCPU seconds, watched over bare\n" + "\n".join(table))
    return met


def short(rows: list[dict[str, Any]], quick: bool) -> bool:
    met = True
    print("\nShort runs: CPU seconds that watching adds")
    for script in SHORT_RUNS[: 1 if quick else None]:
        own = pairs_of(rows, "short", script, [], 2 if quick else 4)
        added = float(np.median([row["watched"] - row["bare"] for row in own]))
        judging = float(np.median([row["judging"] for row in own]))
        fine = added <= MOST_ADDED and judging <= MOST_JUDGING
        met &= fine
        bare = np.median([row["bare"] for row in own])
        print(f"{script:16} +{added:.2f} s on {bare:.1f} s, judging +{judging:.2f} s ({'met' if fine else 'MISSED'})")
    return met


def memory(rows: list[dict[str, Any]], quick: bool) -> bool:
    """Resident memory of the script's process, sampled while it makes 100,000 updates."""
    updates = "5000" if quick else "100000"
    peaks = {}
    growth = 0.0
    for watched in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            process = start("many_updates", ["--updates", updates], watched, 0, folder)
            seen = []
            while process.poll() is None:
                seen.append(resident_megabytes(process.pid))
                time.sleep(0.5)
            peaks[watched] = max(seen)
            if watched:
                growth = max(seen[len(seen) // 2 :]) - seen[len(seen) // 2]
    added = peaks[True] - peaks[False]
    met = added <= 200 and growth <= 10
    row = {"what": "memory", "script": "many_updates", "arguments": [updates], **todays_code()}
    keep({**row, "added": added, "growth": growth})
    print(
        f"\nMemory over {updates} updates: +{added:.0f} MB at the peak, +{growth:.1f} MB in the last half: {'met' if met else 'MISSED'}"
    )
    return met


def resident_megabytes(pid: int) -> float:
    """Of the largest process in the tree under `pid`: the script, whoever started it."""
    largest = 0.0
    for process in [pid, *children_of(pid)]:
        try:
            pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue
        largest = max(largest, pages * os.sysconf("SC_PAGE_SIZE") / 1e6)
    return largest


def children_of(pid: int) -> list[int]:
    try:
        found = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return found + [below for child in found for below in children_of(child)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("cost", "short", "memory"))
    parser.add_argument("--jobs", nargs="+", choices=tuple(LONG_RUNS), default=list(LONG_RUNS))
    parser.add_argument("--quick", action="store_true", help="two short pairs each: shows that it runs, proves nothing")
    options = parser.parse_args()
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    met = True
    if options.only in (None, "short"):
        met &= short(rows, options.quick)
    if options.only in (None, "memory"):
        met &= memory(rows, options.quick)
    if options.only in (None, "cost"):
        met &= cost(rows, options.jobs, options.quick)
    return 0 if met or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
