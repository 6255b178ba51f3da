"""Does each algorithm learn, on real environments, on every seed?

    python benchmarks/learning.py [--seeds 5] [--quick] [--only cartpole]

Trains each ready config on several seeds, then plays 100 episodes that neither training nor the proof has used with the
best policy. One row is kept per run in benchmarks/results/learning.jsonl, so that an interrupted benchmark goes on where
it was; delete the file to measure anew.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import learnproof
from learnproof.config import load_settings

HERE = Path(__file__).parent
ROWS = HERE / "results" / "learning.jsonl"
BARS = {
    "cartpole": 475.0,
    "acrobot": -100.0,
    "pendulum": -250.0,
    "dqn_cartpole": 475.0,
    "sac_pendulum": -200.0,
    "sac_cartpole": 400.0,
    "reinforce_cartpole": 450.0,
}


def measure(name: str, seed: int, steps: int | None) -> dict[str, object]:
    settings = load_settings(HERE.parent / "configs" / f"{name}.toml").replace({"seed": seed})
    if steps is not None:
        settings = settings.replace({"steps": steps})
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        result = learnproof.train(settings=settings, out=Path(folder) / "run")
        cpu = time.process_time() - began
        scores = learnproof.evaluate(result.path, episodes=100)
        assert result.verdict is not None
        return {
            "config": name,
            "seed": seed,
            "steps": result.steps,
            "deterministic": float(scores["deterministic"].mean()),
            "sampled": float(scores["sampled"].mean()),
            "verdict": result.verdict.verdict,
            "cpu_seconds": round(cpu, 1),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=sorted(BARS))
    parser.add_argument("--quick", action="store_true", help="one seed, a tenth of the steps: shows that it runs")
    options = parser.parse_args()
    ROWS.parent.mkdir(exist_ok=True)
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    names = [options.only] if options.only else list(BARS)
    if options.quick:
        print(json.dumps(measure(names[0], 0, 10_000)))
        return 0
    for name in names:
        for seed in range(options.seeds):
            if not any(row["config"] == name and row["seed"] == seed for row in rows):
                rows.append(measure(name, seed, None))
                with open(ROWS, "a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    met = True
    print(f"\n{'config':18} {'bar':>7}  deterministic by seed")
    for name in names:
        own = sorted((row for row in rows if row["config"] == name), key=lambda row: row["seed"])[: options.seeds]
        scores = [row["deterministic"] for row in own]
        reached = sum(score >= BARS[name] for score in scores)
        met &= reached == len(scores)
        shown = " ".join(f"{score:8.1f}" for score in scores)
        print(f"{name:18} {BARS[name]:7.0f}  {shown}   {reached} of {len(scores)}", end="")
        print(f"   sampled {np.mean([row['sampled'] for row in own]):.1f}", end="")
        print(f"   proven {sum(row['verdict'] == 'proven' for row in own)}", end="")
        print(f"   {np.median([row['cpu_seconds'] for row in own]):.0f} CPU-s, {own[0]['steps']} steps")
    print("bars met" if met else "BAR MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
