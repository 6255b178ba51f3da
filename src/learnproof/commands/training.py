"""Runs of our own: `learnproof train`, `learnproof resume`, `learnproof evaluate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..config import Settings
from .command import PROVEN_OR_DONE, Command
from .settings_file import with_settings


@dataclass(frozen=True)
class Train:
    """Train on an environment, then prove what was learnt.

    Any setting can be given by its dotted name (--ppo.learning-rate 1e-3) or in a TOML file (--config); the command line
    wins. Ctrl-C leaves a run that `learnproof resume` goes on with. Exit code: 0 proven, 1 broken, 3 unproven.
    """

    env: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")] = None
    """Any Gymnasium id, e.g. CartPole-v1 or learnproof/TaskAllocation-v1. May come from the settings file instead."""
    config: Path | None = None
    """Settings file (TOML); ready ones are in configs/."""
    out: Path | None = None
    """Folder of the run; default: a new one under runs/."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped or killed, from its newest checkpoint."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    step: int | None = None
    """Go back to the checkpoint of this step instead of the newest; what came after it is dropped."""


@dataclass(frozen=True)
class Evaluate:
    """Play fresh episodes with a run's best policy, deterministic and sampled."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    episodes: int = 100
    """How many, in each mode."""
    seed: int | None = None
    """Root of the episode seeds; default: the run's own."""


def train(arguments: Train) -> int:
    from ..training import api

    return _close(api.train(arguments.env, settings=arguments.settings, out=arguments.out))


def resume(arguments: Resume) -> int:
    from ..training import api

    return _close(api.resume(arguments.run, step=arguments.step))


def _close(result: Any) -> int:
    """Show how a run ended; an interrupted one ends as shells expect of its signal."""
    from ..show.verdict_table import print_verdict

    if result.verdict is None:
        return 128 + int(result.stopped_by or 2)
    print_verdict(result.verdict.to_json(), folder=result.path, title=str(result.path))
    return int(result.verdict.exit_code)


def evaluate(arguments: Evaluate) -> int:
    from ..training import api

    scores = api.evaluate(arguments.run, episodes=arguments.episodes, seed=arguments.seed)
    for mode, values in scores.items():
        print(
            f"{mode:14} mean {values.mean():.6g}  deviation {values.std(ddof=1) if len(values) > 1 else 0:.4g}  "
            f"lowest {values.min():.6g}  highest {values.max():.6g}  ({len(values)} episodes)"
        )
    return PROVEN_OR_DONE


COMMANDS = {
    "train": Command(Train, train, with_settings(Train)),
    "resume": Command(Resume, resume),
    "evaluate": Command(Evaluate, evaluate),
}
