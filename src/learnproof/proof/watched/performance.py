"""Performance of a watched loop: the script's own policy played once more, or the returns of training alone.

A rising series of training returns shows a better policy only if nothing else changed with it. What an on-policy learner
collects is its policy at work; what an epsilon-greedy one collects also changes with epsilon, and says nothing here.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ...evidence import Evidence
from ...evidence.events import Episode
from ...evidence.watched import Played
from ..check import Finding
from ..performance import MIN_SEEDS, PairedScores
from ..rise import MIN_EPISODES, PARTS, QUESTION, judge_rise, without_first_ones
from ..seen import Seen, seen
from ..seen.bootstrap import bootstraps
from ..seen.token_rollouts import reward_means
from ..statistics import rise_test, welch_test

MIN_REWARDS = 6
OPPOSED = 0.5
"""Rank correlation below minus which two rewards are opposed: shaping that only adds to a reward leaves it above 0."""


def judge_training_returns(evidence: Evidence, error_rate: float) -> Finding:
    def finding(
        status: Any, summary: str, figures: dict[str, Any], advice: str = "", p: float | None = None
    ) -> Finding:
        return Finding("performance", status, QUESTION, summary, figures, advice=advice, p_value=p)

    view = seen(evidence)
    episodes = training_episodes(view)
    figures: dict[str, Any] = {"episodes": len(episodes), "from": "training returns"}
    rewards = reward_means(view)
    if not view.environments and len(rewards) >= MIN_REWARDS:
        return _judge_rewards(rewards, error_rate, finding)
    if not view.environments:
        return finding(
            "not_applicable", "No environment was seen, so there are no returns to compare.", figures,
            "Let the script step a Gymnasium environment, or compare its own evaluation.",
        )  # fmt: skip
    if explores_by_chance(view):
        return finding(
            "undecided",
            "The script explores by chance (epsilon-greedy): its training returns rise when epsilon falls, whatever it learns.",
            figures,
            "Its first and last weights are played greedily where the script ends by itself and its greedy actions can be told from what its "
            "network answers; here they could not. Compare the script's own greedy evaluations, or hold epsilon for a while.",
        )
    return judge_rise(episodes, [episode.return_ for episode in episodes], error_rate, "Training returns", figures)


def unless_paid_otherwise(evidence: Evidence, judged: Finding, error_rate: float) -> Finding:
    """A better policy by rewards that wrappers made, where the environment inside of them pays less for the same episodes or no more
    than at the start, is none that can be called better."""
    episodes = [e for e in training_episodes(seen(evidence)) if "inside" in e.metrics]
    if judged.status != "pass" or len(episodes) < MIN_EPISODES:
        return judged
    outside = np.array([episode.return_ for episode in episodes])
    inside = np.array([episode.metrics["inside"] for episode in episodes])
    agreement = _rank_correlation(outside, inside)
    figures = judged.figures | {"rank_correlation_inside": agreement}
    if agreement <= -OPPOSED:
        return dataclasses.replace(
            judged,
            status="undecided",
            summary=f"{judged.summary} But that is by the rewards of its wrappers: over {len(episodes)} episodes, those for which they pay more "
            f"are those for which the environment itself pays less (rank correlation {agreement:.2f}).",
            figures=figures,
            advice="Look at what the wrappers do to the reward: its sign may be turned round. Where the environment's own reward is a cost, "
            "this is no defect; it only keeps the run from being proven.",
        )
    policies = [episode.update for episode in episodes]
    chance = [rise_test(series, policies).p_value for series in (outside, inside)]
    if np.ptp(inside) == 0 or chance[0] > error_rate or chance[1] <= error_rate:
        return judged
    part = max(1, len(inside) // PARTS)
    first, last = float(inside[:part].mean()), float(inside[-part:].mean())
    return dataclasses.replace(
        judged,
        status="undecided",
        summary=f"{judged.summary} But that is by the rewards of its wrappers: what the environment itself pays for the same episodes went from "
        f"{first:.4g} to {last:.4g}, no rise beyond chance (p = {chance[1]:.2g}).",
        figures=figures | {"inside_first": first, "inside_last": last},
        advice="Look at some episodes: the shaped reward may pay for something else than the task. Train until the environment's own "
        "reward rises too.",
    )


def _rank_correlation(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """0 where one of them is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    ranks = [np.unique(values, return_inverse=True, return_counts=True) for values in (a, b)]
    middles = [(np.cumsum(counts) - (counts - 1) / 2)[inverse] for _, inverse, counts in ranks]
    return float(np.corrcoef(middles[0], middles[1])[0, 1])


def _judge_rewards(rewards: list[float], error_rate: float, finding: Callable[..., Finding]) -> Finding:
    """Of a language model: the mean reward of the first batches that were looked at, and of the last. Under a policy that does
    not change, batches are independent of each other."""
    means = np.array(rewards)
    part = max(3, len(means) // PARTS)
    first, last = float(means[:part].mean()), float(means[-part:].mean())
    p_value = welch_test(means[:part], means[-part:])
    figures = {"batches": len(means), "from": "rewards of training batches", "first": first, "last": last}
    words = (
        f"The mean reward of a batch went from {first:.3g} to {last:.3g} over {len(means)} batches that were looked at"
    )
    if p_value <= error_rate and last > first:
        return finding("pass", f"{words}: a rise beyond chance (p = {p_value:.2g}).", figures, p=p_value)
    return finding("undecided", f"{words}: no rise beyond chance (p = {p_value:.2g}).", figures, "Train longer.")


def played_again(evidence: Evidence) -> PairedScores | None:
    """What the watcher played after the script had ended, as paired scores."""
    played = [event for event in evidence.of(Played) if event.process == seen(evidence).process]
    if not played or len(played[-1].seeds) < MIN_SEEDS:
        return None
    last = played[-1]
    return PairedScores("return", last.seeds, last.untrained, last.trained, last.random, "deterministic")


def training_episodes(view: Seen) -> list[Episode]:
    """Of the environment that was stepped most and of those like it that were stepped about as often (a list of them in place
    of a vector); of a learner with a memory, those after its first update."""
    mine = [episode for episode in view.evidence.episodes if episode.process == view.process]
    if not mine:
        return []
    lengths: Counter[int] = Counter()
    for episode in mine:
        lengths[episode.stream] += episode.length
    most, steps = lengths.most_common(1)[0]
    alike = {stream for stream, own in lengths.items() if own > steps / 2 and _alike(view, stream, most)}
    mine = sorted((episode for episode in mine if episode.stream in alike), key=lambda episode: episode.step)
    mine = without_first_ones(mine)
    return mine if view.on_policy else [episode for episode in mine if (episode.update or 0) > 0]


def _alike(view: Seen, stream: int, other: int) -> bool:
    a, b = view.environments.get(stream), view.environments.get(other)
    if a is None or b is None:
        return stream == other
    return (a.kind, a.id, a.observation_space, a.action_space) == (b.kind, b.id, b.observation_space, b.action_space)


def explores_by_chance(view: Seen) -> bool:
    """A value per action is learnt from a memory, and no log-probabilities are."""
    if view.on_policy or any(loss.policies for loss in view.training_losses):
        return False
    return any("largest of" in e.future for each in bootstraps(view) for e in each.explanations)
