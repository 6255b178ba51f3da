"""What evidence and checks cost while training goes on, and what a whole command costs that trains little.

    python benchmarks/overheads.py [--only cartpole allocation startup] [--repeats 5] [--show] [--quick]

    cartpole, allocation   two trainers in one process with equal settings and seeds, one with its evidence and checks and one without, take
                           turns in short blocks of iterations, so that whatever slows the machine slows both. They do the same gradient
                           steps (that is asserted). The ratio of CPU seconds over a whole run, a repeat for each seed, and an upper 95 %
                           bound over repeats.
                           Bars: 1.03 and 1.02 times.
    startup                `learnproof train CartPole-v1 --steps 50000` from the shell's prompt to the verdict, kernels compiled before: CPU
                           seconds of the process. Bar: 12, the median.

A row is kept per repeat in benchmarks/results/overheads.jsonl, so that an interrupted benchmark goes on where it was; rows of other code
than today's are kept and do not count. Run it alone on the machine.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from speed_tasks import TASKS
from watched_rows import Row, Rows, apart, code_of

MOST_EVIDENCE = {"cartpole": ("ppo_cartpole", 1.03, 10), "allocation": ("ppo_allocation", 1.02, 1)}
"""Task of speed.py, the ratio that is allowed, iterations in a block."""
MOST_STARTUP = 12.0
STEPS = 100_000


@contextmanager
def trainer(task: str, seed: int, steps: int, evidence: bool) -> Iterator[Any]:
    from learnproof.config import Settings
    from learnproof.envs.making import RegisteredEnvironment
    from learnproof.runs.folder import RunFolder
    from learnproof.show.progress import open_display
    from learnproof.training.loop import Trainer

    shared = {
        "env.id": TASKS[task].environment,
        "seed": seed,
        "evaluation.every_steps": 0,
        "threads": 1,
        "steps": steps,
    }
    settings = Settings().replace({**TASKS[task].settings, **shared, "evidence.enabled": evidence})
    with tempfile.TemporaryDirectory() as folder, open_display(steps, "", clock=time.monotonic) as display:
        own = Trainer(settings, RegisteredEnvironment(settings.env))
        own.begin(RunFolder.create(Path(folder) / "run", "", {}), display)
        yield own
        own.journal.close()
        own.close()


def with_and_without(name: str, seed: int, steps: int) -> tuple[float, float]:
    """CPU seconds of the same training with its evidence and without; each begins every other pair of blocks."""
    task, _, block = MOST_EVIDENCE[name]
    _in_turns(task, seed, TASKS[task].warm_up, block)
    return _in_turns(task, seed, steps, block)


def _in_turns(task: str, seed: int, steps: int, block: int) -> tuple[float, float]:
    seconds = [0.0, 0.0]
    with trainer(task, seed, steps, True) as told, trainer(task, seed, steps, False) as silent:
        both = told, silent
        iterations = steps // (told.settings.learning.n_steps * told.settings.env.n_envs)
        for turn in range(iterations // block):
            for which in (turn % 2, 1 - turn % 2):
                began = time.process_time()
                for _ in range(block):
                    both[which].iterate()
                seconds[which] += time.process_time() - began
        same = np.array_equal(told.learner.flat.vector.detach().numpy(), silent.learner.flat.vector.detach().numpy())
        assert same, "evidence changed what was learnt"
    return seconds[0], seconds[1]


def startup(seed: int, steps: int) -> float:
    """CPU seconds of the command and of what it waited for."""
    command = [sys.executable, "-m", "learnproof", "train", "CartPole-v1", "--steps", str(steps), "--seed", str(seed)]
    with tempfile.TemporaryDirectory() as folder:
        before = _children()
        done = subprocess.run([*command, "--out", "run"], cwd=folder, capture_output=True, text=True)
        if done.returncode not in (0, 3):
            raise SystemExit(f"the command ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(run: Row, steps: int = STEPS) -> Row:
    return {**run, **apart(_measure, run["what"], run["repeat"], steps)}


def _measure(name: str, seed: int, steps: int) -> Row:
    if name == "startup":
        return {"cpu_seconds": round(startup(seed, steps // 2), 3)}
    seconds = with_and_without(name, seed, steps)
    return {"with": round(seconds[0], 4), "without": round(seconds[1], 4)}


def summarise(rows: list[Row], name: str) -> bool:
    own = [row for row in rows if row["what"] == name]
    if not own:
        return True
    if name == "startup":
        seconds = [row["cpu_seconds"] for row in own]
        met = float(np.median(seconds)) <= MOST_STARTUP
        print(
            f"startup      {np.median(seconds):6.2f} CPU seconds ({min(seconds):.2f} to {max(seconds):.2f}, {len(own)} repeats)   "
            f"bar {MOST_STARTUP:g}: {'met' if met else 'MISSED'}"
        )
        return met
    _, allowed, _ = MOST_EVIDENCE[name]
    ratios = np.array([row["with"] / row["without"] for row in own])
    bound = upper(ratios)
    met = bound <= allowed
    print(
        f"{name:12} evidence and checks: {ratios.mean():.4f} times, at most {bound:.4f} (one-sided 95 %, {len(own)} repeats of "
        f"{np.median([row['without'] for row in own]):.1f} CPU seconds)   bar {allowed:g}: {'met' if met else 'MISSED'}"
    )
    return met


def upper(ratios: np.ndarray[Any, Any]) -> float:
    if len(ratios) < 2:
        return math.inf
    return float(ratios.mean() + stats.t.ppf(0.95, len(ratios) - 1) * ratios.std(ddof=1) / math.sqrt(len(ratios)))


def main() -> int:
    names = [*MOST_EVIDENCE, "startup"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--show", action="store_true", help="only print what is known")
    parser.add_argument("--quick", action="store_true", help="once, a fifth of the steps; keeps no row")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    runs = [{"what": name, "repeat": repeat} for repeat in range(options.repeats) for name in options.only]
    if options.quick:
        quick = [measure(run, STEPS // 5) for run in runs if run["repeat"] == 0]
        for name in options.only:
            summarise(quick, name)
        return 0
    rows = Rows("overheads.jsonl", "what", "repeat", "code")
    code = code_of("")
    if not options.show:
        rows.measure([{**run, "code": code} for run in runs], measure, jobs=1)
    met = [summarise([row for row in rows.rows if row["code"] == code], name) for name in options.only]
    print("bars met" if all(met) else "BAR MISSED")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
