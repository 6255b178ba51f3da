"""Scripts that are hard to watch end as they would have ended alone: the same bytes on both streams, the same return code.

Most of them keep to fifteen updates or fewer: of a loop without an environment, the first sixteen are looked at closely.
"""

import difflib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

AWKWARD = Path(__file__).parent / "awkward"
TIMEOUT_SECONDS = 180
DIFFERENCE_LINES = 60
SETTLED = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
FROM_OUTSIDE = ("PYTHONPATH", "LEARNPROOF_WATCH", "LEARNPROOF_WATCH_PARENT", "LEARNPROOF_WATCH_DEBUG")
"""Variables of the shell that started the tests, which would reach the scripts."""
PLAYS = """
import sys
import gymnasium
env = gymnasium.make("CartPole-v1")
env.reset(seed=0)
print(__name__, sys.argv, sys.path[0], [env.step(step % 2)[1:4] for step in range(9)])
"""


@dataclass(frozen=True)
class Case:
    words: list[str]
    """After the interpreter; a name that ends in .py is of the folder awkward/."""
    ends: int = 0
    """The return code of the bare run, so that a script that breaks in both runs alike is no success."""
    says: str = ""
    """A part of what the bare run prints on either stream: it came where it was meant to."""
    trains: bool = False
    killed: bool = False
    """The last line of the evidence may be cut."""
    stdin: str = ""
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        return [sys.executable, *(str(AWKWARD / word) if word.endswith(".py") else word for word in self.words)]


def training(*words: str, **expected) -> Case:
    return Case(list(words), trains=True, **expected)


def other(*words: str, **expected) -> Case:
    return Case(list(words), **expected)


CASES = {
    # how it is started
    "wrong arguments": other("arguments.py", "castle", "--steps", "x", ends=2, says="usage: arguments.py"),
    "arguments with dashes": other("arguments.py", "line", "--rates", "1", "2", "--", "--out", "x", says="'--out'"),
    "who am I": other("who_am_i.py", "a b", "--quiet", "--", "-x", "", says="neighbour"),
    "unbuffered": other("-u", "who_am_i.py", says="last words"),
    "isolated": other("-I", "-c", "import sys; print(sys.flags.isolated, 'PYTHONPATH' in sys.path)", says="1 False"),
    "module of a package": training(
        "-m", "little_package.main", "--x", "1", variables={"PYTHONPATH": str(AWKWARD)}, says="little_package.settings"
    ),
    "code on the command line": training("-c", PLAYS, "one", "--two", says="['-c', 'one', '--two']"),
    "code on standard input": other(
        "-", "one", stdin="import sys\nprint(sys.argv, __name__)\n1 / 0\n", ends=1, says="-"
    ),
    "reads input": other("reads_input.py", stdin="Ada\nabcdef\ntwo\nthree", says="nothing more"),
    "a sitecustomize of its own": other(
        "customized/started.py", variables={"PYTHONPATH": str(AWKWARD / "customized")}, says="finder of its own"
    ),
    "a file named gym": other("shadows/imports_gym.py", ends=1, says="this gym is closed"),
    "asks before it imports": training("asks_first.py", says="SourceFileLoader"),
    # flags of the interpreter
    "without asserts": other("-O", "strict.py", says="1 False [] False"),
    "warnings are errors": training("-W", "error", "strict.py", "torch", says="as an error: the script's own"),
    "development mode": training("-X", "dev", "strict.py", "torch", says="UserWarning: the script's own"),
    "a flag with capital letters in it": training("-Wignore::ImportWarning", "no_torch.py", says="False"),
    # how it ends
    "every exit": other("exits.py", "all", says="falls-off 0"),
    "exit with 7": other("exits.py", "seven", ends=7, says="leaving seven"),
    "exit with a message": other("exits.py", "message", ends=1, says="that is all"),
    "fails in its loop": training("uncaught_in_training.py", "loop", ends=1, says="RuntimeError: update 3 failed"),
    "fails in a forward": training("uncaught_in_training.py", "forward", ends=1, says="call 4 was one too many"),
    "fails in an environment": training("uncaught_in_env.py", ends=1, says="the simulator has gone"),
    "interrupted": training("ends_mid_training.py", "interrupt", ends=-signal.SIGINT, says="KeyboardInterrupt"),
    "killed": training("ends_mid_training.py", "kill", ends=-signal.SIGKILL, says="now", killed=True),
    "leaves at once": training("ends_mid_training.py", "leave", ends=5, says="now", killed=True),
    "terminated": training("signals.py", "terminate", ends=-signal.SIGTERM, says="sending", killed=True),
    "aborted": training("signals.py", "abort", ends=-signal.SIGABRT, says="sending", killed=True),
    "handles the interrupt itself": training("signals.py", "handler", ends=3, says="interrupted by SIGINT"),
    # what it prints
    "floods": other("floods.py", says="00049999"),
    "redirects its output": training("redirects.py", says="through the pipe: b'"),
    "errors that are caught": training("caught_tracebacks.py", says="13 Traceback"),
    "warnings with lines": training("warned_lines.py", says="from the line of the call"),
    "anomalies": training("anomalies.py", says="returned nan values"),
    "introspection": training("introspection.py", says="Back to the middle"),
    "trace and profile functions": training("traced.py", says="profile call forward"),
    "numbers that make noise": training("numeric_noise.py", says="you are in a maze"),
    # other processes and threads
    "forked workers and a data loader": training("forked.py", says="loaded"),
    "a spawned learner": training("spawned.py", says="learner"),
    "starts other interpreters": training("other_python.py", says="alone"),
    "threads": training("threads.py", says="Exception in thread broken"),
    "vector environments": training("vector_envs.py", says="[0"),
    "sends its environment's class": training("pickled_env_class.py", says="spawn ("),
    "closes all descriptors": training("closed_descriptors.py", says="line 39", killed=True),
    # what it computes
    "no torch": training("no_torch.py", says="False"),
    "copies": training("copies.py", says="asked for its state"),
    "forgets": training("forgotten.py", says="let go []"),
    "many agents": training("many_agents.py", says="right "),
    "settings of torch": training("settings_of_torch.py", ends=1, says="CUDA"),
    "odd environments": training("odd_envs.py", says="Recursive"),
    "compiled": training("compiled.py", says="before"),
    "scripted and traced": training("scripted.py", says="RecursiveScriptModule"),
    "derivatives": training("derivatives.py", says="hessian"),
    "optimizers of all kinds": training("optimizers_of_all_kinds.py", says="scheduled"),
    "hooks of the user": training("hooks_of_the_user.py", says="any forward"),
    "saved tensors": training("saved_tensors.py", says="unpacked"),
    "modes": training("modes.py", says="flops"),
    "counted forwards": training("counted_forwards.py", says="as before"),
    "random states": training("random_states.py"),
    "layers with effects": training("layers_with_effects.py", says="statistics of instances"),
    "prickly objects": training("prickly.py"),
    "many updates": training("many_updates.py", says="True"),
}


