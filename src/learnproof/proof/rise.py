"""Did the returns of training rise beyond chance? What is asked where policies cannot be played again.

A rising series shows a better policy only if nothing else changed with it; whoever asks sees to that, and gives the episodes in which
the policy itself was at work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..evidence.events import Episode
from .check import Finding, Status
from .statistics import rise_test

QUESTION = "Did the returns of training rise, beyond chance?"
MIN_EPISODES = 20
USUALLY = 0.5
"""Share of successful episodes from which the task counts as done, whether it was from the start or not."""
PARTS = 4
"""The first and the last of so many equal parts are compared in words."""


def judge_rise(
    episodes: Sequence[Episode], scores: Sequence[float], error_rate: float, what: str, figures: dict[str, Any]
) -> Finding:
    """`scores` has one number for each episode, larger is better; `what` says what they are: "Training returns"."""

    def finding(status: Status, summary: str, advice: str = "", p: float | None = None) -> Finding:
        return Finding("performance", status, QUESTION, summary, figures, advice=advice, p_value=p)

    if len(episodes) < MIN_EPISODES:
        return finding(
            "undecided", f"{len(episodes)} episodes ended; it takes {MIN_EPISODES} to see a trend.", "Train longer."
        )
    series = np.array(scores)
    part = max(1, len(series) // PARTS)
    first, last = float(series[:part].mean()), float(series[-part:].mean())
    trend = rise_test(series, [episode.update for episode in episodes])
    figures |= {
        "first": first,
        "last": last,
        "slope_per_episode": trend.slope,
        "effective_points": trend.effective_points,
    }
    words = f"{what} went from {first:.4g} (first {part} episodes) to {last:.4g} (last {part})"
    success = _success(episodes)
    if success is not None:
        figures |= {"success_first": success[0], "success_last": success[1]}
        words += f", the success that the environment tells from {success[0]:.0%} to {success[1]:.0%}"
    if trend.p_value > error_rate or last <= first:
        return finding(
            "undecided",
            f"{words}: no rise beyond chance (p = {trend.p_value:.2g}).",
            "Train longer; if it stays flat, look at the findings below.",
            trend.p_value,
        )
    if success is not None and not success[2]:
        return finding(
            "undecided",
            f"{words}: the reward rises while the task is not done more often.",
            "Look at some episodes: the reward may pay for something else than the task.",
            trend.p_value,
        )
    return finding(
        "pass",
        f"{words}: a rise beyond chance (p = {trend.p_value:.2g}). The policies were not run again.",
        p=trend.p_value,
    )


def without_first_ones(episodes: Sequence[Episode]) -> list[Episode]:
    """Of many copies started together the short episodes end first, which looks like a rise where returns grow with length: each
    copy's first episode is left out, where there are several copies."""
    begun: set[tuple[int, int]] = set()
    later = []
    for episode in episodes:
        key = (episode.stream, episode.env)
        if key in begun:
            later.append(episode)
        begun.add(key)
    return later if len(begun) > 1 else list(episodes)


def _success(episodes: Sequence[Episode]) -> tuple[float, float, bool] | None:
    """Shares of the first and the last part of the episodes, and whether the last is beyond the first or half; None where the
    environment does not tell."""
    told = np.array([episode.metrics["success"] for episode in episodes if "success" in episode.metrics])
    if len(told) < max(MIN_EPISODES, 0.8 * len(episodes)):
        return None
    part = max(1, len(told) // PARTS)
    first, last = float(told[:part].mean()), float(told[-part:].mean())
    noise = float(np.sqrt((first * (1 - first) + last * (1 - last)) / part))
    return first, last, last > first + 2 * noise or last >= USUALLY
