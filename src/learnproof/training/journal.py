"""What a run writes down and shows: every event goes to the evidence, the live checks, the trackers and the display.

The journal keeps a little memory of what passed (recent returns, the monitor's records). After a resume it is fed the
evidence file once more, so that it goes on as if it had never stopped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from statistics import fmean
from typing import Any

from ..algorithms.learner import UpdateReport
from ..config import Settings
from ..evidence import (
    ChecklistLook,
    Episode,
    Evaluation,
    Event,
    Fault,
    Recorder,
    RunStarted,
    RunStopped,
    StageBegan,
    Update,
)
from ..evidence.events import ModuleChange
from ..evidence.reader import read_events
from ..evidence.recorder import Heard
from ..proof.monitor import ChecklistMonitor, MonitorLook
from ..runs.folder import RunFolder
from ..runs.trackers import open_trackers
from ..show.progress import CHECKS, Display, Status
from .inspection import record_inspection

RETURNS_SHOWN = 100
ALWAYS_RECORDED = (RunStarted, StageBegan, Evaluation, Fault, RunStopped)


class Journal:
    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        display: Display,
        resume_step: int | None,
        heard: Heard | None = None,
    ) -> None:
        e = settings.evidence
        self.enabled = e.enabled
        self.display = display
        self.settings = settings
        self.monitor: ChecklistMonitor | None = None
        self.returns: deque[float] = deque(maxlen=RETURNS_SHOWN)
        self.lengths: deque[int] = deque(maxlen=RETURNS_SHOWN)
        self.evaluated_at: int | None = None
        self.status = Status()
        if resume_step is not None:
            for event in read_events(folder.evidence):
                self._remember(event)
        self.recorder = Recorder(
            folder.path, max_bytes=int(e.max_megabytes * 1e6), keep_samples=e.keep == "samples", heard=heard
        )
        self.trackers = open_trackers(
            settings.trackers, folder.path, settings.model_dump(mode="json"), resume_step, self._warn
        )

    def record(self, event: Event) -> None:
        if not self.enabled and not isinstance(event, ALWAYS_RECORDED):
            return
        self.recorder.write(event)
        seen = self._remember(event)
        if seen is not None:
            self.recorder.write(seen.look)
            self._remember(seen.look)
            for sentence in seen.newly_wrong:
                self._warn(sentence)

    def update(self, iteration: int, step: int, steps_before: int, report: UpdateReport) -> None:
        """One iteration: its inspected batches first, then its figures."""
        if self.enabled:
            record_inspection(self.recorder, iteration, steps_before, report)
        event = update_event(iteration, step, report)
        self.record(event)
        self.recorder.flush()
        if self.trackers.names:
            self.trackers.log(step, self._metrics(event))

    def evaluation(self, event: Evaluation) -> None:
        self.record(event)
        self.recorder.flush()
        metrics = {"eval/mean_reward": fmean(event.deterministic), "eval/mean_reward_sampled": fmean(event.sampled)}
        self.trackers.log(event.step, metrics)

    def show(self, step: int) -> None:
        self.status = replace(self.status, step=step)
        self.display.update(self.status)

    def close(self) -> None:
        self.recorder.close()
        self.trackers.close()

    def _remember(self, event: Event) -> MonitorLook | None:
        match event:
            case RunStarted():
                every, profile = self.settings.evidence.check_every_episodes, self.settings.proof.profile
                self.monitor = ChecklistMonitor(event, check_every_episodes=every, profile=profile)
            case StageBegan():
                self.returns.clear()
                self.lengths.clear()
                number = f"{event.stage}" if event.stages is None else f"{event.stage} of {event.stages}"
                self.status = replace(self.status, mean_return=None, stage=number)
            case Episode():
                self.returns.append(event.return_)
                self.lengths.append(event.length)
                self.status = replace(self.status, mean_return=fmean(self.returns))
            case Update():
                self.status = replace(self.status, entropy=event.entropy[-1], learning_rate=event.learning_rate)
            case Evaluation():
                if event.best:
                    scores = event.deterministic if self.settings.evaluation.mode == "deterministic" else event.sampled
                    self.status = replace(self.status, evaluation_best=fmean(scores))
                self.status = replace(self.status, evaluations=(self.status.evaluations or 0) + 1)
                self.evaluated_at = event.step
            case ChecklistLook():
                self.status = replace(self.status, checks={name: getattr(event, name) for name in CHECKS})
        return None if self.monitor is None else self.monitor.feed(event)

    def _warn(self, sentence: str) -> None:
        self.display.say(sentence, "warning")

    def _metrics(self, update: Update) -> dict[str, float]:
        """Under the names that SB3's users know."""
        lists = {
            "train/approx_kl": update.approx_kl,
            "train/clip_fraction": update.clip_fraction,
            "train/entropy_loss": [-value for value in update.entropy],
            "train/loss": update.loss,
            "train/policy_gradient_loss": update.policy_loss,
            "train/value_loss": update.value_loss,
            "train/grad_norm": update.grad_norm,
        }
        metrics = {name: values[-1] for name, values in lists.items() if values}
        metrics |= {
            "train/explained_variance": update.explained_variance,
            "train/learning_rate": update.learning_rate,
            "train/weight_change": update.weight_change,
            "train/n_updates": update.optimizer_steps,
        }
        if update.curiosity is not None:
            metrics["train/curiosity"] = update.curiosity
        if self.returns:
            metrics |= {"rollout/ep_rew_mean": fmean(self.returns), "rollout/ep_len_mean": fmean(self.lengths)}
        return metrics


def update_event(iteration: int, step: int, report: UpdateReport) -> Update:
    kept: dict[str, Any] = {
        name: value
        for name, value in vars(report).items()
        if name not in ("modules", "inspected", "rollout", "iteration")
    }
    modules = {name: ModuleChange(**vars(module)) for name, module in report.modules.items()}
    return Update(index=iteration, step=step, modules=modules, **kept)
