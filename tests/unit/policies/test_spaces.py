"""Observations of every supported space become rows, and raw rows become actions that the space contains."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from learnproof.errors import UnsupportedSpace
from learnproof.policies.spaces import ActionLayout, ObservationLayout

NESTED = spaces.Dict(
    {
        "where": spaces.Box(-1, 1, (2, 2), np.float32),
        "kind": spaces.Discrete(3, start=5),
        "parts": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
    }
)


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (spaces.Box(-1, 1, (3,), np.float32), 3),
        (spaces.Box(0, 255, (2, 2), np.uint8), 4),
        (spaces.Box(-5, 5, (2,), np.float64), 2),
        (spaces.Discrete(4, start=-1), 4),
        (spaces.MultiDiscrete([2, 3]), 5),
        (spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])), 11),
        (spaces.MultiBinary(3), 3),
        (NESTED, 4 + 3 + 2 + 5),
    ],
)
def test_observations_become_rows_of_the_announced_size(space, size):
    batched = batch_space(space, 6)
    batched.seed(0)
    rows = ObservationLayout(space).flatten(batched.sample())
    assert rows.shape == (6, size)
    assert rows.dtype == (np.uint8 if space.dtype == np.uint8 else np.float32)
    assert np.isfinite(rows).all()


def test_discrete_observations_are_one_hot_from_their_start():
    rows = ObservationLayout(spaces.Discrete(3, start=5)).flatten(np.array([5, 7]))
    assert rows.tolist() == [[1, 0, 0], [0, 0, 1]]
    multi = ObservationLayout(spaces.MultiDiscrete([2, 3])).flatten(np.array([[1, 2]]))
    assert multi.tolist() == [[0, 1, 0, 0, 1]]


def test_bytes_stay_bytes_unless_other_numbers_stand_beside_them():
    picture = spaces.Box(0, 255, (1, 2), np.uint8)
    rows = ObservationLayout(picture).flatten(np.array([[[0, 255]]], np.uint8))
    assert rows.dtype == np.uint8
    assert rows.tolist() == [[0, 255]]
    mixed = ObservationLayout(spaces.Dict({"picture": picture, "gauge": spaces.Box(-9, 9, (1,), np.float32)}))
    rows = mixed.flatten({"picture": np.array([[[0, 255]]], np.uint8), "gauge": np.array([[-2.0]], np.float32)})
    assert rows.dtype == np.float32
    assert sorted(rows[0].tolist()) == [-2, 0, 1]


def test_rows_are_copies_so_that_an_environment_that_reuses_its_buffer_changes_nothing():
    buffer = np.zeros((2, 3), np.float32)
    rows = ObservationLayout(spaces.Box(-1, 1, (3,), np.float32)).flatten(buffer)
    buffer += 1
    assert rows.sum() == 0


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4, start=2),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
        spaces.Box(-2, 3, (2, 2), np.float32),
        NESTED,
    ],
)
def test_uniform_actions_are_contained_and_cover_the_space(space):
    layout = ActionLayout(space)
    actions = layout.to_environment(layout.sample_uniform(500, np.random.default_rng(0)))
    assert all(space.contains(single) for single in iterate(batch_space(space, 500), actions))
    raw = layout.sample_uniform(500, np.random.default_rng(0))
    assert (raw.std(axis=0) > 0).all()


def test_a_gaussian_sample_outside_the_bounds_is_clipped_for_the_environment_only():
    layout = ActionLayout(spaces.Box(-1, 1, (2,), np.float32))
    raw = np.array([[5.0, -0.5]], np.float32)
    assert layout.to_environment(raw).tolist() == [[1.0, -0.5]]
    assert raw.tolist() == [[5.0, -0.5]]


def test_spaces_without_numbers_are_refused():
    with pytest.raises(UnsupportedSpace, match="Supported"):
        ObservationLayout(spaces.Text(5))
    with pytest.raises(UnsupportedSpace, match="nothing to learn"):
        ObservationLayout(spaces.Dict({}))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4, start=-1),
        spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])),
        spaces.MultiBinary(3),
        spaces.Box(-1, 1, (2, 2), np.float32),
        spaces.Dict({"which": spaces.Discrete(3, start=5), "how": spaces.Box(-2, 2, (2,), np.float32)}),
    ],
    ids=str,
)
def test_actions_go_to_the_environment_and_back_unchanged(space):
    layout = ActionLayout(space)
    raw = layout.sample_uniform(50, np.random.default_rng(3))
    actions = layout.to_environment(raw)
    parts = [actions[leaf.path[0]] if leaf.path else actions for leaf in layout.leaves]
    assert np.array_equal(layout.rows_of(parts), raw)


def test_what_lies_beyond_the_bounds_is_cut_for_the_environment_only():
    layout = ActionLayout(spaces.Box(-1, 1, (1,), np.float32))
    raw = np.array([[2.5], [-0.5]], np.float32)
    assert layout.to_environment(raw).tolist() == [[1.0], [-0.5]]
    assert layout.to_environment(raw, within_bounds=False).tolist() == [[2.5], [-0.5]]
