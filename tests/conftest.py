"""What tests share: toy environments in tests/toys, and the harnesses in benchmarks/ that have a quick form here."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent
sys.path[:0] = [str(ROOT / "toys"), str(ROOT.parent / "benchmarks")]
