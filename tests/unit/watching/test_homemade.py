"""What an object with a `step` answers decides whether it is an environment."""

import numpy as np
import pytest
import torch

from learnproof.watching.homemade import copies_of, is_a_step, parts_of


@pytest.mark.parametrize(
    "answer",
    [
        ("state", 1.0, False),
        ([0, 1], 1, True, {}),
        (np.zeros(3), np.float32(1), np.bool_(False), {"timeout": True}),
        (np.zeros(3), 0.5, True, False),
        (np.zeros(3), 0.5, True, False, {}),
        (torch.zeros(4, 3), torch.zeros(4), torch.zeros(4, dtype=torch.bool)),
        (None, [0.0, 1.0], [True, False]),
    ],
)
def test_observation_reward_and_end_are_a_step(answer):
    assert is_a_step(answer)


@pytest.mark.parametrize(
    "answer",
    [None, 3, (1.0, 2.0), (np.zeros(3), "much", False), (np.zeros(3), 1.0, 0.7), (np.zeros(3), np.zeros((2, 2)), False),
     [0, 1.0, False], (0, 1.0, False, 1, 2, 3)],
)  # fmt: skip
def test_anything_else_is_none(answer):
    assert not is_a_step(answer)


@pytest.mark.parametrize(
    ("rest", "ended", "cut"),
    [
        ((), True, False),
        (({},), True, False),
        ((True,), False, True),
        ((True, {}), False, True),
        (({"timeout": True},), False, True),
    ],
)
def test_a_second_flag_or_the_info_tells_a_limit(rest, ended, cut):
    assert parts_of(np, ("state", 2, True, *rest), vector=False)[1:4] == (2.0, ended, cut)


def test_one_reward_for_each_copy_makes_a_vector():
    assert copies_of(1.0) is None
    assert copies_of(np.float64(1.0)) is None
    assert copies_of([1.0, 2.0]) == 2
    answer = (torch.zeros(3, 2), torch.ones(3), torch.tensor([True, False, True]))
    assert copies_of(answer[1]) == 3
    _, reward, ended, cut, _ = parts_of(np, answer, vector=True)
    assert reward.tolist() == [1.0, 1.0, 1.0]
    assert ended.tolist() == [True, False, True]
    assert not cut.any()
