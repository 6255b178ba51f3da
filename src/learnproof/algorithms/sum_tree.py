"""A sum tree: draw indices in proportion to their weights, and change weights, in log(n) each. Compiled.

The leaves are the last `size` entries of one array, the parent of node i is i // 2, the root is 1. A parent is always
computed as the sum of its two children, never corrected by differences, so that the tree follows from its leaves: a
tree rebuilt from saved leaves is the same tree, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..envs.kernel import kernel

Array = np.ndarray[Any, Any]


class SumTree:
    def __init__(self, size: int) -> None:
        self.size = size
        self.first_leaf = 1 << max(0, (size - 1).bit_length())
        self.nodes = np.zeros(2 * self.first_leaf)

    @property
    def total(self) -> float:
        return float(self.nodes[1])

    @property
    def leaves(self) -> Array:
        return self.nodes[self.first_leaf : self.first_leaf + self.size]

    def put(self, index: Array, weight: Array) -> None:
        _put(self.nodes, self.first_leaf, index, weight)

    def find(self, points: Array) -> Array:
        """The index whose stretch of the line 0..total holds each point."""
        found = np.empty(len(points), np.int64)
        _find(self.nodes, self.first_leaf, self.size, points, found)
        return found

    def load(self, leaves: Array) -> None:
        self.put(np.arange(self.size), leaves)


@kernel
def _put(nodes: Array, first_leaf: int, index: Array, weight: Array) -> None:
    for k in range(len(index)):
        node = first_leaf + index[k]
        nodes[node] = weight[k]
        node //= 2
        while node >= 1:
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1]
            node //= 2


@kernel
def _find(nodes: Array, first_leaf: int, size: int, points: Array, found: Array) -> None:
    for k in range(len(points)):
        node = 1
        left = points[k]
        while node < first_leaf:
            node *= 2
            # rounding may leave a point beyond the left child's sum while the right child is empty
            if left >= nodes[node] and nodes[node + 1] > 0:
                left -= nodes[node]
                node += 1
        found[k] = min(node - first_leaf, size - 1)
