"""Which labelled rows are like a row, and whether none is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Matrix, Vector
from blr.classifier import Classifier

# The labelled rows that are nearest to a row, which may have missing features.
#
# The distance is Mahalanobis' under the training set's moments, over the features that both rows have, divided by the
# root of their number: 1 is a typical difference.  Shapes: N labelled rows, F features.


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Rows in the order of their `distance` (n,), in typical differences, and how many features were compared (n,)."""

    row: NDArray[np.intp]
    distance: Vector
    compared: NDArray[np.intp]


def nearest_rows(classifier: Classifier, x: ArrayLike, X: ArrayLike, *, n: int = 5) -> Neighbours:
    """Return the n rows of X (N, F) that are nearest to x (F,); NaN is a missing feature.

    Rows that share fewer than half of the features of x are left out while others are there.  ValueError if the shapes
    are not of the classifier's features.
    """
    row, rows = np.asarray(x, dtype=np.float64), np.asarray(X, dtype=np.float64)
    F = len(classifier.features)
    if row.shape != (F,) or rows.ndim != 2 or rows.shape[1] != F:
        raise ValueError(f"expected x and X of {F} features, got shapes {row.shape} and {rows.shape}")
    difference = rows - row
    shared = np.isfinite(difference)
    compared = shared.sum(axis=1)
    distance = np.full(len(rows), np.inf)
    for pattern, index in _patterns(shared):
        if pattern.any():
            L = np.linalg.cholesky(classifier.moments.covariance[np.ix_(pattern, pattern)])
            z = np.linalg.solve(L, difference[np.ix_(index, pattern)].T)
            distance[index] = np.sqrt(np.mean(z**2, axis=0) / 2)
    few = 2 * compared < np.isfinite(row).sum()
    order = np.lexsort((distance, few))
    order = order[np.isfinite(distance[order])][:n]
    return Neighbours(order, distance[order], compared[order])


def _patterns(shared: NDArray[np.bool_]) -> list[tuple[NDArray[np.bool_], NDArray[np.intp]]]:
    """Return the patterns of shared features (F,), each with its rows."""
    if not len(shared):
        return []
    patterns, which = np.unique(shared, axis=0, return_inverse=True)
    return [(pattern, np.flatnonzero(which.ravel() == i)) for i, pattern in enumerate(patterns)]


# How unlike all labelled rows a row is: whether there are more rows like it than labelled ones.
#
# A row's novelty is its distance to the k-th nearest labelled row over that to the k'-th nearest row of a sample of the
# catalogue.  Both distances estimate densities (Loftsgaarden & Quesenberry 1965, doi:10.1214/aoms/1177700079), so their
# ratio is large where there are many rows and few labels, as for a type of objects without labels. In the tails of
# known classes both distances are large, so the first distance alone would list the tails.  Shapes: N labelled rows, n
# rows, D dimensions.

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
