"""The command line: one command per job, each a few lines that call the module which does it.

Torch is imported by the commands that need it, when they run: `learnproof --help` answers at once.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from pydantic import ValidationError

from . import __version__
from .commands import policies
from .commands import sweep as sweeps
from .config import Settings, explained, load_settings
from .errors import LearnproofError, UsageError, did_you_mean

if TYPE_CHECKING:
    from .runs.folder import RunFolder

PROVEN_OR_DONE, FAILED, BAD_USAGE, UNPROVEN = 0, 1, 2, 3


@dataclass(frozen=True)
class Train:
    """Train on an environment, then prove what was learnt.

    Any setting can be given by its dotted name (--ppo.learning-rate 1e-3) or in a TOML file (--config); the command line
    wins. Ctrl-C leaves a run that `learnproof resume` goes on with. Exit code: 0 proven, 1 broken, 3 unproven.
    """

    env: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")] = None
    """Any Gymnasium id, e.g. CartPole-v1 or learnproof/TaskAllocation-v1. May come from the settings file instead."""
    config: Path | None = None
    """Settings file (TOML); ready ones are in configs/."""
    out: Path | None = None
    """Folder of the run; default: a new one under runs/."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped or killed, from its newest checkpoint."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    step: int | None = None
    """Go back to the checkpoint of this step instead of the newest; what came after it is dropped."""


@dataclass(frozen=True)
class Verify:
    """Judge a run anew: its policies play fresh seeds again and its evidence is read again."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    json: Path | None = None
    """Also write the verdict here."""
    profile: Literal["default", "classic"] | None = None
    """Judge by this profile instead of the run's own."""


@dataclass(frozen=True)
class Evaluate:
    """Play fresh episodes with a run's best policy, deterministic and sampled."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    episodes: int = 100
    """How many, in each mode."""
    seed: int | None = None
    """Root of the episode seeds; default: the run's own."""


@dataclass(frozen=True)
class Report:
    """Print a run's verdict and draw its picture and report again from what is on disk."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""


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
    """Run the script twice more with learning made impossible, and compare: a proof must beat both."""
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


@dataclass(frozen=True)
class Probe:
    """Let a training function climb small problems whose right answers are known: learnproof probe my_agent:train

    The function is called with what it names of: env, make_env, steps, seed, gamma. It returns what chooses the actions: a
    function from an observation to an action, a Stable-Baselines3 model, or a pair of a policy and a value function. The rung
    that fails says what is broken. Exit code: 0 all climbed, 1 a rung failed, 3 not with every seed.
    """

    function: tyro.conf.Positional[str]
    """module:function or file.py:function, from the working folder."""
    rungs: tuple[str, ...] = ()
    """Only these rungs; default: all."""
    seeds: int = 3
    """Trainings per rung; a rung is climbed where all of them answer rightly."""
    steps: int | None = None
    """Steps that the function is told to train, instead of each rung's own (4,000 to 20,000)."""
    gamma: float = 0.99
    """The discount that the learner uses; the right answers depend on it."""
    continuous: bool = False
    """One continuous action in [-1, 1] instead of discrete ones, for learners such as SAC."""
    json: Path | None = None
    """Also write the results here."""


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


@dataclass(frozen=True)
class Envs:
    """List the environments that ship with learnproof."""


def train(arguments: Train) -> int:
    from .show.verdict_table import print_verdict
    from .training import api

    settings = arguments.settings
    result = api.train(arguments.env, settings=settings, out=arguments.out)
    return _close(result, print_verdict)


def resume(arguments: Resume) -> int:
    from .show.verdict_table import print_verdict
    from .training import api

    return _close(api.resume(arguments.run, step=arguments.step), print_verdict)


def verify(arguments: Verify) -> int:
    from .runs.atomic import write_file
    from .runs.folder import RunFolder
    from .show.verdict_table import print_verdict
    from .supervising.conclusion import is_watched, verify_watched

    folder = RunFolder.open(arguments.run)
    if is_watched(folder):  # judged without torch
        verdict = verify_watched(folder, profile=arguments.profile)
    else:
        from .training import api

        verdict = api.verify(arguments.run, profile=arguments.profile)
    if arguments.json is not None:
        write_file(arguments.json, (arguments.run / "verdict.json").read_bytes())
    print_verdict(verdict.to_json(), folder=arguments.run, title=str(arguments.run))
    return verdict.exit_code


def evaluate(arguments: Evaluate) -> int:
    from .training import api

    scores = api.evaluate(arguments.run, episodes=arguments.episodes, seed=arguments.seed)
    for mode, values in scores.items():
        print(
            f"{mode:14} mean {values.mean():.6g}  deviation {values.std(ddof=1) if len(values) > 1 else 0:.4g}  "
            f"lowest {values.min():.6g}  highest {values.max():.6g}  ({len(values)} episodes)"
        )
    return PROVEN_OR_DONE


def report(arguments: Report) -> int:
    from .errors import RunFolderError
    from .evidence import Evidence
    from .runs.folder import RunFolder
    from .show.report import show_run
    from .show.verdict_table import print_verdict

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
    from .errors import RunFolderError
    from .proof.verdict import Verdict

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


def watch(arguments: Watch) -> int:
    from .runs.atomic import write_file
    from .show.terminal import open_console
    from .show.verdict_table import print_verdict
    from .supervising.launch import end_like, watch_command

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
    if arguments.json is not None and done.verdict is not None:
        write_file(arguments.json, done.folder.verdict.read_bytes())
    if done.stopped:
        return FAILED
    if done.returncode == 0 and arguments.strict:
        return FAILED if done.verdict is None else done.verdict.exit_code
    return end_like(done.returncode)


