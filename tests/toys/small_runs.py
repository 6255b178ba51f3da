"""Little trained runs, one for each algorithm and kind of space, for tests of what is done with a finished policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from more_environments import register_more_toys
from toy_environments import register_toys

from learnproof.config import Settings, to_toml
from learnproof.envs.team_making import environment_source
from learnproof.runs.folder import RunFolder
from learnproof.show.progress import open_display
from learnproof.show.terminal import open_console
from learnproof.training.interrupt import StopRequest
from learnproof.training.loop import Trainer

SHARED = {
    "steps": 256,
    "policy.hidden": (16, 16),
    "env.n_envs": 2,
    "env.normalize_observations": True,
    "evaluation.every_steps": 0,
    "evaluation.episodes": 2,
}
ON_POLICY = {"n_steps": 64, "minibatch_size": 32}
OFF_POLICY = {"learning_starts": 64, "minibatch_size": 32}
RUNS: dict[str, dict[str, Any]] = {
    "ppo dict": {"env.id": "toy/Pantry-v0", "ppo": ON_POLICY},
    "ppo gaussian": {"env.id": "Pendulum-v1", "ppo": ON_POLICY, "policy.shared_trunk": True},
    "ppo beta": {"env.id": "Pendulum-v1", "ppo": ON_POLICY, "policy.box_head": "beta", "policy.layer_norm": True},
    "ppo allocation": {"env.id": "learnproof/TaskAllocation-v1", "ppo": ON_POLICY, "env.kwargs": {"n_agents": 2}},
    "reinforce": {"env.id": "toy/Lever-v0", "reinforce": {"n_steps": 64}, "policy.activation": "tanh"},
    "dqn": {"env.id": "CartPole-v1", "dqn": {**OFF_POLICY, "duelling": True}},
    "sac": {"env.id": "Pendulum-v1", "sac": {**OFF_POLICY, "train_every": 4}},
    "sac discrete": {"env.id": "CartPole-v1", "sac": {**OFF_POLICY, "train_every": 4}},
    "ppo everything": {"env.id": "toy/Everything-v0", "ppo": ON_POLICY, "policy.box_head": "gaussian"},
    "ppo camera": {"env.id": "toy/Camera-v0", "ppo": ON_POLICY, "env.kwargs": {"gauge": True}},
    "dqn camera": {"env.id": "toy/Camera-v0", "dqn": OFF_POLICY},
    "sac camera": {"env.id": "toy/Camera-v0", "sac": {**OFF_POLICY, "train_every": 4}},
    "ppo recurrent": {"env.id": "toy/Pantry-v0", "ppo": ON_POLICY, "policy.recurrent": True, "policy.memory_size": 8},
    "ppo recurrent camera": {"env.id": "toy/Camera-v0", "ppo": ON_POLICY, "policy.recurrent": True},
    "ppo painter": {"env.id": "toy/Painter-v0", "ppo": ON_POLICY},
}
"""By name; the algorithm is the first word."""


def settings_of(name: str, **changes: Any) -> Settings:
    register_toys()
    register_more_toys()
    algorithm = name.split()[0]
    flat: dict[str, Any] = {**SHARED, "algorithm": algorithm}
    for key, value in (RUNS[name] | changes).items():
        if key == algorithm:
            flat |= {f"{algorithm}.{inner}": v for inner, v in value.items()}
        else:
            flat[key] = value
    return Settings().replace(flat)


def train_small(name: str, folder: Path, **changes: Any) -> Path:
    """Trained and saved, not judged: the proof would take longer than the training."""
    settings = settings_of(name, **changes)
    run = RunFolder.create(folder, to_toml(settings), {})
    with open(folder.with_suffix(".log"), "w") as log, open_display(1, name, open_console(log)) as display:
        trainer = Trainer(settings, environment_source(settings.env))
        trainer.begin(run, display)
        trainer.run(StopRequest())
    return folder
