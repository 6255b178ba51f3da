"""Reads evidence back: `Evidence.read(run_folder)` gives typed events, and batches as they are asked for.

The file may be a stranger's, so nothing in it is trusted: names of batches may not leave samples/, a line that is too
long or not JSON is an EvidenceError with its number, and a last line without its newline (a run killed while writing)
is left out.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.numpy import load

from ..errors import EvidenceError
from .events import (
    EVIDENCE_VERSION,
    ChecklistLook,
    EnvironmentRestarted,
    Episode,
    EpisodesGiven,
    Evaluation,
    Event,
    Fault,
    Inspection,
    NotSeen,
    RunStarted,
    RunStopped,
    StageBegan,
    Update,
    revive,
)
from .watched import WATCHED_EVENTS, LossSeen

Array = np.ndarray[Any, Any]
E = TypeVar("E", bound=Event)
T = TypeVar("T")
KINDS: tuple[type[Event], ...] = (
    RunStarted,
    Episode,
    EpisodesGiven,
    Update,
    Evaluation,
    Inspection,
    ChecklistLook,
    NotSeen,
    EnvironmentRestarted,
    Fault,
    RunStopped,
    StageBegan,
    *WATCHED_EVENTS,
)
EVENTS = {kind.event: kind for kind in KINDS}
PART_NAME = re.compile(r"evidence-[0-9]{1,12}\.jsonl")
MAX_PARTS = 256
SAMPLE_NAME = re.compile(r"[a-z_]+[0-9]{0,12}-[0-9]{1,12}-[0-9]{1,18}\.safetensors")
MAX_LINE_BYTES = 1_000_000
MAX_SAMPLE_BYTES = 64_000_000


@dataclass(frozen=True)
class Sample:
    """One inspected batch: the event that announced it and its arrays by role."""

    event: Inspection
    arrays: dict[str, Array]
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What follows from this batch alone, worked out once where the same evidence is judged again and again."""
        if name not in self.memo:
            self.memo[name] = make()
        known: T = self.memo[name]
        return known

    def __getitem__(self, role: str) -> Array:
        return self.arrays[role]

    def __contains__(self, role: str) -> bool:
        return role in self.arrays


@dataclass
class Evidence:
    """All that is known of a run. Build it from a folder with `read`, or in memory for a test."""

    run: RunStarted
    episodes: list[Episode] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    inspections: list[Inspection] = field(default_factory=list)
    looks: list[ChecklistLook] = field(default_factory=list)
    not_seen: list[NotSeen] = field(default_factory=list)
    restarts: list[EnvironmentRestarted] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    stopped: RunStopped | None = None
    others: dict[type[Event], list[Any]] = field(default_factory=dict)
    """Events that only some runs have, by type; ask with `of`."""
    folder: Path | None = None
    held: dict[int, dict[str, Array]] = field(default_factory=dict)
    """Batches held in memory instead of in files, by position in `inspections` (tests, live judging)."""
    memos: dict[int, dict[str, Any]] | None = field(default=None, repr=False, compare=False)
    """What followed from single batches, by position, where it is to be kept from one judgement to the next (Sample.once)."""
    derived: dict[type[Any], Any] = field(default_factory=dict, repr=False, compare=False)
    """What readers worked out from it, kept so that it is worked out once; forgotten when an event is added."""

    @classmethod
    def read(cls, folder: Path) -> Evidence:
        """Of a job with several processes, each has a file of its own; theirs come after the first one's."""
        events = list(read_events(folder / "evidence.jsonl"))
        if not events or not isinstance(events[0], RunStarted):
            raise EvidenceError(
                f"{folder / 'evidence.jsonl'} does not begin with a run_started event: the run was killed before it "
                "began, or the file is not evidence."
            )
        evidence = cls(run=events[0], folder=folder)
        for event in events[1:]:
            evidence.add(event)
        parts = sorted(path for path in folder.glob("evidence-*.jsonl") if PART_NAME.fullmatch(path.name))
        for number, part in enumerate(parts[:MAX_PARTS], start=1):
            for event in read_events(part):
                evidence.add(dataclasses.replace(event, process=number))
        return evidence

    @property
    def of_watcher(self) -> bool:
        """Whether a watcher wrote it: then roles are inferred, and the checks of watched loops apply."""
        return self.run.producer == "watch"

    @property
    def of_engine(self) -> bool:
        """Whether the episodes were collected elsewhere and given to a TrainingEngine."""
        return self.run.producer == "engine"

    def of(self, kind: type[E]) -> list[E]:
        """All events of a kind that most runs do not have: a watcher's, an engine's, a curriculum's."""
        return self.others.get(kind, [])

    @property
    def stage(self) -> StageBegan | None:
        """The newest stage of the run's curriculum, where it has one."""
        stages = self.of(StageBegan)
        return stages[-1] if stages else None

    @property
    def comparable_from(self) -> int:
        """What is measured after this step is of one task; what a curriculum's earlier stages gave is of others."""
        return -1 if self.stage is None else self.stage.step

    @property
    def comparable_episodes(self) -> list[Episode]:
        """Training episodes whose returns may be read as one curve."""
        return self.episodes if self.stage is None else [e for e in self.episodes if e.step > self.comparable_from]

    def add(self, event: Event) -> None:
        self.derived.clear()
        match event:
            case Episode():
                self.episodes.append(event)
            case Update():
                self.updates.append(event)
            case Evaluation():
                self.evaluations.append(event)
            case Inspection():
                self.inspections.append(event)
            case ChecklistLook():
                self.looks.append(event)
            case NotSeen():
                self.not_seen.append(event)
            case EnvironmentRestarted():
                self.restarts.append(event)
            case Fault():
                self.faults.append(event)
            case RunStopped() if event.process == 0:
                self.stopped = event
            case _:
                self.others.setdefault(type(event), []).append(event)

    def samples(
        self, kind: Literal["rollout", "gradient_step", "iteration", "transitions", "calls"]
    ) -> Iterator[Sample]:
        """The kept batches of a kind, in the order of training."""
        for position, event in enumerate(self.inspections):
            if event.kind != kind:
                continue
            memo = {} if self.memos is None else self.memos.setdefault(position, {})
            if position in self.held:
                yield Sample(event, self.held[position], memo)
            elif event.file is not None and self.folder is not None:
                yield Sample(event, read_sample(self.folder / "samples", event.file, event.sha256), memo)

    def arrays_of(self, event: LossSeen) -> dict[str, Array]:
        """The batch of a loss that a watcher read; empty where it was not kept."""
        if event.file is None or self.folder is None:
            return {}
        return read_sample(self.folder / "samples", event.file, event.sha256)


