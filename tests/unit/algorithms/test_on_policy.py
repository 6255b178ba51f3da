import numpy as np

from learnproof.algorithms.on_policy import spread_rows


def test_rows_looked_at_again_are_valid_ones_and_spread():
    valid = np.ones((100, 2), bool)
    valid[10:20] = False
    rows = spread_rows(valid, 50)
    assert valid.ravel()[rows].all()
    assert len(rows) == 50
    assert rows[0] == 0
    assert rows[-1] == 199
