"""Which networks follow others: a shallow copy is one that shares everything."""

import copy

from torch import nn

from learnproof.watching.lineage import _shallow_copies


def test_a_shallow_copy_is_paired_with_its_original_and_a_deep_one_is_not():
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    shallow, deep = copy.copy(network), copy.deepcopy(network)
    assert _shallow_copies([network, shallow, deep]) == [(shallow, network)]
    assert _shallow_copies([network, deep]) == []
