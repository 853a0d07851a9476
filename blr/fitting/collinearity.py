"""Collinear columns: those of the design matrix that are linear combinations of the others, by name of index.

From the Gram matrix of the columns, scaled to unit length, by a Cholesky factorisation with pivots: a pivot is the
square of the sine of the angle between a column and the span of those before it.  Shapes: M columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from blr.arrays import Matrix, Vector
from blr.sums import Data, Terms

_PIVOT = 1e-12  # Below this, rounding errors of the Gram matrix decide.
_TAKES_PART = 1e-4  # of a unit column, in the combination that makes up another


@dataclass(frozen=True)
class Collinearity:
    """Columns of zeros, and of the other dependent ones each with those that make it up: ((j, (i, ...)), ...)."""

    empty: tuple[int, ...]
    dependent: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def n_redundant(self) -> int:
        """Columns that could be left out."""
        return len(self.empty) + len(self.dependent)


def find_collinearity(data: Data) -> Collinearity:
    """Return which columns of the rows with positive weight are redundant."""

    def gram(Phi: Matrix, _t: Matrix, weight: Vector | None) -> Terms:
        X = Phi if weight is None else Phi[weight > 0]
        return (X.T @ X,)

    (G,) = data.accumulate(gram)
    length = np.sqrt(np.diag(G))
    used = np.flatnonzero(length > 0)
    C = G[np.ix_(used, used)] / length[used, None] / length[used]
    L, pivot, rank, _ = scipy.linalg.lapack.dpstrf(C, tol=_PIVOT, lower=1)
    order = pivot - 1
    share = scipy.linalg.solve_triangular(L[:rank, :rank], L[rank:, :rank].T, lower=True, trans=1).T
    dependent = tuple(
        (
            int(used[order[rank + i]]),
            tuple(sorted(used[order[np.flatnonzero(np.abs(row) > _TAKES_PART)]].tolist())),
        )
        for i, row in enumerate(share)
    )
    return Collinearity(tuple(np.flatnonzero(length == 0).tolist()), tuple(sorted(dependent)))
