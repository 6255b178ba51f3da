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


def test_where_states_repeat_windows_of_several_steps_are_found():
    """A ring of 12 states, walked one way; every state comes again and again, with another reward."""
    kept = Transitions(np)
    steps = 400
    kept.add(
        time=np.arange(steps),
        stream=np.zeros(steps, int),
        copy=np.zeros(steps, int),
        observation=(np.arange(steps) % 12 + 1).astype(np.uint64),
        next_observation=((np.arange(steps) + 1) % 12 + 1).astype(np.uint64),
        final_observation=np.zeros(steps, np.uint64),
        reward=np.arange(steps, dtype=np.float32),
        terminated=np.zeros(steps, bool),
        truncated=np.zeros(steps, bool),
        resets=np.zeros(steps, bool),
        action=np.zeros((steps, 1), np.float32),
    )
    for number in range(steps, steps + 24):
        kept.add(
            **{
                name: np.array([value])
                for name, value in {
                    "time": number,
                    "stream": 0,
                    "copy": 0,
                    "observation": np.uint64(number % 12 + 1),
                    "next_observation": np.uint64((number + 1) % 12 + 1),
                    "final_observation": np.uint64(0),
                    "reward": float(number),
                    "terminated": False,
                    "truncated": False,
                    "resets": False,
                }.items()
            },
            action=np.zeros((1, 1), np.float32),
        )
    found = kept.numbers_of([5, 6], [[8, 9]])  # three steps ahead
    assert kept.columns["observation"][found].tolist() == [5, 6]
    assert kept.ahead(np.array(found), np.array([8, 9], np.uint64)).tolist() == [2, 2]
    windows = kept.windows(np.array(found), 3)
    assert np.array_equal(windows["rewards"], np.add.outer(found, np.arange(3)))
    assert windows["whole"].all()


def test_the_last_steps_of_episodes_are_known_by_name():
    kept = filled(2 * EPISODE)
    assert list(kept.last_of["ended"]) == [10 * (EPISODE - 1), 10 * (2 * EPISODE - 1)]
    assert not kept.last_of["cut"]


@pytest.mark.parametrize("steps", [1, 3])
def test_which_rows_go_on_is_told_by_the_observations_that_follow_them(steps):
    kept = filled(40)
    numbers = np.array([3, 20, 11, 30, 18, 26, 13])
    going_on = [place for place, number in enumerate(numbers) if number % EPISODE + steps < EPISODE]
    assert 0 < len(going_on) < len(numbers)
    names = np.array([10 * (numbers[place] + steps) for place in going_on], np.uint64)
    places, ahead = kept.going_on(numbers, names)
    assert places.tolist() == going_on
    assert ahead == steps
    assert kept.going_on(numbers, names[::-1].copy()) is None


def test_between_which_states_only_one_action_ever_led():
    """A ring of 12 states, walked one way: two actions lead on from the first one, one from each other."""
    kept = Transitions(np)
    for start in range(0, 400, 10):
        numbers = np.arange(start, start + 10)
        actions = np.where(numbers % 12 == 0, numbers // 12 % 2, 3)
        actions = np.where(numbers < 12, 2 * (numbers % 12 == 5) + 3 * (numbers % 12 != 5), actions)
        kept.add(
            time=numbers,
            observation=(numbers % 12 + 1).astype(np.uint64),
            next_observation=((numbers + 1) % 12 + 1).astype(np.uint64),
            final_observation=np.zeros(10, np.uint64),
            reward=np.zeros(10, np.float32),
            action=actions[:, None].astype(np.float32),
            **{name: np.zeros(10, int) for name in ("stream", "copy")},
            **{name: np.zeros(10, bool) for name in ("terminated", "truncated", "resets")},
        )
    found = np.array(kept.numbers_of([1, 2, 6], [[2, 3, 7]]))
    assert kept.one_action(found).tolist() == [
        False,
        True,
        False,
    ]  # of the last, the other one came before pairs were kept
    kept.all_paired = False
    assert not kept.one_action(found).any()
