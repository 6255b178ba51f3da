"""The command line: which commands there are, and how the words that were typed reach one.

The commands themselves are in commands/, a file for each group, which is imported when one of its commands is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from traceback import format_exception

from . import __version__
from .commands.command import BAD_USAGE, FAILED, PROVEN_OR_DONE, Command
from .errors import EnvironmentFault, LearnproofError, UsageError, did_you_mean

FILES = {
    "train": "training",
    "resume": "training",
    "sweep": "sweep",
    "verify": "judging",
    "evaluate": "training",
    "report": "judging",
    "enjoy": "policies",
    "export": "policies",
    "watch": "watching",
    "follow": "watching",
    "probe": "probing",
    "compare": "judging",
    "envs": "environments",
}
"""Each command, in the order of the help, and its file in commands/."""


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
        if isinstance(error, EnvironmentFault) and error.__cause__ is not None:
            print("".join(format_exception(error.__cause__, chain=False)), end="", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return FAILED  # whoever read our output has gone
    except KeyboardInterrupt:
        print("learnproof: stopped at once; the last checkpoint is whole.", file=sys.stderr)
        return 130


def command(name: str) -> Command:
    if name not in FILES:
        raise UsageError(f"There is no command {name!r}.{did_you_mean(name, FILES)} `learnproof --help` lists them.")
    found: Command = import_module(f".commands.{FILES[name]}", __package__).COMMANDS[name]
    return found


def _dispatch(name: str, words: list[str]) -> int:
    chosen = command(name)
    import tyro
    from pydantic import ValidationError

    words, default = chosen.prepare(words)
    try:
        arguments = tyro.cli(chosen.arguments, prog=f"learnproof {name}", args=words, default=default)
    except ValidationError as error:
        from .config import explained

        raise explained(error, "the command line") from None
    return chosen.run(arguments)


def _overview() -> str:
    rows = "\n".join(f"  {name:10} {command(name).summary}" for name in FILES)
    return (
        f"learnproof {__version__}: reinforcement learning that proves its agents learn.\n\n"
        f"usage: learnproof COMMAND ...\n\n{rows}\n\n"
        "`learnproof COMMAND --help` explains one. Start with: learnproof train CartPole-v1\n"
        "Exit codes: 0 proven or done, 1 broken or failed, 2 bad usage, 3 unproven."
    )


if __name__ == "__main__":
    sys.exit(main())
