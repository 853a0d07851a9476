"""Kriging from a few nodes of an integral to all of them.

It smooths a little: with the nugget, values at the chosen nodes are not reproduced exactly.

Shapes: S nodes, T chosen ones, d dimensions.
"""

from __future__ import annotations

__all__ = ["NodeInterpolation", "interpolation", "kept_nodes"]

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector
from blr.missing.nodes import normal_nodes

_REACH = 4.0  # lengthscale of the kriging, in standard deviations of what is missing
_NUGGET = 1e-6  # keeps the system solvable
_NEGLIGIBLE = 1e-4  # weight of the outermost nodes, together, that are left out


@dataclass(frozen=True, eq=False)
class NodeInterpolation:
    """The chosen nodes, in ascending order (T,), and the matrix (S, T) that takes values there to all nodes."""

    chosen: NDArray[np.intp]
    to_all: Matrix

    def of(self, used: NDArray[np.bool_]) -> NodeInterpolation:
        """Return the interpolation to the nodes `used` (S,) alone; the chosen ones must be among them."""
        return NodeInterpolation((np.cumsum(used) - 1)[self.chosen], self.to_all[used])


@lru_cache(maxsize=64)
def kept_nodes(dimension: int, n: int) -> tuple[NDArray[np.intp], Matrix, Vector]:
    """Return which of `normal_nodes(dimension, n)` count, (S,), these nodes (S, d), and their weights (S,)."""
    Z, weight = normal_nodes(dimension, n)
    order = np.argsort(weight, kind="stable")
    least = weight[order[np.cumsum(weight[order]) > _NEGLIGIBLE]].min()
    # A node and its mirror image have the same weight, to rounding: where one stays, so does the other, and the mean.
    kept = np.flatnonzero(weight >= least * (1 - 1e-9))
    return kept, Z[kept], weight[kept] / weight[kept].sum()


@lru_cache(maxsize=256)
def interpolation(dimension: int, n: int, most: int) -> NodeInterpolation:
    """Return the kriging from `most` of the `kept_nodes(dimension, n)`, or fewer, to all; the mean is not known.

    Nodes are chosen one after the other, each where the variance that is left, times the weight, is largest: a pivoted
    Cholesky factorisation.  So those of a smaller number are among those of a larger one.
    """
    _, Z, weight = kept_nodes(dimension, n)
    S = len(Z)
    T = min(S, most)
    if T == S:
        return NodeInterpolation(np.arange(S), np.eye(S))
    squared = np.sum((Z[:, None] - Z[None]) ** 2, axis=2)
    # The 1 is a variance of the mean, for the choice alone: the system below leaves the mean free.
    kernel = np.exp(-0.5 * squared / _REACH**2) + 1.0
    left, factors, chosen = kernel.diagonal().copy(), np.zeros((0, S)), list[int]()
    for _ in range(T):
        i = int(np.argmax(np.where(np.isin(np.arange(S), chosen), -np.inf, left * weight)))
        column = (kernel[i] - factors.T @ factors[:, i]) / np.sqrt(max(left[i], 1e-12))
        factors, left = np.vstack([factors, column]), np.maximum(left - column**2, 0.0)
        chosen.append(i)
    index = np.sort(np.array(chosen, dtype=np.intp))
    k = np.exp(-0.5 * squared[:, index] / _REACH**2)
    system = np.ones((T + 1, T + 1))
    system[:T, :T] = k[index] + _NUGGET * np.eye(T)
    system[T, T] = 0.0
    A = np.linalg.solve(system, np.hstack([k, np.ones((S, 1))]).T)[:T].T
    return NodeInterpolation(index, np.ascontiguousarray(A))
