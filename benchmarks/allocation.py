"""Task allocation: PPO here against PPO of Stable-Baselines3, and against the policies that a person would write.

    python benchmarks/allocation.py [--quick] [--only peer|tuned|repaired|evidence]

    peer      TaskAllocation-v0, 3 agents, the default settings, five seeds: training return and CPU seconds beside SB3's,
              as installed and with denormals flushed. SB3 steps a plain per-instance Gymnasium version of the same rules.
    tuned     configs/allocation_v0.toml against the best constant policy, sampled and deterministic, paired by episode
    repaired  configs/allocation_v1.toml against the hand-written dispatcher in completion rate
    evidence  what evidence costs: on and off in interleaved blocks of one process

Each run is a process of its own with one thread; one row is kept per run in benchmarks/results/allocation.jsonl, so
that an interrupted benchmark goes on where it was. CPU seconds are those of the training loop, start-up left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ROWS = HERE / "results" / "allocation.jsonl"
ROLLOUT = 4 * 2048
STEPS = 13 * ROLLOUT
"""100,000 rounded up to whole rollouts, as SB3 does."""
SEEDS = 5
DISPATCHER = "best expert"
"""The hand-written rule of v1 that must be beaten: an agent takes a task if nobody is better at its type. A second rule
also computes from the environment's own formulas which tasks can still be done in time; it is shown beside it."""


# ---------------------------------------------------------------------- one measurement each, in a process of its own


def measure_sb3(seed: int, flush: bool, steps: int) -> dict[str, Any]:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    from plain_allocation import PlainTaskAllocation

    torch.set_num_threads(1)
    torch.set_flush_denormal(flush)
    env = make_vec_env(lambda: PlainTaskAllocation(n_agents=3), n_envs=4, seed=seed)
    layers = [256, 256, 128]
    model = PPO(
        "MlpPolicy", env, seed=seed, device="cpu", n_steps=2048, batch_size=64, n_epochs=10, gamma=0.99, gae_lambda=0.95,
        clip_range=0.2, ent_coef=0.01, vf_coef=0.5, max_grad_norm=0.5,
        learning_rate=lambda left: 3e-4 * (0.1 + 0.9 * left),
        policy_kwargs={"net_arch": {"pi": layers, "vf": layers}, "activation_fn": torch.nn.ReLU},
    )  # fmt: skip
    began = time.process_time()
    model.learn(steps)
    cpu = time.process_time() - began
    return {"return": float(np.mean([e["r"] for e in model.ep_info_buffer])), "cpu_seconds": cpu}


