"""Broken on purpose, a run must never end `proven`; healthy and trained long enough, it must.

    python benchmarks/sabotage.py [--runs 20] [--quick] [--jobs 2]

Three ways to learn nothing, each with many seeds on CartPole-v1 and on TaskAllocation-v0: the optimizer's step is removed,
the learning rate is 0, and the advantages are shuffled among samples (the policy then drifts, and by luck alone is better than
its start in one run of five). Beside them ten healthy runs. One row is kept per run in benchmarks/results/sabotage.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import learnproof
from learnproof.algorithms.learner import Array, Rollout
from learnproof.algorithms.ppo import PPO
from learnproof.config import Settings, load_settings

HERE = Path(__file__).parent
ROWS = HERE / "results" / "sabotage.jsonl"


class NoStep(PPO):
    """Everything but the one line that changes the weights."""

    def optimizer_step(self) -> float:
        return float(self.flat.gradient.norm())


class ShuffledAdvantages(PPO):
    """Every sample gets the advantage of another one: the link between action and outcome is cut."""

    def advantages(self, rollout: Rollout, value: Array, last_value: Array, final_value: Array) -> Array:
        honest = super().advantages(rollout, value, last_value, final_value)
        flat = honest.ravel().copy()
        rows = np.flatnonzero(rollout.valid.ravel())
        flat[rows] = flat[np.random.default_rng(self.optimizer_steps).permutation(rows)]
        return flat.reshape(honest.shape)


FAULTS: dict[str, tuple[type[PPO] | None, dict[str, float]]] = {
    "healthy": (None, {}),
    "no step": (NoStep, {}),
    "learning rate 0": (None, {"ppo.learning_rate": 0.0}),
    "shuffled advantages": (ShuffledAdvantages, {}),
}


def settings_for(environment: str, seed: int) -> Settings:
    if environment == "cartpole":
        return load_settings(HERE.parent / "configs" / "cartpole.toml").replace({"seed": seed})
    changes = {"env.id": "learnproof/TaskAllocation-v0", "env.kwargs": {"n_agents": 3}, "env.n_envs": 16,
               "ppo.n_steps": 64, "ppo.minibatch_size": 256, "ppo.learning_rate": 1e-3, "policy.hidden": (64, 64)}  # fmt: skip
    return Settings().replace({**changes, "seed": seed})


def measure(environment: str, fault: str, seed: int, steps: int) -> dict[str, object]:
    learner, changes = FAULTS[fault]
    settings = settings_for(environment, seed).replace({**changes, "steps": steps})
    with tempfile.TemporaryDirectory() as folder:
        result = learnproof.train(settings=settings, out=Path(folder) / "run", learner_type=learner)
        assert result.verdict is not None
        verdict = result.verdict
        failed = [finding.check for finding in verdict.findings if finding.status == "fail"]
        performance = next(f for f in verdict.findings if f.check == "performance")
        return {
            "environment": environment,
            "fault": fault,
            "seed": seed,
            "verdict": verdict.verdict,
            "better_policy": performance.status == "pass",
            "failed": failed,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="runs of each fault on each environment")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--quick", action="store_true", help="two runs of each, a few thousand steps")
    options = parser.parse_args()
    runs, steps = (2, 8_192) if options.quick else (options.runs, 40_960)
    ROWS.parent.mkdir(exist_ok=True)
    keep = not options.quick
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if keep and ROWS.exists() else []
    have = {(r["environment"], r["fault"], r["seed"]) for r in rows}
    jobs = [
        (environment, fault, seed, 100_000 if fault == "healthy" and keep else steps)
        for environment in ("cartpole", "allocation")
        for fault in FAULTS
        for seed in range(min(runs, 10) if fault == "healthy" else runs)
        if (environment, fault, seed) not in have
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        for row in pool.map(measure, *zip(*jobs, strict=True)) if jobs else ():
            rows.append(row)
            if keep:
                with open(ROWS, "a") as file:
                    file.write(json.dumps(row) + "\n")
    met = True
    print(f"\n{'environment':12} {'fault':20} {'runs':>4}  proven broken unproven  better by luck  failed checks")
    for environment in ("cartpole", "allocation"):
        for fault in FAULTS:
            own = [r for r in rows if (r["environment"], r["fault"]) == (environment, fault)]
            verdicts = Counter(r["verdict"] for r in own)
            named = Counter(check for r in own for check in r["failed"])
            better = sum(r["better_policy"] for r in own)
            print(f"{environment:12} {fault:20} {len(own):4}  {verdicts['proven']:6} {verdicts['broken']:6} "
                  f"{verdicts['unproven']:8}  {better:14}  {dict(named)}")  # fmt: skip
            if fault != "healthy":
                met &= verdicts["proven"] == 0
            elif keep:
                met &= verdicts["broken"] == 0 and (environment != "cartpole" or verdicts["proven"] >= 0.9 * len(own))
    print("bars met: no sabotaged run is proven" if met else "BAR MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
