"""The labelled rows that are nearest to a row, which may have missing features.

The distance is Mahalanobis' under the training set's moments, over the features that both rows have, divided by the
root of their number: 1 is a typical difference.  Shapes: N labelled rows, F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Vector
from blr.classifier import Classifier

__all__ = ["Neighbours", "nearest_rows"]


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