def measure_ours(seed: int, head: str, steps: int) -> dict[str, Any]:
    from learnproof.config import Settings
    from learnproof.envs.making import RegisteredEnvironment
    from learnproof.runs.folder import RunFolder
    from learnproof.show.progress import open_display
    from learnproof.training.interrupt import StopRequest
    from learnproof.training.loop import Trainer

    settings = Settings().replace(
        {"env.id": "learnproof/TaskAllocation-v0", "env.kwargs": {"n_agents": 3}, "steps": steps, "seed": seed,
         "policy.box_head": head, "evaluation.every_steps": 0}
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run", "", {})
        with open_display(steps, "", clock=time.monotonic) as display:
            trainer = Trainer(settings, RegisteredEnvironment(settings.env))
            trainer.begin(run, display)
            trainer.collector.env.reset(seed=seed)  # compile before the clock starts, as SB3 has nothing to compile
            trainer.collector.collect(1)
            trainer.collector.steps = 0
            trainer.collector.start()
            began = time.process_time()
            trainer.run(StopRequest())
            cpu = time.process_time() - began
    return {"return": float(np.mean(trainer.journal.returns)), "cpu_seconds": cpu}


def measure_config(seed: int, config: str, episodes: int, steps: int | None) -> dict[str, Any]:
    """Train a ready config, then play fresh episodes with it and with the rule it must beat, on the same seeds."""
    import learnproof
    from learnproof.config import load_settings
    from learnproof.envs.making import RegisteredEnvironment
    from learnproof.envs.task_allocation import dispatchers
    from learnproof.envs.task_allocation.rules import RulesV1
    from learnproof.policies.actor import RuleActor
    from learnproof.seeding import episode_seeds
    from learnproof.training.assembly import environment_facts
    from learnproof.training.evaluation import Evaluator

    settings = load_settings(HERE.parent / "configs" / f"{config}.toml").replace({"seed": seed})
    settings = settings if steps is None else settings.replace({"steps": steps})
    source = RegisteredEnvironment(settings.env)
    env = source.evaluation(1)
    evaluator = Evaluator(source, environment_facts(env).metric, 1000)
    seeds = episode_seeds(seed, "allocation benchmark", episodes)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        result = learnproof.train(settings=settings, out=Path(folder) / "run")
        cpu = time.process_time() - began
        policy = learnproof.load_policy(result.path)
    rules = env.unwrapped.rules  # type: ignore[attr-defined]
    if isinstance(rules, RulesV1):
        rivals = {
            "best expert": lambda o: dispatchers.best_expert(o, rules),
            "best expert in time": lambda o: dispatchers.best_expert_in_time(o, rules),
        }
    else:
        rivals = {
            name: lambda o, c=choice: dispatchers.constant(o, rules, *c)
            for name, choice in dispatchers.CONSTANTS.items()
        }
    scores = {name: evaluator.scores(RuleActor(rule), seeds, "deterministic") for name, rule in rivals.items()}
    rule = DISPATCHER if DISPATCHER in scores else max(scores, key=lambda name: scores[name].mean())
    row: dict[str, Any] = {"rule": rule, "rule_mean": float(scores[rule].mean()), "cpu_seconds": cpu}
    others = [name for name in scores if name != rule and DISPATCHER in scores]
    row["others"] = {name: {"mean": float(scores[name].mean())} for name in others}
    for mode in ("deterministic", "sampled"):
        own = evaluator.scores(policy, seeds, mode)  # type: ignore[arg-type]
        row[mode] = {"mean": float(own.mean()), **paired(own, scores[rule])}
        for name in others:
            row["others"][name][mode] = paired(own, scores[name])
    assert result.verdict is not None
    row["verdict"] = result.verdict.verdict
    return row


def paired(own: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> dict[str, float]:
    difference = own - other
    half = 1.96 * difference.std(ddof=1) / np.sqrt(len(difference))
    return {"difference": float(difference.mean()), "half_width": float(half)}


def measure_evidence(seed: int, blocks: int) -> dict[str, Any]:
    """CPU seconds of iterations with and without evidence, alternating, in one process."""
    from learnproof.config import Settings
    from learnproof.envs.making import RegisteredEnvironment
    from learnproof.runs.folder import RunFolder
    from learnproof.show.progress import open_display
    from learnproof.training.inspection import InspectionPlan
    from learnproof.training.loop import Trainer

    steps = (2 * blocks + 1) * ROLLOUT
    settings = Settings().replace(
        {"env.id": "learnproof/TaskAllocation-v0", "env.kwargs": {"n_agents": 3}, "steps": steps, "seed": seed}
    )
    without = InspectionPlan(settings.replace({"evidence.enabled": False}))
    seconds: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run", "", {})
        with open_display(steps, "") as display:
            trainer = Trainer(settings, RegisteredEnvironment(settings.env))
            trainer.begin(run, display)
            plans = {True: trainer.plan, False: without}
            trainer.iterate()
            for block in range(blocks):
                for enabled in (True, False) if block % 2 else (False, True):  # a drift of the machine cancels out
                    trainer.plan, trainer.journal.enabled = plans[bool(enabled)], bool(enabled)
                    trainer.state.progress.iteration = 1  # an iteration that the plan inspects
                    began = time.process_time()
                    trainer.iterate()
                    seconds[bool(enabled)].append(time.process_time() - began)
    return {"on": seconds[True], "off": seconds[False]}


# ---------------------------------------------------------------------- running them


def row_for(rows: list[dict[str, Any]], what: str, **arguments: Any) -> dict[str, Any]:
    """The kept row of a measurement, or a new one from a process of its own."""
    key = {"what": what, **arguments}
    for row in rows:
        if all(row.get(name) == value for name, value in key.items()):
            return row
    code = f"import json, allocation; print('ROW', json.dumps(allocation.measure_{what}(**{arguments!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=HERE,
        capture_output=True,
        text=True,
        env={**_environment(), "OMP_NUM_THREADS": "1"},
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


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(HERE)}


def peer(rows: list[dict[str, Any]], seeds: int, steps: int) -> bool:
    installed, flushed, same, fitting = [], [], [], []
    for seed in range(seeds):  # interleaved, so that a machine that slows down slows everybody
        installed.append(row_for(rows, "sb3", seed=seed, flush=False, steps=steps))
        same.append(row_for(rows, "ours", seed=seed, head="gaussian", steps=steps))
        fitting.append(row_for(rows, "ours", seed=seed, head="auto", steps=steps))
        flushed.append(row_for(rows, "sb3", seed=seed, flush=True, steps=steps))
    print(f"\nTaskAllocation-v0, 3 agents, default settings, {steps} steps, {seeds} seeds, one thread")
    print(f"{'':34} {'training return':>16} {'CPU seconds':>12}   ratio to SB3")
    peer_cpu = np.median([row["cpu_seconds"] for row in installed])
    for name, own in (
        ("SB3 as installed", installed),
        ("SB3, denormals flushed", flushed),
        ("learnproof, SB3's gaussian head", same),
        ("learnproof, the head that fits", fitting),
    ):
        cpu = np.median([row["cpu_seconds"] for row in own])
        returns = [row["return"] for row in own]
        print(f"{name:34} {np.mean(returns):10.1f} ±{np.std(returns):4.1f} {cpu:12.1f}   {cpu / peer_cpu:.2f}")
    baseline = np.mean([row["return"] for row in installed])
    met = True
    for own in (same, fitting):
        met &= float(np.mean([row["return"] for row in own])) >= 0.95 * baseline
        met &= float(np.median([row["cpu_seconds"] for row in own])) <= 0.6 * peer_cpu
    print("bar: return within 5 % of SB3's or above, at 0.6 of its CPU seconds or less:", "met" if met else "MISSED")
    return met


def against_rules(rows: list[dict[str, Any]], config: str, seeds: int, episodes: int, steps: int | None) -> bool:
    own = [row_for(rows, "config", seed=s, config=config, episodes=episodes, steps=steps) for s in range(seeds)]
    print(f"\nconfigs/{config}.toml, {episodes} fresh episodes each, against the best hand-written rule")
    met = True
    for row in own:
        parts = []
        for mode in ("deterministic", "sampled"):
            m = row[mode]
            met &= m["difference"] - m["half_width"] > 0
            parts.append(f"{mode} {m['mean']:.4g} ({m['difference']:+.3g} ± {m['half_width']:.2g})")
        print(f"seed {row['seed']}: rule {row['rule']} {row['rule_mean']:.4g}; {'; '.join(parts)}; {row['verdict']}")
        for name, other in row.get("others", {}).items():
            d, s = other["deterministic"], other["sampled"]
            print(
                f"        beside it {name} {other['mean']:.4g}: deterministic {d['difference']:+.3g} ± {d['half_width']:.2g}, "
                f"sampled {s['difference']:+.3g} ± {s['half_width']:.2g}"
            )
    print("bar: above the rule by a paired 95 % interval on every seed, in both modes:", "met" if met else "MISSED")
    return met


def evidence_cost(rows: list[dict[str, Any]], blocks: int) -> bool:
    row = row_for(rows, "evidence", seed=0, blocks=blocks)
    on, off = np.array(row["on"]), np.array(row["off"])
    ratio = on / off - 1
    mean, half = ratio.mean(), 1.645 * ratio.std(ddof=1) / np.sqrt(len(ratio))
    print(
        f"\nevidence: {mean:+.2%} of CPU time in an inspected iteration, upper 95 % bound {mean + half:+.2%} ({len(on)} pairs)"
    )
    met = bool(mean + half <= 0.03)
    print("bar: at most 3 %:", "met" if met else "MISSED")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("peer", "tuned", "repaired", "evidence"))
    parser.add_argument("--quick", action="store_true", help="one seed, few steps: shows that it runs, proves nothing")
    options = parser.parse_args()
    ROWS.parent.mkdir(exist_ok=True)
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    seeds, steps, episodes, budget, blocks = (
        (1, ROLLOUT, 100, 20_000, 2) if options.quick else (SEEDS, STEPS, 1000, None, 120)
    )
    met = True
    if options.only in (None, "evidence"):
        met &= evidence_cost(rows, blocks)
    if options.only in (None, "tuned"):
        met &= against_rules(rows, "allocation_v0", seeds, episodes, budget)
    if options.only in (None, "repaired"):
        met &= against_rules(rows, "allocation_v1", seeds, episodes, budget)
    if options.only in (None, "peer"):
        met &= peer(rows, seeds, steps)
    return 0 if met or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
