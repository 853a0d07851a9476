"""Whether labelled rows and target look alike, once each class has its share of the target: the assumption's test.

A logistic model distinguishes labelled rows from target rows by features and their products; the fit that classifies a
row does not contain it.
Shapes: n labelled rows, N target rows, F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # its modules load when used
from scipy.special import expit

from blr.arrays import Matrix, Vector
from blr.census.rows import LabelledRows, TargetRows

__all__ = ["Novelty", "Propensity", "novelty", "propensity", "standardised"]

FOLDS = 5
PRECISION = 100.0
"""Prior precision of the weights of standardised features: few rows must not be distinguished by chance."""
MOST_ROWS = 1000
"""Most rows of each set that are compared; more would not change the answer."""
MOST_PRODUCTS = 12
"""Most features whose products are taken; of more, the squares alone."""
EXPECTED = 0.05
"""Share of the labelled rows that are farthest from the others."""
MUCH, FAR = 0.1, 0.6
"""Share of a target so far from labelled rows, and area under the curve of the distances, below which it is no new
class: mildly biased labels have these too."""
_NEWTON_STEPS, _TOLERANCE = 30, 1e-6
FARTHEST = 5.0
"""Standard deviations at which a feature is cut: one extreme row must not dominate."""


@dataclass(frozen=True, eq=False)
class Propensity:
    """How well a model distinguishes labelled rows from the target.

    `auc` is the probability that a target row looks more like the target than a labelled one does, 0.5 where both look
    alike; `error` is its standard error without any difference.  `ratio` (n,) is how much more frequent objects like a
    labelled row are in the target, with a mean of one.
    """

    auc: float
    error: float
    ratio: Vector


def propensity(labelled: LabelledRows, target: TargetRows, row_weight: Vector) -> Propensity:
    """Return how well a model distinguishes the two sets where labelled rows count by `row_weight` (n,)."""
    near, far = _spaced(len(labelled.y)), _spaced(len(target.weight))
    Phi = _design(labelled.X[near], target.X[far])
    n, N = len(near), len(far)
    is_target = np.concatenate([np.zeros(n), np.ones(N)])
    of_set = [row_weight[near], target.weight[far]]
    worth = [float(w.sum() ** 2 / (w**2).sum()) for w in of_set]
    even = min(worth)
    weight = np.concatenate([w / w.sum() * even for w in of_set])
    fold = np.arange(n + N) % FOLDS
    log_ratio = np.empty(n + N)
    areas = []
    for k in range(FOLDS):
        out = fold == k
        log_ratio[out] = Phi[out] @ _logistic(Phi[~out], is_target[~out], weight[~out])
        areas.append(_area(log_ratio[out], is_target[out] > 0, weight[out]))
    area = float(np.mean(areas))
    ratio = np.ones(len(labelled.y))
    ratio[near] = np.exp(log_ratio[:n])
    if len(near) < len(ratio):
        ratio = np.interp(np.arange(len(ratio)), near, ratio[near])
    error = float(np.sqrt((1 / worth[0] + 1 / worth[1]) / 12))
    return Propensity(area, error, ratio / ratio.mean())


@dataclass(frozen=True)
class Novelty:
    """Whether the target has objects that are unlike every labelled one, as those of a class without labels are.

    `share` of the target lies farther from its nearest labelled row than `EXPECTED` of the labelled rows do from
    theirs; `errors` is by how many standard errors that, or the distance of all, is too much; 0 if it is little.
    """

    share: float
    errors: float


def novelty(labelled: LabelledRows, target: TargetRows, row_weight: Vector) -> Novelty:
    """Return whether the target lies farther from labelled rows, which count by `row_weight` (n,), than these do."""
    near, far = _spaced(len(labelled.y)), _spaced(len(target.weight))
    Z, missing = standardised(labelled.X[near], target.X[far])
    points, n = np.column_stack([Z, missing]), len(near)
    tree = scipy.spatial.cKDTree(points[:n])
    own = np.asarray(tree.query(points[:n], k=2)[0])[:, 1]
    other = np.asarray(tree.query(points[n:], k=1)[0])
    weight, of_target = row_weight[near], target.weight[far]
    order = np.argsort(own, kind="stable")
    below = np.cumsum(weight[order]) / weight.sum()
    limit = own[order][min(int(np.searchsorted(below, 1 - EXPECTED)), n - 1)]
    share = float(of_target @ (other > limit) / of_target.sum())
    worth = sum(float((w**2).sum() / w.sum() ** 2) for w in (weight, of_target))
    tail = (share - EXPECTED) / np.sqrt(EXPECTED * (1 - EXPECTED) * worth)
    is_target = np.arange(len(points)) >= n
    area = _area(np.concatenate([own, other]), is_target, np.concatenate([weight / n, of_target]))
    found = [tail] * (share > MUCH) + [(area - 0.5) / np.sqrt(worth / 12)] * (area > FAR)
    return Novelty(share, float(max(found, default=0.0)))


def _spaced(n: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, min(n, MOST_ROWS)).round().astype(np.intp))


def _design(X: Matrix, other: Matrix) -> Matrix:
    """Return an intercept, standardised features, their products, and which are missing, of both sets of rows."""
    Z, missing = standardised(X, other)
    i, j = np.triu_indices(Z.shape[1]) if Z.shape[1] <= MOST_PRODUCTS else (np.arange(Z.shape[1]),) * 2
    columns = np.hstack([Z, Z[:, i] * Z[:, j], missing])
    spread = columns.std(axis=0)
    columns = (columns - columns.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    return np.column_stack([np.ones(len(columns)), columns])


def standardised(X: Matrix, other: Matrix) -> tuple[Matrix, Matrix]:
    """Return the features (n + N, F) of both sets in standard deviations, cut at five, and which are missing (1.0).

    A missing feature has its mean, 0.
    """
    both = np.vstack([X, other])
    missing = np.isnan(both)
    known = np.where(missing, 0.0, both)
    count = np.maximum((~missing).sum(axis=0), 1)
    mean = known.sum(axis=0) / count
    spread = np.sqrt(np.where(missing, 0.0, (known - mean) ** 2).sum(axis=0) / count)
    Z = np.where(missing, 0.0, (known - mean) / np.where(spread > 0, spread, 1.0))
    return np.clip(Z, -FARTHEST, FARTHEST), missing.astype(np.float64)


def _logistic(Phi: Matrix, t: Vector, weight: Vector) -> Vector:
    """Return the weights (M,) of a logistic model with a Gaussian prior on all but the intercept, by Newton's method.

    The steps are bounded by the prior, whose precision is that of tens of rows: no search along them is needed.
    """
    precision = np.concatenate([[1e-4], np.full(Phi.shape[1] - 1, PRECISION)])
    w = np.zeros(Phi.shape[1])
    for _ in range(_NEWTON_STEPS):
        p = expit(Phi @ w)
        gradient = Phi.T @ (weight * (t - p)) - precision * w
        hessian = (Phi * (weight * p * (1 - p))[:, None]).T @ Phi + np.diag(precision)
        step = np.linalg.solve(hessian, gradient)
        w = w + step
        if np.abs(step).max() < _TOLERANCE:
            break
    return w


def _area(score: Vector, positive: np.ndarray, weight: Vector) -> float:
    """Return the weighted area under the ROC curve, ties shared."""
    values, place = np.unique(score, return_inverse=True)
    above = np.bincount(place, np.where(positive, weight, 0.0), minlength=len(values))
    below = np.bincount(place, np.where(positive, 0.0, weight), minlength=len(values))
    under = np.cumsum(below) - below / 2
    total = above.sum() * below.sum()
    return float(above @ under / total) if total > 0 else 0.5
