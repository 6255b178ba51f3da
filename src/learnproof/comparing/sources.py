"""Training curves out of what runs leave behind.

A path is one group. It may be a run of learnproof (trained or watched), a monitor.csv of Stable-Baselines3 or a folder of
them (the copies of one run's vector environment), a TensorBoard file or a folder of one, or a folder whose subfolders are
any of these: then each is one run of the group, one seed of the same method.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MissingExtra, UsageError
from ..evidence import Evidence
from ..evidence.measured import environment_of

Array = np.ndarray[Any, Any]
TAGS = ("rollout/ep_rew_mean", "charts/episodic_return", "train/episode_return", "eval/mean_reward", "episode/return")
"""Where the usual libraries write returns, in the order in which they are looked for."""
DEEPEST = 4


@dataclass(frozen=True)
class RunCurve:
    """Returns of one run over its steps."""

    name: str
    kind: str
    environment: str
    """Empty where the file does not say."""
    steps: Array
    returns: Array


@dataclass(frozen=True)
class Group:
    name: str
    runs: tuple[RunCurve, ...]


def read_group(path: Path, tag: str | None = None) -> Group:
    if not path.exists():
        raise UsageError(f"There is no {path}. Give folders of runs, monitor.csv files or TensorBoard files.")
    runs = tuple(_runs_at(path, tag, DEEPEST))
    if not runs:
        raise UsageError(
            f"{path} holds no run: neither a run of learnproof (about.json) nor a monitor.csv of Stable-Baselines3 nor a "
            f"TensorBoard file, down to {DEEPEST} folders deep."
        )
    return Group(str(path), runs)


def _runs_at(path: Path, tag: str | None, deeper: int) -> Iterator[RunCurve]:
    if path.is_file():
        yield _tensorboard(path, path, tag) if "tfevents" in path.name else _monitors([path], path)
        return
    if (path / "about.json").exists() and (path / "config.toml").exists():
        yield _own(path)
        return
    monitors = sorted(path.glob("*monitor.csv"))
    if monitors:
        yield _monitors(monitors, path)
        return
    events = sorted(path.glob("*tfevents*"))
    if events:
        yield _tensorboard(path, path, tag)
        return
    if deeper:
        for below in sorted(place for place in path.iterdir() if place.is_dir()):
            yield from _runs_at(below, tag, deeper - 1)


def _own(path: Path) -> RunCurve:
    evidence = Evidence.read(path)
    episodes = evidence.comparable_episodes
    if evidence.stage is not None and not evidence.stage.full:
        raise UsageError(
            f"{path} ended in stage {evidence.stage.stage} of its curriculum: its training returns are of an easier task than the one it is "
            "compared on. Compare runs that reached the full task, or their evaluations (learnproof evaluate)."
        )
    if not episodes:
        raise UsageError(f"{path} has no finished training episode to compare.")
    steps = np.array([episode.step for episode in episodes], np.float64)
    returns = np.array([episode.return_ for episode in episodes], np.float64)
    return _curve(str(path), "learnproof", environment_of(evidence), steps, returns)


def _monitors(files: list[Path], path: Path) -> RunCurve:
    rows: list[tuple[float, float, float]] = []
    environment = ""
    for file in files:
        with open(file, newline="", encoding="utf-8", errors="replace") as lines:
            head = lines.readline()
            if head.startswith("#"):
                environment = _environment_in(head) or environment
            else:
                lines.seek(0)
            reader = csv.DictReader(lines)
            if not {"r", "l", "t"} <= set(reader.fieldnames or ()):
                raise UsageError(f"{file} is no monitor.csv of Stable-Baselines3: it has no columns r, l and t.")
            for row in reader:
                try:
                    rows.append((float(row["t"]), float(row["r"]), float(row["l"])))
                except (TypeError, ValueError):
                    raise UsageError(f"{file}, line {reader.line_num + 1}: r, l and t are not all numbers.") from None
    if not rows:
        raise UsageError(f"{path} has no finished episode to compare.")
    rows.sort()
    told = np.array(rows)
    return _curve(str(path), "Stable-Baselines3 monitor", environment, np.cumsum(told[:, 2]), told[:, 1])


def _environment_in(head: str) -> str:
    try:
        body = json.loads(head[1:])
    except ValueError:
        return ""
    return str(body.get("env_id") or "") if isinstance(body, dict) else ""


def _tensorboard(path: Path, shown: Path, tag: str | None) -> RunCurve:
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        raise MissingExtra("tensorboard", "tensorboard", "Reading TensorBoard files") from None
    events = EventAccumulator(str(path), size_guidance={"scalars": 0})
    events.Reload()
    known = list(events.Tags().get("scalars", []))
    wanted = [tag] if tag is not None else [name for name in TAGS if name in known]
    if not wanted or wanted[0] not in known:
        raise UsageError(
            f"{shown} has no scalar {tag or ' or '.join(TAGS)}. Choose one with --tag: {', '.join(sorted(known)[:30])}."
        )
    points = events.Scalars(wanted[0])
    steps = np.array([point.step for point in points], np.float64)
    values = np.array([point.value for point in points], np.float64)
    return _curve(str(shown), f"TensorBoard {wanted[0]}", "", steps, values)


def _curve(name: str, kind: str, environment: str, steps: Array, returns: Array) -> RunCurve:
    order = np.argsort(steps, kind="stable")
    finite = np.isfinite(returns[order]) & np.isfinite(steps[order])
    if not finite.any():
        raise UsageError(f"{name} has no finite return to compare.")
    return RunCurve(name, kind, environment, steps[order][finite], returns[order][finite])
