"""`learnproof sweep`: many trainings, in search of better settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ..config import Settings
from ..errors import UsageError
from .command import Command
from .settings_file import with_settings


@dataclass(frozen=True)
class Sweep:
    """Search settings for what scores best: learnproof sweep CartPole-v1 --trials 20 --vary ppo.learning_rate=1e-4..1e-2:log

    Each trial is a run with its verdict, in the sweep's folder; the proven one of the highest score is the best. Any setting can be
    searched by its dotted name and fixed as in `learnproof train`. Ctrl-C and even `kill -9` leave a sweep that
    `learnproof sweep --resume FOLDER` goes on with. Needs the extra 'sweep'. Exit code: 0 a trial was proven, 3 none was.
    """

    env: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")] = None
    """Any Gymnasium id. May come from the settings file instead."""
    vary: tuple[str, ...] = ()
    """What is searched, each as NAME=LOW..HIGH, NAME=LOW..HIGH:log, NAME=LOW..HIGH:doubling or NAME=ONE/TWO/THREE."""
    space: str | None = None
    """A TOML file of ranges; or usual = learning rate 1e-4..1e-3, clip 0.1..0.3, lambda 0.9..0.99, minibatch 32..256, n_steps
    512..4096, where the algorithm has them. Default: usual, unless --vary is given."""
    trials: int | None = None
    """Trials in all, those that are given up or fail included (default: 20)."""
    seeds: int = 1
    """Trainings of each trial, with seeds that follow --seed; the score is their mean."""
    episodes: int = 50
    """Episodes that score a trained policy, on seeds that neither training nor the proof has seen."""
    sampler: Literal["tpe", "random"] = "tpe"
    """What to try next: tpe = near what was good (after ten random trials), random = anywhere."""
    pruner: Literal["median", "none"] = "median"
    """median = give a trial up whose best evaluation is below the median of the finished trials at the same step."""
    prune_after: int = 5
    """Finished trials before any is given up."""
    prune_from: float = 0.25
    """Share of the step budget before a trial is given up."""
    resume: Path | None = None
    """Go on with the sweep in this folder, by its own plan; with --trials for longer."""
    config: Path | None = None
    """Settings file (TOML) of what all trials share; ready ones are in configs/."""
    out: Path | None = None
    """Folder of the sweep; default: a new one under sweeps/."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


USUAL = "usual"


def sweep(arguments: Sweep) -> int:
    from pydantic import ValidationError

    from ..config import explained
    from ..sweeping.running import resume_sweep
    from ..sweeping.running import sweep as run_sweep
    from ..sweeping.space import Space, parse_words, read_space, ready_space

    if arguments.resume is not None:
        _refuse_a_new_plan(arguments)
        return resume_sweep(arguments.resume, trials=arguments.trials).exit_code
    base = arguments.settings if arguments.env is None else arguments.settings.replace({"env.id": arguments.env})
    space: Space = {}
    if arguments.space == USUAL:
        space = ready_space(base)
    elif arguments.space is not None:
        space = read_space(Path(arguments.space), base)
    space |= parse_words(arguments.vary, base)
    try:
        return run_sweep(
            settings=base,
            space=space,
            out=arguments.out,
            trials=20 if arguments.trials is None else arguments.trials,
            seeds=arguments.seeds,
            episodes=arguments.episodes,
            sampler=arguments.sampler,
            pruner=arguments.pruner,
            prune_after=arguments.prune_after,
            prune_from=arguments.prune_from,
        ).exit_code
    except ValidationError as error:
        raise explained(error, "the command line") from None


def _refuse_a_new_plan(arguments: Sweep) -> None:
    plain = Sweep()
    own = ("resume", "trials")
    given = [name for name in vars(plain) if name not in own and getattr(arguments, name) != getattr(plain, name)]
    if given:
        said = {"env": "the environment", "settings": "the settings of the trials"}
        words = ", ".join(said.get(name, f"--{name.replace('_', '-')}") for name in given)
        raise UsageError(
            f"A sweep goes on with the plan that it began with (its sweep.toml): leave {words} away. Only --trials may be given, to "
            "make it longer."
        )


COMMANDS = {"sweep": Command(Sweep, sweep, with_settings(Sweep))}
