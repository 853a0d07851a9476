"""Features of zero mean and unit variance, as learned from the training set.

Every basis works on standardised features z = (x − mean) / scale, so that one prior and one default width
serve magnitudes, ratios and fluxes alike.  Features with heavy tails may go through an arcsinh first, which is linear
for most values and logarithmic in the tails (Lupton, Gunn & Szalay 1999, doi:10.1086/301004).
Shapes: N rows, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from blr import compiled
from blr.arrays import Matrix, Vector, as_matrix, as_vector

# Values farther out than this many sd are cut, so that their powers stay finite; `blr.missing.domain` reports them.
_LIMIT = 1e15


# Quartiles of a normal distribution lie 1.349 standard deviations apart.
_QUARTILES = 1.349
# Where the quartiles are closer than this share of the standard deviation, the column has only few values.
_NARROWEST = 1e-3


# Share of rows with one value from which all other values count as rare.
_COMMON = 0.75
# At most this many rows are read to find that value.
_MOST_ROWS = 100_000
_MOST_UNITS = 1e150  # times the sample's range: the square is finite

Accumulate = Callable[[Callable[[Matrix, Matrix, Vector | None], tuple[Any, ...]]], tuple[Any, ...]]
"""Sums a function of (X, targets, weight) over chunks of rows, as `blr.sums.Data.accumulate` does."""


def _scale_of_rare(X: Matrix, weight: Vector | None) -> Vector:
    """Return the scale (F,) of the features of which most rows have one value, 0 for the other features."""
    # A value that more than half of the rows have is the median.
    common = np.median(X[:: -(-len(X) // _MOST_ROWS)], axis=0)
    rare = common != X
    share = np.average(rare, axis=0, weights=weight)
    scale = np.zeros(X.shape[1])
    for f in np.flatnonzero((share > 0) & (share < 1 - _COMMON)).tolist():
        rows = rare[:, f]
        distance = np.abs(X[rows, f] - common[f])
        peak = distance.max()
        mean_square = np.average((distance / peak) ** 2, weights=None if weight is None else weight[rows])
        scale[f] = 0.5 * peak * np.sqrt(mean_square)
    return scale


@dataclass(frozen=True, eq=False)
class Softening:
    """The map y = arcsinh((x − centre) / width), with centre and width of shape (F,)."""

    centre: Vector
    width: Vector

    def __post_init__(self) -> None:
        centre, width = as_vector(self.centre, "centre").copy(), as_vector(self.width, "width").copy()
        if centre.shape != width.shape or not np.all(width > 0):
            raise ValueError(
                f"a softening needs one centre and one positive width a feature, got centres {centre} and "
                f"widths {width}; learn them with Softening.learn(X)"
            )
        for name, array in (("centre", centre), ("width", width)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def learn(cls, X: ArrayLike) -> Softening:
        """Return the softening about the median of each column of X, shape (N, F), in units of its robust spread.

        The spread is that of the quartiles; of a column whose quartiles nearly agree, the standard deviation.
        """
        X = as_matrix(X, "X")
        low, middle, high = np.percentile(X, [25, 50, 75], axis=0)
        robust, spread = (high - low) / _QUARTILES, Standardisation.learn(X).scale
        return cls(middle, np.where(robust > _NARROWEST * spread, robust, spread))

    def __call__(self, X: Matrix) -> Matrix:
        """Return the softened features, shape (N, F), of X, shape (N, F)."""
        with np.errstate(over="ignore"):
            Y = (X - self.centre) / self.width
        Y = np.ascontiguousarray(np.clip(Y, -_LARGEST, _LARGEST, out=Y))
        compiled.arcsinhs(Y)
        return Y

    def slope(self, X: Matrix) -> Matrix:
        """Return dy/dx, shape (N, F), at X, shape (N, F)."""
        return 1 / np.hypot(self.width, X - self.centre)


_LARGEST = 1e300  # arcsinh of larger ones is the same to 1 %, and infinite ones have none


@dataclass(frozen=True, eq=False)
class Standardisation:
    """The map z = (x − mean) / scale, mean and scale (F,); with a `softening`, of the softened x."""

    mean: Vector
    scale: Vector
    softening: Softening | None = None

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

        A feature of which more than three quarters of the rows have one value has half the root-mean-square distance
        of the other rows from that value for its scale: its standard deviation would put the few others tens of units
        out (as Gelman et al. 2008 scale indicators, doi:10.1214/08-AOAS191).  A row of `weight` (N,) 2 counts as two
        rows.
        """
        X = as_matrix(X, "X")
        # Relative to one row, so that a large offset loses no digits.
        mean = X[0] + np.average(X - X[0], axis=0, weights=weight)
        deviation = X - mean
        # Divided by the largest first: squares of very large or small features leave the range of floats.
        peak = np.abs(deviation).max(axis=0)
        unit = np.where(peak > 0, peak, 1.0)
        scale = unit * np.sqrt(np.average((deviation / unit) ** 2, axis=0, weights=weight))
        scale = np.maximum(scale, _scale_of_rare(X, weight))
        # Not "== 0": the mean of equal numbers may differ from them by a rounding error, which is not a scale.
        constant = peak <= 16 * np.finfo(np.float64).eps * np.abs(mean)
        return cls(mean, np.where(constant, 1.0, scale))

    @classmethod
    def learn_by_sums(
        cls, accumulate: Accumulate, sample: ArrayLike, softening: Softening | None = None
    ) -> Standardisation:
        """Return the map that `learn` gives of all rows, from two passes over rows that are never held together.

        `accumulate` sums a function of (X, targets, weight) over chunks of the rows, X (n, F) with the softening not
        yet applied.  `sample` (S, F) are some of the rows: they show which value is common.
        """
        soften: Softening | Callable[[Matrix], Matrix] = softening or (lambda X: X)
        some = soften(as_matrix(sample, "sample"))
        origin, common = some[0].copy(), np.median(some[:: -(-len(some) // _MOST_ROWS)], axis=0)
        peak = np.abs(some - origin).max(axis=0)
        unit = np.where(peak > 0, peak, 1.0)

        def first(X: Matrix, _t: Matrix, weight: Vector | None) -> tuple[float, Vector]:
            w = np.ones(len(X)) if weight is None else weight
            return float(w.sum()), w @ (soften(X) - origin)

        total, shift = accumulate(first)
        mean = origin + shift / total

        def second(X: Matrix, _t: Matrix, weight: Vector | None) -> tuple[Vector, Vector, Vector]:
            w, Y = np.ones(len(X)) if weight is None else weight, soften(X)
            rare = common != Y
            away = np.clip((Y - mean) / unit, -_MOST_UNITS, _MOST_UNITS)
            apart = np.clip((Y - common) / unit, -_MOST_UNITS, _MOST_UNITS)
            return w @ away**2, w @ rare, w @ apart**2

        squares, rare, apart = accumulate(second)
        scale = unit * np.sqrt(squares / total)
        few = (rare > 0) & (rare / total < 1 - _COMMON)
        of_rare = 0.5 * unit * np.sqrt(apart / np.where(rare > 0, rare, 1.0))
        scale = np.where(few, np.maximum(scale, of_rare), scale)
        constant = scale <= 16 * np.finfo(np.float64).eps * np.abs(mean)
        return cls(mean, np.where(constant | (scale == 0), 1.0, scale), softening)

    def after(self, softening: Softening) -> Standardisation:
        """Return the map that softens first; mean and scale must be those of the softened features."""
        return replace(self, softening=softening)

    def slope(self, X: Matrix) -> Matrix:
        """Return dz/dx, shape (N, F) or (F,), at X, shape (N, F)."""
        return 1 / self.scale if self.softening is None else self.softening.slope(X) / self.scale

    def to_dict(self) -> dict[str, Vector]:
        """Return the arrays that `from_dict` takes; those of the softening only where there is one."""
        soft = self.softening
        own = {"mean": self.mean, "scale": self.scale}
        return own if soft is None else own | {"softening_centre": soft.centre, "softening_width": soft.width}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Standardisation:
        """Return the map of `to_dict`."""
        softened = "softening_centre" in stored
        soft = Softening(stored["softening_centre"], stored["softening_width"]) if softened else None
        if soft is not None and soft.centre.shape != np.shape(stored["mean"]):
            raise ValueError(
                f"the stored softening is of {soft.centre.size} feature(s), expected {np.size(stored['mean'])}"
            )
        return cls(stored["mean"], stored["scale"], soft)

    def __call__(self, X: Matrix) -> Matrix:
        """Return the standardised features, shape (N, F), of X, shape (N, F)."""
        if self.softening is not None:
            X = self.softening(X)
        with np.errstate(over="ignore"):
            Z = X - self.mean
            Z /= self.scale
        return np.clip(Z, -_LIMIT, _LIMIT, out=Z)
