"""CPU seconds of a training step, ours on both backends beside Stable-Baselines3's, and beside the matrix products alone.

    python benchmarks/speed.py [--only sac dqn ppo_cartpole ...] [--repeats 5] [--show] [--quick]

All do the same work: the same rules, networks, batches, gradient steps per step, one thread (speed_tasks.py). Ours writes its evidence, as
it always does. "products" are the matrix products of these networks and nothing else, by torch in float32: the floor under anything that
computes them. Each measurement is a process of its own, contenders take turns (speed_contenders.py), and a row is kept for each in
benchmarks/results/speed.jsonl, so that an interrupted benchmark goes on where it was; rows of other code of ours than today's are kept and do
not count. Start-up and compiling are left out, JAX's too. Run it alone on the machine.

    sac, dqn         Pendulum-v1 and CartPole-v1 through Gymnasium, 256-256 networks
    ppo_cartpole     the zoo's settings; ours in the native environment, whose steps are in the compiled loop
    ppo_gymnasium    the same through Gymnasium
    ppo_plain        the settings of CleanRL's ppo.py, beside such a loop (plain_ppo.py); ours in the native environment
    ppo_allocation   TaskAllocation-v0 at the default settings; SB3 steps a plain per-instance version of the same rules

    jax     the same as one jitted program (jax_ppo.py); needs `pip install jax`
    bars    another's CPU seconds over ours (medians of the repeats): Task.bars; the same for the time to a return of 475 where that is a goal

Products are computed by the kernels that each library chooses for this CPU: OPENBLAS_CORETYPE, which would hold back ours alone, is ignored
(--pinned keeps it).
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from speed_contenders import CONTENDERS, takes_part
from speed_contenders import measure as measure_here
from speed_tasks import TASKS, Task
from watched_rows import Row, Rows, apart, code_of

OURS = ("compiled", "torch")


def measure(run: Row, steps: int | None = None) -> Row:
    steps = steps or TASKS[run["task"]].steps
    return {**run, **apart(measure_here, run["task"], run["who"], run["repeat"], steps)}


def to_goal(row: Row) -> float:
    """CPU microseconds until the goal was reached, inf where it was not."""
    return math.inf if row["reached"] is None else 1e6 * float(row["cpu_seconds"]) * row["reached"] / row["steps"]


def summarise(rows: list[Row], name: str) -> bool:
    task = TASKS[name]
    mine = [row for row in rows if row["task"] == name]
    print(f"\n{name}: {task.environment}, {task.steps:,} steps, {task.gradient_steps:,} gradient steps")
    met = compare(task, mine, lambda row: 1e6 * row["cpu_seconds"] / row["steps"], "CPU-us per step")
    if task.goal is not None:
        print(f"  until the last 20 training episodes had a mean of {task.goal:g}")
        met &= compare(task, mine, to_goal, "CPU-us")
        steps = {who: [row["reached"] or math.inf for row in mine if row["who"] == who] for who in CONTENDERS}
        told = ", ".join(f"{who} {np.median(own):,.0f}" for who, own in steps.items() if own)
        print(f"    steps taken until then: {told}")
    return met


def compare(task: Task, rows: list[Row], cost: Callable[[Row], float], unit: str) -> bool:
    medians = {}
    for who in CONTENDERS:
        each = [cost(row) for row in rows if row["who"] == who]
        if each:
            medians[who] = float(np.median(each))
            print(
                f"    {who:9} {medians[who]:12,.1f} {unit}   ({min(each):,.1f} to {max(each):,.1f}, {len(each)} repeats)"
            )
    met = True
    for backend, bars in task.bars.items():
        for other, bar in bars.items():
            if not {backend, other} <= medians.keys():
                print(f"    {other} beside {backend}: not measured")
                met = False
                continue
            ratio = medians[other] / medians[backend]
            met &= ratio >= bar
            said = "met" if ratio >= bar else "MISSED"
            print(f"    {other} takes {ratio:.2f} times as long as {backend}   (bar {bar:g}: {said})")
    if {"flushed", "compiled"} <= medians.keys():
        ratio = medians["flushed"] / medians["compiled"]
        print(f"    with denormals flushed the peer takes {ratio:.2f} times as long as compiled")
    if "products" in medians:
        over = ", ".join(f"{who} {medians[who] / medians['products']:.1f}" for who in medians if who != "products")
        print(f"    times the floor: {over}")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(TASKS), default=list(TASKS))
    parser.add_argument("--who", nargs="+", choices=sorted(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--show", action="store_true", help="only print what is known")
    parser.add_argument("--quick", action="store_true", help="once, a tenth of the steps; keeps no row")
    parser.add_argument("--pinned", action="store_true", help="leave OPENBLAS_CORETYPE as it is; rows are kept apart")
    options = parser.parse_args()
    pinned = os.environ.get("OPENBLAS_CORETYPE", "") if options.pinned else ""
    os.environ["OPENBLAS_CORETYPE"] = pinned
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    wanted = [who for who in options.who if who != "jax" or find_spec("jax") is not None]
    if "jax" in options.who and "jax" not in wanted:
        print("jax is not installed (pip install jax): its bars are not measured.")
    runs = [
        {"task": name, "who": who, "repeat": repeat, "code": code_of("") if who in OURS else "", "blas": pinned}
        for name in options.only
        for repeat in range(options.repeats)
        for who in wanted
        if takes_part(who, TASKS[name])
    ]
    if options.quick:
        quick = [
            measure(run, max(TASKS[run["task"]].steps // 10, TASKS[run["task"]].warm_up))
            for run in runs
            if run["repeat"] == 0
        ]
        for name in options.only:
            summarise(quick, name)
        return 0
    rows = Rows("speed.jsonl", "task", "who", "repeat", "code", "blas")
    if not options.show:
        rows.measure(runs, measure, jobs=1)
    wanted_code = {who: code_of("") if who in OURS else "" for who in CONTENDERS}
    counted = [row for row in rows.rows if (row["code"], row["blas"]) == (wanted_code[row["who"]], pinned)]
    met = [summarise(counted, name) for name in options.only]
    print("\nbars met" if all(met) else "\nBAR MISSED")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
