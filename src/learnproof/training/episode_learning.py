"""One training call: from read episodes to an update that is written down. Everything with state is assembled here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..algorithms.learner import Rollout, UpdateReport
from ..algorithms.schedules import make_schedule
from ..config import EngineSettings, OffPolicySettings
from ..errors import TrainingFault
from ..policies.normalization import RewardScaler
from ..seeding import generator
from .assembly import LearnerType, make_learner, set_pace
from .episode_batches import Behaviour, behaviour_of, one_column, rollout_for_gradients, rollout_for_memory
from .episode_journal import EpisodeJournal
from .episode_results import EpisodeReader, ReadEpisode
from .episode_saving import EngineProgress, EngineState
from .episode_world import EpisodeWorld
from .inspection import OpenPlan
from .snapshots import Snapshots


@dataclass(frozen=True)
class Learnt:
    report: UpdateReport
    call: int
    gradient_steps: int
    behaviour: Behaviour | None
    corrected: bool
    """With importance weights."""


class EpisodeLearning:
    def __init__(self, settings: EngineSettings, world: EpisodeWorld, learner_type: LearnerType | None) -> None:
        self.settings = settings
        self.world = world
        self.actor = world.actor(settings)
        self.learner = make_learner(settings.of_run(), self.actor, learner_type)
        set_pace(self.learner, settings.batch_size, settings.num_epochs, settings.batch_size)
        self.state = EngineState(
            learner=self.learner,
            schedule=make_schedule(settings.schedule),
            reward_scaler=RewardScaler(1, settings.learning.gamma) if settings.normalize_rewards else None,
            snapshots=Snapshots(self.learner, settings.max_snapshots),
            noise=generator(settings.seed, "actions"),
            progress=EngineProgress(),
        )
        self.plan = OpenPlan(settings.evidence)
        self.reader = EpisodeReader(
            observations=self.actor.observations,
            actions=self.actor.actions,
            needs_log_probs=settings.algorithm == "ppo",
            within_bounds=settings.algorithm != "ppo" or settings.policy.box_head != "gaussian",
            metric=settings.metric,
        )

    @property
    def from_memory(self) -> bool:
        return isinstance(self.settings.learning, OffPolicySettings)

    def learn(self, episodes: list[ReadEpisode], batch_size: int, epochs: int, journal: EpisodeJournal) -> Learnt:
        state, learner, progress = self.state, self.learner, self.state.progress
        call, steps_before = progress.calls, learner.optimizer_steps
        set_pace(learner, batch_size, epochs, sum(len(episode) for episode in episodes))
        before = call == 0 or self.from_memory
        self._note_observations(episodes, now=before)
        behaviour = behaviour_of(learner.actor, episodes)
        rollout = self._rollout(episodes, behaviour)
        corrected = rollout.importance is not None
        journal.episodes(episodes, behaviour, progress, batch_size=batch_size, epochs=epochs, corrected=corrected)
        share = progress.transitions / self.settings.expected_transitions
        rate = self.settings.learning.learning_rate * state.schedule.factor(share)
        try:
            report = learner.learn(iter([rollout]), rate, self.plan.request(call))
        except TrainingFault as error:
            journal.fault(progress, error)
            raise
        assert report is not None
        journal.update(progress, steps_before, report)
        self._note_observations(episodes, now=not before)
        return Learnt(report, call, learner.optimizer_steps - steps_before, behaviour, corrected)

    def _rollout(self, episodes: list[ReadEpisode], behaviour: Behaviour | None) -> Rollout:
        scaler = self.state.reward_scaler
        scale = 1.0 if scaler is None else scaler.scale_for(*one_column(episodes))
        if self.from_memory:
            return rollout_for_memory(episodes, scale)
        assert behaviour is not None
        return rollout_for_gradients(episodes, behaviour, self.actor.normalizer, scale)

    def _note_observations(self, episodes: list[ReadEpisode], *, now: bool) -> None:
        """The first episodes set the scale before they are trained on. PPO hears of later ones after it, so that their rows are read as
        they were when the policy acted; a memory reads its rows anew each time."""
        if self.actor.normalizer is not None and now:
            self.actor.normalizer.add(np.concatenate([episode.observation for episode in episodes]))
