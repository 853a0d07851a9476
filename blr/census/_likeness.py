"""Whether labelled rows and target look alike, once each class has its share of the target: tests of the assumptions.

A logistic model distinguishes labelled rows from target rows by features and their products; the fit that classifies a
row does not contain it.

Where objects of a class look alike in both sets, the mean of any feature over the target is the sum over classes of
share times the class's mean among labelled rows.  How far these equations miss, over the covariance of the miss, is
Hansen's J test (Hansen 1982, doi:10.2307/1912775); as the covariance is estimated, it has the F distribution of
Hotelling's T².  The equations are more than the shares, which were found without them: so the test also sees labels
that are biased too mildly for a model to distinguish the sets row by row.
Shapes: n labelled rows, N target rows, F features, K classes, S draws, D columns, of which P principal components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # its modules load when used
from scipy.special import expit, fdtrc

from blr.arrays import Matrix, Vector
from blr.census.rows import LabelledRows, TargetRows

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


def novelty(labelled: LabelledRows, target: TargetRows, row_weight: Vector) -> tuple[float, float]:
    """Return the share of the target that is unlike every labelled row, as objects of a class without labels are.

    It lies farther from its nearest labelled row than `EXPECTED` of the labelled rows, which count by `row_weight`
    (n,), do from theirs.  The second number is by how many standard errors that, or the distance of all, is too much;
    0 if it is little.
    """
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
    return share, float(max(found, default=0.0))


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


ROWS_A_COMPONENT = 10
"""Labelled rows, beyond one a class, for each component: with fewer their covariance is not known well enough."""
FARTHEST_SPREAD = 2.0
"""Factor by which a column's variance may differ from the target's.  A value that one object in a hundred has may be
absent among the labelled rows: their spread then says that it never occurs."""
_SAME_COLUMN = 1e-6
"""Eigenvalue, of the largest, below which a component says nothing that others do not say."""


@dataclass(frozen=True)
class MeansTest:
    """How far the means of `components` principal components of the features miss.

    `statistic` has the F distribution where "shares" holds; `p_value` is the probability of so much or more.
    """

    statistic: float
    components: int
    p_value: float


def means_test(labelled: LabelledRows, target: TargetRows, shares: Matrix) -> MeansTest | None:
    """Return the test, given draws (S, K) of the class shares of the target; None where there are too few rows.

    The target's mean m, class means μ_k and within-class covariances V_k are of standardised features and of which are
    missing.  With expected shares π the miss is r = m - Σ π_k μ_k, and its covariance
    Σ V_k (π_k² / n_k + π_k / N) + μ' cov(π) μ.
    """
    freedom = float(labelled.class_rows.sum()) - labelled.n_classes
    columns = _columns(labelled.X, target.X)
    rotation = _components(columns, int(freedom / ROWS_A_COMPONENT))
    P = rotation.shape[1]
    if not P:
        return None
    ours, theirs = columns[: len(labelled.y)], columns[len(labelled.y) :]
    pi, cov_pi = shares.mean(axis=0), np.cov(shares.T)
    m = target.mean(theirs)
    mean, V = _class_moments(ours, labelled)
    V = _as_spread_as(V, pi, target.mean((theirs - m) ** 2) - pi @ (mean - pi @ mean) ** 2)
    spread = pi**2 / labelled.class_rows + pi / target.n_effective
    C = rotation.T @ (np.einsum("k,kij->ij", spread, V) + mean.T @ cov_pi @ mean) @ rotation
    C += _SAME_COLUMN * np.trace(C) / P * np.eye(P)
    miss = rotation.T @ (m - pi @ mean)
    statistic = float(miss @ np.linalg.solve(C, miss)) * (freedom - P + 1) / (freedom * P)
    return MeansTest(statistic, P, float(fdtrc(P, freedom - P + 1, statistic)))


def _columns(X: Matrix, other: Matrix) -> Matrix:
    """Return standardised features of both sets (n + N, D), and which are missing, without constant columns."""
    columns = np.hstack(standardised(X, other))
    columns = columns - columns.mean(axis=0)
    spread = columns.std(axis=0)
    varies = spread > _SAME_COLUMN
    return np.asarray(columns[:, varies] / spread[varies])


def _components(columns: Matrix, most: int) -> Matrix:
    """Return the directions (D, P) of the first principal components, at most so many."""
    if most < 1 or not columns.shape[1]:
        return np.empty((columns.shape[1], 0))
    value, direction = np.linalg.eigh(columns.T @ columns / len(columns))
    known = int((value > _SAME_COLUMN * value[-1]).sum())
    return np.asarray(direction[:, ::-1][:, : min(most, known)])


def _class_moments(columns: Matrix, labelled: LabelledRows) -> tuple[Matrix, Matrix]:
    """Return the means (K, D) and the covariances (K, D, D) of the classes.

    The covariance of a class of few rows is shrunk to the one within all classes, which counts as D + 1 rows.
    """
    K, D = labelled.n_classes, columns.shape[1]
    mean, W = np.empty((K, D)), np.empty((K, D, D))
    for k in range(K):
        weight = np.where(labelled.y == k, labelled.weight, 0.0)
        weight = weight * (labelled.class_rows[k] / weight.sum())
        mean[k] = weight @ columns / weight.sum()
        centred = columns - mean[k]
        W[k] = (centred * weight[:, None]).T @ centred
    pooled = W.sum(axis=0) / (labelled.class_rows.sum() - K)
    rows = labelled.class_rows[:, None, None]
    return mean, (W + (D + 1) * pooled) / (rows - 1 + D + 1)


def _as_spread_as(V: Matrix, pi: Vector, variance: Vector) -> Matrix:
    """Return covariances (K, D, D), raised in columns that spread much less than in the target's classes (D,)."""
    found = pi @ np.diagonal(V, axis1=1, axis2=2)
    lacking = variance > FARTHEST_SPREAD * found
    scale = np.sqrt(np.where(lacking & (found > 0), variance / np.maximum(found, 1e-300), 1.0))
    V = V * np.outer(scale, scale)
    return V + np.diag(np.where(lacking & (found <= 0), variance, 0.0))
