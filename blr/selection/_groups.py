"""Groups of weights that share a prior precision.  D = C M weights, G groups."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Vector
from blr.likelihood.prior import is_column

__all__ = ["Groups", "as_groups"]

_RANGE = (np.log(1e-10), np.log(1e10))  # of α for columns of unit scale: beyond, the data say nothing
# How far from the columns' scale, in ln α, the ascent may start: farther out, the evidence is flat.
_START = 5.0


@dataclass(frozen=True, eq=False)
class Groups:
    """Which weights share a precision: `index` (D,) is the group, -1 where the precision is fixed.

    `low` and `high` bound ln α of each group, scalars or (G,).
    """

    index: NDArray[np.intp]
    fixed: Vector  # (D,) precision where index is -1, else 0
    n_groups: int
    low: Vector | float = _RANGE[0]
    high: Vector | float = _RANGE[1]
    centre: float = 0.0  # of the normal prior on each ln α, where the ascent starts
    spread: float = np.inf

    def scaled(self, curvature: Vector) -> tuple[Groups, Vector]:
        """Return the groups with the range of ln α that columns of any scale need, and where to start (G,).

        `curvature` (D,) of the likelihood a row, at weights of zero, goes with the square of a column's scale.
        """
        low, high = np.zeros(self.n_groups), np.zeros(self.n_groups)
        for g in range(self.n_groups):
            group_curvature = curvature[(self.index == g) & (curvature > 0)]
            if group_curvature.size:
                low[g], high[g] = np.log(group_curvature.min()), np.log(group_curvature.max())
        ranged = replace(self, low=_RANGE[0] + np.minimum(low, 0), high=_RANGE[1] + np.maximum(high, 0))
        return ranged, np.clip(self.centre, low - _START, high + _START)

    @property
    def sizes(self) -> Vector:
        """Weights in each group, (G,)."""
        return self.sum(np.ones(len(self.index)))

    def precision(self, log_alpha: Vector) -> Vector:
        """Return the prior precision of each weight, (D,)."""
        return np.where(self.index >= 0, np.exp(log_alpha)[self.index], self.fixed)

    def log_prior(self, log_alpha: Vector) -> tuple[float, Vector]:
        """Return the log density of ln α up to a constant, and its gradient (G,); 0 where there is no prior."""
        z = (log_alpha - self.centre) / self.spread
        return -0.5 * float(z @ z), -z / self.spread

    def sum(self, x: Vector) -> Vector:
        """Return the sum of x (D,) over each group, (G,)."""
        inside = self.index >= 0
        return np.bincount(self.index[inside], weights=x[inside], minlength=self.n_groups).astype(np.float64)


def as_groups(
    groups: ArrayLike | None, M: int, C: int, intercept: int | None, intercept_variance: float
) -> Groups:
    """Return the groups of C M weights from those of M columns, (M,) integers; ValueError if they do not fit."""
    group = np.zeros(M, dtype=np.intp) if groups is None else np.asarray(groups)
    if group.shape != (M,) or group.dtype.kind not in "iu":
        raise ValueError(
            f"groups must be {M} integers, the group of each column of Phi, got {group.dtype} of shape {group.shape}"
        )
    if intercept is not None and not is_column(intercept, M):
        raise ValueError(
            f"intercept is column {intercept} but Phi has {M} columns; give None for no intercept"
        )
    if not 0 < intercept_variance < np.inf:
        raise ValueError(f"intercept_variance must be positive and finite, got {intercept_variance}")
    free = np.ones(M, dtype=bool)
    if intercept is not None:
        free[intercept] = False
    if not free.any():
        raise ValueError(
            f"Phi has {M} column(s), which is the intercept: there is no other weight whose prior precision "
            "could be estimated; use fit with a prior, or give intercept=None"
        )
    labels, compact = np.unique(group[free], return_inverse=True)
    index = np.full(M, -1, dtype=np.intp)
    index[free] = compact
    fixed = np.where(free, 0.0, 1.0 / intercept_variance)
    return Groups(np.tile(index, C), np.tile(fixed, C), len(labels))
