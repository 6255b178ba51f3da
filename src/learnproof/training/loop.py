"""The loop: collect, update, write down, evaluate, save, until a rule stops it.

    trainer = Trainer(settings, source)          # everything that can be wrong with the settings is wrong here
    trainer.begin(folder, display)               # or trainer.go_on(folder, display, checkpoint)
    outcome = trainer.run(stop_request)

All state lives in RunState (saving.py) and is whole between two iterations; that is where checkpoints are taken, where
signals are answered, and where a resumed run goes on. Nothing that the loop decides depends on the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..algorithms.learner import Rollout
from ..algorithms.schedules import make_schedule
from ..config import OffPolicySettings, OnPolicySettings, Settings
from ..envs.kernel_cache import is_kept
from ..envs.making import EnvironmentSource
from ..errors import EnvironmentFault, TrainingFault
from ..evidence import EnvironmentRestarted, Episode, Evaluation, Fault, NotSeen, RunStarted, RunStopped
from ..evidence.recorder import cut_back
from ..policies.normalization import RewardScaler
from ..runs.checkpoint import Checkpoint, Shelf
from ..runs.folder import RunFolder
from ..runs.mirror import Mirror
from ..seeding import episode_seeds
from ..show.progress import Display
from .assembly import LearnerType, check_schedule, environment_facts, make_actor, make_learner, set_up_torch
from .curriculum import CurriculumFunction, open_curriculum
from .evaluation import Evaluator
from .inspection import InspectionPlan
from .interrupt import StopRequest
from .journal import Journal
from .native_rollout import NativeCollector
from .saving import BestPolicy, Progress, RunState, load_policy_tensors, policy_tensors
from .stopping import Stop, Stopping

OnEvaluation = Callable[[int, float], str | None]
"""Hears of each evaluation (step, score) and may answer with a reason to give the run up."""


@dataclass(frozen=True)
class Outcome:
    """How training ended. `stop` is None where it was interrupted and can go on."""

    steps: int
    stop: Stop | None


class Trainer:
    folder: RunFolder
    display: Display
    checkpoints: Shelf
    journal: Journal
    mirror: Mirror | None = None
    on_evaluation: OnEvaluation | None = None
    collecting_seconds: float = 0.0

    def __init__(
        self,
        settings: Settings,
        source: EnvironmentSource,
        learner_type: LearnerType | None = None,
        curriculum: CurriculumFunction | None = None,
    ) -> None:
        set_up_torch(settings)
        self.settings = settings
        self.source = source
        self.curriculum = open_curriculum(settings, source, curriculum)
        env = source.training(settings.env.n_envs) if self.curriculum is None else self.curriculum.environment()
        self.facts = environment_facts(env)
        self.actor = make_actor(settings, env)
        scaler = RewardScaler(env.num_envs, settings.learning.gamma) if settings.env.normalize_rewards else None
        from_memory = isinstance(settings.learning, OffPolicySettings)
        self.collector = NativeCollector(env, source.name, self.actor, scaler, settings.seed, raw_rows=from_memory)
        self.learner = make_learner(settings, self.actor, learner_type, env.num_envs)
        self.state = RunState(
            learner=self.learner,
            collector=self.collector,
            schedule=make_schedule(settings.schedule),
            stopping=Stopping(settings.stopping),
            reward_scaler=scaler,
            best=BestPolicy(None, 0, policy_tensors(self.actor)),
            progress=Progress(next_checkpoint=settings.checkpoint.every_steps),
            curriculum=self.curriculum,
        )
        self.evaluator = Evaluator(source, self.facts.metric, settings.evaluation.max_episode_steps)
        check_schedule(settings, self.evaluator.available)
        if self.curriculum is not None:
            self.curriculum.check_measure(self.evaluator.available)
        self.evaluation_seeds = episode_seeds(settings.seed, "evaluation", settings.evaluation.episodes)
        self.plan = InspectionPlan(settings, env.num_envs // self.collector.at_once)

    # ------------------------------------------------------------------ beginning and going on

    def begin(self, folder: RunFolder, display: Display, *, again: bool = False) -> None:
        """A run from its first step (again: one that was killed before its first checkpoint).

        The untrained policy is kept, since the proof compares against it.
        """
        self._settle_in(folder, display, resumed=again)
        cut_back(self.folder.path, 0)
        self.checkpoints.forget_after(-1)
        self.folder.best.forget_after(-1)
        self.folder.initial.write(0, {"score": None, "step": 0}, {"policy": policy_tensors(self.actor)})
        self.journal = Journal(self.settings, self.folder, self.display, resume_step=None)
        self.journal.record(
            RunStarted(
                producer="learnproof",
                algorithm=self.settings.algorithm,
                environment=self.source.name,
                seed=self.settings.seed,
                metric=self.facts.metric,
                n_envs=self.collector.at_once,
                constants=self.learner.constants(),
                parameters=self.learner.parameter_sizes(),
                max_entropy=self.actor.head.max_entropy,
            )
        )
        if self.curriculum is not None:
            self.journal.record(self.curriculum.event(0, "training begins"))
        if self.settings.evidence.keep == "statistics":
            self.journal.record(
                NotSeen(what="samples", reason="evidence.keep = statistics: no inspected batches are kept")
            )
        if not self.evaluator.available:
            self.journal.record(NotSeen(what="evaluation", reason="no second environment was given to evaluate on"))
        if self.collector.can_snapshot:
            display.phase("starting the environment (its first use on a machine compiles it: some ten seconds)")
        self.collector.start()
        display.phase("")

    def go_on(self, folder: RunFolder, display: Display, checkpoint: Checkpoint) -> None:
        """Take a run up where a checkpoint left it; the evidence is cut back to the same moment."""
        self._settle_in(folder, display, resumed=True)
        whole = self.state.load(checkpoint)
        cut_back(self.folder.path, int(checkpoint.state()["evidence"]["position"]))
        self.checkpoints.forget_after(checkpoint.step)
        if self.state.best.score is not None:
            self._publish_best()
        self.journal = Journal(self.settings, self.folder, self.display, resume_step=checkpoint.step)
        if not whole:
            self.learner.episodes_begin_anew()
            reason = f"{self.source.name} has no snapshot(): every instance began a new episode after the resume"
            self.journal.record(EnvironmentRestarted(step=self.collector.steps, reason=reason))
            display.say(f"{reason}; the evidence says so.")

    def _settle_in(self, folder: RunFolder, display: Display, *, resumed: bool) -> None:
        self.folder = folder
        self.display = display
        self.checkpoints = folder.checkpoints(self.settings.checkpoint.keep)
        if self.settings.checkpoint.mirror:
            self.mirror = Mirror(self.settings.checkpoint.mirror, folder, resumed=resumed)

    def restore_best(self, folder: RunFolder, checkpoint: Checkpoint) -> None:
        """Read a finished run's last checkpoint whole, and publish its best policy again where best/ is gone."""
        checkpoint.verify()
        if folder.best.newest() is None:
            self.folder = folder
            self.state.load(checkpoint)
            self._publish_best()

    # ------------------------------------------------------------------ running

    def run(self, stop_request: StopRequest) -> Outcome:
        """Train to the end, or until asked to stop. What the environment or the numbers did wrong is written down."""
        try:
            return self._run(stop_request)
        except (EnvironmentFault, TrainingFault) as error:
            kind = "environment" if isinstance(error, EnvironmentFault) else "not_finite"
            self.journal.record(Fault(step=self.collector.steps, kind=kind, where=self.source.name, summary=str(error)))
            raise
        finally:
            self.journal.close()
            self.close()

    def close(self) -> None:
        if self.source.ours:
            self.collector.env.close()
        self.evaluator.close()

    def _run(self, stop_request: StopRequest) -> Outcome:
        stop: Stop | None = None
        if self.collector.steps == 0:
            stop = self._evaluate_when_due()
        while stop is None:
            stop = self._budget_spent()
            if stop is not None:
                break
            compiles = (
                bool(self.learner.kernel) and not self.learner.optimizer_steps and not is_kept(self.learner.kernel)
            )
            if compiles:
                self.display.phase(
                    "the first rollout and update (their first use on a machine compiles them: about a minute)"
                )
            self.iterate()
            if compiles:
                self.display.phase("")
            stop = self._evaluate_when_due()
            if stop is None:
                self._enter_stage_when_due()
                if self._checkpoint_is_due() or stop_request:
                    self._save()
                if stop_request:
                    return Outcome(self.collector.steps, None)
        self._finish(stop)
        return Outcome(self.collector.steps, stop)

    def iterate(self) -> None:
        """Collect, learn, write down."""
        state, settings = self.state, self.settings
        iteration = state.progress.iteration
        rate = settings.learning.learning_rate * state.schedule.factor(self.collector.steps / settings.steps)
        began, self.collecting_seconds = time.perf_counter(), 0.0
        steps_before = self.learner.optimizer_steps
        report = self.learner.learn(self._pieces(), rate, self.plan.request(iteration))
        updated = time.perf_counter()
        if report is not None:
            self.journal.update(iteration, self.collector.steps, steps_before, report)
            state.progress.iteration += 1
        self.folder.note_timing(
            iteration=iteration,
            collect_seconds=round(self.collecting_seconds, 6),
            update_seconds=round(updated - began - self.collecting_seconds, 6),
            record_seconds=round(time.perf_counter() - updated, 6),
        )
        self.journal.show(self.collector.steps)

    def _pieces(self) -> Iterator[Rollout]:
        """The rollouts of one iteration, each collected when the learner asks for it."""
        learning, envs = self.settings.learning, self.collector.at_once
        if isinstance(learning, OffPolicySettings):
            length, count = learning.train_every, learning.pieces(envs)
        else:
            assert isinstance(learning, OnPolicySettings)
            length, count = learning.n_steps, 1
        for _ in range(count):
            left = -(-(self.settings.steps - self.collector.steps) // envs)
            if left <= 0:
                return
            began = time.perf_counter()
            rollout, episodes = self.collector.collect(min(length, left), self.journal.show)
            for episode in episodes:
                self.journal.record(Episode(**vars(episode)))
                if self.curriculum is not None:
                    self.curriculum.episode(episode, self.facts.metric)
            self.collecting_seconds += time.perf_counter() - began
            yield rollout

    def _budget_spent(self) -> Stop | None:
        """Less than one minibatch (or one rollout, where that is smaller) left is not worth an update."""
        taken, budget, learning = self.collector.steps, self.settings.steps, self.settings.learning
        worth = 1
        if isinstance(learning, OnPolicySettings):
            agents = self.collector.env.num_envs // self.collector.at_once
            worth = min(-(-learning.minibatch_size // agents), learning.n_steps * self.collector.at_once)
        if taken and budget - taken < worth:
            return Stop("budget", f"{taken} of {budget} steps were taken")
        return None

    # ------------------------------------------------------------------ stages of a curriculum

    def _enter_stage_when_due(self) -> None:
        change = None if self.curriculum is None else self.curriculum.advance(self.collector.steps)
        if self.curriculum is None or change is None:
            return
        self.collector.enter(self.curriculum.environment())
        self.collector.begin_anew()
        self.learner.episodes_begin_anew()
        self.journal.record(self.curriculum.event(self.collector.steps, change.reason))
        self.display.say(f"step {self.collector.steps}: {change.reason}; now {change.stage.words()}")

    # ------------------------------------------------------------------ evaluating, saving, finishing

    def _evaluate_when_due(self) -> Stop | None:
        every, progress = self.settings.evaluation.every_steps, self.state.progress
        if not every or self.collector.steps < progress.next_evaluation or not self.evaluator.available:
            return None
        progress.next_evaluation = (self.collector.steps // every + 1) * every
        return self._evaluate()

    def _evaluate(self) -> Stop | None:
        step = self.collector.steps
        began = time.perf_counter()
        deterministic = self.evaluator.scores(self.actor, self.evaluation_seeds, "deterministic")
        sampled = self.evaluator.scores(self.actor, self.evaluation_seeds, "sampled")
        chosen = deterministic if self.settings.evaluation.mode == "deterministic" else sampled
        score = float(chosen.mean())
        is_best = self.state.best.score is None or score > self.state.best.score
        if is_best:
            self.state.best = BestPolicy(score, step, policy_tensors(self.actor))
            self._publish_best()
        waiting = self.curriculum is not None and not self.curriculum.stage.full
        if not waiting:
            self.state.schedule.observe(score)
        if self.curriculum is not None:
            self.curriculum.evaluated(score)
        self.journal.evaluation(
            Evaluation(step=step, deterministic=deterministic.tolist(), sampled=sampled.tolist(), best=is_best)
        )
        self.folder.note_timing(evaluation_at_step=step, seconds=round(time.perf_counter() - began, 6))
        self.journal.show(step)
        stop = self.state.stopping.observe(score, waiting=waiting)
        reason = None if self.on_evaluation is None else self.on_evaluation(step, score)
        return Stop("pruned", reason) if stop is None and reason is not None else stop

    def _publish_best(self) -> None:
        best = self.state.best
        self.folder.best.write(best.step, {"score": best.score, "step": best.step}, {"policy": best.policy})
        self.folder.best.forget_after(best.step)

    def _checkpoint_is_due(self) -> bool:
        """Asked once per iteration; where it is, the next one is due an interval later."""
        progress, every = self.state.progress, self.settings.checkpoint.every_steps
        if self.collector.steps < progress.next_checkpoint:
            return False
        progress.next_checkpoint = (self.collector.steps // every + 1) * every
        return True

    def _save(self) -> None:
        """Write a checkpoint: first the evidence up to here reaches the disk, then the checkpoint that refers to it."""
        began = time.perf_counter()
        step = self.collector.steps
        recorder = self.journal.recorder
        recorder.sync()
        self.checkpoints.write(step, self.state.to_json(recorder.position, recorder.digest), self.state.to_tensors())
        self.folder.note_timing(checkpoint_at_step=step, seconds=round(time.perf_counter() - began, 6))
        if self.mirror is not None:
            copied = self.mirror.copy()
            if copied.error is not None:
                self.display.say(copied.error, "warning")

    def _finish(self, stop: Stop) -> None:
        """Evaluate once more, restore the best policy, and close the books."""
        if self.evaluator.available and self.journal.evaluated_at != self.collector.steps:
            self._evaluate()
        if self.state.best.score is None:
            self.state.best = BestPolicy(None, self.collector.steps, policy_tensors(self.actor))
            self._publish_best()
        load_policy_tensors(self.actor, self.state.best.policy)
        self.journal.record(RunStopped(step=self.collector.steps, rule=stop.rule, reason=stop.reason))
        self.state.progress.finished = True
        self._save()
