"""Features of zero mean and unit variance, as learned from the training set.

Every basis works on standardised features z = (x − mean) / scale, so that one prior and one default width
serve magnitudes, ratios and fluxes alike.  Shapes: N rows, F features.
"""

from __future__ import annotations

__all__ = ["Standardisation"]

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector, as_matrix, as_vector

# A value this many sd out is not data, and its high powers must stay finite; `blr.domain` reports it.
_LIMIT = 1e15


@dataclass(frozen=True, eq=False)
class Standardisation:
    """The map z = (x − mean) / scale, with mean and scale of shape (F,)."""

    mean: Vector
    scale: Vector

    def __post_init__(self) -> None:
        mean, scale = as_vector(self.mean, "mean").copy(), as_vector(self.scale, "scale").copy()
        if mean.shape != scale.shape or not np.all(scale > 0):
            raise ValueError(
                f"standardisation needs one mean and one positive scale a feature, got means {mean} and "
                f"scales {scale}; learn them with Standardisation.learn(X)"
            )
        for name, array in (("mean", mean), ("scale", scale)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def learn(cls, X: ArrayLike, weight: Vector | None = None) -> Standardisation:
        """Return the map that gives X, shape (N, F), zero mean and unit variance; scale 1 where X is constant.

        A row of `weight` (N,) 2 counts as two rows.
        """
        X = as_matrix(X, "X")
        # About a row, so that a far origin costs no digits.
        mean = X[0] + np.average(X - X[0], axis=0, weights=weight)
        deviation = X - mean
        # Divided by the largest first: squares of very large or small features leave the range of floats.
        peak = np.abs(deviation).max(axis=0)
        unit = np.where(peak > 0, peak, 1.0)
        scale = unit * np.sqrt(np.average((deviation / unit) ** 2, axis=0, weights=weight))
        # Not "== 0": the mean of equal numbers may miss them by a rounding, which is no scale.
        constant = peak <= 16 * np.finfo(np.float64).eps * np.abs(mean)
        return cls(mean, np.where(constant, 1.0, scale))

    def __call__(self, X: Matrix) -> Matrix:
        """Return the standardised features, shape (N, F), of X, shape (N, F)."""
        with np.errstate(over="ignore"):
            Z = X - self.mean
            Z /= self.scale
        return np.clip(Z, -_LIMIT, _LIMIT, out=Z)
