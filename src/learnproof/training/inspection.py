"""Which iterations are looked at closely, and what is kept of them.

Decided by counts alone, before the run: the first eight iterations, then evenly spaced ones, so many that close looks stay
near one gradient step in fifty. Never by the clock: two equal runs must inspect the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..algorithms.learner import Inspect, UpdateReport
from ..config import EvidenceSettings, OffPolicySettings, OnPolicySettings, Settings
from ..evidence import Inspection, Recorder

Array = np.ndarray[Any, Any]
FIRST = 8
FEWEST = 24
FEWEST_OF_ONE_STEP = 48
"""Where an iteration is one gradient step, it tells less."""
ONE_IN = 48
GROWTH = 1.1
ROWS_LOOKED_AT_AGAIN = 512
ROLLOUT_ROWS_KEPT = 65_536
OBSERVATION_NUMBERS_KEPT = 1_024


class InspectionPlan:
    def __init__(self, settings: Settings, agents: int = 1) -> None:
        """`agents` = rows of experience in one environment step."""
        e = settings.evidence
        iterations, gradient_steps = _size(settings, agents)
        fewest = FEWEST if gradient_steps > iterations else FEWEST_OF_ONE_STEP
        affordable = max(fewest, gradient_steps // (e.updates_per_inspection * ONE_IN))
        count = min(e.max_inspections, affordable, iterations)
        first = min(FIRST, count)
        spaced = np.linspace(first, iterations - 1, count - first).round().astype(int)
        self.iterations = {*range(first), *spaced.tolist()} if e.enabled else set()
        self.gradient_steps = e.updates_per_inspection

    def request(self, iteration: int) -> Inspect:
        return Inspect(self.gradient_steps, ROWS_LOOKED_AT_AGAIN) if iteration in self.iterations else Inspect()


class OpenPlan:
    """Where nobody knows how many updates will come: the first half of what is allowed, then each time a tenth more have passed."""

    def __init__(self, settings: EvidenceSettings) -> None:
        count = settings.max_inspections if settings.enabled else 0
        at = -(-count // 2)
        self.iterations = set(range(at))
        for _ in range(count - at):
            self.iterations.add(at)
            at = max(at + 1, round(at * GROWTH))
        self.gradient_steps = settings.updates_per_inspection

    def request(self, iteration: int) -> Inspect:
        return Inspect(self.gradient_steps, ROWS_LOOKED_AT_AGAIN) if iteration in self.iterations else Inspect()


def _size(settings: Settings, agents: int) -> tuple[int, int]:
    """Iterations of a run in which something is learnt, and the gradient steps of all of them."""
    learning, envs = settings.learning, settings.env.n_envs
    if isinstance(learning, OnPolicySettings):
        per_iteration = learning.n_steps * envs
        iterations = max(1, -(-settings.steps // per_iteration))
        return iterations, iterations * learning.epochs * -(-per_iteration * agents // learning.minibatch_size)
    assert isinstance(learning, OffPolicySettings)
    pieces = learning.pieces(envs)
    left = max(1, settings.steps - learning.learning_starts)
    iterations = max(1, left // (pieces * learning.train_every * envs))
    return iterations, iterations * pieces * learning.gradient_steps


def record_inspection(recorder: Recorder, iteration: int, before: int, report: UpdateReport) -> None:
    """Write the samples of one update: its rollout, its inspected gradient steps, and the rows looked at again."""
    keep = None if report.rollout is None else _Columns(report.rollout["reward"].shape)
    about: dict[str, Any] = {"update": iteration, "learning_rate": report.learning_rate}
    if keep is not None and report.rollout is not None:
        rollout = Inspection(kind="rollout", optimizer_step=before, **about)
        recorder.write_sample(rollout, keep.of_rollout(report.rollout))
    for step in report.inspected:
        recorder.write_sample(
            Inspection(
                kind="gradient_step",
                update=iteration,
                optimizer_step=step.optimizer_step,
                epoch=step.epoch,
                minibatch=step.minibatch,
                learning_rate=step.learning_rate,
                parameters=step.parameters,
            ),
            thinned(step.arrays if keep is None else keep.of_rows(step.arrays)),
        )
    if keep is not None and report.iteration is not None:
        recorder.write_sample(
            Inspection(kind="iteration", optimizer_step=report.optimizer_steps, **about), keep.of_rows(report.iteration)
        )


def thinned(arrays: dict[str, Array]) -> dict[str, Array]:
    """An observation of very many numbers (an image) is kept as evenly spaced ones of them: no check reads more of it than whether it
    is blank, and whole ones would leave no room for later batches."""
    observation = arrays.get("observation")
    if observation is None or observation.shape[1] <= OBSERVATION_NUMBERS_KEPT:
        return arrays
    columns = np.linspace(0, observation.shape[1] - 1, OBSERVATION_NUMBERS_KEPT).astype(np.int64)
    return {**arrays, "observation": observation[:, columns]}


class _Columns:
    """Keeps the first environments of a rollout that is too large to keep whole, and rewrites `row` to fit."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.steps, self.envs = shape
        self.kept = max(1, min(self.envs, ROLLOUT_ROWS_KEPT // max(1, self.steps)))

    def of_rollout(self, arrays: dict[str, Array]) -> dict[str, Array]:
        return {role: a if a.ndim == 0 else a[..., : self.kept] for role, a in arrays.items()}

    def of_rows(self, arrays: dict[str, Array]) -> dict[str, Array]:
        if self.kept == self.envs:
            return arrays
        t, n = np.divmod(arrays["row"], self.envs)
        inside = n < self.kept
        trimmed = {role: a[inside] for role, a in arrays.items()}
        trimmed["row"] = t[inside] * self.kept + n[inside]
        return trimmed
