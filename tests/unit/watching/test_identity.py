"""A row's identity is the same wherever it turns up, and another row's is another."""

import numpy as np
import torch

from learnproof.watching.identity import LONGEST_ROW, flat_rows, identities


def of(value, rows):
    return identities(np, flat_rows(np, value, rows))


def test_shuffled_rows_keep_their_identity():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 4)).astype(np.float32)
    order = rng.permutation(50)
    assert np.array_equal(of(rows, 50)[order], of(torch.from_numpy(rows[order]), 50))


def test_one_row_alone_is_the_same_as_in_a_batch():
    rows = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    assert of(rows[1], None)[0] == of(rows, 3)[1]


def test_float64_from_an_environment_equals_float32_in_a_network():
    row = np.random.default_rng(2).normal(size=4)
    assert of(row, None) == of(torch.tensor(row, dtype=torch.float32)[None], 1)


def test_different_rows_have_different_identities():
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 50, size=(200_000, 8)).astype(np.float32)
    distinct = len(np.unique(rows, axis=0))
    assert len(np.unique(of(rows, len(rows)))) == distinct


def test_minus_zero_is_zero_and_long_rows_are_cut():
    assert of(np.array([0.0, 1.0]), None) == of(np.array([-0.0, 1.0]), None)
    long = np.zeros((1, 5 * LONGEST_ROW), np.float32)
    other = long.copy()
    other[0, 0] = 1
    assert of(long, 1) != of(other, 1)


def test_dictionaries_are_joined_and_text_has_no_identity():
    assert of({"a": [1.0, 2.0], "b": [3.0]}, None) == of([1.0, 2.0, 3.0], None)
    assert flat_rows(np, "text", None) is None
