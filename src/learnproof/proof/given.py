"""Performance where somebody else collected the episodes and nothing can be played: what their returns can show, and what not.

They show the learning policy only where it acted, or a version near it, which the log-probabilities tell (Episode.own). A policy
that explores by chance (DQN's) gets better returns when it explores less, whatever it learns: of it they show nothing.
"""

from __future__ import annotations

from typing import Any

from ..evidence import Evidence
from .check import Finding
from .rise import MIN_EPISODES, QUESTION, judge_rise, without_first_ones

PLAYABLE = "engine.verify_learning() plays the policies in the environment that was given for it, and compares them."
PLAY = (
    "Give the engine an environment to play (evaluation_env), or scores of your own: play engine.initial_policy, engine.policy and "
    "random actions on the same seeds, and hand them to verify_learning(scores=PairedScores(...))."
)


def judge_given_episodes(evidence: Evidence, error_rate: float) -> Finding:
    given = evidence.episodes
    own = [episode for episode in given if episode.own]
    unknown = sum(episode.own is None for episode in given)
    figures: dict[str, Any] = {
        "episodes": len(given),
        "episodes_of_the_policy_itself": len(own),
        "episodes_of_nobody_knows_whom": unknown,
        "from": "returns of the episodes given",
    }

    unplayable = any(event.what == "evaluation" for event in evidence.not_seen)

    def undecided(summary: str) -> Finding:
        return Finding("performance", "undecided", QUESTION, summary, figures, advice=PLAY if unplayable else PLAYABLE)

    if evidence.run.algorithm == "dqn":
        return undecided(
            f"{len(given)} episodes were given. Their returns rise when the policy explores less, whatever it learns, so they show nothing."
        )
    if len(own) < MIN_EPISODES and unknown > len(own):
        return undecided(
            f"{unknown} of {len(given)} episodes came without log-probabilities, so that nobody can tell whether the learning policy acted; "
            "returns of other policies show nothing."
        )
    if len(own) < MIN_EPISODES and len(given) >= MIN_EPISODES:
        return undecided(
            f"In {len(own)} of {len(given)} episodes the learning policy acted, or one near it; it takes {MIN_EPISODES}. The returns of "
            "other policies show nothing."
        )
    metric = evidence.run.metric
    judged = [episode for episode in without_first_ones(given) if episode.own]
    scores = [episode.return_ if metric == "return" else episode.metrics[metric] for episode in judged]
    what = f"{'Returns' if metric == 'return' else metric} of the episodes in which the policy itself acted"
    return judge_rise(judged, scores, error_rate, what, figures)
