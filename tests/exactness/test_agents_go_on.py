"""Agents that decide one by one: a run that was interrupted ends in the same bytes as one that was left alone."""

import pytest
from test_interruptions import SMALL, Display

import learnproof
from crashes import digests

AGENTS = {**SMALL, "env.per_agent": True, "env.kwargs": {"n_agents": 3}}


@pytest.mark.parametrize("rewards", ["individual", pytest.param("shared", marks=pytest.mark.slow)])
def test_an_interrupted_run_of_agents_ends_in_the_same_bytes(tmp_path, rewards):
    env, settings = "learnproof/TaskAllocation-v1", {**AGENTS, "env.rewards": rewards}
    learnproof.train(env, out=tmp_path / "calm", display=Display(), **settings)
    result = learnproof.train(env, out=tmp_path / "hunted", display=Display(200), **settings)
    for step in (700, 1600, None):
        assert result.verdict is None
        result = learnproof.resume(tmp_path / "hunted", display=Display(step))
    assert result.verdict is not None
    assert digests(tmp_path / "hunted") == digests(tmp_path / "calm")
