"""A reward that chance never finds from the start: dives that begin near the bottom, and higher from stage to stage, find it."""

import pytest
from test_curiosity_learns import SMALL
from toy_environments import Dive

import learnproof
from learnproof.evidence import StageBegan

pytestmark = pytest.mark.slow

STAGES = [{"difficulty": level, "until_score": 0.5, "until_fraction": level} for level in (0.25, 0.5, 0.75)]
"""The last 3, 6 and 9 of 12 levels."""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
def test_a_curriculum_finds_what_chance_does_not(tmp_path, seed):
    """test_curiosity_learns.py shows that without it (and without curiosity) nothing is found."""
    changes = {**SMALL, "seed": seed, "curriculum.stages": STAGES}
    result = learnproof.train(Dive(8), evaluation_env=Dive(30), out=tmp_path / "run", **changes)
    stages = learnproof.Evidence.read(result.path).of(StageBegan)
    print("stages at", [stage.step for stage in stages], "score", result.verdict.performance.trained)
    assert stages[-1].full
    assert result.verdict.verdict == "proven", result.verdict.missing
    assert result.verdict.performance.trained > 0.8, "the full dive pays 0.89 after its costs"
