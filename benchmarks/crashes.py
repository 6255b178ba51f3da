"""Killed at any moment and resumed each time, a run ends in the same bytes as one never interrupted.

    python benchmarks/crashes.py [--algorithm ppo dqn sac reinforce] [--kills 20] [--quick]

For each algorithm the same small run is trained twice: once undisturbed, once killed with SIGKILL again and again, half of the time at a
random moment and half at an injected point inside the publication of a checkpoint (runs/atomic.py lists them). Then every file that
matters is compared by sha256. The environments ship, and so can be saved: task allocation for PPO, CartPole for DQN (prioritised memory,
three steps) and REINFORCE, Pendulum for SAC. With PPO goes a run on a third-party environment, whose state cannot be saved: there the
episodes restart, the evidence must say so, and the run must still end with a verdict.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

POINTS = ("mid-write", "before-fsync", "before-manifest", "before-rename", "after-rename", "during-retention")
SMALL_RUN = (
    "--policy.hidden", "32", "--checkpoint.every-steps", "256", "--evaluation.every-steps", "2048", "--evaluation.episodes", "4",
    "--stopping.plateau-patience", "0", "--stopping.decline-patience", "0", "--proof.episodes", "10",
    "--evidence.max-inspections", "200", "--env.normalize-observations", "--env.normalize-rewards",
)  # fmt: skip
SMALL_PPO = ("--ppo.n-steps", "64", "--ppo.minibatch-size", "64", "--ppo.epochs", "4")
SMALL_MEMORY = ("--evidence.max-megabytes", "2", "--schedule.kind", "constant")
SHIPPED = ("learnproof/TaskAllocation-v0", "--env.kwargs", "n_agents", "3", *SMALL_PPO)
THIRD_PARTY = ("CartPole-v1", *SMALL_PPO)


@dataclass(frozen=True)
class Case:
    """What an algorithm trains on, and how long, so that no kill comes after its end."""

    words: tuple[str, ...]
    steps_per_kill: int


CASES = {
    "ppo": Case(SHIPPED, 6_144),
    "dqn": Case(
        (
            "learnproof/CartPole-v1", "--algorithm", "dqn", "--dqn.prioritised", "--dqn.n-step", "3", "--dqn.duelling",
            "--dqn.replay-size", "4000", "--dqn.learning-starts", "500", *SMALL_MEMORY,
        ),
        4_096,
    ),
    "sac": Case(
        (
            "learnproof/Pendulum-v1", "--algorithm", "sac", "--sac.replay-size", "4000", "--sac.learning-starts", "500",
            "--sac.minibatch-size", "64", "--sac.train-every", "4", *SMALL_MEMORY,
        ),
        4_096,
    ),
    "reinforce": Case(
        (
            "learnproof/CartPole-v1", "--algorithm", "reinforce", "--reinforce.n-steps", "64", "--reinforce.baseline-hidden", "32",
            "--reinforce.kl-coefficient", "0.01",
        ),
        6_144,
    ),
}  # fmt: skip


@dataclass
class Survival:
    """What one run went through."""

    kills: list[str] = field(default_factory=list)
    """Where each kill landed: a point's name, or "random"."""
    exit_code: int = 0


def learnproof(*words: str, crash_at: str | None = None) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    if crash_at is not None:
        environment["LEARNPROOF_CRASH_AT"] = crash_at
    return subprocess.Popen(
        [sys.executable, "-m", "learnproof", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def train_with_kills(run: Path, environment: tuple[str, ...], steps: int, kills: Sequence[str]) -> Survival:
    """Train to the end through `kills`: the first process trains, every later one resumes.

    A kill is "point:count" (runs/atomic.py), or "random:seconds", counted from the moment when training has begun.
    """
    survival = Survival()
    for kill in [*kills, None]:
        begun = (run / "config.toml").exists()
        first = ["train", *environment, "--steps", str(steps), "--out", str(run), *SMALL_RUN]
        words = ["resume", str(run)] if begun else first
        kind, _, amount = (kill or "").partition(":")
        if kind == "random":
            process = learnproof(*words)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(float(amount))
            process.send_signal(signal.SIGKILL)
        else:
            process = learnproof(*words, crash_at=kill)
        output, _ = process.communicate(timeout=1200)
        if process.returncode == -signal.SIGKILL:
            survival.kills.append(kind)
        elif process.returncode in (0, 3):
            survival.exit_code = process.returncode
            if kill is not None:
                raise SystemExit(f"the run ended before the kill {kill}: give it more steps")
        else:
            raise SystemExit(f"a process ended with {process.returncode}:\n{output.decode()}")
    return survival


def plan_kills(count: int, seed: int) -> list[str]:
    """Half at random moments, half at injected points, in turn."""
    rng = np.random.default_rng(seed)
    plan = []
    for number in range(count):
        point = POINTS[number // 2 % len(POINTS)]
        plan.append(f"{point}:{rng.integers(1, 12)}" if number % 2 else f"random:{rng.uniform(0.1, 0.7):.3f}")
    return plan


def digests(run: Path) -> dict[str, str]:
    """Everything that must be equal: evidence and its batches, every checkpoint, the verdict. Not the clock's files."""
    skipped = {"timing.jsonl", "about.json", "report.html", ".lock"}
    files = [p for p in sorted(run.rglob("*")) if p.is_file() and p.name not in skipped]
    return {str(p.relative_to(run)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def hunt(place: Path, name: str, kills: int) -> bool:
    """An undisturbed run and a hunted one of this algorithm; True where they ended in the same bytes."""
    case, began = CASES[name], time.monotonic()
    steps = case.steps_per_kill * max(kills, 6)
    calm = train_with_kills(place / "calm", case.words, steps, [])
    hunted = train_with_kills(place / "hunted", case.words, steps, plan_kills(kills, 1))
    expected, found = digests(place / "calm"), digests(place / "hunted")
    different = sorted(k for k in expected.keys() | found.keys() if expected.get(k) != found.get(k))
    landed = {point: hunted.kills.count(point) for point in ("random", *POINTS)}
    print(f"{name} on {case.words[0]}, {steps} steps: {len(hunted.kills)} kills {landed}")
    print(f"  {len(expected)} files compared, {len(different)} differ {different[:5]}")
    print(
        f"  exit codes {calm.exit_code} and {hunted.exit_code}; {time.monotonic() - began:.0f} s in all",
        flush=True,
    )
    return not different and calm.exit_code == hunted.exit_code


def hunt_third_party(run: Path) -> bool:
    third = train_with_kills(run, THIRD_PARTY, 10_240, ["during-retention:2", "before-rename:3", "random:4.0"])
    events = [json.loads(line)["event"] for line in (run / "evidence.jsonl").read_text().splitlines()]
    restarts = events.count("environment_restarted")
    print(f"third-party environment: {len(third.kills)} kills, {restarts} restarts noted in the evidence")
    return restarts > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", nargs="+", choices=sorted(CASES), default=sorted(CASES))
    parser.add_argument("--kills", type=int, default=20, help="SIGKILLs of each algorithm's run")
    parser.add_argument("--quick", action="store_true", help="6 kills")
    options = parser.parse_args()
    met = True
    for name in options.algorithm:
        with tempfile.TemporaryDirectory() as folder:
            met &= hunt(Path(folder), name, 6 if options.quick else options.kills)
            if name == "ppo":
                met &= hunt_third_party(Path(folder) / "third")
    print("bar met: same bytes after every kill" if met else "BAR MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
