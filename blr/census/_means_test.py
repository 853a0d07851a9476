"""Whether the target's features have the means that its class shares lead to expect: a test of the assumption "shares".

Where objects of a class look alike in both sets, the mean of any feature over the target is the sum over classes of
share times the class's mean among labelled rows.  How far these equations miss, over the covariance of the miss, is
Hansen's J test (Hansen 1982, doi:10.2307/1912775); as the covariance is estimated, it has the F distribution of
Hotelling's T².  The equations are more than the shares, which were found without them: so the test also sees labels
that are biased too mildly for a model to distinguish the sets row by row.
Shapes: n labelled rows, N target rows, K classes, S draws, D columns, of which P principal components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import fdtrc

from blr.arrays import Matrix, Vector
from blr.census._propensity import standardised
from blr.census.rows import LabelledRows, TargetRows

__all__ = ["MeansTest", "means_test"]

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
