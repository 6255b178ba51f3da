"""Transitions are found again by the names of their observations, over the edge of the ring and across episodes."""

import numpy as np
import pytest

from learnproof.watching import transitions
from learnproof.watching.transitions import ELSEWHERE, ITSELF, UNKNOWN, Transitions

EPISODE = 7


def filled(steps, start=0, kept=None):
    """Episodes of EPISODE steps; the observation after step n is named 10 n + 10, a new episode begins with 10 n + 15."""
    found = kept or Transitions(np)
    for number in range(start, start + steps):
        begins = 10 * number + (5 if number % EPISODE == 0 else 0)
        found.add(
            time=np.array([number]),
            stream=np.array([0]),
            copy=np.array([0]),
            observation=np.array([begins], np.uint64),
            next_observation=np.array([10 * number + 10], np.uint64),
            final_observation=np.array([0], np.uint64),
            reward=np.array([float(number)], np.float32),
            terminated=np.array([number % EPISODE == EPISODE - 1]),
            truncated=np.array([False]),
            resets=np.array([False]),
            action=np.zeros((1, 1), np.float32),
        )
    return found


def test_how_far_ahead_an_observation_lies():
    kept = filled(30)
    numbers = np.full(6, 15)  # the second step of its episode, which ends with step 20
    names = np.array([160, 180, 150, 210, 50, 999], np.uint64)
    assert kept.ahead(numbers, names).tolist() == [0, 2, ITSELF, 5, ELSEWHERE, UNKNOWN]


def test_nothing_lies_ahead_across_an_end():
    kept = filled(30)
    assert kept.ahead(np.array([19, 20]), np.array([220, 220], np.uint64)).tolist() == [ELSEWHERE, ELSEWHERE]


def test_a_batch_over_the_edge_of_the_ring_keeps_all_of_its_rows(monkeypatch):
    monkeypatch.setattr(transitions, "TRANSITIONS_KEPT", 16)
    kept = Transitions(np)
    for start in range(0, 40, 10):
        count = 10
        kept.add(
            raw=np.arange(start, start + count, dtype=np.float32)[:, None],
            time=np.arange(start, start + count),
            action=np.zeros((count, 2), np.float32),
            **{
                name: np.arange(start, start + count)
                for name in kept.columns
                if name not in ("time", "action", "terminated", "truncated", "resets")
            },
            **{name: np.zeros(count, bool) for name in ("terminated", "truncated", "resets")},
        )
    assert kept.count == 40
    assert sorted(kept.columns["time"].tolist()) == list(range(24, 40))
    assert np.array_equal(kept.raw[:, 0], kept.columns["time"])
    found = kept.taken(np.array([30, 39]))
    assert found["reward"].tolist() == [30, 39]
    assert found["reward_before"].tolist() == pytest.approx([0, 0])  # other copies stand beside them
