"""CPU seconds of a training step, ours on both backends beside Stable-Baselines3's, and beside the matrix products alone.

    python benchmarks/speed.py [--only sac dqn ppo_cartpole ...] [--repeats 5] [--show] [--quick]

All do the same work: the same rules, networks, batches, gradient steps per step, one thread. Ours writes its evidence, as it
always does. "products" are the matrix products of these networks and nothing else, by torch in float32: the floor under
anything that computes them. Each measurement is a process of its own, contenders take turns, and a row is kept for each in
benchmarks/results/speed.jsonl, so that an interrupted benchmark goes on where it was. Start-up and compiling are left out. Run it alone on
the machine.

    sac, dqn        Pendulum-v1 and CartPole-v1 through Gymnasium, 256-256 networks
    ppo_cartpole    the zoo's settings; ours in the native environment, whose steps are in the compiled loop
    ppo_gymnasium   the same through Gymnasium
    ppo_plain       the settings of CleanRL's ppo.py, beside such a loop (plain_ppo.py); ours in the native environment
    ppo_allocation  TaskAllocation-v0, 3 agents, the default settings; SB3 steps a plain per-instance version of the same rules

    bars            the peer's CPU seconds over ours (medians of the repeats): Task.bars
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from watched_rows import Row, Rows

Product = tuple[int, int, int]
"""[m, k] times [k, n]."""


@dataclass(frozen=True)
class Task:
    environment: str
    steps: int
    gradient_steps: int
    """In so many steps."""
    settings: dict[str, Any]
    peer: Callable[[int], Any] | None
    """A model of Stable-Baselines3; None = the plain loop."""
    bars: dict[str, float]
    """backend -> how many times as long the peer takes."""
    warm_up: int
    """Steps after which everything has been compiled."""
    products: Callable[[], tuple[list[Product], list[Product]]] | None = None
    """Those of one step of acting, and of one gradient step."""


def layers(rows: int, *sizes: int) -> list[Product]:
    """A forward pass through linear layers of these sizes."""
    return [(rows, a, b) for a, b in pairwise(sizes)]


def backward(rows: int, *sizes: int) -> list[Product]:
    """Gradients of all weights, and of all inputs but the first layer's."""
    weights = [(a, rows, b) for a, b in pairwise(sizes)]
    inputs = [(rows, b, a) for a, b in pairwise(sizes[1:])]
    return weights + inputs


def through(rows: int, *sizes: int) -> list[Product]:
    """Gradients of the inputs alone."""
    return [(rows, b, a) for a, b in pairwise(sizes)]


def sac_products() -> tuple[list[Product], list[Product]]:
    rows, actor, critic = 256, (3, 256, 256, 2), (4, 256, 256, 1)
    fitted = 2 * (layers(rows, *critic) + layers(rows, *critic) + backward(rows, *critic))  # targets, values, gradients
    climbed = 2 * (layers(rows, *critic) + through(rows, *critic)) + backward(rows, *actor)
    return layers(1, *actor), 2 * layers(rows, *actor) + fitted + climbed


def dqn_products() -> tuple[list[Product], list[Product]]:
    rows, network = 64, (4, 256, 256, 2)
    return layers(1, *network), 2 * layers(rows, *network) + backward(rows, *network)


def sac_peer(seed: int) -> Any:
    from stable_baselines3 import SAC

    return SAC("MlpPolicy", "Pendulum-v1", learning_rate=1e-3, learning_starts=100, buffer_size=20_000, seed=seed, device="cpu")  # fmt: skip


def dqn_peer(seed: int) -> Any:
    from stable_baselines3 import DQN

    return DQN(
        "MlpPolicy", "CartPole-v1", learning_rate=2.3e-3, batch_size=64, buffer_size=100_000, learning_starts=1_000,
        target_update_interval=10, train_freq=256, gradient_steps=128, exploration_fraction=0.16, exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]}, seed=seed, device="cpu",
    )  # fmt: skip


def zoo_ppo_peer(seed: int) -> Any:
    from sb3_peers import PEERS

    return PEERS["cartpole"](seed)[0]


