"""Strata of an audit, and how many objects are drawn of each.

A stratum holds the objects of one class (the most probable one) within a range of its probability.  Half of the objects
are drawn in proportion to the strata's sizes, so that no model can hide a class.  The other half follow Neyman's rule
(1934, doi:10.2307/2342192): more where the classes are uncertain, and of those more where a rare class is likely.

Shapes: K classes, G levels of the probability, H strata.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from blr.arrays import Matrix, Vector

Counts = NDArray[np.int64]
Places = NDArray[np.intp]
Bools = NDArray[np.bool_]

FEWEST = 4
"""Objects drawn of a stratum at least, where it has so many."""
DOUBT = 0.02
"""Weight of the class shares in a stratum's probabilities, since models state too much certainty."""
LEVELS = 200
FINEST = 1e-4
"""Smallest 1 - p that has a level of its own."""
SMALLEST_STRATUM = 10
"""Objects that a stratum has at least, unless its class has fewer."""
ROUNDS = 50


def level_edges(thresholds: Sequence[float] = ()) -> Vector:
    """Return the edges (G - 1,) of the levels of the largest probability, ascending; thresholds are among them.

    A probability is at the level `np.searchsorted(edges, p, side="right")`.
    """
    fine = 1 - np.geomspace(FINEST, 1 - 1 / LEVELS, LEVELS)
    return np.unique(np.concatenate([fine, np.asarray(thresholds, dtype=np.float64)]))


def uncertainty(mean: Matrix, share: Vector) -> Vector:
    """Return the standard deviation (...) of the class of an object with mean probabilities (..., K), as Neyman has it.

    Each class counts by one over its `share` (K,): errors of rare classes are as costly as those of frequent ones.
    """
    p = (1 - DOUBT) * mean + DOUBT * share
    deviation: Vector = np.sqrt((p * (1 - p) / np.maximum(share, np.finfo(float).tiny)).sum(axis=-1))
    return deviation


def cut_levels(n_rows: Counts, deviation: Matrix, n_strata: int, begins: Bools | None = None) -> Places:
    """Return the stratum (K, G) of each level within its class, 0 the least probable; -1 where it has no object.

    `n_rows` (K, G) counts objects, `deviation` (K, G) is their `uncertainty`.  Strata are about equal in their product
    (Dalenius and Hodges 1959, doi:10.1080/01621459.1959.10501501); there are about `n_strata`, at least one a class.
    A stratum begins wherever `begins` (K, G) says so.
    """
    mass = n_rows * deviation
    total, objects = mass.sum(axis=1), n_rows.sum(axis=1)
    pieces = (objects > 0).astype(int)
    while pieces.sum() < n_strata:
        more = np.where(objects >= (pieces + 1) * SMALLEST_STRATUM, total / np.maximum(pieces, 1), 0.0)
        if not more.any():
            break
        pieces[int(more.argmax())] += 1
    strata = np.full(n_rows.shape, -1, dtype=np.intp)
    for k in np.flatnonzero(pieces):
        middle = (np.cumsum(mass[k]) - mass[k] / 2) / total[k]
        piece = np.minimum((middle * pieces[k]).astype(np.intp), pieces[k] - 1)
        if begins is not None:
            piece += np.cumsum(begins[k]) * (n_strata + len(pieces))  # more than any piece
        filled = n_rows[k] > 0
        strata[k, filled] = np.unique(piece[filled], return_inverse=True)[1]
    return strata


def allocated(n_rows: Counts, deviation: Vector, n: int) -> Counts:
    """Return how many objects (H,) are drawn of strata with `n_rows` (H,): `n` together, or all there are.

    Raises
    ------
    ValueError
        If there are more than n/2 strata.
    """
    H, N = len(n_rows), n_rows.astype(np.float64)
    if n >= N.sum():
        return n_rows.astype(np.int64)
    if n < 2 * H:
        raise ValueError(
            f"n: got {n} objects for {H} strata, expected at least two for each stratum; draw more objects"
        )
    least = np.minimum(N, min(FEWEST, n // H))
    neyman = N * deviation
    wanted = 0.5 * n * (N / N.sum() + (neyman / neyman.sum() if neyman.any() else N / N.sum()))
    size = np.clip(wanted, least, N)
    for _ in range(ROUNDS):
        free, missing = (size > least) & (size < N), n - size.sum()
        if abs(missing) < 1e-9 or not free.any():
            break
        size[free] *= 1 + missing / size[free].sum()
        size = np.clip(size, least, N)
    return _rounded(size, n_rows, n)


def _rounded(size: Vector, n_rows: Counts, n: int) -> Counts:
    """Return whole numbers that are close to the sizes and sum to n."""
    whole = np.floor(size + 1e-9).astype(np.int64)
    order = np.argsort(whole - size, kind="stable")
    while whole.sum() < n:
        for i in order:
            if whole.sum() < n and whole[i] < n_rows[i]:
                whole[i] += 1
    while whole.sum() > n:
        whole[int(np.argmax(whole))] -= 1
    return whole
