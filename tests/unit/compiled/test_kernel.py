"""What the decorator of compiled kernels may and may not take liberties with."""

import math

import numpy as np
import pytest

from learnproof.compiled.kernel import finite, kernel


@kernel
def sum_is_finite(numbers):
    """Of a sum, which may be added in any order: that is where subtracting it from itself would hide a NaN."""
    return finite(1.0 + numbers[0] + numbers[1])


@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_a_sum_that_is_not_a_number_is_seen(real):
    assert sum_is_finite(np.array([1, 2], real))
    for bad in (math.nan, math.inf, -math.inf):
        assert not sum_is_finite(np.array([1, bad], real))
    assert not sum_is_finite(np.array([math.inf, -math.inf], real))
