"""Nodes and weights of the integrals over missing features, and interpolation between nodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from blr.arrays import Matrix, Vector, require_finite

# Nodes and weights for integrals over a normal distribution of the features: missing ones, measurement errors.
#
# One dimension: the trapezoid rule, equally spaced nodes weighted by the density.  Through logistic functions it errs
# less than Gauss-Hermite with as many nodes (a quarter or less at 16), whose outer nodes lie where nothing happens.
# More dimensions: a lattice that is regular along the first axis and moves by powers of the generalised golden ratio
# along the others (Roberts 2018, "The unreasonable effectiveness of quasirandom sequences"), each node with its mirror
# image, at the quantiles of a normal a little too wide, and weighted by the ratio of densities: the integrand then
# fades towards the edges of the cube, which lattices reward (errors 1.3 to 6 times smaller than at equal weights).
# In two dimensions the regular axis has the nodes of the trapezoid rule instead of the quantiles: a sigmoid along it is
# then resolved as in one dimension (0.0003 in place of 0.001 to 0.002 at a logit sd of 1.3).
# All are stretched so that their mean is 0 and their covariance I to rounding: an activation linear in the features
# then has its exact mean and variance.
#
# The error of a probability, root mean square over logits that are random quadratics or sums of 40 radial functions,
# of standard deviation 3: with 32 nodes 0.0004 in one dimension, 0.012 in two, 0.015 in three, 0.02 in four and five;
# with 64 nodes about half of that, with 128 a quarter.
# Shapes: S nodes, d dimensions, N rows, F features.

_FEWEST = 8  # fewer do not resolve a sigmoid, and can hardly be stretched to unit covariance


@lru_cache(maxsize=64)
def normal_nodes(dimension: int, n: int) -> tuple[Matrix, Vector]:
    """Return nodes (S, d) and weights (S,) of N(0, I) in d dimensions; S is about n, at least 8 and 4 d."""
    if n < 1:
        raise ValueError(f"the integration needs at least one node, got n={n}")
    nodes, weight = _normal_nodes(dimension, n)
    nodes.setflags(write=False)
    weight.setflags(write=False)
    return nodes, weight


def _normal_nodes(dimension: int, n: int) -> tuple[Matrix, Vector]:
    if dimension == 0:
        return np.zeros((1, 0)), np.ones(1)
    if dimension == 1:
        return _trapezoid(max(n, _FEWEST))
    half = max(n // 2, _FEWEST // 2, 2 * dimension)
    width = 1 + 0.7 / dimension
    points = _lattice(half, dimension)
    upper = width * ndtri(points)
    log_weight = upper**2 * (width**-2 - 1) / 2
    if dimension == 2:
        upper[:, 0] = _reach(half) * (2 * points[:, 0] - 1)
        log_weight[:, 0] = -(upper[:, 0] ** 2) / 2
    weight = np.exp(log_weight.sum(axis=1))
    Z, weight = np.vstack([upper, -upper]), np.tile(weight, 2) / (2 * weight.sum())
    root = np.linalg.cholesky((Z * weight[:, None]).T @ Z)
    return np.asarray(np.linalg.solve(root, Z.T).T, dtype=np.float64), weight


def _trapezoid(n: int) -> tuple[Matrix, Vector]:
    reach = _reach(n)
    z = np.linspace(-reach, reach, n)
    weight = np.exp(-(z**2) / 2)
    weight /= weight.sum()
    return (z / np.sqrt(weight @ z**2))[:, None], weight


def _reach(n: int) -> float:
    """Return where n nodes on equal steps end: far enough out to lose nothing, near enough to be dense."""
    # Both errors fall together as n grows.
    return float(min(2 + 0.55 * np.sqrt(n), 6.0))


def _lattice(n: int, dimension: int) -> Matrix:
    """Return n points, shape (n, d), that fill the open unit cube evenly."""
    # The positive root of g^d = g + 1, by iteration: it is a contraction.
    golden = 2.0
    for _ in range(64):
        golden = (1 + golden) ** (1 / dimension)
    index = np.arange(n)[:, None]
    steps = golden ** -np.arange(1.0, dimension)
    return np.hstack([(index + 0.5) / n, (0.5 + index * steps) % 1])


def moving(errors: Matrix, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which of the F features, shape (F,), have an error in some row; check the errors of (N, F) rows."""
    if errors.shape != shape:
        raise ValueError(f"errors must be standard deviations of shape {shape}, got shape {errors.shape}")
    require_finite(errors, "errors")
    if np.any(errors < 0):
        raise ValueError(
            f"errors must not be negative, got {errors.min()}; where the catalogue writes a sentinel as error, "
            "give 0 or mark the feature as missing"
        )
    return np.asarray(np.any(errors > 0, axis=0))


# Kriging from a few nodes of an integral to all of them.
#
# It smooths a little: with the nugget, values at the chosen nodes are not reproduced exactly.
#
# Shapes: S nodes, T chosen ones, d dimensions.

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
