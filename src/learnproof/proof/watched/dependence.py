"""Does the policy look at its observation, and does credit reach past one step?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Seen
from ..seen.bootstrap import bootstraps
from ..seen.returns import rollout_fits
from ..seen.token_rollouts import token_rollouts
from ..seen.tokens import token_losses
from .answers import one_answer
from .base import ENOUGH, FEW_ROWS, SeenCheck, some
from .bootstrap import NO_CREDIT

MIN_ROWS = 16
SAME = 1e-7
TOLD_APART = 0.7
"""Different answers over different observations; 1 in health, since no two observations give the same floats by chance."""
Array = np.ndarray[Any, Any]


class PolicyLooks(SeenCheck):
    name = "policy_looks"
    question = "Do the networks' answers depend on the observation?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        if _answers(seen) or token_losses(seen) or observations_told_apart(seen) is not None:
            return ""
        return "no network was seen answering a batch of different observations"

    def look(self, seen: Seen) -> Finding:
        answers = _answers(seen)
        blind = sorted(name for name, spreads in answers.items() if len(spreads) >= ENOUGH and max(spreads) <= SAME)
        figures: dict[str, Any] = {"networks": {name: float(np.median(spreads)) for name, spreads in answers.items()}}
        if blind:
            return self.finding(
                "fail",
                f"{some(blind)} gives the same answer to every observation, in {len(answers[blind[0]])} batches of different ones.",
                figures,
                where=some(blind),
                cause="Its input is constant, multiplied away or dead (a ReLU that never fires, an observation scaled to 0).",
                advice="Feed it two different observations and follow where their difference is lost.",
            )
        told_apart = observations_told_apart(seen)
        if told_apart is not None:
            figures["told_apart"] = told_apart
        if told_apart is not None and told_apart < TOLD_APART:
            return self.finding(
                "undecided",
                f"The network that acts gives only {told_apart:.0%} as many different answers as there are different observations, in "
                "the best rollout looked at: the rest of what the environment shows is lost before it gets there.",
                {**figures, "observations_lost": 1 - told_apart},
                advice="Look at what the network is given: whole-number division, a cast to int or a crop may drop what matters. If what "
                "is dropped does not matter, this is no defect; it only keeps the run from being proven.",
            )
        alike = one_answer(seen)
        if alike is not None:
            return self.finding(
                "undecided",
                alike.words,
                {**figures, "share_of_one_answer": alike.share, "its_tokens": len(alike.answer)},
                advice="Look at some answers: a reward that an empty or constant answer earns is not the task.",
            )
        asked = [tokens for tokens in token_losses(seen) if tokens.action is not None and tokens.used.any()]
        if len(asked) >= ENOUGH:
            return self.finding("pass", "The policy answers different questions differently.", figures)
        if not any(len(spreads) >= ENOUGH for spreads in answers.values()):
            return self.finding("undecided", f"Fewer than {ENOUGH} batches were seen of each network.", figures)
        return self.finding("pass", "The networks answer different observations differently.", figures)


def _answers(seen: Seen) -> dict[str, list[float]]:
    """module -> spread of its answers over a batch, relative to their size."""
    found: dict[str, list[float]] = defaultdict(list)
    losses = seen.training_losses
    for loss in losses[:: max(1, len(losses) // 48)]:
        for position, about in enumerate(loss.event.calls):
            output, rows = loss.arrays.get(f"c{position}.output"), loss.arrays.get(f"c{position}.rows")
            if output is None or rows is None or len(rows) < MIN_ROWS or len(output) != len(rows) or output.ndim > 2:
                continue
            if len(np.unique(rows)) < MIN_ROWS // 2 or about.get("module") is None:
                continue
            numbers = output.astype(np.float64).reshape(len(output), -1)
            found[str(about["module"])].append(
                float(numbers.std(axis=0).max() / max(float(np.abs(numbers).max()), 1e-12))
            )
    return found


def observations_told_apart(seen: Seen) -> float | None:
    """Different answers over different observations, of the network that chose the actions, in the rollout where that is most; None
    where too few were seen. One rollout suffices: later on, answers may be alike because they are sure."""
    answers: dict[int, list[tuple[Array, Array]]] = defaultdict(list)
    shown: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
    for sample in seen.evidence.samples("calls"):
        answers[sample.event.update] += _timed(sample.arrays, "m", len(sample.event.modules))
    for sample in seen.evidence.samples("transitions"):
        shown[sample.event.update] |= _shown(sample.arrays, "")
    for loss in seen.training_losses:
        answers[loss.cycle] += _timed(loss.arrays, "c", len(loss.event.calls))
        shown[loss.cycle] |= _shown(loss.arrays, "t.")
    told = [_told_apart(shown[cycle], *each) for cycle, calls in answers.items() for each in calls]
    shares = [share for share in told if share is not None]
    return max(shares) if len(shares) >= ENOUGH else None


def _shown(arrays: Mapping[str, Array], prefix: str) -> dict[tuple[int, int], int]:
    """(environment steps before, row of the acting call) -> the observation that was acted on; several environments of one copy
    each are stepped one after the other, each step counted."""
    columns = [arrays.get(prefix + name) for name in ("time", "stream", "copy", "observation", "resets")]
    if any(column is None for column in columns):
        return {}
    rows = list(zip(*(column.tolist() for column in columns if column is not None), strict=True))
    streams = len({stream for _, stream, *_ in rows}) if all(copy == 0 for _, _, copy, *_ in rows) else 1
    return {
        (int(time) - 1 - behind, int(copy) + behind): int(identity)
        for time, _, copy, identity, resets in rows
        if not resets
        for behind in range(streams)
    }


def _timed(arrays: Mapping[str, Array], letter: str, count: int) -> list[tuple[Array, Array]]:
    """(time, answer) of calls that gave several numbers for each of their rows."""
    found = []
    for position in range(count):
        time, output = (arrays.get(f"{letter}{position}.{what}") for what in ("time", "output"))
        if (
            time is not None
            and output is not None
            and output.ndim >= 2
            and output.shape[-1] >= 2
            and len(time) == len(output)
        ):
            found.append((time, output))
    return found


def _told_apart(shown: dict[tuple[int, int], int], time: Array, output: Array) -> float | None:
    behind: Counter[int] = Counter()
    observations, answers = set(), set()
    for moment, answer in zip(time.tolist(), output, strict=True):
        identity = shown.get((int(moment), behind[moment]))
        behind[moment] += 1
        if identity is not None:
            observations.add(identity)
            answers.add(answer.tobytes())
    return len(answers) / len(observations) if len(observations) >= MIN_ROWS else None


class CreditReachesOn(SeenCheck):
    name = "credit_reaches_on"
    concerns = "values"
    question = "Is an action credited for more than the next reward?"
    family = "mechanism-target"

    def lacks(self, seen: Seen) -> str:
        if bootstraps(seen) or token_rollouts(seen) or any(rollout.targets for rollout in seen.rollouts):
            return ""
        return "no targets were seen beside the rewards that they were made of"

    def look(self, seen: Seen) -> Finding:
        rollouts = [*seen.pooled_rollouts, *token_rollouts(seen)]
        fits = [fit for rollout in rollouts for fit in rollout_fits(rollout) if fit.matched]
        found = bootstraps(seen)
        alone = [each for each in found if each.reward_only <= 1e-4]
        gammas = [fit.gamma for fit in fits] + [each.explanations[0].gamma for each in found if each.explanations]
        figures: dict[str, Any] = {
            "targets": len(fits) + len(found),
            "of_rewards_alone": len(alone),
            "gamma": float(np.median(gammas)) if gammas else None,
        }
        bandit = len(alone) >= ENOUGH and len(alone) > 0.9 * len(found)
        small = len(gammas) >= ENOUGH and float(np.median(gammas)) < NO_CREDIT
        if (found and bandit and not fits) or (small and not (found and not bandit and not gammas)):
            at_ends = sum(each.ends_with_more for each in alone)
            at_ends += sum(fit.special.get("terminal", {}).get("more than the reward", 0) for fit in fits)
            ends = sum(each.terminal_rows for each in alone)
            ends += sum(sum(fit.special.get("terminal", {}).values()) for fit in fits)
            if at_ends >= FEW_ROWS and at_ends > ends / 2:
                return self.finding(
                    "fail",
                    f"Inside of episodes targets are the next reward and nothing else, and at {at_ends} of {ends} ends they hold more "
                    "than the reward: the mask of ends is upside down.",
                    {**figures, "ends": ends, "ends_with_a_future": at_ends},
                    where="computation of targets",
                    cause="The future is multiplied by done where 1 - done belongs.",
                    advice="Multiply what comes after t by 1 - done[t].",
                )
            return self.finding(
                "fail",
                f"{len(alone) or len(gammas)} targets are the next reward and nothing else: actions get no credit for what they lead "
                "to.",
                figures,
                where="computation of targets",
                cause="gamma is 0, the bootstrap is missing, or every step is marked as an end.",
                advice="Add gamma * value of the next state, with gamma near 0.99; waive this check if the task is a bandit.",
            )
        if not gammas:
            return self.finding("undecided", "No target could be taken apart into reward and future.", figures)
        return self.finding("pass", f"Targets reach past the next reward (gamma {figures['gamma']:.3g}).", figures)
