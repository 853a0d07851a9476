"""Which features are missing, row by row, and the nodes of integrals over them.

There are many rows and few patterns.  Shapes: N rows, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from blr.arrays import Floats, Mask, Matrix, Vector, require_finite

T = TypeVar("T")
_MOST = 512  # patterns: more are rare, and their matrices would fill the memory where features are many
BLOCK = 16_384
"""Rows whose copies are small beside the rows themselves."""
Nodes = tuple[NDArray[np.intp], NDArray[np.float64], Vector, int]
"""Some rows of one pattern (n,), their nodes (S, n, F), the nodes' weights (S,) and the dimension that they fill."""


def present_values(X: ArrayLike, missing: ArrayLike, *, n_features: int | None = None) -> tuple[Matrix, Mask]:
    """Return X, (N, F), with 0 where it is missing, and the mask; raise on NaN elsewhere.

    X is a copy where something is missing, else the array itself.
    """
    X, absent = np.asarray(X, dtype=np.float64), np.asarray(missing, dtype=np.bool_)
    F = np.shape(X)[-1] if n_features is None and X.ndim == 2 else n_features
    if X.ndim != 2 or absent.shape != X.shape or X.shape[1] != F:
        raise ValueError(
            f"X and missing must both have the shape (N, {F or 'F'}), got {X.shape} and {absent.shape}"
        )
    if absent.any():
        X = np.where(absent, 0.0, X)
    require_finite(X, "X")
    return X, absent


def present_errors(errors: ArrayLike, missing: Mask) -> Matrix:
    """Return one-sigma errors (N, F), 0 where a feature is missing or NaN says that it is unknown; refuse nonsense."""
    sigma = np.asarray(errors, dtype=np.float64)
    if sigma.shape != missing.shape:
        raise ValueError(f"errors have shape {sigma.shape}, expected that of X, {missing.shape}")
    sigma = np.where(missing | np.isnan(sigma), 0.0, sigma)
    wrong = np.isinf(sigma) | (sigma < 0)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"errors hold {sigma[row, column]} at row {row}, column {column} ({int(wrong.any(axis=1).sum())} such "
            "rows), expected 0 or more, finite, or NaN for an unknown error; mark a value of infinite error as missing"
        )
    return sigma


def missing_patterns(missing: Mask, *, most: int | None = None) -> Iterator[tuple[Mask, NDArray[np.intp]]]:
    """Yield each pattern (F,) in `missing`, (N, F), with the indices of its rows; there are few of them.

    With `most`, a pattern of more rows comes in several blocks.
    """
    if not missing.any():
        step = most or max(1, len(missing))
        for i in range(0, len(missing), step):
            yield np.zeros(missing.shape[1], dtype=np.bool_), np.arange(i, min(i + step, len(missing)))
        return
    code = np.zeros(len(missing), dtype=np.int64)
    for column in missing.T:
        # Renumbered as it grows, so that any number of features fits.
        code = 2 * code + column
        if code.max() > len(missing) + 65_536:
            code = np.unique(code, return_inverse=True)[1].ravel()
    # Small integers are sorted by radix, in time proportional to their number.
    order = np.argsort(code.astype(np.uint16) if code.max() < 65_536 else code, kind="stable")
    edges = np.flatnonzero(np.diff(code[order])) + 1
    for rows in np.split(order, edges):
        for start in range(0, len(rows), most or len(rows)):
            yield missing[rows[0]], rows[start : start + (most or len(rows))]


def largest_share(share: Vector | None, missing: Mask) -> Vector:
    """Return each row's largest share (N,) of the features that it lacks, by their shares (F,); without these, 1."""
    if share is None:
        return np.ones(len(missing))
    return np.asarray(np.where(missing, share, 0.0).max(axis=1, initial=0.0))


def node_blocks(parts: Iterable[Nodes], most: int) -> Iterator[list[Nodes]]:
    """Yield the parts in groups of at most that many nodes, or of one part that has more."""
    group: list[Nodes] = []
    n = 0
    for part in parts:
        size = part[1].shape[0] * part[1].shape[1]
        if group and n + size > most:
            yield group
            group, n = [], 0
        group.append(part)
        n += size
    if group:
        yield group


def kept(cache: dict[bytes, T], pattern: NDArray[Any], make: Callable[[], T]) -> T:
    """Return what `make` gives for a pattern, or gave before.

    `cache` holds it by the pattern's bytes, and starts anew when it is full.
    """
    key = pattern.tobytes()
    known = cache.get(key)
    if known is None:
        known = make()
        if len(cache) >= _MOST:
            cache.clear()
        cache[key] = known
    return known


# Measurement errors of a target in excess of the training rows' own.  The noise of the training rows has already made
# the weights smaller: a fit to noisy colours predicts from colours of the same noise.  So a row of the same noise needs
# no correction, and a noisier row is widened by the difference of the variances.


def training_noise(errors: Floats, missing: NDArray[np.bool_], names: Sequence[str]) -> dict[str, float]:
    """Return the root mean square error of each feature in rows with errors (n, F), of those that state it.

    An error of 0 is not known, and says nothing of the others.
    """
    known = (errors > 0) & ~missing
    square = np.sum(np.where(known, errors, 0.0) ** 2, axis=0) / np.maximum(known.sum(axis=0), 1)
    return {name: float(square[j] ** 0.5) for j, name in enumerate(names) if not missing[:, j].all()}


