"""What tests share: toy environments in tests/toys, and the harnesses in benchmarks/ that have a quick form here."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
sys.path[:0] = [str(ROOT / "toys"), str(ROOT.parent / "benchmarks")]


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    """small_run("dqn") is the folder of a little trained run (tests/toys/small_runs.py); read it, do not change it."""
    made = {}

    def run(name):
        if name not in made:
            from small_runs import train_small

            made[name] = train_small(name, tmp_path_factory.mktemp("small") / "run")
        return made[name]

    return run
