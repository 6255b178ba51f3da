"""TrainingEngine: trains from finished episodes, whoever collected them, and says after each call whether it learns.

    engine = TrainingEngine(env.observation_space, env.action_space, algorithm="ppo")
    choice = engine.act(observation)                                 # action, and its log-probability
    metrics = await engine.train_step(episodes, batch_size=64, num_epochs=4)
    verdict = await engine.verify_learning()

`train_step_now` and `verify_learning_now` are the same without `await`. The learners, the evidence and the proof are those of a run
that collects by itself, and an engine's folder is a run's folder. Calls never interleave. An awaited call works in a thread of the
engine's own; where its task is cancelled, it still goes on to its end.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from ..config import EngineSettings, to_toml
from ..envs.making import AnyVectorEnv
from ..errors import CheckpointError, UsageError
from ..evidence.recorder import cut_back
from ..policies.actor import Mode, NetworkActor
from ..proof.performance import PairedScores
from ..proof.verdict import Verdict, check_waivers
from ..runs.about import describe_run
from ..runs.checkpoint import STEP_FOLDER, Checkpoint
from ..runs.folder import RunFolder, fresh_path
from ..show.logged import LoggedDisplay
from .acting import ActingCopy, Choice
from .assembly import LearnerType
from .episode_journal import EpisodeJournal
from .episode_learning import EpisodeLearning
from .episode_metrics import TrainingMetrics, foreign, metrics_of, not_learning, signs_of_a_bandit
from .episode_results import EpisodeResult
from .episode_saving import EngineProgress, read_engine_settings, refuse_other_evidence
from .episode_world import EpisodeWorld, borrowed
from .one_at_a_time import OneAtATime
from .saving import load_policy_checkpoint, policy_tensors
from .snapshots import WeightDistance
from .verification import Policies, conclude, paired_scores

LOGGER = "learnproof.engine"


class TrainingEngine:
    """Made anew, or from a checkpoint with `load`.

    Its spaces are those given, else those of `evaluation_env`, else what state_dim and action_dim say. `evaluation_env` (a
    Gymnasium id, or a vector environment that nobody collects in) is where `verify_learning` plays the policies; without one,
    performance is judged by the returns of the episodes given. Settings by dotted name: TrainingEngine(**{"ppo.gamma": 0.98}).
    """

    def __init__(
        self,
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
        *,
        settings: EngineSettings | None = None,
        evaluation_env: str | AnyVectorEnv | None = None,
        out: str | Path | None = None,
        learner_type: LearnerType | None = None,
        **changes: Any,
    ) -> None:
        named = {"evaluation_env": evaluation_env} if isinstance(evaluation_env, str) else {}
        s = (settings or EngineSettings()).replace({**changes, **named})
        check_waivers(s.proof.waive)
        self._assemble(s, EpisodeWorld.of(s, observation_space, action_space, evaluation_env), learner_type)
        path = fresh_path(Path("runs"), s.name, s.algorithm, f"seed{s.seed}") if out is None else Path(out)
        about = {**describe_run(s.seed, sys.argv, Path.cwd()), "engine": self._kind}
        self._settle_in(RunFolder.create(path, to_toml(s), about))
        self.folder.initial.write(0, {"score": None, "step": 0}, {"policy": policy_tensors(self._learning.actor)})
        self.journal = EpisodeJournal(s, self.folder, self._display)
        self.journal.begin(self._learning.learner, playable=self._learning.world.source is not None)

    @classmethod
    def load(
        cls,
        path: str | Path,
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
        *,
        step: int | None = None,
        evaluation_env: str | AnyVectorEnv | None = None,
        learner_type: LearnerType | None = None,
    ) -> TrainingEngine:
        """Go on from the newest checkpoint of an engine's folder, from the one at `step`, or from one that `save` gave; what came after it
        is dropped.

        Spaces and an evaluation_env that were given as objects when it was made are given again.
        """
        path = Path(path)
        saved = STEP_FOLDER.fullmatch(path.name)
        if saved is not None and path.is_dir():  # what save() gave
            path, step = path.parent.parent, int(saved[1]) if step is None else step
        folder = RunFolder.open(path)
        settings = read_engine_settings(folder)
        engine = cls.__new__(cls)
        engine._assemble(
            settings, EpisodeWorld.of(settings, observation_space, action_space, evaluation_env), learner_type
        )
        engine._settle_in(folder)
        try:
            shelf = folder.checkpoints()
            engine._take_up(shelf.newest() if step is None else shelf.open(step))
        except BaseException:
            engine._held.close()
            raise
        return engine

    # ------------------------------------------------------------------ acting

    @property
    def policy(self) -> NetworkActor:
        """What acts now: a copy that is never changed; after a training call there is another one."""
        return self._acting.policy

    @property
    def initial_policy(self) -> NetworkActor:
        """The untrained one, which the proof compares with."""
        actor = self._learning.world.actor(self.settings)
        initial = self.folder.initial.newest()
        assert initial is not None
        load_policy_checkpoint(actor, initial)
        return actor

    def act(self, observation: Any, mode: Mode = "sampled", memory: Any = None) -> Choice:
        """For one observation; may be called while a training call works.

        A recurrent policy's choice has a `memory`: give it back at the next step of the same episode, and none at its first.
        """
        return self._acting.act(observation, mode, memory)

    def act_many(self, observations: Any, mode: Mode = "sampled", memory: Any = None) -> Choice:
        """For a batch of them, as a vector environment gives it; a row of zeros in `memory` begins an episode."""
        return self._acting.act_many(observations, mode, memory)

    # ------------------------------------------------------------------ training

    async def train_step(
        self, episode_results: Sequence[EpisodeResult], batch_size: int | None = None, num_epochs: int | None = None
    ) -> TrainingMetrics:
        """Train on the episodes finished since the last call: on all of them, also on what is left over below a minibatch."""
        return await self._calls.in_thread(partial(self.train_step_now, episode_results, batch_size, num_epochs))

    def train_step_now(
        self, episode_results: Sequence[EpisodeResult], batch_size: int | None = None, num_epochs: int | None = None
    ) -> TrainingMetrics:
        """`batch_size` counts transitions of a minibatch, `num_epochs` passes over the episodes (of a memory: as many minibatches).

        Episodes that do not fit are refused (EpisodeRefused says which one), and the engine is as it was.
        """
        with self._calls.working():
            batch = _count("batch_size", batch_size, self.settings.batch_size, 2)
            epochs = _count("num_epochs", num_epochs, self.settings.num_epochs, 1)
            episodes = self._learning.reader.read(episode_results)
            learnt = self._learning.learn(episodes, batch, epochs, self.journal)
            self._acting.renew(self._learning.actor)
            verdict = self.journal.judge()
            importance = None if learnt.behaviour is None else learnt.behaviour.statistics
            self._display.warn([*signs_of_a_bandit(episodes), *foreign(importance), *not_learning(verdict)])
            return metrics_of(learnt, episodes, importance, verdict, self._display.take_warnings())

    # ------------------------------------------------------------------ verifying

    async def verify_learning(
        self, *, play: bool = True, scores: PairedScores | None = None, report: bool = False
    ) -> Verdict:
        """The verdict so far, with a warning where nothing is learnt. Every training call gives it too, without playing."""
        return await self._calls.in_thread(partial(self.verify_learning_now, play=play, scores=scores, report=report))

    def verify_learning_now(
        self, *, play: bool = True, scores: PairedScores | None = None, report: bool = False
    ) -> Verdict:
        """Judge, and write verdict.json (`report`: also learning_progress.png and report.html).

        Performance is judged by `scores`, where the caller played the policies; else by playing the untrained, a random and the present
        policy on fresh seeds, where there is an evaluation_env and `play` is not False; else by the returns of the episodes in
        which the policy itself acted. The error rate is that of one look.
        """
        with self._calls.working():
            if scores is None and play:
                scores = self._played()
            recorder = self.journal.written.recorder
            recorder.flush()
            digests = {"evidence.jsonl": recorder.digest}
            verdict = conclude(self.folder, self._shared, self.journal.evidence, scores, digests, report=report)
            for sentence in not_learning(verdict):
                self._display.say(sentence, "warning")
            self._display.take_warnings()
            return verdict

    def _played(self) -> PairedScores | None:
        source = self._learning.world.source
        if source is None:
            return None
        policies = Policies(self.initial_policy, self.policy, {})
        with borrowed(source) as env:
            return paired_scores(self._shared, source, env, policies, self._display)

    # ------------------------------------------------------------------ weights, and over a kill

    @property
    def snapshots(self) -> list[str]:
        """Names of the weights that are kept: "start", the untrained ones, and what `snapshot` added."""
        return self._learning.state.snapshots.names

    def snapshot(self, name: str) -> None:
        """Keep a copy of all trained weights; it is saved with the engine."""
        with self._calls.working():
            self._learning.state.snapshots.take(name)

    def drop_snapshot(self, name: str) -> None:
        with self._calls.working():
            self._learning.state.snapshots.drop(name)

    def distance(self, first: str, second: str | None = None) -> WeightDistance:
        """How far it is from one snapshot to another; None = to the weights as they are now."""
        with self._calls.working():
            return self._learning.state.snapshots.distance(first, second)

    @property
    def progress(self) -> EngineProgress:
        return EngineProgress(**asdict(self._learning.state.progress))

    def save(self) -> Path:
        """Write a checkpoint of everything: an engine loaded from it goes on in the same bytes as this one."""
        with self._calls.working():
            step, recorder = self._learning.state.progress.transitions, self.journal.written.recorder
            recorder.sync()
            body = self._learning.state.to_json(recorder.position, recorder.digest)
            shelf = self.folder.checkpoints(self.settings.keep_checkpoints)
            path = shelf.write(step, body, self._learning.state.to_tensors(), self._kind)
            self.folder.best.write(
                step, {"score": None, "step": step}, {"policy": policy_tensors(self._learning.actor)}
            )
            return path

    def close(self) -> None:
        """Wait for what was begun, and let go of the folder. What was not saved is not there for `load`."""
        if self._calls.close():
            self.journal.written.close()
            self._held.close()

    def __enter__(self) -> TrainingEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ its parts

    def _assemble(self, settings: EngineSettings, world: EpisodeWorld, learner_type: LearnerType | None) -> None:
        self.settings = settings
        self._shared = settings.of_run()
        self._kind = {"algorithm": settings.algorithm, **world.described}
        self._calls = OneAtATime(self._shared, "learnproof-engine")
        self._display = LoggedDisplay(LOGGER)
        with self._calls.working():
            self._learning = EpisodeLearning(settings, world, learner_type)
        self._acting = ActingCopy(self._learning.actor, world.observation_space, self._learning.state.noise)

    def _settle_in(self, folder: RunFolder) -> None:
        self.folder = folder
        self._held = ExitStack()
        self._held.enter_context(folder.lock())

    def _take_up(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            raise CheckpointError(
                f"{self.folder.path} has no checkpoint to go on from: engine.save() was not called there. Make a new engine."
            )
        checkpoint.expect_kind(self._kind)
        noted = checkpoint.state()["evidence"]
        refuse_other_evidence(self.folder, int(noted["position"]), str(noted["sha256"]))
        self._learning.state.load(checkpoint)
        cut_back(self.folder.path, int(noted["position"]))
        self.folder.checkpoints().forget_after(checkpoint.step)
        self._acting.renew(self._learning.actor)
        self.journal = EpisodeJournal(self.settings, self.folder, self._display, checkpoint.step)


def _count(name: str, given: int | None, default: int, least: int) -> int:
    if given is None:
        return default
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < least:
        raise UsageError(f"{name} = {given!r}: give a whole number of at least {least}, or leave it out for {default}.")
    return int(given)