def allocation_peer(seed: int) -> Any:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    from plain_allocation import PlainTaskAllocation

    env = make_vec_env(lambda: PlainTaskAllocation(n_agents=3), n_envs=4, seed=seed)
    return PPO(
        "MlpPolicy", env, seed=seed, device="cpu", n_steps=2048, batch_size=64, n_epochs=10, gamma=0.99, gae_lambda=0.95,
        ent_coef=0.01, learning_rate=lambda left: 3e-4 * (0.1 + 0.9 * left),
        policy_kwargs={"net_arch": {"pi": [256, 256, 128], "vf": [256, 256, 128]}, "activation_fn": torch.nn.ReLU},
    )  # fmt: skip


OFF_POLICY = {"env.n_envs": 1, "policy.hidden": (256, 256), "schedule.kind": "constant"}
ZOO_PPO = {
    "env.n_envs": 8, "policy.hidden": (64, 64), "policy.activation": "tanh", "schedule.final_fraction": 0.0, "ppo.n_steps": 32,
    "ppo.minibatch_size": 256, "ppo.epochs": 20, "ppo.learning_rate": 1e-3, "ppo.gamma": 0.98, "ppo.gae_lambda": 0.8,
    "ppo.entropy_coefficient": 0.0,
}  # fmt: skip
TASKS = {
    "sac": Task(
        environment="Pendulum-v1",
        steps=4_000,
        gradient_steps=3_900,
        settings={
            **OFF_POLICY, "algorithm": "sac", "sac.learning_rate": 1e-3, "sac.learning_starts": 100, "sac.replay_size": 20_000,
        },
        peer=sac_peer,
        bars={"torch": 1.2, "compiled": 2.0},
        warm_up=600,
        products=sac_products,
    ),
    "dqn": Task(
        environment="CartPole-v1",
        steps=20_480,
        gradient_steps=(20_480 - 1_024) // 2,
        settings={
            **OFF_POLICY, "algorithm": "dqn", "dqn.learning_rate": 2.3e-3, "dqn.minibatch_size": 64, "dqn.replay_size": 100_000,
            "dqn.learning_starts": 1_000, "dqn.train_every": 256, "dqn.gradient_steps": 128, "dqn.target_every": 128,
            "dqn.double": False, "dqn.epsilon_fraction": 0.16, "dqn.epsilon_end": 0.04,
        },
        peer=dqn_peer,
        bars={"torch": 1.2, "compiled": 3.0},
        warm_up=1_536,
        products=dqn_products,
    ),
    "ppo_cartpole": Task(
        environment="learnproof/CartPole-v1",
        steps=49_920,
        gradient_steps=49_920 // 256 * 20,
        settings=ZOO_PPO,
        peer=zoo_ppo_peer,
        bars={"compiled": 7.0},
        warm_up=512,
    ),
    "ppo_gymnasium": Task(
        environment="CartPole-v1",
        steps=49_920,
        gradient_steps=49_920 // 256 * 20,
        settings=ZOO_PPO,
        peer=zoo_ppo_peer,
        bars={"compiled": 3.0},
        warm_up=512,
    ),
    "ppo_plain": Task(
        environment="learnproof/CartPole-v1",
        steps=51_200,
        gradient_steps=100 * 16,
        settings={
            **ZOO_PPO, "env.n_envs": 4, "ppo.n_steps": 128, "ppo.minibatch_size": 128, "ppo.epochs": 4, "ppo.learning_rate": 2.5e-4,
            "ppo.gamma": 0.99, "ppo.gae_lambda": 0.95, "ppo.entropy_coefficient": 0.01, "ppo.clip_range_value": 0.2,
        },
        peer=None,
        bars={"compiled": 22.0},
        warm_up=1_024,
    ),
    "ppo_allocation": Task(
        environment="learnproof/TaskAllocation-v0",
        steps=3 * 8_192,
        gradient_steps=3 * 10 * 128,
        settings={"env.kwargs": {"n_agents": 3}},
        peer=allocation_peer,
        bars={"compiled": 4.0},
        warm_up=8_192,
    ),
}  # fmt: skip


def measure_backend(backend: str, task: Task, seed: int, steps: int) -> float:
    _train(backend, task, seed, task.warm_up)
    return _train(backend, task, seed, steps)


def _train(backend: str, task: Task, seed: int, steps: int) -> float:
    from learnproof.config import Settings
    from learnproof.envs.making import RegisteredEnvironment
    from learnproof.runs.folder import RunFolder
    from learnproof.show.progress import open_display
    from learnproof.training.interrupt import StopRequest
    from learnproof.training.loop import Trainer

    shared = {"env.id": task.environment, "backend": backend, "seed": seed, "evaluation.every_steps": 0, "threads": 1}
    settings = Settings().replace({**task.settings, **shared, "steps": steps})
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run", "", {})
        with open_display(steps, "", clock=time.monotonic) as display:
            trainer = Trainer(settings, RegisteredEnvironment(settings.env))
            trainer.begin(run, display)
            began = time.process_time()
            trainer.run(StopRequest())
            return time.process_time() - began