def read_events(path: Path) -> Iterator[Event]:
    try:
        file = open(path, "rb")  # noqa: SIM115 (closed by the with below)
    except FileNotFoundError:
        raise EvidenceError(f"There is no evidence at {path}: the run recorded none, or this is not a run.") from None
    with file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise EvidenceError(f"Line {number} of {path} is longer than {MAX_LINE_BYTES} bytes.")
            if not line.endswith(b"\n"):
                return
            event = _parse(line, number, path)
            if isinstance(event, RunStarted) and event.version != EVIDENCE_VERSION:
                raise EvidenceError(
                    f"{path} is evidence in form {event.version}; this learnproof reads form {EVIDENCE_VERSION}. "
                    "Judge it with the version that wrote it (about.json names it)."
                )
            if event is not None:
                yield event


def _parse(line: bytes, number: int, path: Path) -> Event | None:
    try:
        body = json.loads(line)
        return from_json(body) if isinstance(body, dict) else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise EvidenceError(
            f"Line {number} of {path} is not an event of the known form: {_first_words(error)}."
        ) from None


def from_json(body: dict[str, Any]) -> Event | None:
    """The typed event, or None for a kind that this version does not know (a newer writer's)."""
    kind = EVENTS.get(str(body.get("event")))
    if kind is None:
        return None
    names = {item.name.rstrip("_"): item.name for item in dataclasses.fields(kind)}
    values = {names[k]: revive(v) for k, v in body.items() if k in names}
    return _form_of(kind.event).validate_python(values)


def _first_words(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


@functools.cache
def _form_of(event: str) -> TypeAdapter[Event]:
    """Checks that a stranger's numbers are numbers before any check computes with them."""
    return TypeAdapter(EVENTS[event])


def read_sample(samples: Path, name: str, sha256: str | None) -> dict[str, Array]:
    if not SAMPLE_NAME.fullmatch(name):
        raise EvidenceError(f"{name!r} is not the name of an inspected batch.")
    path = samples / name
    if not path.is_file() or path.is_symlink():
        raise EvidenceError(f"The inspected batch {path} is missing; evidence.jsonl names it.")
    if path.stat().st_size > MAX_SAMPLE_BYTES:
        raise EvidenceError(f"{path} is larger than {MAX_SAMPLE_BYTES} bytes, which no inspected batch is.")
    body = path.read_bytes()
    if hashlib.sha256(body).hexdigest() != sha256:
        raise EvidenceError(
            f"{path} is not the batch that the run inspected: its digest differs from the one recorded."
        )
    try:
        return dict(load(body))
    except (SafetensorError, ValueError, KeyError) as error:
        raise EvidenceError(f"{path} cannot be read as safetensors: {error}.") from None
