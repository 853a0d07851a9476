"""The picture of a soft decision boundary: a classifier's probabilities over two of its features.

The other features have their mean given these two, so that each node of the grid is a plausible object.
Shapes: N training rows, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from blr.classifier import Classifier
from flows.reports.data import BoundaryPicture

__all__ = ["boundary_picture", "separation"]

NODES: Final = (41, 31)
MOST_POINTS: Final = 800
FEWEST_VALUES: Final = 10
"""Different values of a feature that make a good axis."""
# The picture is wider than the bulk of the data by this share, to show how confidence decreases outside.
MARGIN: Final = 0.3

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def boundary_picture(
    classifier: Classifier, X: Floats, missing: Mask, labels: NDArray[np.intp], *, names: Sequence[str]
) -> BoundaryPicture | None:
    """Return the picture over the two features that separate the classes most; None with fewer than two that vary.

    Features of few values, as yes or no, come last.
    `X` (N, F) and `missing` are training rows, `labels` (N,) their class indices, `names` the features'.
    """
    telling = separation(X, missing, labels)
    if np.count_nonzero(telling) < 2:
        return None
    pair = tuple(
        sorted(range(len(telling)), key=lambda j: (_few_valued(X[~missing[:, j], j]), -telling[j]))[:2]
    )
    x, y = (_axis(X[~missing[:, j], j], n) for j, n in zip(pair, NODES, strict=True))
    grid = np.zeros((y.size, x.size, X.shape[1]))
    grid[:, :, pair[0]], grid[:, :, pair[1]] = np.meshgrid(x, y)
    rows = grid.reshape(-1, X.shape[1])
    unknown = np.ones(rows.shape, dtype=bool)
    unknown[:, pair] = False
    scores = classifier.score(classifier.moments.impute(rows, unknown), np.zeros_like(unknown))
    shown = _sample(np.flatnonzero(~missing[:, pair].any(axis=1)))
    return BoundaryPicture(
        x_name=names[pair[0]],
        y_name=names[pair[1]],
        x=x,
        y=y,
        moderated=scores.probability.reshape(y.size, x.size, -1),
        point_x=X[shown, pair[0]],
        point_y=X[shown, pair[1]],
        point_class=labels[shown],
    )


def separation(X: Floats, missing: Mask, labels: NDArray[np.intp]) -> Floats:
    """Return, for each feature (F,), the share of its variance that lies between the classes' means.

    It is computed from the rows that have the feature, and multiplied by the share of these rows: a feature that few
    objects have makes a poor axis.
    """
    share = np.zeros(X.shape[1])
    for j in range(X.shape[1]):
        known = ~missing[:, j]
        values, classes = X[known, j], labels[known]
        if values.size and np.ptp(values) > 0:
            counts = np.bincount(classes)
            means = np.bincount(classes, weights=values) / np.maximum(counts, 1)
            between = np.sum(counts * (means - values.mean()) ** 2)
            share[j] = known.mean() * between / np.sum((values - values.mean()) ** 2)
    return share


def _few_valued(values: Floats) -> bool:
    return np.unique(values).size < FEWEST_VALUES


def _axis(values: Floats, n: int) -> Floats:
    """Return n nodes over the bulk of the values and a margin, but not beyond the smallest and largest value."""
    low, high = np.quantile(values, (0.005, 0.995))
    if low == high:
        return np.linspace(values.min(), values.max(), n)
    margin = MARGIN * (high - low)
    return np.linspace(max(low - margin, values.min()), min(high + margin, values.max()), n)


def _sample(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return at most `MOST_POINTS` of the rows, evenly spaced, so that no seed is needed."""
    if rows.size <= MOST_POINTS:
        return rows
    return rows[np.linspace(0, rows.size - 1, MOST_POINTS).astype(np.intp)]
