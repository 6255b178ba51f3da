"""What a user calls: train, resume, verify, evaluate, load_policy. The command line calls the same."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from ..config import Settings, to_toml
from ..envs.agents import episodes_at_once
from ..envs.making import EnvironmentSource, GivenEnvironment
from ..envs.team_making import environment_source
from ..errors import DiskFull, EvidenceError, TrainingFault, UsageError
from ..evidence import Evidence
from ..policies.actor import Mode
from ..proof.verdict import Verdict, check_waivers
from ..runs.about import describe_run
from ..runs.checkpoint import Checkpoint
from ..runs.folder import RunFolder, fresh_path
from ..seeding import episode_seeds
from ..show.progress import Display, open_display
from ..supervising.conclusion import Profile, is_watched, verify_watched
from .assembly import LearnerType
from .curriculum import CurriculumFunction
from .episode_saving import is_engine, read_engine_settings
from .episode_world import EpisodeWorld
from .evaluation import Evaluator
from .interrupt import StopRequest, listen_for_stop
from .loading import load_policy as load_policy
from .loading import open_policy, read_settings, resume_command
from .loop import OnEvaluation, Outcome, Trainer
from .verification import conclude, prove

Path_ = str | os.PathLike[str]
MODES: tuple[Mode, ...] = ("deterministic", "sampled")


@dataclass(frozen=True)
class RunResult:
    """Where a run lies and how it ended; `verdict` is None where it was interrupted and can be resumed."""

    path: Path
    steps: int
    verdict: Verdict | None
    stopped_by: signal.Signals | None = None


def train(
    env: str | VectorEnv[Any, Any, Any] | None = None,
    *,
    settings: Settings | None = None,
    evaluation_env: VectorEnv[Any, Any, Any] | None = None,
    out: Path_ | None = None,
    display: Display | None = None,
    learner_type: LearnerType | None = None,
    on_evaluation: OnEvaluation | None = None,
    stop_request: StopRequest | None = None,
    curriculum: CurriculumFunction | None = None,
    **changes: Any,
) -> RunResult:
    """Train on an environment and prove what was learnt.

    `env` is a Gymnasium id, or a vector environment together with a second one as `evaluation_env`. Settings by dotted
    name: train("CartPole-v1", steps=50_000, **{"ppo.learning_rate": 1e-3}). `on_evaluation(step, score)` hears of each
    evaluation, and a text that it returns ends the run. Who gives a `stop_request` listens to signals himself. `curriculum`
    decides what is trained on when (curriculum.py), where curriculum.stages do not.
    """
    settings = (settings or Settings()).replace(changes)
    check_waivers(settings.proof.waive)
    if isinstance(env, gym.Env):
        raise UsageError(
            f"train wants a Gymnasium id or a vector environment, and {type(env.unwrapped).__name__} is a single one. Give "
            "its id, or wrap it: gymnasium.vector.SyncVectorEnv([lambda: env])."
        )
    if env is not None and env is evaluation_env:
        raise UsageError("env and evaluation_env are one object: evaluating would reset the episodes that train.")
    source: EnvironmentSource
    if isinstance(env, VectorEnv):
        source = GivenEnvironment(env, evaluation_env)
        settings = settings.replace({"env.id": source.name, "env.n_envs": episodes_at_once(env)})
    else:
        settings = settings if env is None else settings.replace({"env.id": env})
        source = environment_source(settings.env)
    path = (
        Path(out)
        if out is not None
        else fresh_path(Path("runs"), source.name, settings.algorithm, f"seed{settings.seed}")
    )
    about = describe_run(settings.seed, sys.argv, Path.cwd())
    trainer = Trainer(settings, source, learner_type, curriculum)
    folder = RunFolder.create(path, to_toml(settings), about)
    with folder.lock():
        trainer.on_evaluation = on_evaluation
        return _run(folder, settings, source, trainer, None, display, stop_request, again=False)


def resume(
    path: Path_,
    *,
    step: int | None = None,
    env: VectorEnv[Any, Any, Any] | None = None,
    evaluation_env: VectorEnv[Any, Any, Any] | None = None,
    display: Display | None = None,
    learner_type: LearnerType | None = None,
    on_evaluation: OnEvaluation | None = None,
    stop_request: StopRequest | None = None,
    curriculum: CurriculumFunction | None = None,
) -> RunResult:
    """Go on with a run from its newest checkpoint, or from the one at `step`; everything after it is dropped."""
    folder = RunFolder.open(Path(path))
    settings = read_settings(folder)
    source = _source(settings, env, evaluation_env)
    with folder.lock():
        checkpoint = folder.checkpoints().open(step) if step is not None else folder.checkpoints().newest()
        trainer = Trainer(settings, source, learner_type, curriculum)
        trainer.on_evaluation = on_evaluation
        return _run(folder, settings, source, trainer, checkpoint, display, stop_request, again=True)


def verify(
    path: Path_,
    *,
    profile: Profile | None = None,
    evaluation_env: VectorEnv[Any, Any, Any] | None = None,
    display: Display | None = None,
) -> Verdict:
    """Judge a run anew: its policies play fresh seeds again, its evidence is read again. With `profile` the run's own verdict.json stays as it is."""
    folder = RunFolder.open(Path(path))
    if is_watched(folder):
        return verify_watched(folder, profile=profile)
    if is_engine(folder):
        return _verify_engine(folder, profile, evaluation_env, display)
    settings = read_settings(folder)
    if profile is not None:
        settings = settings.replace({"proof.profile": profile})
    source = _source(settings, None, evaluation_env)
    with folder.lock(), display or open_display(settings.steps, f"Verifying {folder.path}") as shown:
        return prove(folder, settings, source, shown, keep=profile is None)


