"""Controls: the same run with learning made impossible. What was learnt shows in the lead over them.

Compared is what the verdict's performance rests on: the greedy policy played again on the same seeds where there is one, else
the returns of the last half of training, else the rewards of the last batches. A late half is averaged into blocks, so that
neighbouring episodes do not count as independent. All controls must be beaten at the same error rate; since every one of them
must, no correction for several is needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..evidence import Evidence
from ..evidence.watched import PlaceboTotals
from .seen import seen
from .seen.token_rollouts import reward_means
from .statistics import block_means, sign_flip_test, welch_test
from .verdict import Verdict
from .watched.performance import played_again, training_episodes

BLOCKS = 10
FEWEST = 10
MEANINGS = {
    "frozen": "the same run with every optimizer step undone (learning rate 0)",
    "shuffled": "the same run with each action told another action's outcome",
}


@dataclass(frozen=True)
class Control:
    name: str
    status: Literal["beaten", "not beaten", "not compared"]
    summary: str
    figures: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def compare_with_control(
    real: Evidence, control: Evidence | None, name: str, error_rate: float, generator: np.random.Generator
) -> Control:
    def told(status: Literal["beaten", "not beaten", "not compared"], summary: str, **figures: Any) -> Control:
        return Control(name, status, f"{MEANINGS[name]}: {summary}", figures)

    if control is None:
        return told("not compared", "it left no evidence.")
    cuts = sum(event.cuts for event in control.of(PlaceboTotals))
    if not cuts:
        return told(
            "not compared",
            "the link could not be cut: no log-probability of a torch distribution, no gather and no regression of "
            "torch.nn.functional was used with a gradient."
            if name == "shuffled"
            else "no optimizer took a step.",
        )
    own, other = played_again(real), played_again(control)
    if own is not None and other is not None and own.seeds == other.seeds:
        leads = np.asarray(own.trained) - np.asarray(other.trained)
        p_value = sign_flip_test(leads, generator)
        means, what = (float(np.mean(own.trained)), float(np.mean(other.trained))), "mean return of the greedy policy"
    else:
        ours, theirs = late_returns(real), late_returns(control)
        if ours is None or theirs is None:
            return told(
                "not compared", f"it takes {FEWEST} returns of the last half of training in both runs.", cuts=cuts
            )
        p_value = welch_test(theirs, ours)
        means, what = (float(ours.mean()), float(theirs.mean())), "mean return of the last half"
    figures = {"real": means[0], "control": means[1], "p_value": p_value, "cuts": cuts}
    words = f"{what} {means[1]:.4g}, against {means[0]:.4g} (p = {p_value:.2g})"
    if p_value <= error_rate and means[0] > means[1]:
        return told("beaten", f"{words}: beaten.", **figures)
    return told("not beaten", f"{words}: not beaten.", **figures)


def late_returns(evidence: Evidence) -> np.ndarray[Any, Any] | None:
    """Block means over the last half of training; of a language model, the rewards of its late batches."""
    view = seen(evidence)
    series = np.array([episode.return_ for episode in training_episodes(view)])
    if not series.size:
        series = np.array(reward_means(view))
    late = series[len(series) // 2 :]
    if len(late) < FEWEST:
        return None
    blocks: np.ndarray[Any, Any] = block_means(late, BLOCKS)
    return blocks


def with_controls(verdict: Verdict, controls: Sequence[Control]) -> Verdict:
    """A proof stands only if every control that was compared was beaten, and one was."""
    told = tuple(control.to_json() for control in controls)
    verdict = dataclasses.replace(verdict, controls=told)
    unbeaten = [control.name for control in controls if control.status == "not beaten"]
    compared = [control for control in controls if control.status != "not compared"]
    if verdict.verdict != "proven" or (compared and not unbeaten):
        return verdict
    why = f"{', '.join(unbeaten)} did as well" if unbeaten else "no control could be compared"
    return dataclasses.replace(
        verdict,
        verdict="unproven",
        final_status=f"unproven: without learning, {why}" if unbeaten else f"unproven: {why}",
    )
