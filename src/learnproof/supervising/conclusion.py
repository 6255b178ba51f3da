"""A watched run's folder, before and after: what was started, and the verdict on what was seen."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from ..errors import RunFolderError
from ..evidence import Evidence, NotSeen, RunStarted
from ..evidence.watched import OptimizerStep
from ..proof.controls import with_controls
from ..proof.verdict import Verdict, check_waivers, judge
from ..runs.about import describe_run
from ..runs.atomic import write_file
from ..runs.folder import RunFolder, fresh_path
from ..runs.redaction import redact_arguments
from .controls import read_controls

RUNS = Path("runs")
Profile = Literal["default", "classic"]


def begin_folder(
    out: Path | None, name: str, command: Sequence[str], waive: Mapping[str, str] | None = None
) -> RunFolder:
    """A new run folder for something that is about to be watched; its waivers hold for whoever judges it later too."""
    check_waivers(waive or {})
    path = out if out is not None else fresh_path(RUNS, Path(name).stem or "script", "watched")
    shown = redact_arguments(command)
    about = {**describe_run(None, sys.argv, Path.cwd()), "watched": shown, "waive": dict(waive or {})}
    return RunFolder.create(path, f"# watched, not trained here: {shlex.join(shown)}\n", about)


def judge_watched(
    folder: RunFolder,
    *,
    reason: str = "",
    profile: Profile | None = None,
    report: bool = True,
    keep: bool = True,
) -> Verdict:
    """Judge what was seen, and write verdict.json and, where a report is wanted, learning_progress.png and report.html; `keep` = False only
    judges."""
    evidence = read_watched(folder, reason)
    verdict = judge(evidence, None, waive=waivers_of(folder), profile=profile or "default")
    controls = read_controls(folder, evidence, verdict.error_rate)
    if controls:
        verdict = with_controls(verdict, controls)
    parts = sorted(folder.path.glob("evidence*.jsonl"))
    digests = {part.name: hashlib.sha256(part.read_bytes()).hexdigest() for part in parts}
    verdict = dataclasses.replace(verdict, digests=digests)
    if not keep:
        return verdict
    body = verdict.to_json()
    write_file(folder.verdict, json.dumps(body, indent=2, allow_nan=False).encode() + b"\n")
    seen = len(evidence.episodes) + len(evidence.of(OptimizerStep))
    if seen and report:  # else there is nothing to draw, and drawing costs a second
        from ..show.report import show_run

        show_run(folder, evidence, body)
    return verdict


def verify_watched(folder: RunFolder, *, profile: Profile | None = None) -> Verdict:
    """Judge a watched run anew; by another profile than its own, without a trace in the folder."""
    with folder.lock():
        return judge_watched(folder, profile=profile, keep=profile is None)


def read_watched(folder: RunFolder, reason: str = "") -> Evidence:
    """The evidence; of a script in which nothing was seen, evidence that says so."""
    if folder.evidence.exists() and folder.evidence.stat().st_size:
        return Evidence.read(folder.path)
    unseen = Evidence(
        run=RunStarted(
            producer="watch",
            algorithm="unknown",
            environment="unknown",
            seed=0,
            metric="return",
            n_envs=0,
            constants={},
            parameters={},
            marked="inferred",
        )
    )
    unseen.add(
        NotSeen(what="training", reason=reason or "the script neither made an optimizer nor stepped an environment")
    )
    return unseen


def waivers_of(folder: RunFolder) -> dict[str, str]:
    waive = folder.read_about().get("waive", {})
    if not isinstance(waive, dict) or not all(isinstance(reason, str) for reason in waive.values()):
        raise RunFolderError(
            f"{folder.about} holds waivers in a form that is not learnproof's. Restore it from a copy."
        )
    check_waivers(waive)
    return waive


def is_watched(folder: RunFolder) -> bool:
    return "watched" in folder.read_about()
