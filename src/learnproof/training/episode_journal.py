"""What an engine writes down, in the form that every run has, and the same once more in memory, so that each call can judge it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ..algorithms.learner import Learner, UpdateReport
from ..config import EngineSettings
from ..errors import TrainingFault
from ..evidence import Episode, EpisodesGiven, Event, Evidence, Fault, Inspection, NotSeen, RunStarted
from ..proof.performance import PairedScores
from ..proof.verdict import Verdict, judge
from ..runs.folder import RunFolder
from ..show.logged import LoggedDisplay
from .episode_batches import Behaviour
from .episode_results import ReadEpisode
from .episode_saving import EngineProgress
from .journal import Journal

Array = np.ndarray[Any, Any]


class EpisodeJournal:
    evidence: Evidence

    def __init__(
        self, settings: EngineSettings, folder: RunFolder, display: LoggedDisplay, resume_step: int | None = None
    ) -> None:
        self.settings = settings
        self.folder = folder
        if resume_step is not None:
            self.evidence = Evidence.read(folder.path)
            self.evidence.memos = {}
        self.written = Journal(settings.of_run(), folder, display, resume_step, self._hear)

    def _hear(self, event: Event, arrays: Mapping[str, Array] | None) -> None:
        if isinstance(event, RunStarted):
            self.evidence = Evidence(run=event, folder=self.folder.path, memos={})
            return
        if isinstance(event, Inspection) and arrays is not None:
            self.evidence.held[len(self.evidence.inspections)] = dict(arrays)
        self.evidence.add(event)

    def begin(self, learner: Learner, *, playable: bool) -> None:
        self.written.record(
            RunStarted(
                producer="engine",
                algorithm=self.settings.algorithm,
                environment=self.settings.name,
                seed=self.settings.seed,
                metric=self.settings.metric,
                n_envs=1,
                constants=learner.constants(),
                parameters=learner.parameter_sizes(),
                max_entropy=learner.actor.head.max_entropy,
            )
        )
        if self.settings.evidence.keep == "statistics":
            self.written.record(
                NotSeen(what="samples", reason="evidence.keep = statistics: no inspected batches are kept")
            )
        if not playable:
            self.written.record(NotSeen(what="evaluation", reason="no environment was given to play the policies in"))

    def episodes(
        self,
        episodes: Sequence[ReadEpisode],
        behaviour: Behaviour | None,
        progress: EngineProgress,
        *,
        batch_size: int,
        epochs: int,
        corrected: bool,
    ) -> None:
        """Counted in `progress` too."""
        for number, episode in enumerate(episodes):
            progress.episodes += 1
            progress.transitions += len(episode)
            self.written.record(
                Episode(
                    step=progress.transitions,
                    env=episode.env,
                    return_=float(episode.reward.sum()),
                    length=len(episode),
                    terminated=episode.terminated,
                    metrics=episode.metrics,
                    own=None if behaviour is None else behaviour.own[number],
                )
            )
        self.written.record(
            EpisodesGiven(
                update=progress.calls,
                step=progress.transitions,
                episodes=len(episodes),
                transitions=sum(len(episode) for episode in episodes),
                batch_size=batch_size,
                epochs=epochs,
                corrected=corrected,
                importance={} if behaviour is None else asdict(behaviour.statistics),
            )
        )

    def update(self, progress: EngineProgress, steps_before: int, report: UpdateReport) -> None:
        self.written.update(progress.calls, progress.transitions, steps_before, report)
        progress.calls += 1

    def fault(self, progress: EngineProgress, error: TrainingFault) -> None:
        name = self.settings.name
        self.written.record(Fault(step=progress.transitions, kind="not_finite", where=name, summary=str(error)))
        self.written.recorder.flush()

    def judge(self, scores: PairedScores | None = None) -> Verdict:
        proof = self.settings.proof
        return judge(
            self.evidence,
            scores,
            profile=proof.profile,
            error_rate=proof.error_rate,
            accusation_rate=proof.accusation_rate,
            waive=proof.waive,
        )
