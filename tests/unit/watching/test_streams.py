"""What environments say of an episode that has ended, in each of their forms."""

import numpy as np
import pytest

from learnproof.watching.streams import success_of


@pytest.mark.parametrize(
    ("info", "copy", "told"),
    [
        ({"is_success": True}, None, True),
        ({"success": 0.0}, None, False),
        ({"is_success": np.bool_(True)}, None, True),
        ({"is_success": "yes"}, None, None),
        ({}, None, None),
        (None, None, None),
        ([{"is_success": False}, {"is_success": True}], 1, True),
        ([{}, {}], 1, None),
        ({"is_success": np.array([True, False]), "_is_success": np.array([True, True])}, 1, False),
        ({"final_info": {"is_success": np.array([False, True])}, "is_success": np.array([True, False])}, 1, True),
        ({"final_info": np.array([None, {"is_success": True}], dtype=object)}, 1, None),
    ],
)
def test_success_is_read_where_it_is_told(info, copy, told):
    assert success_of(info, copy) is told
