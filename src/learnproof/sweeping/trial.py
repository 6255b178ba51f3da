"""One trial of a sweep: a training for each of its seeds, each a run folder with its verdict, and the score of them all.

A run that is already there is gone on with: one that was stopped or killed from its checkpoint, one that had ended by reading what it
left. Three sets of episode seeds are kept apart: on one the training chooses its best policy, on another the sweep scores it, on
a third it is proven; so the proof of the best trial is on seeds that had no part in choosing it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from ..config import Settings
from ..errors import LearnproofError, TrainingFault
from ..evidence import Evidence
from ..runs.folder import RunFolder
from ..seeding import episode_seeds
from ..show.progress import Display
from ..training import api
from ..training.evaluation import Evaluator
from ..training.interrupt import StopRequest
from ..training.loading import open_policy
from .plan import SweepFolder, SweepPlan
from .records import SeedRecord, TrialRecord, evaluations_of, joint_verdict, relative
from .study import Asked, SweepStudy, as_json

PRUNED = "pruned"


class Trial:
    def __init__(
        self,
        study: SweepStudy,
        folder: SweepFolder,
        asked: Asked,
        request: StopRequest,
        open_display: Callable[[int, int], Display],
    ) -> None:
        self.study = study
        self.plan: SweepPlan = study.plan
        self.folder = folder
        self.asked = asked
        self.request = request
        self.open_display = open_display
        self.interrupted: list[str] = list(asked.notes.get("interrupted", []))
        self._before = float(asked.notes.get("seconds", 0.0))
        self._began = time.monotonic()

    def run(self) -> TrialRecord:
        """To the end, or until asked to stop: then its state is `paused`."""
        runs: list[SeedRecord] = []
        seed = self.plan.settings.seed
        try:
            for index in range(self.plan.seeds):
                seed = self.plan.settings.seed + index
                if not self._train(index, seed):
                    return self._paused(runs)
                runs.append(self._record(seed))
                if runs[-1].stopped == PRUNED:
                    break
        except TrainingFault as error:
            runs.append(self._record(seed, scored=False))
            return self._ended("broken", runs, verdict="broken", note=str(error))
        except LearnproofError as error:
            return self._ended("failed", runs, note=str(error))
        except Exception as error:
            self._ended("failed", runs, note=f"{type(error).__name__}: {error}")
            raise
        if any(run.verdict == "broken" for run in runs):
            return self._ended(
                "broken", runs, verdict="broken", note="A check found a defect; the run's report names it."
            )
        return self._ended("pruned" if runs[-1].stopped == PRUNED else "finished", runs)

    # ------------------------------------------------------------------ one run

    def settings_for(self, seed: int) -> Settings:
        changes = {**self.asked.values, "seed": seed}
        mirror = self.plan.settings.checkpoint.mirror
        if mirror:  # a mirrored run lies under the name of its folder, and all of ours are called seed0, seed1, ...
            changes["checkpoint.mirror"] = f"{mirror.rstrip('/')}/{self.folder.path.name}/{self.asked.number:04d}"
        return self.plan.settings.replace(changes)

    def _train(self, index: int, seed: int) -> bool:
        """False where it was interrupted."""
        path = self.folder.run(self.asked.number, seed)
        if self.request:
            return False
        if has_ended(path):
            return True
        options: dict[str, Any] = {
            "display": self.open_display(self.asked.number, seed),
            "on_evaluation": self._on_evaluation(index),
            "stop_request": self.request,
        }
        if (path / "config.toml").exists():
            result = api.resume(path, **options)
        else:
            result = api.train(settings=self.settings_for(seed), out=path, **options)
        return result.verdict is not None

    def _on_evaluation(self, index: int) -> Callable[[int, float], str | None]:
        every, rungs = self.plan.settings.evaluation.every_steps, self.plan.rungs + 1

        def hear(step: int, score: float) -> str | None:
            if not every or not math.isfinite(score):
                return None
            rung = index * rungs + min(step // every, rungs - 1)
            if self.study.report(self.asked, rung, score):
                return (
                    f"the sweep gave it up: its evaluations are below the median of the finished trials at step {step}"
                )
            return None

        return hear

    def _record(self, seed: int, *, scored: bool = True) -> SeedRecord:
        path = self.folder.run(self.asked.number, seed)
        evidence = Evidence.read(path)
        verdict = json.loads((path / "verdict.json").read_bytes())
        performance = verdict["performance"] or {}
        stopped = evidence.stopped
        return SeedRecord(
            seed=seed,
            folder=relative(path, self.folder.path),
            verdict=str(verdict["verdict"]),
            score=self._score(path, seed) if scored else None,
            proof_score=performance.get("trained"),
            steps=stopped.step if stopped is not None else max((one.step for one in evidence.updates), default=0),
            stopped=stopped.rule if stopped is not None else "",
            evaluations=evaluations_of(evidence, self.plan.settings.evaluation.mode),
        )

    def _score(self, path: Path, seed: int) -> float:
        """Of the best policy, on the sweep's own seeds: the same ones for every trial."""
        scores: dict[str, float] = dict(self.asked.notes.get("scores", {}))
        if str(seed) not in scores:
            kept = open_policy(path)
            settings = kept.settings
            evaluator = Evaluator(kept.source, kept.metric, settings.evaluation.max_episode_steps)
            seeds = episode_seeds(seed, "sweep", self.plan.episodes)
            measured = evaluator.scores(kept.actor, seeds, settings.evaluation.mode)
            evaluator.close()
            scores[str(seed)] = float(measured.mean())
            self.study.note(self.asked, "scores", scores)
        return scores[str(seed)]

    # ------------------------------------------------------------------ how it ended

    def _paused(self, runs: list[SeedRecord]) -> TrialRecord:
        """Whoever goes on with it knows that it was not killed, and how long it has taken so far."""
        signal = "a signal" if self.request.signal is None else self.request.signal.name
        self.interrupted.append(signal)
        self.study.note(self.asked, "interrupted", self.interrupted)
        self.study.note(self.asked, "stopped_by", signal)
        self.study.note(self.asked, "seconds", self._seconds())
        return self._make("paused", runs, None, "")

    def _ended(self, state: str, runs: list[SeedRecord], verdict: str | None = None, note: str = "") -> TrialRecord:
        record = self._make(state, runs, verdict, note)
        self.study.note(self.asked, "record", record.to_json())
        if state == "finished" and record.score is not None:
            self.study.finish(self.asked, record.score)
        elif state == "pruned":
            self.study.give_up(self.asked)
        else:
            self.study.fail(self.asked)
        return record

    def _make(self, state: str, runs: list[SeedRecord], verdict: str | None, note: str) -> TrialRecord:
        scores = [run.score for run in runs if run.score is not None]
        counts = state in ("finished", "pruned") and scores
        return TrialRecord(
            number=self.asked.number,
            state=state,
            verdict=verdict or (joint_verdict([run.verdict for run in runs]) if runs else None),
            score=fmean(scores) if counts else None,
            values=as_json(self.asked.values),
            runs=runs,
            seconds=round(self._seconds(), 1),
            interrupted=self.interrupted,
            note=note,
        )

    def _seconds(self) -> float:
        return self._before + time.monotonic() - self._began


def has_ended(path: Path) -> bool:
    """Whether a run was trained to its end and judged."""
    if not (path / "config.toml").exists() or not (path / "verdict.json").exists():
        return False
    newest = RunFolder.open(path).checkpoints().newest()
    return newest is not None and bool(newest.state()["progress"]["finished"])
