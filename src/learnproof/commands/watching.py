"""Somebody else's training: `learnproof watch`, `learnproof follow`."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from ..errors import UsageError
from .command import FAILED, PROVEN_OR_DONE, Command


@dataclass(frozen=True)
class Watch:
    """Watch somebody's training script, unedited, and judge what it did: learnproof watch -- python train.py --seed 1

    The command after the two dashes runs as it would by itself; its output is its own, the verdict goes to standard
    error. Exit code: the script's own.
    """

    json: Path | None = None
    """Also write the verdict here."""
    out: Path | None = None
    """Folder for what is seen; default: a new one under runs/."""
    strict: bool = False
    """End with the verdict's code (0 proven, 1 broken, 3 unproven) where the script itself ended with 0."""
    stop_on: Literal["broken"] | None = None
    """End the script as soon as a defect is certain."""
    placebo: bool = False
    """Run the script twice more with learning made impossible, and compare: a proof must beat each that could be made."""
    waive: tuple[str, ...] = ()
    """Findings that are meant, each as CHECK=REASON; the verdict prints the reasons."""
    report: bool = True
    """Draw the picture and write report.html beside verdict.json."""
    quiet: bool = False
    """Print nothing; the verdict is in the folder."""
    command: tyro.conf.Suppress[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Follow:
    """Show what is being seen in a run while it is written, from another terminal."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""


def watch(arguments: Watch) -> int:
    from ..runs.atomic import write_file
    from ..show.terminal import open_console
    from ..show.verdict_table import print_verdict
    from ..supervising.launch import end_like, watch_command

    _room_for(arguments.json)
    done = watch_command(
        arguments.command,
        out=arguments.out,
        stop_on_broken=arguments.stop_on == "broken",
        waive=_waivers(arguments.waive),
        report=arguments.report,
        placebo=arguments.placebo,
    )
    if not arguments.quiet and done.verdict is not None:
        sys.stdout.flush()
        console = open_console(sys.stderr)
        print_verdict(done.verdict.to_json(), folder=done.folder.path, title=str(done.folder.path), console=console)
        if done.returncode and not done.stopped:
            print(f"The script {_ending(done.returncode)}; what it did until then was judged.", file=sys.stderr)
    if arguments.json is not None and done.verdict is not None:
        write_file(arguments.json, done.folder.verdict.read_bytes())
    if done.stopped:
        return FAILED
    if done.returncode == 0 and arguments.strict:
        return FAILED if done.verdict is None else done.verdict.exit_code
    return end_like(done.returncode)


def _ending(returncode: int) -> str:
    """How a script that did not end well ended; a shell or a handler says a signal as 128 and its number."""
    number = -returncode if returncode < 0 else returncode - 128
    try:
        return f"was ended by {signal.Signals(number).name}"
    except ValueError:
        return f"ended with exit code {returncode}"


def _room_for(path: Path | None) -> None:
    """Before anything that takes long: the folder of a file that is written in the end."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"--json {path} is a folder: give the name of the file in it.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"--json {path} cannot be written: {error.strerror or error}.") from None


def _waivers(words: Sequence[str]) -> dict[str, str]:
    from ..proof.verdict import check_waivers

    waivers = {name.strip(): reason for name, _, reason in (word.partition("=") for word in words)}
    check_waivers(waivers)
    return waivers


def follow(arguments: Follow) -> int:
    from ..supervising.following import follow

    follow(arguments.run)
    return PROVEN_OR_DONE


def _script_apart(words: list[str]) -> tuple[list[str], Any]:
    """What comes after the two dashes is the script's."""
    if "--" not in words:
        return words, None
    cut = words.index("--")
    return words[:cut], Watch(command=tuple(words[cut + 1 :]))


COMMANDS = {"watch": Command(Watch, watch, _script_apart), "follow": Command(Follow, follow)}
