"""The action that a critic is given against the one that the environment was given."""

import numpy as np
import pytest

from learnproof.proof.watched.memory import _unlike


@pytest.fixture
def done():
    return np.random.default_rng(0).uniform(-1, 1, (64, 2))


def test_the_same_action_and_one_on_another_scale_are_alike(done):
    assert _unlike(done, done) == 0
    assert _unlike(done * [2.0, 0.5] + [0.1, 0.0], done) == 0
    assert _unlike(done.astype(np.float32).astype(float), done) == 0


def test_an_action_before_its_noise_is_not(done):
    noise = np.random.default_rng(1).normal(0, 0.1, done.shape)
    assert _unlike(done + noise, done) > 0.95
    half = np.where(np.arange(64)[:, None] % 2 == 0, done, done + noise)
    assert 0.3 < _unlike(half, done) < 0.6


def test_actions_of_other_rows_are_not(done):
    assert _unlike(np.random.default_rng(2).permutation(done), done) > 0.9


def test_rows_at_the_edge_may_have_been_clipped(done):
    given = done * 2
    assert _unlike(given, np.clip(given, -1, 1)) < 0.2
    assert _unlike(np.ones((64, 1)), np.ones((64, 1))) is None
