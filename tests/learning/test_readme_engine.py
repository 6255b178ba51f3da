"""The README's example of an engine runs as it stands there, but for the number of its calls."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
README = Path(__file__).parents[2] / "README.md"


def test_the_example_runs_as_it_is_printed(tmp_path):
    text = README.read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(import asyncio\n.*?)```", text, re.DOTALL)
    shorter = example.replace("range(20)", "range(2)")
    assert shorter != example
    done = subprocess.run([sys.executable, "-c", shorter], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] in ("proven", "unproven")
    assert (tmp_path / "runs" / "episodes-ppo-seed0" / "verdict.json").exists()
