"""The right answers of a rung, and the answers of learners that each have one known fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .rungs import Outcome, Rung

DECISIVE = 0.05
"""Actions whose values lie nearer than this are as good as each other: a state is asked only where the best is clearly best.
Rewards are of size 1, and a small network that has learnt is right to a few hundredths."""
FAULTS = {
    "reversed": "it looks for the lowest reward instead of the highest: a sign is reversed",
    "myopic": "it counts the next reward only: gamma is 0, nothing is bootstrapped, or credit is cut after one step",
    "undiscounted": "it does not discount: what comes twenty steps later counts in full",
    "limit_is_end": "it takes a time limit for the end of the task: what would come after the cut counts for nothing",
    "reset_after_limit": "after a cut it looks at the next episode's first state instead of the state where it was cut",
    "end_ignored": "it goes on counting after an episode has ended: the value of the next episode's start is added",
    "sign_of_reward": "it sees only the sign of a reward, not its size: rewards are clipped",
}
"""What each known fault means, in the words of a finding."""


def action_values(rung: Rung, gamma: float, fault: str = "") -> dict[str, np.ndarray]:
    """Of every state, what each action is worth to a learner of that discount, with that fault or none."""
    if fault == "myopic":
        gamma = 0.0
    elif fault == "undiscounted":
        gamma = 1.0
    values = dict.fromkeys(rung.observations, 0.0)
    found: dict[str, np.ndarray] = {}
    for _ in range(20_000):
        found = {
            state: np.array([_worth(rung, outcomes, gamma, fault, values) for outcomes in choices])
            for state, choices in rung.moves.items()
        }
        updated = {state: float(worth.max()) for state, worth in found.items()}
        change = max(abs(updated[state] - values[state]) for state in updated)
        values = updated
        if change < 1e-9:
            break
    return found


def right_actions(rung: Rung, gamma: float, fault: str = "") -> dict[str, int]:
    """The best action of each state that is met and in which one action is clearly best."""
    best = {}
    for state, worth in action_values(rung, gamma, fault).items():
        ordered = np.sort(worth)
        if ordered[-1] - ordered[-2] > DECISIVE:
            best[state] = int(worth.argmax())
    return best


def state_values(rung: Rung, gamma: float, fault: str = "") -> dict[str, float]:
    return {state: float(worth.max()) for state, worth in action_values(rung, gamma, fault).items()}


def _worth(rung: Rung, outcomes: Sequence[Outcome], gamma: float, fault: str, values: Mapping[str, float]) -> float:
    at_start = sum(probability * values[state] for state, probability in rung.starts.items())
    total = 0.0
    for outcome in outcomes:
        reward = outcome.reward
        if fault == "reversed":
            reward = -reward
        elif fault == "sign_of_reward":
            reward = float(np.sign(reward))
        if outcome.end == "terminated":
            later = at_start if fault == "end_ignored" else 0.0
        elif outcome.end == "truncated" and fault == "limit_is_end":
            later = 0.0
        elif outcome.end == "truncated" and fault == "reset_after_limit":
            later = at_start
        else:
            later = values[outcome.then]
        total += outcome.probability * (reward + gamma * later)
    return total
