"""Over many seeds: healthy runs, however odd, are never accused, and runs that cannot learn are never proven."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic import train

from learnproof.proof import judge

HEALTHY: dict[str, dict[str, Any]] = {
    "plain": {},
    "same-step autoreset": {"next_step_autoreset": False},
    "advantages not normalised": {"normalize_advantage": False},
    "optimal from the start": {"start": "optimal"},
    "decided for the wrong thing": {"start": "too greedy"},
    "no reward at all": {"rewards": "none"},
    "schedule to zero": {"schedule": "to zero"},
    "warm-up from zero": {"schedule": "warm-up"},
    "tiny learning rate": {"learning_rate": 1e-6},
    "huge learning rate": {"learning_rate": 0.5},
    "strong entropy bonus": {"entropy_coefficient": 0.5, "start": "optimal"},
    "whole returns": {"gamma": 1.0, "gae_lambda": 1.0},
    "one-step advantages": {"gae_lambda": 0.0},
    "one epoch": {"epochs": 1},
}
SEEDS = 16
SMALL = {"iterations": 14, "n_steps": 16, "minibatch_size": 16, "epochs": 7}
"""Just long enough to be accused by statistics: 14 stretches of 40 gradient steps."""
CANNOT_LEARN: dict[str, dict[str, Any]] = {
    "shuffled": SMALL | {"iterations": 9},
    "learning rate 0": {"iterations": 5, "n_steps": 16, "epochs": 1},
    "no step": {"iterations": 5, "n_steps": 16, "epochs": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_run_is_never_accused(kind: str) -> None:
    for seed in range(SEEDS):
        run = train(seed=seed, **(SMALL | HEALTHY[kind]))
        verdict = judge(run.evidence, None)
        assert verdict.verdict != "broken", (seed, verdict.issues_found)


@pytest.mark.slow
@pytest.mark.parametrize("fault", CANNOT_LEARN)
@pytest.mark.parametrize("block", range(2))
def test_a_run_that_cannot_learn_is_never_proven(fault: str, block: int) -> None:
    for seed in range(50 * block, 50 * (block + 1)):
        where = (" rollout", " minibatch")[seed % 2] if fault == "shuffled" else ""
        run = train(seed=seed, fault=fault + where, **CANNOT_LEARN[fault])
        verdict = judge(run.evidence, run.scores)
        assert not verdict, (seed, verdict.missing)


@pytest.mark.slow
def test_a_healthy_run_trained_long_enough_is_proven() -> None:
    proven = 0
    for seed in range(20):
        run = train(seed=seed)
        proven += bool(judge(run.evidence, run.scores))
    assert proven >= 19
