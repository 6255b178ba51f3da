"""A loss is kept with what it compares; what hidden layers said goes first where room is short."""

import numpy as np

from learnproof.watching.keeping import HEAVY, WIDE, lighten


def arrays(hidden: int) -> dict[str, np.ndarray]:
    return {
        "c0.output": np.zeros((256, hidden), np.float32),
        "c0.gradient": np.zeros((256, hidden), np.float32),
        "c1.output": np.zeros((256, 4), np.float32),
        "k0": np.zeros((256, 300), np.float32),
        "n0.output": np.zeros((256, WIDE), np.float32),
    }


def test_wide_answers_are_left_out_of_a_heavy_loss():
    kept = arrays(hidden=256)
    lighten(kept)
    assert set(kept) == {"c1.output", "k0", "n0.output"}


def test_a_light_loss_is_kept_whole():
    kept = arrays(hidden=64)
    del kept["k0"]
    assert sum(array.nbytes for array in kept.values()) < 2 * HEAVY
    before = set(kept)
    del kept["c0.gradient"]
    lighten(kept)
    assert set(kept) == before - {"c0.gradient"}
