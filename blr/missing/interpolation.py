"""Interpolation between the nodes of an integral, by kriging, from the few nodes that tell most of the others.

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
_NUGGET = 1e-6
_NEGLIGIBLE = 1e-4  # weight of the outermost nodes, together, that are left out


@dataclass(frozen=True, eq=False)
class NodeInterpolation:
    """The chosen nodes, in ascending order (T,), and the matrix (S, T) that takes values there to all nodes."""

    chosen: NDArray[np.intp]
    to_all: Matrix

    def of(self, used: NDArray[np.bool_]) -> NodeInterpolation:
        """Return the interpolation to the nodes `used` (S,) alone, which must hold the chosen ones."""
        return NodeInterpolation((np.cumsum(used) - 1)[self.chosen], self.to_all[used])


@lru_cache(maxsize=64)
def kept_nodes(dimension: int, n: int) -> tuple[NDArray[np.intp], Matrix, Vector]:
    """Return which of `normal_nodes(dimension, n)` count, (S,), these nodes (S, d), and their weights (S,)."""
    Z, weight = normal_nodes(dimension, n)
    order = np.argsort(weight, kind="stable")
    kept = np.sort(order[np.cumsum(weight[order]) > _NEGLIGIBLE])
    return kept, Z[kept], weight[kept] / weight[kept].sum()


@lru_cache(maxsize=256)
def interpolation(dimension: int, n: int, most: int) -> NodeInterpolation:
    """Return the kriging from at most so many of the `kept_nodes(dimension, n)` to all of them, with a constant mean.

    The chosen nodes are those that leave the least variance, weighted by the density: a pivoted Cholesky factorisation.
    So those of a smaller number are among those of a larger one.
    """
    _, Z, weight = kept_nodes(dimension, n)
    S = len(Z)
    T = min(S, most)
    if T == S:
        return NodeInterpolation(np.arange(S), np.eye(S))
    distance = np.sum((Z[:, None] - Z[None]) ** 2, axis=2)
    kernel = np.exp(-0.5 * distance / _REACH**2) + 1.0
    left, factors, chosen = kernel.diagonal().copy(), np.zeros((0, S)), list[int]()
    for _ in range(T):
        i = int(np.argmax(np.where(np.isin(np.arange(S), chosen), -np.inf, left * weight)))
        column = (kernel[i] - factors.T @ factors[:, i]) / np.sqrt(max(left[i], 1e-12))
        factors, left = np.vstack([factors, column]), np.maximum(left - column**2, 0.0)
        chosen.append(i)
    index = np.sort(np.array(chosen, dtype=np.intp))
    k = np.exp(-0.5 * distance[:, index] / _REACH**2)
    system = np.ones((T + 1, T + 1))
    system[:T, :T] = k[index] + _NUGGET * np.eye(T)
    system[T, T] = 0.0
    A = np.linalg.solve(system, np.hstack([k, np.ones((S, 1))]).T)[:T].T
    return NodeInterpolation(index, np.ascontiguousarray(A))
