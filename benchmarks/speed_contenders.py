"""Who does the work of speed.py's tasks: ours on both backends, the peer, JAX, and matrix products alone."""

from __future__ import annotations

import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from speed_tasks import TASKS, Product, Task

LAST = 20
"""Training episodes whose mean return says that a goal was reached."""
Episodes = Iterable[tuple[int, float]]
"""At which step each ended, and its return."""


class Cost(NamedTuple):
    cpu_seconds: float
    reached: int | None = None
    """The step at which the task's goal was."""


def reached_at(episodes: Episodes, goal: float | None) -> int | None:
    if goal is None:
        return None
    last: deque[float] = deque(maxlen=LAST)
    for step, return_ in episodes:
        last.append(return_)
        if len(last) == LAST and sum(last) / LAST >= goal:
            return step
    return None


# ---------------------------------------------------------------------- ours


def measure_backend(backend: str, task: Task, seed: int, steps: int) -> Cost:
    _train(backend, task, seed, task.warm_up)
    return _train(backend, task, seed, steps)


def _train(backend: str, task: Task, seed: int, steps: int) -> Cost:
    from learnproof.config import Settings
    from learnproof.envs.making import RegisteredEnvironment
    from learnproof.runs.folder import RunFolder
    from learnproof.show.progress import open_display
    from learnproof.training.interrupt import StopRequest
    from learnproof.training.loop import Trainer

    shared = {"env.id": task.environment, "backend": backend, "seed": seed, "threads": 1, "steps": steps}
    as_the_others = {
        "evaluation.every_steps": 0,
        "checkpoint.every_steps": steps,
    }  # which neither evaluate nor save meanwhile
    settings = Settings().replace({**task.settings, **shared, **as_the_others})
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run", "", {})
        with open_display(steps, "", clock=time.monotonic) as display:
            trainer = Trainer(settings, RegisteredEnvironment(settings.env))
            trainer.begin(run, display)
            began = time.process_time()
            trainer.run(StopRequest())
            used = time.process_time() - began
        return Cost(used, reached_at(_written(run.path / "evidence.jsonl"), task.goal))


def _written(evidence: Path) -> Episodes:
    for line in evidence.read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "episode":
            yield event["step"], event["return_"]


# ---------------------------------------------------------------------- others


def measure_peer(flush: bool, task: Task, seed: int, steps: int) -> Cost:
    import torch

    if task.peer is None:
        from plain_ppo import train

        used, episodes = train(steps, seed)
        return Cost(used, reached_at(episodes, task.goal))
    torch.set_num_threads(1)
    torch.set_flush_denormal(flush)
    model = task.peer(seed)
    began = time.process_time()
    model.learn(steps)
    return Cost(time.process_time() - began, reached_at(_monitored(model), task.goal))


def _monitored(model: Any) -> Episodes:
    """What the Monitors round SB3's environments have written down."""
    found: list[tuple[int, float]] = []
    env = model.get_env()
    told = zip(env.env_method("get_episode_lengths"), env.env_method("get_episode_rewards"), strict=True)
    for lengths, returns in told:
        step = 0
        for length, return_ in zip(lengths, returns, strict=True):
            step += length * env.num_envs
            found.append((step, return_))
    return sorted(found)


def measure_jax(task: Task, seed: int, steps: int) -> Cost:
    import jax_ppo

    used, _, episodes = jax_ppo.train(getattr(jax_ppo, task.jitted), steps, seed)
    return Cost(used, reached_at(episodes, task.goal))


def measure_products(task: Task, seed: int, steps: int) -> Cost:
    import torch

    assert task.products is not None
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    acting, learning = task.products()
    share = steps / task.steps
    acts = task.steps // int(task.settings.get("env.n_envs", 4))
    parts = ((acting, acts), (learning, task.gradient_steps))
    return Cost(sum(_seconds_of(products, int(count * share), generator) for products, count in parts))


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


CONTENDERS: dict[str, Callable[[Task, int, int], Cost]] = {
    "compiled": partial(measure_backend, "compiled"),
    "torch": partial(measure_backend, "torch"),
    "peer": partial(measure_peer, False),
    "flushed": partial(measure_peer, True),
    "jax": measure_jax,
    "products": measure_products,
}


def takes_part(who: str, task: Task) -> bool:
    asked = {"products": task.products is not None, "jax": bool(task.jitted), "flushed": task.flushed}
    return asked.get(who, True)


def measure(name: str, who: str, seed: int, steps: int) -> dict[str, Any]:
    cost = CONTENDERS[who](TASKS[name], seed, steps)
    told: dict[str, Any] = {"steps": steps, "cpu_seconds": round(cost.cpu_seconds, 3)}
    return told if TASKS[name].goal is None else {**told, "reached": cost.reached}
