"""How unlike all labelled rows a row is: whether there are more rows like it than labelled ones.

A row's novelty is its distance to the k-th nearest labelled row over that to the k'-th nearest row of a sample of the
catalogue.  Both distances estimate densities (Loftsgaarden & Quesenberry 1965, doi:10.1214/aoms/1177700079), so their
ratio is large where there are many rows and few labels, as for a type of objects without labels. In the tails of known
classes both distances are large, so the first distance alone would list the tails.  Shapes: N labelled rows, n rows, D
dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # its modules load when used
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector

__all__ = ["MOST_COMPARED", "Novelty", "relative"]

MOST_COMPARED = 10_000
"""Most labelled rows, evenly spaced, and most rows of the catalogue that a row is compared with."""
_LABELLED, _ALIKE = 3, 30
_SHARE = 100
"""In a small sample, k' is the number of rows divided by this."""
_LEAST = 1e-3
"""Least distance, so that equal rows have a finite novelty."""


@dataclass(frozen=True, eq=False)
class Novelty:
    """Labelled rows as points, and which rows they are."""

    tree: scipy.spatial.cKDTree
    row: NDArray[np.intp]

    @classmethod
    def of(cls, points: Matrix) -> Novelty:
        """Return the novelty against labelled rows at points (N, D); ValueError for no rows."""
        if not len(points):
            raise ValueError(
                "got no labelled rows, expected at least one; give the rows that the model was trained on"
            )
        row = np.linspace(0, len(points) - 1, min(len(points), MOST_COMPARED)).round().astype(np.intp)
        return cls(scipy.spatial.cKDTree(points[row]), row)

    def distance(self, points: Matrix) -> tuple[Vector, NDArray[np.intp]]:
        """Return how far points (n, D) are from their k-th nearest labelled row (n,), and the nearest row (n,)."""
        distance, index = _nearest(self.tree, points, min(_LABELLED, len(self.row)))
        return distance, self.row[index]


def relative(distance: Vector, points: Matrix, sample: scipy.spatial.cKDTree) -> Vector:
    """Return the novelty (n,) of points (n, D) at a distance (n,) from labelled rows, beside a sample of all rows."""
    k = min(_ALIKE, max(_LABELLED, sample.n // _SHARE), sample.n)
    return np.asarray(distance / (_nearest(sample, points, k)[0] + _LEAST))


def _nearest(tree: scipy.spatial.cKDTree, points: Matrix, k: int) -> tuple[Vector, NDArray[np.intp]]:
    """Return the distance (n,) of the k-th nearest row of a tree, and the nearest row (n,)."""
    found = tree.query(points, k=[1, k])
    distance, index = np.asarray(found[0]), np.asarray(found[1])
    return distance[:, 1], index[:, 0]
