"""How far a row is from all labelled rows: the distance to the k-th nearest of them.

It finds what lies between the labelled rows as well as what lies outside of them.  Loftsgaarden & Quesenberry (1965),
doi:10.1214/aoms/1177700079: the distance is an estimate of the labelled rows' density, small where it is large.
Shapes: N labelled rows, n rows, D dimensions.
"""

from __future__ import annotations

__all__ = ["MOST_LABELLED", "Novelty"]

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from blr.arrays import Matrix, Vector

MOST_LABELLED = 20_000
"""Most labelled rows that rows are compared with, evenly spaced: each row of a catalogue asks for its neighbours."""
_NEIGHBOURS = 5


@dataclass(frozen=True, eq=False)
class Novelty:
    """Labelled rows as points, and which rows they are."""

    tree: cKDTree
    row: NDArray[np.intp]

    @classmethod
    def of(cls, points: Matrix) -> Novelty:
        """Return the novelty against labelled rows at points (N, D); ValueError for no rows."""
        if not len(points):
            raise ValueError("got no labelled rows, expected one at least")
        row = np.linspace(0, len(points) - 1, min(len(points), MOST_LABELLED)).round().astype(np.intp)
        return cls(cKDTree(points[row]), row)

    def distance(self, points: Matrix) -> tuple[Vector, NDArray[np.intp]]:
        """Return how far points (n, D) are from their k-th nearest labelled row (n,), and the nearest row (n,)."""
        k = min(_NEIGHBOURS, len(self.row))
        found = self.tree.query(points, k=[1, k])
        distance, index = np.asarray(found[0]), np.asarray(found[1])
        return distance[:, 1], self.row[index[:, 0]]
