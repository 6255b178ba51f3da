"""On the discrete reference task a policy makes up its mind while its return rises: from log 8 = 2.08 to below 0.5 in 1,000 episodes."""

from itertools import pairwise
from pathlib import Path

import pytest

import learnproof
from learnproof.config import load_settings
from learnproof.evidence import Evidence

pytestmark = pytest.mark.slow
CONFIG = Path(__file__).parents[2] / "configs" / "compass.toml"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_entropy_falls_gradually_while_the_return_rises(tmp_path, seed):
    result = learnproof.train(settings=load_settings(CONFIG).replace({"seed": seed}), out=tmp_path / "run")
    evidence = Evidence.read(result.path)
    entropy = [update.entropy[-1] for update in evidence.updates]
    assert entropy[0] > 1.9
    assert entropy[-1] < 0.45
    assert len(evidence.episodes) <= 1_000
    assert all(later > 0.5 * earlier for earlier, later in pairwise(entropy)), "it fell at once"
    assert result.verdict.verdict == "proven"
    findings = {finding.check: finding for finding in result.verdict.findings}
    assert findings["entropy_collapse"].status == "pass"
    assert findings["entropy_moving"].status == "pass"
    assert result.verdict.performance.trained > 1.9
