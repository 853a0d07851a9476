"""Distances between rows: where to put centres, and how far apart rows typically are.

Both look at no more than a sample of the rows, drawn from the generator given, so that fitting a basis to a
survey costs no more than fitting one to a field.  Shapes: N rows, F standardised features, K centres.
"""

from __future__ import annotations

__all__ = ["median_city_block", "median_distance", "spread_centres", "squared_distances"]

import numpy as np
import scipy  # its modules load when used
from numpy.random import Generator

from blr.arrays import Matrix, Vector

_CENTRE_SAMPLE = 20_000
_DISTANCE_SAMPLE = 1_000
_LLOYD_STEPS = 10
_SAME = 1e-6  # Rows nearer than this, in standard deviations, count as one place.


def squared_distances(Z: Matrix, centres: Matrix) -> Matrix:
    """Return |z_n − c_k|², shape (N, K), by one matrix product."""
    squares = np.sum(Z**2, axis=1)[:, None] - 2 * (Z @ centres.T) + np.sum(centres**2, axis=1)
    return np.maximum(squares, 0, out=squares)  # Rounding errors of the expansion may be negative.


def median_distance(Z: Matrix, rng: Generator) -> float:
    """Return the median distance between distinct rows of Z, shape (N, F); 1 where there is only one row."""
    Z = _sample(Z, _DISTANCE_SAMPLE, rng)
    first, second = np.triu_indices(len(Z), k=1)
    return _median_of_distinct(np.sqrt(squared_distances(Z, Z)[first, second]))


def median_city_block(Z: Matrix, rng: Generator) -> float:
    """Return the median city-block distance between distinct rows of Z, shape (N, F); 1 where there is only one."""
    return _median_of_distinct(scipy.spatial.distance.pdist(_sample(Z, _DISTANCE_SAMPLE, rng), "cityblock"))


def _median_of_distinct(distance: Vector) -> float:
    distinct = distance[distance > _SAME]
    return float(np.median(distinct)) if distinct.size else 1.0


def spread_centres(Z: Matrix, count: int, rng: Generator) -> Matrix:
    """Return up to `count` centres, shape (K, F), that cover the rows of Z, shape (N, F).

    Seeds are drawn by k-means++ (Arthur & Vassilvitskii 2007, SODA, p. 1027) and settled by a few of Lloyd's
    steps.  There are fewer than `count` where Z has fewer distinct rows.
    """
    Z = _sample(Z, _CENTRE_SAMPLE, rng)
    centres = _seed(Z, count, rng)
    for _ in range(_LLOYD_STEPS):
        nearest = squared_distances(Z, centres).argmin(axis=1)
        size = np.bincount(nearest, minlength=len(centres))
        total = np.stack([np.bincount(nearest, z, minlength=len(centres)) for z in Z.T], axis=1)
        centres = np.where(size[:, None] > 0, total / np.maximum(size, 1)[:, None], centres)
    return centres


def _seed(Z: Matrix, count: int, rng: Generator) -> Matrix:
    chosen = [int(rng.integers(len(Z)))]
    nearest = np.full(len(Z), np.inf)
    while len(chosen) < count:
        # Exact differences, not the expansion: a duplicate must be at distance 0 to be passed over.
        np.minimum(nearest, np.sum((Z - Z[chosen[-1]]) ** 2, axis=1), out=nearest)
        cumulative = np.cumsum(np.where(nearest > _SAME**2, nearest, 0.0))
        if cumulative[-1] == 0:
            break
        pick = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
        chosen.append(min(pick, len(Z) - 1))
    return Z[chosen]


def _sample(Z: Matrix, most: int, rng: Generator) -> Matrix:
    return Z if len(Z) <= most else Z[np.sort(rng.choice(len(Z), most, replace=False))]
