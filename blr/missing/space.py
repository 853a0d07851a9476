"""Rows as points: features that are missing at their conditional mean, whitened, so that distances mean something.

The scale is that of `blr.explanation.neighbours`: the mean square distance of two training rows is 1.
Shapes: N rows, F features, D dimensions: the rank of the covariance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix
from blr.missing.moments import FeatureMoments

__all__ = ["WhitenedSpace"]

_NO_SPREAD = 1e-7  # eigenvalue of the correlations: below it is the ridge of the moments, as in `domain`
_FAR = 1e100


@dataclass(frozen=True, eq=False)
class WhitenedSpace:
    """The space in which the training set's moments are those of a sphere."""

    moments: FeatureMoments

    @property
    def n_dimensions(self) -> int:
        """D, the rank of the covariance."""
        return self._axes.shape[1]

    @cached_property
    def _axes(self) -> Matrix:
        """What takes standardised features to the space, (F, D)."""
        sd = np.sqrt(np.diag(self.moments.covariance))
        values, vectors = np.linalg.eigh(self.moments.covariance / np.outer(sd, sd))
        kept = values > _NO_SPREAD
        return np.asarray(vectors[:, kept] / np.sqrt(2 * np.count_nonzero(kept) * values[kept]))

    def points(self, X: ArrayLike, missing: ArrayLike) -> Matrix:
        """Return the points (N, D) of rows X, shape (N, F), where not `missing`, shape (N, F)."""
        sd = np.sqrt(np.diag(self.moments.covariance))
        with np.errstate(over="ignore"):
            U = (self.moments.impute(X, missing) - self.moments.mean) / sd
        return np.asarray(np.clip(U, -_FAR, _FAR) @ self._axes)
