"""How far a missing feature is integrated: its spread in excess of what the training rows that lack it had.

Training rows without a feature are fitted at its conditional mean, and so flatten the weights by themselves, as rows
with measurement errors do (Carroll et al. 2006, doi:10.1201/9781420010138, on attenuation).  A row to classify that
lacks the feature has an excess of variance over the training rows' mean: the conditional variance times the share of
training rows that have the feature.  Integrated over the whole variance, logits of OpenNGC's galaxies, two thirds of
which lack V, came out a tenth to a third too small.

Few values far out also make the conditional variance larger than that of most rows.  So the standard deviation is
that of a normal distribution with the same mean absolute deviation.
Shapes: N rows, F features; of a pattern, o features present.
"""

from __future__ import annotations

__all__ = ["excess_spread"]

import numpy as np

from blr.arrays import Matrix, Vector
from blr.missing.moments import FeatureMoments
from blr.missing.patterns import BLOCK, Mask, missing_patterns

_NORMAL = np.sqrt(np.pi / 2)  # standard deviation over mean absolute deviation of a normal distribution


def excess_spread(moments: FeatureMoments, X: Matrix, missing: Mask, weight: Vector | None = None) -> Vector:
    """Return the share (F,) of its conditional standard deviation that a missing feature is integrated over.

    X (N, F) are the training rows that the moments are of, without a value where `missing` (N, F) is set; they count
    `weight` (N,) times.
    """
    w = np.ones(len(X)) if weight is None else weight
    absolute, total = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for pattern, rows in missing_patterns(missing, most=BLOCK):
        present = ~pattern
        precision = np.linalg.inv(moments.covariance[np.ix_(present, present)])
        about = X[np.ix_(rows, present)] - moments.mean[present]
        # Of each present feature, given the others, in standard deviations.
        residual = about @ precision / np.sqrt(np.diag(precision))
        absolute[present] += w[rows] @ np.abs(residual)
        total[present] += w[rows].sum()
    ordinary = np.minimum(_NORMAL * absolute / np.maximum(total, np.finfo(np.float64).tiny), 1.0)
    return np.asarray(np.sqrt(total / w.sum()) * ordinary)
