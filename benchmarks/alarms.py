"""How often is a healthy run accused, and how often is a run proven in which nothing could be learnt?

    python benchmarks/alarms.py [--runs 200] [--only healthy|null|forms] [--jobs 2] [--keep FOLDER] [--again] [--show]

    healthy   short runs (a third of their usual steps) of the healthy programs of benchmarks/faults/first, over many seeds:
              at most 1 of 200 may be called broken
    null      the same programs with learning made impossible (watching/placebo.py: every optimizer step undone, or outcomes
              exchanged along the batch): at most 4 of 200 may be called proven
    forms     honest programs of as many forms as could be thought of (benchmarks/forms: distributional, recurrent, offline, model-based,
              asynchronous, natural gradients, language models ...), written without knowledge of the checks: none may be called broken

One row per run is kept in benchmarks/results/alarms.jsonl; an interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from watched_rows import Row, Rows, options_of, watch

HERE = Path(__file__).parent
PROGRAMS = HERE / "faults" / "first"
FORMS = HERE / "forms"
FORMS_SEEDS = 2
MOST = {"healthy": 1, "null": 4, "forms": 0}
SHORT = {
    "a2c_functional": 40_000,
    "cloning": 300,
    "dqn_class": 8_000,
    "dqn_courier": 5_000,
    "grpo_repeat": 70,
    "ppo_flat": 20_000,
    "ppo_pendulum": 16_000,
    "reinforce_notebook": 23_000,
    "sac_trainer": 1_700,
    "sb3_runs": 8_000,
}
"""About a third of what each program takes to learn."""


def runs(what: str, count: int) -> list[Row]:
    """Programs in turn, seed after seed, so that any prefix is spread over all of them."""
    if what == "forms":
        scripts = sorted(path.stem for path in FORMS.glob("*.py"))
        return [
            {"what": what, "script": script, "seed": seed, "placebo": ""}
            for seed in range(FORMS_SEEDS)
            for script in scripts
        ]
    scripts = sorted(SHORT)
    placebos = ("",) if what == "healthy" else ("frozen", "shuffled")
    found = []
    for number in range(count):
        script = scripts[number % len(scripts)]
        seed = 100 + number // len(scripts)
        placebo = placebos[(number // len(scripts)) % len(placebos)]
        found.append({"what": what, "script": script, "seed": seed, "placebo": placebo})
    return found


def measure(run: Row, keep: Path | None) -> Row:
    if run["what"] == "forms":
        return watch([sys.executable, str(FORMS / f"{run['script']}.py"), "--seed", str(run["seed"])], keep)
    script = PROGRAMS / f"{run['script']}.py"
    command = [sys.executable, str(script), "--seed", str(run["seed"]), "--steps", str(SHORT[run["script"]])]
    placebo = {"LEARNPROOF_WATCH_PLACEBO": run["placebo"]} if run["placebo"] else {}
    return watch(command, keep, **placebo)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--only", choices=tuple(MOST))
    options = options_of(parser)
    rows = Rows("alarms.jsonl", "what", "script", "seed", "placebo")
    kinds = [options.only] if options.only else list(MOST)
    rows.carry_out(options, [run for what in kinds for run in runs(what, options.runs)], measure)
    met = [summarise(rows.rows, what) for what in kinds]
    return 0 if all(met) else 1


def summarise(rows: list[Row], what: str) -> bool:
    mine = [row for row in rows if row["what"] == what]
    wrong = "proven" if what == "null" else "broken"
    found = [row for row in mine if row["verdict"] == wrong]
    print(
        f"\n{what}: {len(mine)} runs, {dict(Counter(row['verdict'] for row in mine))}; {wrong}: {len(found)} (at most {MOST[what]})"
    )
    for row in found:
        print(f"    {row['script']} seed {row['seed']} {row['placebo']}: {', '.join(row['failed'])}")
    return len(found) <= MOST[what]


if __name__ == "__main__":
    sys.exit(main())