def evaluate(
    path: Path_, *, episodes: int = 100, seed: int | None = None, display: Display | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """Scores of a run's best policy on seeds that neither training nor its proof used, deterministic and sampled."""
    if episodes < 1:
        raise UsageError(f"episodes = {episodes}: play at least one.")
    kept = open_policy(path)
    settings = kept.settings
    evaluator = Evaluator(kept.source, kept.metric, settings.evaluation.max_episode_steps)
    seeds = episode_seeds(settings.seed if seed is None else seed, "evaluate command", episodes)
    scores = {}
    with display or open_display(settings.steps, f"Evaluating {kept.folder.path}") as shown:
        for mode in MODES:

            def show(done: int, mode: Mode = mode) -> None:
                shown.phase(f"{mode}: {done} of {episodes} episodes")

            scores[str(mode)] = evaluator.scores(kept.actor, seeds, mode, show)
    evaluator.close()
    return scores


def _verify_engine(
    folder: RunFolder,
    profile: Profile | None,
    evaluation_env: VectorEnv[Any, Any, Any] | None,
    display: Display | None,
) -> Verdict:
    """Of what was trained from given episodes; without an environment to play, by the returns of its own policy's."""
    settings = read_engine_settings(folder)
    if profile is not None:
        settings = settings.replace({"proof.profile": profile})
    if folder.checkpoints().newest() is None:
        raise EvidenceError(
            f"{folder.path} has no checkpoint, and only a checkpoint says which evidence the engine wrote. Call engine.save() first."
        )
    world = EpisodeWorld.of(settings, None, None, evaluation_env)
    with (
        folder.lock(),
        display or open_display(settings.expected_transitions, f"Verifying {folder.path}") as shown,
    ):
        return prove(
            folder, settings.of_run(), world.source, shown, lambda env: world.actor(settings), keep=profile is None
        )


def _source(
    settings: Settings, env: VectorEnv[Any, Any, Any] | None, evaluation_env: VectorEnv[Any, Any, Any] | None
) -> EnvironmentSource:
    if env is not None:
        return GivenEnvironment(env, evaluation_env, settings.env.id)
    if evaluation_env is not None:
        return GivenEnvironment(evaluation_env, evaluation_env, settings.env.id)
    return environment_source(settings.env)


def _run(
    folder: RunFolder,
    settings: Settings,
    source: EnvironmentSource,
    trainer: Trainer,
    checkpoint: Checkpoint | None,
    display: Display | None,
    stop_request: StopRequest | None,
    *,
    again: bool,
) -> RunResult:
    """Train from the first step or from a checkpoint, then prove what was learnt. The caller holds the run's lock."""
    title = f"{source.name}, {settings.algorithm}, seed {settings.seed}"
    with display or open_display(settings.steps, title) as shown:
        if checkpoint is not None and checkpoint.state()["progress"]["finished"]:
            shown.say(f"training had ended at step {checkpoint.step}; what it learnt is proven anew")
            trainer.restore_best(folder, checkpoint)
            return RunResult(folder.path, checkpoint.step, prove(folder, settings, source, shown))
        with nullcontext(stop_request) if stop_request is not None else listen_for_stop(shown.say) as request:
            if checkpoint is not None:
                shown.say(f"going on from step {checkpoint.step}")
                trainer.go_on(folder, shown, checkpoint)
            else:
                if again:
                    shown.say("there is no checkpoint: beginning again at step 0")
                trainer.begin(folder, shown, again=again)
            outcome = _train_and_note_faults(trainer, request)
        if outcome.stop is None:
            shown.say(f"Stopped at step {outcome.steps}. Go on with: {resume_command(folder)}")
            return RunResult(folder.path, outcome.steps, None, request.signal)
        shown.say(f"training ended at step {outcome.steps}: {outcome.stop.reason}")
        return RunResult(folder.path, outcome.steps, prove(folder, settings, source, shown))


def _train_and_note_faults(trainer: Trainer, request: StopRequest) -> Outcome:
    """A run that numbers ended gets its verdict too, before the error goes on to the caller."""
    try:
        return trainer.run(request)
    except DiskFull as error:
        steps = trainer.checkpoints.steps()
        kept = f"The checkpoint of step {steps[-1]} is whole" if steps else "There was no checkpoint yet"
        raise DiskFull(f"{error} {kept}: {resume_command(trainer.folder)}") from None
    except TrainingFault:
        conclude(trainer.folder, trainer.settings, Evidence.read(trainer.folder.path), None, {})
        raise
