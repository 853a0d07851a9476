"""How unlike the training set a row is, with any of its features missing.

The squared Mahalanobis distance of k features present is χ² with k degrees of freedom for normal features; the
cube root of Wilson & Hilferty (1931), doi:10.1073/pnas.17.12.684, makes it a standard normal z, comparable between
patterns.  Real features are not normal, so the limit is the 99.9th percentile of the training set itself, not that of
a normal distribution.
Shapes: N rows, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from blr.arrays import Matrix, Vector
from blr.missing.moments import FeatureMoments
from blr.missing.patterns import BLOCK, kept, missing_patterns, present_values

_QUANTILE = 0.999
# Smaller eigenvalues of the correlations come from the ridge that the moments add, not from the data: of three colours
# of three bands only two are independent.
_NO_SPREAD = 1e-7
_FAR = 1e100  # standard deviations at which distances are cut, so that their squares are finite


@dataclass(frozen=True, eq=False)
class Domain:
    """The training set's moments, and the distance z that one in a thousand of its rows exceeds."""

    moments: FeatureMoments
    limit: float

    @classmethod
    def estimate(cls, X: ArrayLike, missing: ArrayLike, moments: FeatureMoments) -> Domain:
        """Return the domain of the training rows X, shape (N, F), where not `missing`, shape (N, F)."""
        z = cls(moments, np.inf).distance(X, missing)
        measured = z[~np.all(missing, axis=1)]
        # At least the distance of an ordinary row (z = 0), so that few and equal training rows are not outside
        # themselves; plus a margin for rounding, which differs between batches.
        limit = max(0.0, float(np.quantile(measured, _QUANTILE))) if measured.size else np.inf
        return cls(moments, limit + 1e-9 * (1 + limit))

    def distance(self, X: ArrayLike, missing: ArrayLike) -> Vector:
        """Return z, shape (N,): 0 for a row as far out as the median, n for an "n sigma" one.

        A row without any feature is at 0.
        """
        X, absent = present_values(X, missing, n_features=self.moments.n_features)
        z = np.zeros(len(X))
        for pattern, rows in missing_patterns(absent, most=BLOCK):
            present = np.flatnonzero(~pattern)
            if present.size:
                z[rows] = wilson_hilferty(*self._squared(X[np.ix_(rows, present)], present))
        return z

    def outside(self, X: ArrayLike, missing: ArrayLike) -> NDArray[np.bool_]:
        """Return which rows, shape (N,), lie beyond the training set's 99.9th percentile."""
        return self.distance(X, missing) > self.limit

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes."""
        return {**self.moments.to_dict(), "limit": self.limit}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Domain:
        """Return the domain of `to_dict`."""
        return cls(FeatureMoments.from_dict(stored), float(stored["limit"]))

    def _squared(self, X: Matrix, present: NDArray[np.intp]) -> tuple[Vector, int]:
        """Return the squared Mahalanobis distances (N,) of columns `present`, X (N, k), and the degrees of freedom.

        The distances use the marginal distribution of these columns; the degrees of freedom are the rank of its
        covariance.
        """
        sd, whiten, freedom = kept(
            self._metrics, present, lambda: _metric(self.moments.covariance[np.ix_(present, present)])
        )
        with np.errstate(over="ignore"):
            U = (X - self.moments.mean[present]) / sd
        U = np.clip(U, -_FAR, _FAR) @ whiten.T
        return np.einsum("nk,nk->n", U, U), freedom

    @cached_property
    def _metrics(self) -> dict[bytes, tuple[Vector, Matrix, int]]:
        return {}


def _metric(covariance: Matrix) -> tuple[Vector, Matrix, int]:
    """Return the sd (k,), the matrix (k, k) that whitens standardised values, and the rank."""
    sd = np.sqrt(np.diag(covariance))
    # Inverting the small triangular matrix once and multiplying all rows is faster than solving for them.
    correlation = covariance / np.outer(sd, sd)
    L = np.linalg.cholesky(correlation)
    whiten = solve_triangular(L, np.eye(len(sd)), lower=True)
    return sd, whiten, int(np.sum(np.linalg.eigvalsh(correlation) > _NO_SPREAD))


def wilson_hilferty(chi2: Vector, k: int) -> Vector:
    """Return z, of the shape of `chi2`, as probable under N(0, 1) as `chi2` is under χ² with k degrees of freedom."""
    variance = 2 / (9 * k)
    return (np.cbrt(chi2 / k) - (1 - variance)) / np.sqrt(variance)