RELATED = {
    "arguments with dashes", "unbuffered", "isolated", "reads input", "a file named gym", "without asserts",
    "development mode", "a flag with capital letters in it", "exit with 7", "exit with a message", "fails in a forward",
    "terminated", "floods", "numbers that make noise", "scripted and traced", "derivatives", "a spawned learner",
    "aborted", "leaves at once", "warnings with lines", "counted forwards",
}  # fmt: skip
"""Near relatives of other cases: `make thorough` runs them, `make test` has no time for them."""


def run(command: list[str], case: Case, folder: Path) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if name not in FROM_OUTSIDE}
    return subprocess.run(
        command,
        cwd=folder,
        env={**kept, **SETTLED, **case.variables},
        input=case.stdin.encode(),
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        preexec_fn=_with_usual_signals,
    )


def _with_usual_signals() -> None:
    """Whoever started the tests in the background may have had signals ignored, and so would the scripts."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGABRT):
        signal.signal(number, signal.SIG_DFL)


def difference(bare: bytes, watched: bytes) -> str:
    if bare == watched:
        return ""
    lines = [text.decode("utf-8", "backslashreplace").splitlines() for text in (bare, watched)]
    found = list(difflib.unified_diff(*lines, "bare", "watched", n=1, lineterm=""))
    return "\n".join(found[:DIFFERENCE_LINES]) or "only the ends of lines differ"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if name in RELATED else name for name in CASES]
)
def test_it_ends_as_it_would_have_alone(name, tmp_path):
    case = CASES[name]
    work, seen = tmp_path / "work", tmp_path / "seen"
    work.mkdir()
    bare = run(case.command, case, work)
    said = (bare.stdout + bare.stderr).decode("utf-8", "backslashreplace")
    assert bare.returncode == case.ends, said[-3000:]
    assert case.says in said, said[-3000:]

    watch = [sys.executable, "-m", "learnproof", "watch", "--out", str(seen), "--quiet", "--no-report", "--"]
    watched = run([*watch, *case.command], case, work)
    differences = {
        "standard output": difference(bare.stdout, watched.stdout),
        "standard error": difference(bare.stderr, watched.stderr),
        "return code": "" if bare.returncode == watched.returncode else f"{bare.returncode} -> {watched.returncode}",
    }
    told = "\n".join(f"{where}:\n{what}" for where, what in differences.items() if what)
    if told:
        pytest.fail(told, pytrace=False)
    assert (seen / "verdict.json").exists()
    if case.trains:
        assert_evidence_parses(seen / "evidence.jsonl", case.killed)


def assert_evidence_parses(path: Path, killed: bool) -> None:
    assert path.exists(), "nothing was seen of a script that trains or plays"
    *lines, rest = path.read_text().split("\n")
    if not killed:
        assert rest == "", "the last line was cut"
    events = [json.loads(line) for line in lines]
    assert events[0]["event"] == "run_started"
    assert len(events) > 1


def test_those_left_to_make_thorough_exist_and_are_the_smaller_part():
    assert set(CASES) >= RELATED
    assert len(RELATED) <= len(CASES) / 2
