"""Returns of given episodes prove something only where the learning policy acted, and never of one that explores by chance."""

from __future__ import annotations

import numpy as np
import pytest

from learnproof.evidence import Episode, Evidence, NotSeen, RunStarted
from learnproof.proof.check import Finding
from learnproof.proof.given import judge_given_episodes


def judged(scores: np.ndarray, *, own: bool | None = True, algorithm: str = "ppo", metric: str = "return") -> Finding:
    run = RunStarted(
        producer="engine", algorithm=algorithm, environment="episodes", seed=0, metric=metric, n_envs=1, constants={},
        parameters={},
    )  # fmt: skip
    evidence = Evidence(run=run)
    evidence.add(NotSeen(what="evaluation", reason="no environment was given"))
    for i, score in enumerate(scores):
        return_, metrics = (float(score), {}) if metric == "return" else (0.0, {metric: float(score)})
        evidence.add(
            Episode(step=i, env=0, return_=return_, length=1, terminated=True, metrics=metrics, own=own)
        )  # fmt: skip
    return judge_given_episodes(evidence, 0.05)


def rising(count: int = 200) -> np.ndarray:
    return np.linspace(0, 3, count) + np.random.default_rng(0).normal(size=count)


@pytest.mark.parametrize("metric", ["return", "roas"])
def test_a_rise_of_the_policy_itself_passes_and_says_what_it_rests_on(metric: str) -> None:
    finding = judged(rising(), metric=metric)
    assert finding.status == "pass"
    assert "of the episodes in which the policy itself acted" in finding.summary
    assert "The policies were not run again" in finding.summary


def test_a_flat_series_is_undecided() -> None:
    finding = judged(np.random.default_rng(1).normal(size=200))
    assert finding.status == "undecided"
    assert "no rise beyond chance" in finding.summary


@pytest.mark.parametrize(
    ("own", "algorithm", "says"),
    [
        (False, "ppo", "In 0 of 200 episodes the learning policy acted"),
        (None, "sac", "came without log-probabilities"),
        (True, "dqn", "explores less"),
    ],
)
def test_a_rise_of_others_shows_nothing(own: bool | None, algorithm: str, says: str) -> None:
    finding = judged(rising(), own=own, algorithm=algorithm)
    assert finding.status == "undecided"
    assert says in finding.summary
    assert "evaluation_env" in finding.advice


def test_the_first_episode_of_each_of_several_environments_is_left_out() -> None:
    """Short episodes end first: here a rise, if they counted."""
    run = RunStarted(
        producer="engine", algorithm="ppo", environment="episodes", seed=0, metric="return", n_envs=1, constants={},
        parameters={},
    )  # fmt: skip
    evidence = Evidence(run=run)
    noise = np.random.default_rng(2).normal(size=80)
    for i in range(80):
        score = float(noise[i]) + (0.0 if i < 40 else 10.0)
        evidence.add(Episode(step=i, env=i % 40, return_=score, length=1, terminated=True, own=True))
    finding = judge_given_episodes(evidence, 0.05)
    assert finding.status == "undecided"
    assert finding.figures["episodes"] == 80