def excess(errors: Floats, noise: Mapping[str, float], names: Sequence[str]) -> Floats:
    """Return the one-sigma errors (n, F) in excess of the training rows' `noise`, 0 where it is missing."""
    known = np.array([noise.get(name, 0.0) for name in names])
    return np.asarray(np.sqrt(np.maximum(errors**2 - known**2, 0.0)))


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

# Fewer do not resolve a sigmoid, and in several dimensions they can hardly be stretched to unit covariance.
_FEWEST_OF_ONE, _FEWEST = 7, 8


@lru_cache(maxsize=64)
def normal_nodes(dimension: int, n: int) -> tuple[Matrix, Vector]:
    """Return nodes (S, d) and weights (S,) of N(0, I) in d dimensions.

    S is about n, and at least 7 in one dimension, 9 and 4 d + 1 in several.  In several, and for odd n in one, the node
    in the middle is the mean.
    """
    if dimension == 0:
        nodes, weight = np.zeros((1, 0)), np.ones(1)
    else:
        nodes, weight = _trapezoid(max(n, _FEWEST_OF_ONE)) if dimension == 1 else _in_several(dimension, n)
    nodes.setflags(write=False)
    weight.setflags(write=False)
    return nodes, weight


def _in_several(dimension: int, n: int) -> tuple[Matrix, Vector]:
    half = max(n // 2, _FEWEST // 2, 2 * dimension)
    width = 1 + 0.7 / dimension
    # Points that fill the open unit cube evenly.  The positive root of g^d = g + 1 by iteration: it is a contraction.
    golden = 2.0
    for _ in range(64):
        golden = (1 + golden) ** (1 / dimension)
    index = np.arange(half)[:, None]
    steps = golden ** -np.arange(1.0, dimension)
    points = np.hstack([(index + 0.5) / half, (0.5 + index * steps) % 1])
    upper = width * ndtri(points)
    log_weight = upper**2 * (width**-2 - 1) / 2
    if dimension == 2:
        upper[:, 0] = _reach(half) * (2 * points[:, 0] - 1)
        log_weight[:, 0] = -(upper[:, 0] ** 2) / 2
    weight = np.exp(log_weight.sum(axis=1))
    # The mean is no point of the lattice, and has no weight.
    Z = np.vstack([upper, np.zeros(dimension), -upper[::-1]])
    weight = np.concatenate([weight, [0.0], weight[::-1]]) / (2 * weight.sum())
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


# Kriging from a few nodes of an integral to all of them.
#
# It smooths a little: with the nugget, values at the chosen nodes are not reproduced exactly.
#
# Shapes: S nodes, T chosen ones, d dimensions.

_REACH = 4.0  # lengthscale of the kriging, in standard deviations of what is missing
_NUGGET = 1e-6  # keeps the system solvable
_NEGLIGIBLE = 1e-4  # weight of the outermost nodes, together, that are left out


NodeInterpolation = tuple[NDArray[np.intp], Matrix]
"""The chosen nodes, in ascending order (T,), and the matrix (S, T) that takes values there to all nodes."""


@lru_cache(maxsize=64)
def kept_nodes(dimension: int, n: int) -> tuple[NDArray[np.intp], Matrix, Vector]:
    """Return which of `normal_nodes(dimension, n)` count, (S,), these nodes (S, d), and their weights (S,).

    The middle stays in the middle.
    """
    Z, weight = normal_nodes(dimension, n)
    order = np.argsort(weight, kind="stable")
    least = weight[order[np.cumsum(weight[order]) > _NEGLIGIBLE]].min()
    # A node and its mirror image have the same weight, to rounding: where one stays, so does the other, and the mean.
    kept = np.flatnonzero((weight >= least * (1 - 1e-9)) | (np.arange(len(Z)) == len(Z) // 2))
    return kept, Z[kept], weight[kept] / weight[kept].sum()


@lru_cache(maxsize=256)
def interpolation(dimension: int, n: int, most: int) -> NodeInterpolation:
    """Return the kriging from `most` of the `kept_nodes(dimension, n)`, or fewer, to all; the mean is not known.

    Nodes are chosen one after the other, the middle first, and then each where the variance that is left, times the
    weight, is largest: a pivoted Cholesky factorisation.  So those of a smaller number are among those of a larger one.
    """
    _, Z, weight = kept_nodes(dimension, n)
    S = len(Z)
    T = min(S, most)
    if T == S:
        return np.arange(S), np.eye(S)
    squared = np.sum((Z[:, None] - Z[None]) ** 2, axis=2)
    # The 1 is a variance of the mean, for the choice alone: the system below leaves the mean free.
    kernel = np.exp(-0.5 * squared / _REACH**2) + 1.0
    left, factors, chosen = kernel.diagonal().copy(), np.zeros((0, S)), list[int]()
    for t in range(T):
        gain = np.where(np.isin(np.arange(S), chosen), -np.inf, left * weight)
        i = int(np.argmax(gain)) if t else S // 2
        column = (kernel[i] - factors.T @ factors[:, i]) / np.sqrt(max(left[i], 1e-12))
        factors, left = np.vstack([factors, column]), np.maximum(left - column**2, 0.0)
        chosen.append(i)
    index = np.sort(np.array(chosen, dtype=np.intp))
    k = np.exp(-0.5 * squared[:, index] / _REACH**2)
    system = np.ones((T + 1, T + 1))
    system[:T, :T] = k[index] + _NUGGET * np.eye(T)
    system[T, T] = 0.0
    A = np.linalg.solve(system, np.hstack([k, np.ones((S, 1))]).T)[:T].T
    return index, np.ascontiguousarray(A)
