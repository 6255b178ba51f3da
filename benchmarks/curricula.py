"""Does a curriculum help? The same settings with their stages and without, the same budget, judged on the full task.

    python benchmarks/curricula.py [--quick] [--seeds 5] [--task "mountain car" "weak engine" allocation]

    mountain car   configs/mountain_car_curriculum.toml: -1 a step until the goal is reached, which nothing hints at; the goal nearer at first
    weak engine    the same with an engine of 0.6 of the force, which needs more swings and 300 steps; a stronger engine at first
    allocation     configs/allocation_curriculum.toml: a reward for each task done in time; few and easy tasks at first

Each run is a process of its own with one thread; one row is kept for each in benchmarks/results/curricula.jsonl, so that an interrupted
benchmark goes on where it was. A score is the mean of the best policy on the proof's 100 fresh episodes. There is no bar: whether easier
stages pay is the task's affair, and the table says what came out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

HERE = Path(__file__).parent
ROWS = HERE / "results" / "curricula.jsonl"
CONFIGS = {"allocation": "allocation_curriculum.toml"}
WEAK_ENGINE = {
    "steps": 120_000,
    "env.kwargs": {"force": 0.0006, "episode_steps": 300},
    "curriculum.stages": [
        {"kwargs": {"force": 0.001}, "until_score": -140.0, "until_fraction": 0.4},
        {"kwargs": {"force": 0.0008}, "until_score": -180.0, "until_fraction": 0.6},
    ],
}
TASKS: dict[str, dict[str, Any]] = {"mountain car": {}, "weak engine": WEAK_ENGINE, "allocation": {}}
FORMS = ("with stages", "without")


def measure(task: str, form: str, seed: int, steps: int | None) -> dict[str, Any]:
    import learnproof
    from learnproof.config import load_settings
    from learnproof.evidence import StageBegan

    changes: dict[str, Any] = {"seed": seed, **TASKS[task]} | ({} if steps is None else {"steps": steps})
    changes |= {} if form == "with stages" else {"curriculum.stages": []}
    config = CONFIGS.get(task, "mountain_car_curriculum.toml")
    settings = load_settings(HERE.parent / "configs" / config).replace(changes)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        result = learnproof.train(settings=settings, out=Path(folder) / "run")
        cpu = time.process_time() - began
        evidence = learnproof.Evidence.read(result.path)
    assert result.verdict is not None
    assert result.verdict.performance is not None
    first = [e.step for e in evidence.evaluations if np.mean(e.deterministic) > nothing_found(task)]
    return {
        "score": result.verdict.performance.trained,
        "verdict": result.verdict.verdict,
        "stages_at": [stage.step for stage in evidence.of(StageBegan)],
        "first_success_at": first[0] if first else None,
        "cpu_seconds": round(cpu, 1),
    }


def nothing_found(task: str) -> float:
    """Above this an evaluation on the full task shows that something was found: the goal once; more than chance completes."""
    return {"mountain car": -200.0, "weak engine": -300.0, "allocation": 0.2}[task]


def row_for(rows: list[dict[str, Any]], **key: Any) -> dict[str, Any]:
    """The kept row of a run, or a new one from a process of its own."""
    for row in rows:
        if all(row.get(name) == value for name, value in key.items()):
            return row
    code = f"import json, curricula; print('ROW', json.dumps(curricula.measure(**{key!r})))"
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if not lines:
        raise SystemExit(f"{key} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    row = {**key, **json.loads(lines[-1][4:])}
    rows.append(row)
    with open(ROWS, "a") as file:
        file.write(json.dumps(row) + "\n")
    print(f"  {json.dumps(row)}", flush=True)
    return row


def interval(values: list[float]) -> str:
    if len(values) < 2:
        return f"{np.mean(values):.4g}"
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.4g} ± {half:.2g}"


def report(task: str, measured: dict[str, list[dict[str, Any]]]) -> None:
    print(f"\n{task}: mean over training seeds ± 95 % interval")
    for form, runs in measured.items():
        scores = " ".join(f"{row['score']:.4g}" for row in runs)
        firsts = " ".join(str(row["first_success_at"] or "never") for row in runs)
        proven = sum(row["verdict"] == "proven" for row in runs)
        print(f"  {form:12} {interval([row['score'] for row in runs]):18} ({scores}), {proven} of {len(runs)} proven")
        print(f"  {'':12} first evaluation that showed a success at step {firsts}")
    leads = [a["score"] - b["score"] for a, b in zip(*measured.values(), strict=True)]
    print(f"  lead of the stages, seed by seed: {interval(leads)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, few steps: shows that it runs, says nothing")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--task", nargs="+", choices=sorted(TASKS), default=list(TASKS))
    options = parser.parse_args()
    ROWS.parent.mkdir(exist_ok=True)
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    seeds, steps = (1, 8_192) if options.quick else (options.seeds, None)
    for task in options.task:
        measured = {
            form: [row_for(rows, task=task, form=form, seed=seed, steps=steps) for seed in range(seeds)]
            for form in FORMS
        }
        report(task, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
