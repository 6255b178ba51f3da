"""Does each algorithm learn, on real environments, on every seed, and as well as Stable-Baselines3?

    python benchmarks/learning.py [--only dqn_cartpole] [--who ours|sb3] [--seeds 5] [--jobs 2] [--show] [--quick]

Trains each ready config on several seeds, and SB3 at its zoo's settings (sb3_peers.py) for as many steps, then plays 100 episodes
that training has not used, deterministically. "final" is the last policy, "kept" the one that evaluated best while training; of runs
without evaluations both are the same. One row is kept per run in benchmarks/results/learning.jsonl, so that an interrupted
benchmark goes on where it was; delete the file to measure anew.

    a bar      mean of the kept policies over the seeds
    a peer     interquartile means of final policies, ours against 0.9 times SB3's: the difference must be above 0 (bootstrap over
               runs, one-sided 95 %)
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sb3_peers import CHANGED, PEERS
from watched_rows import Row, Rows, apart

HERE = Path(__file__).parent
DRAWS = 20_000


@dataclass(frozen=True)
class Task:
    config: str
    seeds: int
    bar: float | None = None
    """Mean of the kept policies that must be reached; None = judged by its peer alone."""


TASKS = {
    task.config: task
    for task in (
        Task("cartpole", 5, 475.0),
        Task("acrobot", 5, -100.0),
        Task("pendulum", 5, -250.0),
        Task("dqn_cartpole", 5, 475.0),
        Task("sac_pendulum", 5, -200.0),
        Task("sac_cartpole", 5, 400.0),
        Task("reinforce_cartpole", 5, 450.0),
        Task("ppo_halfcheetah", 8),
        Task("sac_hopper", 8),
    )
}


def measure(run: Row, steps: int | None = None) -> Row:
    return apart(_measure, run, steps)


def _measure(run: Row, steps: int | None) -> Row:
    from learnproof.config import load_settings

    settings = load_settings(HERE.parent / "configs" / f"{run['config']}.toml")
    settings = settings.replace({"seed": run["seed"], "threads": 1})
    settings = settings if steps is None else settings.replace({"steps": steps})
    with tempfile.TemporaryDirectory() as folder:
        if run["who"] == "ours":
            figures = _train_ours(settings, Path(folder))
        else:
            from sb3_peers import train_peer

            every = settings.evaluation.every_steps
            figures = train_peer(run["config"], run["seed"], settings.steps, every, Path(folder))
    return {**run, "steps": settings.steps, **figures}


def _train_ours(settings: Any, folder: Path) -> dict[str, Any]:
    import learnproof

    began = time.process_time()
    result = learnproof.train(settings=settings, out=folder / "run")
    cpu = time.process_time() - began
    scores = learnproof.evaluate(result.path, episodes=100)
    assert result.verdict is not None
    kept = float(scores["deterministic"].mean())
    final = {} if settings.evaluation.every_steps else {"final": kept}
    return {
        "kept": kept,
        **final,
        "sampled": float(scores["sampled"].mean()),
        "verdict": result.verdict.verdict,
        "failed": [finding.check for finding in result.verdict.findings if finding.status == "fail"],
        "ended_at": result.steps,
        "cpu_seconds": round(cpu, 1),
    }


def interquartile_means(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of each row, without its lowest and highest quarter."""
    ordered = np.sort(scores, axis=-1)
    cut = ordered.shape[-1] // 4
    means: np.ndarray[Any, Any] = ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)
    return means


def resampled(scores: list[float], generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Interquartile means of so many runs drawn from those there are."""
    values = np.array(scores)
    return interquartile_means(values[generator.integers(0, len(values), (DRAWS, len(values)))])


def summarise(rows: list[dict[str, Any]], task: Task, seeds: int | None) -> bool:
    by_seed = sorted((row for row in rows if row["config"] == task.config), key=lambda row: row["seed"])
    count = seeds or task.seeds
    ours = [row for row in by_seed if row["who"] == "ours"][:count]
    theirs = [row for row in by_seed if row["who"] == "sb3"][:count]
    if not ours:
        return True
    bar = "" if task.bar is None else f"   bar {task.bar:.0f}"
    print(f"\n{task.config}, {ours[0]['steps']:,} steps, {len(ours)} seeds{bar}")
    for name, own in (("ours", ours), ("sb3", theirs)):
        if own:
            _print(name, own)
    if task.config in CHANGED:
        print(f"  sb3: {CHANGED[task.config]}")
    if task.bar is not None:
        mean = float(np.mean([row["kept"] for row in ours]))
        met = mean >= task.bar
        print(f"  mean of the kept policies {mean:.1f}: {'met' if met else 'MISSED'}")
        return met
    if not theirs:
        print("  its peer is not measured yet")
        return False
    return _not_much_below(ours, theirs)


def _print(name: str, rows: list[dict[str, Any]]) -> None:
    shown = " ".join(f"{row['kept']:.1f}" for row in rows)
    finals = [row["final"] for row in rows if "final" in row]
    print(
        f"  {name:5} kept {shown}   mean {np.mean([row['kept'] for row in rows]):.1f}",
        f"  final {np.mean(finals):.1f}" if finals else "",
        f"  proven {sum(row.get('verdict') == 'proven' for row in rows)}" if name == "ours" else "",
        f"  {np.median([row['cpu_seconds'] for row in rows]):.0f} CPU-s",
        sep="",
    )


def _not_much_below(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> bool:
    generator = np.random.default_rng(0)
    a, b = (resampled([row["final"] for row in rows], generator) for rows in (ours, theirs))
    own, other = (float(interquartile_means(np.array([row["final"] for row in rows]))) for rows in (ours, theirs))
    low = float(np.quantile(a - 0.9 * b, 0.05))
    for name, mean, draws in (("ours", own, a), ("sb3", other, b)):
        print(
            f"  {name:5} interquartile mean {mean:.1f} [{np.quantile(draws, 0.025):.1f}, {np.quantile(draws, 0.975):.1f}]"
        )
    print(f"  ours - 0.9 sb3: {own - 0.9 * other:+.1f}, at least {low:+.1f} (one-sided 95 %): ", end="")
    print("met" if low >= 0 else "MISSED")
    return low >= 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(TASKS))
    parser.add_argument("--who", choices=("ours", "sb3"))
    parser.add_argument("--seeds", type=int, help="instead of each task's own number")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="only print what is known")
    parser.add_argument("--quick", action="store_true", help="one seed, a few steps: shows that it runs; keeps no row")
    options = parser.parse_args()
    tasks = [TASKS[name] for name in options.only or TASKS]
    runs = [
        {"config": task.config, "who": who, "seed": seed}
        for task in tasks
        for seed in range(options.seeds or task.seeds)
        for who in ("ours", "sb3")
        if (who == "ours" or task.config in PEERS) and options.who in (None, who)
    ]
    if options.quick:
        for run in (run for run in runs if run["seed"] == 0):
            print(measure(run, 2_048))
        return 0
    rows = Rows("learning.jsonl", "config", "who", "seed")
    if not options.show:
        rows.measure(runs, measure, options.jobs)
    met = [summarise(rows.rows, task, options.seeds) for task in tasks]
    print("\nbars met" if all(met) else "\nBAR MISSED")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
