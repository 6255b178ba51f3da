"""Does the cost of training grow as the work does? CPU seconds over steps, agents and environments.

    python benchmarks/scaling.py [--only steps agents environments] [--repeats 3] [--show] [--quick]

    steps          TaskAllocation-v0 at the default settings, 1, 4 and 16 times 25,000 steps
    agents         TaskAllocation-v1 agent by agent (one shared network, a central critic), 3, 10 and 50 agents, as many team steps
    environments   TaskAllocation-v0, 64 to 4,096 instances side by side, 16 rollouts of 32 steps of each

All on the compiled backend with evidence written, one thread. What is compared is what one unit costs: a step; an agent's step; an
instance's step. The exponent is that of the power law through all measurements: 1 is linear, below it larger is cheaper. The bar: at most 1.1
on every axis. Start-up and compiling are left out. One row is kept for each run in benchmarks/results/scaling.jsonl, so that an interrupted
benchmark goes on where it was (rows of other code than today's do not count); the picture is docs/performance.png. Run it alone on the machine.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from speed_contenders import measure_backend
from speed_tasks import Task
from watched_rows import Row, Rows, apart, code_of

PICTURE = Path(__file__).parent.parent / "docs" / "performance.png"
MOST = 1.1
TEAM_STEPS = 16_384
ROLLOUTS, LENGTH = 16, 32


@dataclass(frozen=True)
class Axis:
    unit: str
    sizes: tuple[int, ...]
    xlabel: str


AXES = {
    "steps": Axis("step", (25_000, 100_000, 400_000), "environment steps in the run"),
    "agents": Axis("agent's step", (3, 10, 50), "agents in the team"),
    "environments": Axis("instance's step", (64, 256, 1_024, 4_096), "instances side by side"),
}
PLAIN = Task(
    environment="learnproof/TaskAllocation-v0",
    steps=0,
    gradient_steps=0,
    settings={"env.kwargs": {"n_agents": 3}},
    peer=None,
    bars={},
    warm_up=8_192,
)
AGENT_BY_AGENT = {
    "env.per_agent": True, "env.n_envs": 16, "policy.hidden": (64, 64), "ppo.n_steps": 32, "ppo.minibatch_size": 512, "ppo.epochs": 4,
}  # fmt: skip
MANY = {"env.kwargs": {"n_agents": 3}, "ppo.n_steps": LENGTH, "ppo.minibatch_size": 1_024, "ppo.epochs": 4}


def work_of(axis: str, size: int) -> tuple[Task, int, int]:
    """What is trained, in how many steps, and how many units that is."""
    if axis == "steps":
        steps = size // 8_192 * 8_192
        return PLAIN, steps, steps
    if axis == "agents":
        settings = {**AGENT_BY_AGENT, "env.kwargs": {"n_agents": size}}
        task = replace(PLAIN, environment="learnproof/TaskAllocation-v1", settings=settings, warm_up=1_024)
        return task, TEAM_STEPS, TEAM_STEPS * size
    steps = ROLLOUTS * LENGTH * size
    return replace(PLAIN, settings={**MANY, "env.n_envs": size}, warm_up=2 * LENGTH * size), steps, steps


def measure(run: Row) -> Row:
    return {**run, **apart(_measure, run)}


def _measure(run: Row) -> Row:
    task, steps, units = work_of(run["axis"], run["size"])
    return {
        "units": units,
        "cpu_seconds": round(measure_backend("compiled", task, run["repeat"], steps).cpu_seconds, 3),
    }


def figures(rows: list[Row], axis: str) -> dict[int, np.ndarray[Any, Any]]:
    """CPU microseconds of a unit in each repeat, by size."""
    own = [row for row in rows if row["axis"] == axis]
    sizes = sorted({row["size"] for row in own})
    return {size: np.array([1e6 * r["cpu_seconds"] / r["units"] for r in own if r["size"] == size]) for size in sizes}


def exponent(found: dict[int, np.ndarray[Any, Any]]) -> float:
    """Of cost ~ size ** exponent, least squares on logarithms of the medians."""
    sizes = np.log(list(found))
    costs = np.log([np.median(each) for each in found.values()])
    return 1.0 + float(np.polyfit(sizes, costs, 1)[0])


def summarise(rows: list[Row], axis: str) -> bool:
    found = figures(rows, axis)
    if len(found) < 2:
        return False
    print(f"\n{axis}: CPU microseconds for each {AXES[axis].unit}")
    for size, each in found.items():
        print(f"  {size:8,} {np.median(each):8.1f}   ({each.min():.1f} to {each.max():.1f}, {len(each)} repeats)")
    power = exponent(found)
    print(f"  cost grows as size to the power of {power:.2f}   (bar {MOST:g}: {'met' if power <= MOST else 'MISSED'})")
    return power <= MOST


def draw(rows: list[Row]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(AXES), figsize=(11, 3.4), layout="constrained")
    for panel, (name, axis) in zip(panels, AXES.items(), strict=True):
        found = figures(rows, name)
        if not found:
            continue
        sizes, medians = list(found), [float(np.median(each)) for each in found.values()]
        for size, each in found.items():
            panel.plot([size] * len(each), each, ".", color="#9aa5b1", markersize=5)
        panel.plot(sizes, medians, "o-", color="#1f6feb", linewidth=1.6, markersize=5)
        panel.set_xscale("log")
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
        panel.minorticks_off()
        panel.set_ylim(0, 1.35 * max(float(each.max()) for each in found.values()))
        panel.set_xlabel(axis.xlabel)
        panel.set_ylabel(f"CPU µs for each {axis.unit}")
        panel.set_title(f"{name}: cost ~ size$^{{{exponent(found):.2f}}}$", fontsize=11)
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, dpi=130)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(AXES), default=list(AXES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--show", action="store_true", help="only print and draw what is known")
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes once; keeps no row")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["OPENBLAS_CORETYPE"] = ""  # as in speed.py
    runs = [
        {"axis": axis, "size": size, "repeat": repeat, "code": code_of("")}
        for repeat in range(options.repeats)
        for axis in options.only
        for size in AXES[axis].sizes
    ]
    if options.quick:
        quick = [measure(run) for run in runs if run["repeat"] == 0 and run["size"] in AXES[run["axis"]].sizes[:2]]
        for axis in options.only:
            summarise(quick, axis)
        return 0
    rows = Rows("scaling.jsonl", "axis", "size", "repeat", "code")
    if not options.show:
        rows.measure(runs, measure, jobs=1)
    counted = [row for row in rows.rows if row["code"] == code_of("")]
    met = [summarise(counted, axis) for axis in options.only]
    draw(counted)
    print("\nbars met" if all(met) else "\nBAR MISSED")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
