"""`learnproof watch -- COMMAND`: the command as it would run without us, with the watcher inside it.

The command runs in its own interpreter, with our inject/ folder first on PYTHONPATH. Its input, output, working folder,
arguments and signals are its own; we only wait. When it ends, what was seen is judged, the verdict goes to standard error,
and we end as it ended: with its exit code, or by the signal that killed it. `--strict` gives the verdict's code where the
script's own was 0.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..proof.verdict import Verdict
from ..runs.folder import RunFolder
from .conclusion import begin_folder, judge_watched
from .controls import run_controls
from .following import Follower

INJECT = Path(__file__).parent.parent / "watching" / "inject"
LOOK_EVERY_SECONDS = 2.0
GRACE_SECONDS = 10.0
DEAF = {"-I": "isolated mode", "-E": "the environment is ignored", "-S": "site is not imported"}


@dataclass(frozen=True)
class Watched:
    folder: RunFolder
    verdict: Verdict | None
    """None where judging itself failed; the script's own end does not depend on it."""
    returncode: int
    """As subprocess gives it: negative for a signal."""
    stopped: bool
    """Whether we ended it, because a defect was certain."""


def watch_command(
    command: Sequence[str],
    *,
    out: Path | None = None,
    stop_on_broken: bool = False,
    waive: Mapping[str, str] | None = None,
    report: bool = True,
    placebo: bool = False,
) -> Watched:
    program = _program(command)
    folder = begin_folder(out, _script_name(command), command, waive)
    deaf = _deaf_flag(command)
    environment = _environment(folder.path, deaf)
    with _signals_are_the_childs() as forward_to:
        try:
            child = subprocess.Popen([program, *command[1:]], env=environment)
        except OSError as error:
            raise UsageError(f"{command[0]} could not be started: {error.strerror or error}.") from None
        forward_to.append(child)
        stopped = _wait(child, folder, stop_on_broken, waive or {})
    not_started = folder.path / "not_started.txt"
    if deaf is not None:
        reason = f"python {deaf} was given ({DEAF[deaf]}), so that the watcher was never loaded"
    elif not_started.exists():
        reason = f"the watcher could not start: {not_started.read_text()[:300].strip()}"
    else:
        reason = ""
    if placebo and not stopped and child.returncode == 0:
        run_controls([program, *command[1:]], folder, lambda path: _environment(path, deaf))
    try:
        verdict = judge_watched(folder, reason=reason, report=report)
    except Exception as error:  # whatever was wrong with what we saw, the script ends as it ended
        print(f"learnproof: what was seen could not be judged: {type(error).__name__}: {error}", file=sys.stderr)
        verdict = None
    return Watched(folder, verdict, child.returncode, stopped)


def end_like(returncode: int) -> int:
    """The exit code to leave with; a command that died of a signal takes us with it by the same one."""
    if returncode >= 0:
        return returncode
    number = -returncode
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    os.kill(os.getpid(), number)
    time.sleep(1)
    return 128 + number


def _wait(child: subprocess.Popen[bytes], folder: RunFolder, stop_on_broken: bool, waive: Mapping[str, str]) -> bool:
    if not stop_on_broken:
        child.wait()
        return False
    follower = Follower(folder.path)
    while True:
        try:
            child.wait(LOOK_EVERY_SECONDS)
            return False
        except subprocess.TimeoutExpired:
            verdict = follower.judge(waive)
            if verdict is not None and verdict.verdict == "broken":
                print(f"learnproof: stopping the script: {verdict.final_status}", file=sys.stderr, flush=True)
                _stop(child)
                return True


def _stop(child: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        child.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
            return


@contextlib.contextmanager
def _signals_are_the_childs() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Ctrl-C reaches the whole terminal group: the child answers it, we wait. Signals sent to us alone are handed on."""
    children: list[subprocess.Popen[bytes]] = []

    def hand_on(number: int, frame: object) -> None:
        for child in children:
            child.send_signal(number)

    def leave_to_child(number: int, frame: object) -> None:
        pass

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, leave_to_child),
        signal.SIGTERM: signal.signal(signal.SIGTERM, hand_on),
        signal.SIGHUP: signal.signal(signal.SIGHUP, hand_on),
    }
    try:
        yield children
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _environment(folder: Path, deaf: str | None) -> dict[str, str]:
    environment = dict(os.environ)
    if deaf is None:
        before = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = str(INJECT) if not before else f"{INJECT}{os.pathsep}{before}"
        environment["LEARNPROOF_WATCH"] = str(folder.absolute())
    environment.pop("LEARNPROOF_WATCH_PARENT", None)
    return environment


def _program(command: Sequence[str]) -> str:
    if not command:
        raise UsageError(
            "There is nothing to watch. Give the command after two dashes: learnproof watch -- python train.py --seed 1"
        )
    if command[0].endswith(".py"):
        raise UsageError(f"Give the interpreter too: learnproof watch -- python {' '.join(command)}")
    found = shutil.which(command[0])
    if found is None:
        raise UsageError(f"There is no program {command[0]!r} here. Give a command that would run by itself.")
    return command[0]


def _script_name(command: Sequence[str]) -> str:
    words = [word for word in command[1:] if not word.startswith("-")]
    return words[0] if words else Path(command[0]).name


def _deaf_flag(command: Sequence[str]) -> str | None:
    """A flag of the interpreter that keeps us out; flags after the script's name are the script's own."""
    if "python" not in Path(command[0]).name:
        return None
    words = iter(command[1:])
    for word in words:
        if not word.startswith("-") or word == "-":
            return None
        for position, letter in enumerate(word[1:]):
            if f"-{letter}" in DEAF:
                return f"-{letter}"
            if letter in "cm":
                return None
            if letter in "WX":  # what follows is its argument, in this word or in the next
                if position == len(word) - 2:
                    next(words, None)
                break
    return None
