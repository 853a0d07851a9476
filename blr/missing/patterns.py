"""Which features are missing, row by row: there are many rows and few patterns.

Shapes: N rows, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Matrix, Vector, require_finite

T = TypeVar("T")

_MOST = 512  # patterns: more are rare, and their matrices would fill the memory where features are many

BLOCK = 16_384
"""Rows whose copies are small beside the rows themselves."""

Mask = NDArray[np.bool_]
Nodes = tuple[NDArray[np.intp], NDArray[np.float64], Vector, int]
"""Some rows of one pattern (n,), their nodes (S, n, F), the nodes' weights (S,) and the dimension that they fill."""

NodeRule = Callable[[Mask], tuple[int, Matrix]]
"""What gives, for a pattern (F,) that misses m features, the number of nodes and their axes (m, d)."""


def present_values(X: ArrayLike, missing: ArrayLike, *, n_features: int | None = None) -> tuple[Matrix, Mask]:
    """Return a copy of X, (N, F), with 0 where it is missing, and the mask; raise on NaN elsewhere."""
    X, absent = np.asarray(X, dtype=np.float64), np.asarray(missing, dtype=np.bool_)
    F = np.shape(X)[-1] if n_features is None and X.ndim == 2 else n_features
    if X.ndim != 2 or absent.shape != X.shape or X.shape[1] != F:
        raise ValueError(
            f"X and missing must both have the shape (N, {F or 'F'}), got {X.shape} and {absent.shape}"
        )
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
    if len(missing) == 0:
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


Floats = NDArray[np.float64]


def training_noise(errors: Floats, missing: NDArray[np.bool_], names: Sequence[str]) -> dict[str, float]:
    """Return the root mean square error of each feature in rows with errors (n, F), of those that have it."""
    return {
        name: float(np.sqrt(np.mean(errors[~missing[:, j], j] ** 2)))
        for j, name in enumerate(names)
        if not missing[:, j].all()
    }


def excess(errors: Floats, noise: Mapping[str, float], names: Sequence[str]) -> Floats:
    """Return the one-sigma errors (n, F) in excess of the training rows' `noise`, 0 where it is missing."""
    known = np.array([noise.get(name, 0.0) for name in names])
    return np.asarray(np.sqrt(np.maximum(errors**2 - known**2, 0.0)))
