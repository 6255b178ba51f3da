"""What is made of runs that are there: `learnproof verify`, `learnproof report`, `learnproof compare`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..errors import LearnproofError, RunFolderError, UsageError
from .command import PROVEN_OR_DONE, Command

if TYPE_CHECKING:
    from ..runs.folder import RunFolder


@dataclass(frozen=True)
class Verify:
    """Judge a run anew: its policies play fresh seeds again and its evidence is read again."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    json: Path | None = None
    """Also write the verdict here."""
    profile: Literal["default", "classic"] | None = None
    """Judge by this profile instead of the run's own; verdict.json and the report stay as they are."""


@dataclass(frozen=True)
class Report:
    """Print a run's verdict and draw its picture and report again from what is on disk."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""


@dataclass(frozen=True)
class Compare:
    """Which runs are better, and how sure that is: learnproof compare runs/ppo runs/dqn

    Each path is one group: a run of learnproof, a monitor.csv of Stable-Baselines3, a TensorBoard file, or a folder with
    several of them, which then are the seeds of one method.
    """

    groups: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")] = ()
    """Folders or files."""
    last: float = 0.1
    """The share of the steps, at the end, whose returns count as the result."""
    tag: str | None = None
    """The scalar to read from TensorBoard files; default: the usual names of returns."""
    json: Path | None = None
    """Also write the comparison here."""


def verify(arguments: Verify) -> int:
    from ..runs.atomic import write_file
    from ..runs.folder import RunFolder
    from ..show.verdict_table import print_verdict
    from ..supervising.conclusion import is_watched, verify_watched

    folder = RunFolder.open(arguments.run)
    if is_watched(folder):  # judged without torch
        verdict = verify_watched(folder, profile=arguments.profile)
    else:
        from ..training import api

        verdict = api.verify(arguments.run, profile=arguments.profile)
    if arguments.json is not None:
        body = json.dumps(verdict.to_json(), indent=2, allow_nan=False)
        write_file(arguments.json, body.encode() + b"\n")
    print_verdict(verdict.to_json(), folder=arguments.run, title=str(arguments.run))
    if arguments.profile is not None:
        print(f"Judged by the profile {arguments.profile}; verdict.json and the report are those of the run's own.")
    return verdict.exit_code


def report(arguments: Report) -> int:
    from ..evidence import Evidence
    from ..runs.folder import RunFolder
    from ..show.report import show_run
    from ..show.verdict_table import print_verdict

    folder = RunFolder.open(arguments.run)
    if not folder.verdict.exists():
        raise RunFolderError(
            f"{folder.path} has no verdict yet: `learnproof resume` goes on with the run, `learnproof verify` judges what "
            "there is."
        )
    verdict = _read_verdict(folder)
    evidence = Evidence.read(folder.path)
    show_run(folder, evidence, verdict)
    print_verdict(verdict, folder=folder.path, title=str(folder.path))
    print("This is verdict.json as it lies there; `learnproof verify` judges anew.")
    return PROVEN_OR_DONE


def _read_verdict(folder: RunFolder) -> dict[str, Any]:
    """A verdict of the right form, on the evidence that lies beside it."""
    from ..proof.verdict import Verdict

    try:
        verdict = Verdict.from_json(json.loads(folder.verdict.read_bytes()))
    except (ValueError, TypeError, KeyError, LearnproofError) as error:
        raise RunFolderError(
            f"{folder.verdict} is not a verdict ({error}). Judge the run anew: learnproof verify {folder.path}"
        ) from None
    judged = verdict.digests.get("evidence.jsonl")
    if judged is not None and judged != hashlib.sha256(folder.evidence.read_bytes()).hexdigest():
        raise RunFolderError(
            f"{folder.verdict} is a verdict on other evidence than lies in {folder.path}. Judge it anew: learnproof verify "
            f"{folder.path}"
        )
    return verdict.to_json()


def compare(arguments: Compare) -> int:
    from ..comparing.ranking import compare
    from ..comparing.sources import read_group
    from ..runs.atomic import write_file
    from ..show.comparison import print_comparison

    if len(arguments.groups) < 2:
        raise UsageError("There is nothing to compare. Give at least two: learnproof compare runs/ppo runs/dqn")
    if len(set(arguments.groups)) < len(arguments.groups):
        raise UsageError("The same path is given twice.")
    comparisons = compare([read_group(path, arguments.tag) for path in arguments.groups], last=arguments.last)
    told = [comparison.to_json() for comparison in comparisons]
    for comparison in told:
        print_comparison(comparison)
    if arguments.json is not None:
        write_file(arguments.json, json.dumps(told, indent=2).encode() + b"\n")
    return PROVEN_OR_DONE


COMMANDS = {
    "verify": Command(Verify, verify),
    "report": Command(Report, report),
    "compare": Command(Compare, compare),
}
