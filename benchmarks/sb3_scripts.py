"""Unmodified Stable-Baselines3 scripts under `learnproof watch`: proven when trained long enough, unproven when stopped at once.

    python benchmarks/sb3_scripts.py [--seeds 5] [--only ppo a2c dqn sac td3] [--jobs 2] [--keep FOLDER] [--again] [--show]

Never `broken`. One row per run is kept in benchmarks/results/sb3_scripts.jsonl; an interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from watched_rows import Row, Rows, options_of, watch

DQN_ARGUMENTS = (
    "learning_rate=1e-3, buffer_size=50_000, learning_starts=1000, target_update_interval=500, exploration_fraction=0.2"
)
"""SB3's defaults for DQN are Atari's and learn nothing here in this time; with its zoo's for CartPole the last policy of a run is often
one that has collapsed (19 a game on seed 0), which is no proof either."""
SCRIPTS: dict[str, tuple[str, str, str, int, int]] = {
    "ppo": ("PPO", "CartPole-v1", "", 30_000, 2_048),
    "a2c": ("A2C", "CartPole-v1", "", 40_000, 500),
    "dqn": ("DQN", "CartPole-v1", DQN_ARGUMENTS, 50_000, 1_500),
    "sac": ("SAC", "Pendulum-v1", "learning_rate=1e-3", 8_000, 400),
    "td3": ("TD3", "Pendulum-v1", "learning_rate=1e-3", 10_000, 400),
}
"""Class, environment, further arguments, steps that are enough, steps after which it is stopped at once."""


def text_of(name: str, steps: int, seed: int) -> str:
    kind, env, extra, *_ = SCRIPTS[name]
    arguments = f'"MlpPolicy", "{env}", seed={seed}, device="cpu"' + (f", {extra}" if extra else "")
    return f"from stable_baselines3 import {kind}\n\nmodel = {kind}({arguments})\nmodel.learn({steps})\n"


def measure(run: Row, keep: Path | None) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(text_of(run["algorithm"], run["steps"], run["seed"]))
        return watch([sys.executable, str(script)], keep)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=tuple(SCRIPTS), default=tuple(SCRIPTS))
    options = options_of(parser)
    rows = Rows("sb3_scripts.jsonl", "algorithm", "length", "seed")
    runs = [
        {"algorithm": name, "length": length, "seed": seed, "steps": SCRIPTS[name][3 if length == "long" else 4]}
        for seed in range(options.seeds)
        for name in options.only
        for length in ("short", "long")
    ]
    rows.carry_out(options, runs, measure)
    return 0 if summarise(rows.rows) else 1


def summarise(rows: list[Row]) -> bool:
    met = True
    for name in SCRIPTS:
        for length, right in (("long", "proven"), ("short", "unproven")):
            mine = [row for row in rows if row["algorithm"] == name and row["length"] == length]
            if mine:
                as_it_should = [row for row in mine if row["verdict"] == right]
                met = met and len(as_it_should) == len(mine)
                print(f"{name:4s} {length:5s} {mine[0]['steps']:6d} steps: {right} {len(as_it_should)} of {len(mine)}")
                for row in mine:
                    if row["verdict"] != right:
                        print(f"    seed {row['seed']}: {row['verdict']} {row['failed']} {row['missing'][:1]}")
    return met


if __name__ == "__main__":
    sys.exit(main())