def _room_for(path: Path | None) -> None:
    """Before anything that takes long: the folder of a file that is written in the end."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--json {path} cannot be written: {error.strerror or error}.") from None


def _waivers(words: Sequence[str]) -> dict[str, str]:
    from .proof.verdict import check_waivers

    waivers = {name.strip(): reason for name, _, reason in (word.partition("=") for word in words)}
    check_waivers(waivers)
    return waivers


def follow(arguments: Follow) -> int:
    from .supervising.following import follow

    follow(arguments.run)
    return PROVEN_OR_DONE


def probe(arguments: Probe) -> int:
    from .probing.calling import find_function
    from .probing.climbing import climb_ladder, ladder
    from .runs.atomic import write_file
    from .show.ladder import LadderSheet

    rungs = ladder(arguments.rungs)
    train = find_function(arguments.function)
    sheet = LadderSheet()
    climbs: list[dict[str, Any]] = []
    for climb in climb_ladder(
        train,
        rungs=rungs,
        seeds=arguments.seeds,
        steps=arguments.steps,
        gamma=arguments.gamma,
        continuous=arguments.continuous,
        on_seed=lambda rung, seed: sheet.note(rung.name, seed, arguments.seeds),
    ):
        climbs.append(climb.to_json())
        sheet.rung(climbs[-1])
    sheet.summary(climbs)
    if arguments.json is not None:
        write_file(arguments.json, json.dumps(climbs, indent=2).encode() + b"\n")
    statuses = {climb["status"] for climb in climbs}
    if statuses & {"failed", "raised"}:
        return FAILED
    return PROVEN_OR_DONE if "climbed" in statuses and "unsteady" not in statuses else UNPROVEN


def compare(arguments: Compare) -> int:
    from .comparing.ranking import compare
    from .comparing.sources import read_group
    from .runs.atomic import write_file
    from .show.comparison import print_comparison

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


def envs(arguments: Envs) -> int:
    from .envs import shipped_environments

    for environment in shipped_environments():
        print(f"{environment.id:32} {environment.summary}")
    print(
        "\nAny other Gymnasium id works too, e.g. CartPole-v1. With --env.per-agent the agents of a team decide one by one: in task allocation,"
    )
    print("or in any PettingZoo parallel environment, named by the function that makes it (module:function).")
    return PROVEN_OR_DONE


@dataclass(frozen=True)
class Command:
    arguments: type[Any]
    run: Callable[[Any], int]

    @property
    def summary(self) -> str:
        return (self.arguments.__doc__ or "").strip().splitlines()[0]


COMMANDS: dict[str, Command] = {
    "train": Command(Train, train),
    "resume": Command(Resume, resume),
    "sweep": Command(sweeps.Sweep, sweeps.sweep),
    "verify": Command(Verify, verify),
    "evaluate": Command(Evaluate, evaluate),
    "report": Command(Report, report),
    "enjoy": Command(policies.Enjoy, policies.enjoy),
    "export": Command(policies.Export, policies.export),
    "watch": Command(Watch, watch),
    "follow": Command(Follow, follow),
    "probe": Command(Probe, probe),
    "compare": Command(Compare, compare),
    "envs": Command(Envs, envs),
}


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return PROVEN_OR_DONE if words else BAD_USAGE
    if words[0] == "--version":
        print(f"learnproof {__version__}")
        return PROVEN_OR_DONE
    try:
        return _dispatch(words[0], words[1:])
    except LearnproofError as error:
        print(f"learnproof: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return FAILED  # whoever read our output has gone
    except KeyboardInterrupt:
        print("learnproof: stopped at once; the last checkpoint is whole.", file=sys.stderr)
        return 130


def _dispatch(name: str, words: list[str]) -> int:
    command = COMMANDS.get(name)
    if command is None:
        raise UsageError(f"There is no command {name!r}.{did_you_mean(name, COMMANDS)} `learnproof --help` lists them.")
    default: Any = None
    if command.arguments is Watch and "--" in words:
        cut = words.index("--")
        words, default = words[:cut], Watch(command=tuple(words[cut + 1 :]))
    if command.arguments in (Train, sweeps.Sweep):
        path = _config_named_in(words)
        default = command.arguments(settings=load_settings(path)) if path is not None else None
    try:
        arguments = tyro.cli(command.arguments, prog=f"learnproof {name}", args=words, default=default)
    except ValidationError as error:
        raise explained(error, "the command line") from None
    return command.run(arguments)


def _config_named_in(words: list[str]) -> str | None:
    """The settings file is read before the rest of the command line, which may then change single values of it."""
    for position, word in enumerate(words):
        if word == "--config" and position + 1 < len(words):
            return words[position + 1]
        if word.startswith("--config="):
            return word.partition("=")[2]
    return None


def _close(result: Any, print_verdict: Callable[..., None]) -> int:
    """Show how a run ended; an interrupted one ends as shells expect of its signal."""
    if result.verdict is None:
        return 128 + int(result.stopped_by or 2)
    print_verdict(result.verdict.to_json(), folder=result.path, title=str(result.path))
    return int(result.verdict.exit_code)


def _overview() -> str:
    rows = "\n".join(f"  {name:10} {command.summary}" for name, command in COMMANDS.items())
    return (
        f"learnproof {__version__}: reinforcement learning that proves its agents learn.\n\n"
        f"usage: learnproof COMMAND ...\n\n{rows}\n\n"
        "`learnproof COMMAND --help` explains one. Start with: learnproof train CartPole-v1\n"
        "Exit codes: 0 proven or done, 1 broken or failed, 2 bad usage, 3 unproven."
    )


if __name__ == "__main__":
    sys.exit(main())
