"""What a training call gives back: its figures, the verdict so far, and what it warns of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from ..proof.verdict import Verdict
from .episode_batches import ImportanceStatistics
from .episode_learning import Learnt
from .episode_results import ReadEpisode

FLAT_AFTER = 200
"""Episodes after which returns that have not risen are worth a warning."""
TOO_LIKELY = 1.1
STANDARD_ERRORS = 6
"""A mean ratio above this, by so many standard errors, does not come about by chance."""
FEW_EFFECTIVE = 0.1
"""Effective share of samples below which little can be learnt from another policy's episodes."""


@dataclass(frozen=True, kw_only=True)
class TrainingMetrics:
    """None stands where a figure does not apply to the algorithm."""

    call: int
    """Training calls before this one."""
    episodes: int
    transitions: int
    mean_return: float
    gradient_steps: int
    learning_rate: float
    loss: float
    """Of all gradient steps of this call, a mean; so are the next three and gradient_norm."""
    policy_loss: float | None
    value_loss: float
    clip_fraction: float | None
    gradient_norm: float
    """Before clipping."""
    gradient_norm_max: float
    entropy: float
    """In the last epoch; so is approx_kl."""
    approx_kl: float | None
    """From the policy before this call to the one after it."""
    explained_variance: float
    """NaN where all returns are equal."""
    weight_change: float
    """Sum over parameters of the L2 distance from the untrained weights."""
    weight_step: float
    """The same from the weights before this call."""
    corrected: bool
    """Whether importance weights were used: another policy acted, and the algorithm is PPO."""
    importance: ImportanceStatistics | None
    """Of the actions given; None where log-probabilities were not."""
    verdict: Verdict
    """So far; performance by the returns given, since nothing is played in a training call."""
    warnings: tuple[str, ...]


def metrics_of(
    learnt: Learnt,
    episodes: Sequence[ReadEpisode],
    importance: ImportanceStatistics | None,
    verdict: Verdict,
    warnings: Sequence[str],
) -> TrainingMetrics:
    report = learnt.report
    return TrainingMetrics(
        call=learnt.call,
        episodes=len(episodes),
        transitions=sum(len(episode) for episode in episodes),
        mean_return=fmean(float(episode.reward.sum()) for episode in episodes),
        gradient_steps=learnt.gradient_steps,
        learning_rate=report.learning_rate,
        loss=fmean(report.loss),
        policy_loss=fmean(report.policy_loss) if report.policy_loss else None,
        value_loss=fmean(report.value_loss),
        clip_fraction=fmean(report.clip_fraction) if report.clip_fraction else None,
        gradient_norm=fmean(report.grad_norm),
        gradient_norm_max=max(report.grad_norm_max),
        entropy=report.entropy[-1],
        approx_kl=report.approx_kl[-1] if report.approx_kl else None,
        explained_variance=report.explained_variance,
        weight_change=report.weight_change,
        weight_step=report.weight_step,
        corrected=learnt.corrected,
        importance=importance,
        verdict=verdict,
        warnings=tuple(warnings),
    )


def not_learning(verdict: Verdict) -> list[str]:
    """A sentence where the verdict so far says that nothing is learnt; none while it is only too early to tell."""
    if verdict.verdict == "broken":
        failed = [
            f for f in verdict.findings if f.status == "fail" and f.check not in {w.check for w in verdict.waived}
        ]
        return [f"It is not learning: {f.check}: {f.summary} {f.cause} {f.advice}" for f in failed]
    performance = next((f for f in verdict.findings if f.check == "performance"), None)
    if performance is None or performance.status != "undecided" or "first" not in performance.figures:
        return []
    own = performance.figures["episodes_of_the_policy_itself"]
    if own < max(FLAT_AFTER, performance.figures["episodes"] / 2):
        return []
    return [f"It is not shown to be learning: {performance.summary} {performance.advice}"]


def signs_of_a_bandit(episodes: Sequence[ReadEpisode]) -> list[str]:
    """What makes of reinforcement learning a choice among arms: nothing to look at, or nothing that follows."""
    found = []
    if all(len(episode) == 1 for episode in episodes):
        found.append(
            f"All {len(episodes)} episodes of this call have one step: no action has a consequence beyond its own reward, which is a "
            "bandit. Hand over whole episodes, not single steps."
        )
    rows = np.concatenate([episode.observation for episode in episodes])
    if len(rows) > 1 and not np.ptp(rows, axis=0).any():
        found.append(
            f"All {len(rows)} observations of this call are the same: there is nothing to decide by. Check what the collector hands over."
        )
    return found


def foreign(importance: ImportanceStatistics | None) -> list[str]:
    """What is odd about the policy that acted."""
    if importance is None:
        return []
    if importance.mean > max(TOO_LIKELY, 1 + STANDARD_ERRORS * importance.mean_error):
        return [
            f"The log_probs given do not fit the actions: the learning policy gives them {importance.mean:.3g} times the probability on average "
            f"(standard error {importance.mean_error:.2g}), and whoever acts, at most 1 is expected. Check that each log_prob is that of the "
            "action beside it, from the distribution that it was drawn from."
        ]
    if importance.effective_share >= FEW_EFFECTIVE:
        return []
    return [
        f"The episodes come from a policy so far away (KL {importance.kl:.2g} per action) that their actions are worth "
        f"{importance.effective_share:.1%} of as many of its own. Collect with a newer policy (engine.act), or check that log_probs are "
        "those of the actions given."
    ]