def measure_peer(task: Task, seed: int, steps: int) -> float:
    import torch

    if task.peer is None:
        from plain_ppo import train

        return train(steps, seed)[0]
    torch.set_num_threads(1)
    model = task.peer(seed)
    began = time.process_time()
    model.learn(steps)
    return time.process_time() - began


def measure_products(task: Task, seed: int, steps: int) -> float:
    import torch

    assert task.products is not None
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    acting, learning = task.products()
    share = steps / task.steps
    return sum(
        _seconds_of(products, int(count * share), generator)
        for products, count in ((acting, task.steps), (learning, task.gradient_steps))
    )


def _seconds_of(products: list[Product], times: int, generator: Any) -> float:
    import torch

    ready = []
    for m, k, n in products:
        a, b = (torch.randn(shape, generator=generator) for shape in ((m, k), (k, n)))
        ready.append((a, b, torch.empty(m, n)))
    began = time.process_time()
    for _ in range(times):
        for a, b, out in ready:
            torch.mm(a, b, out=out)
    return time.process_time() - began


CONTENDERS: dict[str, Callable[[Task, int, int], float]] = {
    "compiled": partial(measure_backend, "compiled"),
    "torch": partial(measure_backend, "torch"),
    "peer": measure_peer,
    "products": measure_products,
}


def measure(run: Row, steps: int | None = None) -> Row:
    """In a process of its own."""
    import multiprocessing

    began = time.monotonic()
    steps = steps or TASKS[run["task"]].steps
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        cpu = pool.apply(_measure, (run["task"], run["who"], run["repeat"], steps))
    return {**run, "steps": steps, "cpu_seconds": round(cpu, 3), "seconds": round(time.monotonic() - began, 1)}


def _measure(task: str, who: str, seed: int, steps: int) -> float:
    return CONTENDERS[who](TASKS[task], seed, steps)


def summarise(rows: list[Row], name: str) -> bool:
    task = TASKS[name]
    print(f"\n{name}: {task.environment}, {task.steps:,} steps, {task.gradient_steps:,} gradient steps")
    medians = {}
    for who in CONTENDERS:
        each = [1e6 * row["cpu_seconds"] / row["steps"] for row in rows if (row["task"], row["who"]) == (name, who)]
        if not each:
            continue
        medians[who] = float(np.median(each))
        print(
            f"  {who:9} {medians[who]:8.0f} CPU-us per step   ({min(each):.0f} to {max(each):.0f}, {len(each)} repeats)"
        )
    met = True
    for backend, bar in task.bars.items():
        if not {backend, "peer"} <= medians.keys():
            met = False
            continue
        ratio = medians["peer"] / medians[backend]
        met &= ratio >= bar
        print(
            f"  the peer takes {ratio:.2f} times as long as {backend}   (bar {bar:g}: {'met' if ratio >= bar else 'MISSED'})"
        )
    if "products" in medians:
        over = ", ".join(f"{who} {medians[who] / medians['products']:.1f}" for who in medians if who != "products")
        print(f"  times the floor: {over}")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(TASKS), default=list(TASKS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--show", action="store_true", help="only print what is known")
    parser.add_argument("--quick", action="store_true", help="once, a tenth of the steps; keeps no row")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    runs = [
        {"task": name, "who": who, "repeat": repeat}
        for name in options.only
        for repeat in range(options.repeats)
        for who in CONTENDERS
        if who != "products" or TASKS[name].products is not None
    ]
    if options.quick:
        quick = [
            measure(run, max(TASKS[run["task"]].steps // 10, TASKS[run["task"]].warm_up))
            for run in runs
            if run["repeat"] == 0
        ]
        met = [summarise(quick, name) for name in options.only]
        return 0
    rows = Rows("speed.jsonl", "task", "who", "repeat")
    if not options.show:
        rows.measure(runs, measure, jobs=1)
    met = [summarise(rows.rows, name) for name in options.only]
    print("\nbars met" if all(met) else "\nBAR MISSED")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
