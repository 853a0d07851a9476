"""Predictions beyond the training set's range: a mixture of two continuations, since labels say nothing there.

One is the models' own, which goes on along its slope; the other takes each feature at its nearest value within the
range, as trees do.  Where labels are of bright objects and the target is faint, the first alone may be sure and wrong;
a tenth of it is kept for the sets where it is right.
Shapes: N rows, F features.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix
from blr.predictive.mixture import Prediction, mix, replaced

Rows = NDArray[np.intp]

CONSTANT = 0.9
"""Share of the constant continuation."""


def feature_range(X: Matrix, missing: NDArray[np.bool_]) -> Matrix:
    """Return the least and the largest value of each feature, (2, F), over the rows that have it."""
    return np.stack([np.where(missing, np.inf, X).min(axis=0), np.where(missing, -np.inf, X).max(axis=0)])


def rows_beyond(support: Matrix | None, X: Matrix) -> tuple[Rows, Matrix]:
    """Return the rows that are beyond the range (2, F) in some feature, and the nearest points within it.

    Without a range no row is beyond it.
    """
    if support is None:
        return np.empty(0, dtype=np.intp), X[:0]
    low, high = support
    rows = np.flatnonzero(((low > X) | (high < X)).any(axis=1))
    return rows, np.clip(X[rows], low, high)


def continued(base: Prediction, rows: Rows, constant: Prediction) -> Prediction:
    """Return a prediction in which that of `rows` is mixed with the `constant` continuation of these rows."""
    own = Prediction(*(x[rows] for x in vars(base).values()))
    return replaced(base, rows, mix([(1 - CONSTANT, own), (CONSTANT, constant)]))
