"""Agents that decide one by one against one policy that decides for all: TaskAllocation-v1 with 3, 10 and 50 agents.

    python benchmarks/agents.py [--quick] [--jobs 1] [--steps 40000] [--seeds 3]

    agents    configs/allocation_agents.toml, with only the number of agents changed: one shared network, a central critic
    shared    the same, every agent paid the team's reward (10 agents alone)
    joint     one policy for the whole team with the same settings otherwise (10 and 50 agents)
    joint, large   and with larger networks, smaller minibatches and a smaller learning rate, so that it is not the settings that decide
                   (10 agents alone)

Arrivals and places grow with the team by themselves. All spend the same number of team steps and play the same fresh episodes. A run
is a process of its own with one thread; one row is kept for each in benchmarks/results/agents.jsonl, so that an
interrupted benchmark goes on where it was.

The bar: with 50 agents they complete at least 95 % of what they complete with 10, and with 10 and with 50 more than the joint policy.
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
from scipy import stats

HERE = Path(__file__).parent
ROWS = HERE / "results" / "agents.jsonl"
CONFIG = HERE.parent / "configs" / "allocation_agents.toml"
EPISODES = 300
TEAMS = (3, 10, 50)
LARGE = {"policy.hidden": (256, 256), "ppo.minibatch_size": 128, "ppo.learning_rate": 3e-4}
FORMS: dict[str, dict[str, Any]] = {
    "agents": {},
    "shared": {"env.rewards": "shared"},
    "joint": {"env.per_agent": False},
    "joint, large": {"env.per_agent": False, **LARGE},
}
MODES = ("deterministic", "sampled")


# ---------------------------------------------------------------------- one measurement each, in a process of its own


def measure_run(form: str, n_agents: int, seed: int, steps: int, episodes: int) -> dict[str, Any]:
    import learnproof
    from learnproof.config import load_settings
    from learnproof.training.evaluation import Evaluator
    from learnproof.training.loading import open_policy

    changes = {"env.kwargs": {"n_agents": n_agents}, "seed": seed, "steps": steps, **FORMS[form]}
    settings = load_settings(CONFIG).replace(changes)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        result = learnproof.train(settings=settings, out=Path(folder) / "run")
        cpu = time.process_time() - began
        kept = open_policy(result.path)
        evaluator = Evaluator(kept.source, kept.metric, 1000)
        scores = {mode: evaluator.scores(kept.actor, fresh_seeds(episodes), mode) for mode in MODES}  # type: ignore[arg-type]
    assert result.verdict is not None
    row: dict[str, Any] = {mode: float(own.mean()) for mode, own in scores.items()}
    row["error"] = {mode: float(own.std(ddof=1) / np.sqrt(episodes)) for mode, own in scores.items()}
    return {**row, "verdict": result.verdict.verdict, "best_at": kept.step, "cpu_seconds": round(cpu, 1)}


def measure_rules(n_agents: int, episodes: int) -> dict[str, Any]:
    """What chance and the hand-written dispatchers complete in the same episodes."""
    from learnproof.config import EnvSettings
    from learnproof.envs.making import RegisteredEnvironment
    from learnproof.envs.task_allocation import dispatchers
    from learnproof.policies.actor import Actor, RandomActor, RuleActor
    from learnproof.training.evaluation import Evaluator

    source = RegisteredEnvironment(EnvSettings(id="learnproof/TaskAllocation-v1", kwargs={"n_agents": n_agents}))
    env = source.evaluation(1)
    rules = env.unwrapped.rules  # type: ignore[attr-defined]
    always = dispatchers.CONSTANTS["always accept, always collaborate"]
    actors: dict[str, Actor] = {
        "random": RandomActor(env.single_action_space),
        "always accept, always collaborate": RuleActor(lambda o: dispatchers.constant(o, rules, *always)),
        "best expert": RuleActor(lambda o: dispatchers.best_expert(o, rules)),
        "best expert in time": RuleActor(lambda o: dispatchers.best_expert_in_time(o, rules)),
    }
    evaluator = Evaluator(source, "completion_rate", 1000)
    seeds = fresh_seeds(episodes)
    return {
        "means": {name: float(evaluator.scores(one, seeds, "deterministic").mean()) for name, one in actors.items()}
    }


def fresh_seeds(episodes: int) -> list[int]:
    from learnproof.seeding import episode_seeds

    return list(episode_seeds(0, "agents benchmark", episodes))


# ---------------------------------------------------------------------- running them


def row_for(rows: list[dict[str, Any]], what: str, **arguments: Any) -> dict[str, Any]:
    """The kept row of a measurement, or a new one from a process of its own."""
    key = {"what": what, **arguments}
    for row in rows:
        if all(row.get(name) == value for name, value in key.items()):
            return row
    code = f"import json, agents; print('ROW', json.dumps(agents.measure_{what}(**{arguments!r})))"
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if not lines:
        raise SystemExit(f"{what} {arguments} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    row = {**key, **json.loads(lines[-1][4:])}
    rows.append(row)
    with open(ROWS, "a") as file:
        file.write(json.dumps(row) + "\n")
    print(f"  {what} {arguments}: {json.dumps({k: v for k, v in row.items() if k not in key})[:160]}", flush=True)
    return row


def interval(values: list[float]) -> tuple[float, float]:
    """Mean over training seeds and half the width of its 95 % interval (Student's t); no width for a single one."""
    if len(values) < 2:
        return float(np.mean(values)), float("nan")
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(half)


def planned(teams: tuple[int, ...]) -> list[tuple[str, int]]:
    """What the bar asks for first."""
    forms = [(form, n_agents) for n_agents in teams if n_agents >= 10 for form in ("agents", "joint")]
    forms += [("agents", n_agents) for n_agents in teams if n_agents < 10]
    return [*forms, ("joint, large", 10), ("shared", 10)]


def report(measured: dict[tuple[str, int], list[dict[str, Any]]], rules: dict[int, dict[str, Any]]) -> bool:
    for n_agents, own in rules.items():
        print(f"\n{n_agents} agents, completion rate, mean over training seeds ± 95 % interval")
        for name, mean in own["means"].items():
            print(f"  {name:36} {mean:.3f}")
        for (form, size), runs in measured.items():
            if size != n_agents:
                continue
            parts = []
            for mode in MODES:
                mean, half = interval([row[mode] for row in runs])
                parts.append(f"{mode} {mean:.3f} ± {half:.3f}")
            verdicts = " ".join(row["verdict"] for row in runs)
            cpu = np.mean([row["cpu_seconds"] for row in runs])
            print(f"  {form:36} {'  '.join(parts)}  {verdicts}  {cpu:.0f} CPU s")
    print()
    met = True
    for mode in MODES:
        small, large = (np.array([row[mode] for row in measured["agents", n]]) for n in (10, 50))
        ratio, half = interval([float(value) for value in large / small.mean()])
        met &= ratio >= 0.95
        print(f"{mode}: 50 agents complete {ratio:.3f} ± {half:.3f} of what 10 complete (bar: 0.95)")
        for n_agents in (10, 50):
            for form in ("joint", "joint, large"):
                if (form, n_agents) not in measured:
                    continue
                pairs = zip(measured["agents", n_agents], measured[form, n_agents], strict=True)
                lead, half = interval([ours[mode] - theirs[mode] for ours, theirs in pairs])
                met &= lead > 0 if np.isnan(half) else lead - half > 0
                print(f"{mode}: {n_agents} agents lead {form!r} by {lead:+.3f} ± {half:.3f} (bar: above 0)")
    print("bar:", "met" if met else "MISSED")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, few steps: shows that it runs, proves nothing")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    ROWS.parent.mkdir(exist_ok=True)
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    seeds, steps, episodes = (1, 2_000, 20) if options.quick else (options.seeds, options.steps, EPISODES)
    rules = {n: row_for(rows, "rules", n_agents=n, episodes=episodes) for n in TEAMS}
    measured: dict[tuple[str, int], list[dict[str, Any]]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = {
            (form, n): [
                pool.submit(row_for, rows, "run", form=form, n_agents=n, seed=s, steps=steps, episodes=episodes)
                for s in range(seeds)
            ]
            for form, n in planned(TEAMS)
        }
        for key, futures in waiting.items():
            measured[key] = [future.result() for future in futures]
    return 0 if report(measured, rules) or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
