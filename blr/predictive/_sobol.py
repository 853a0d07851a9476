"""Sobol points as standard normal nodes, the same for all rows and on every machine.

Direction numbers of Joe and Kuo (2008), doi:10.1137/070709359, file new-joe-kuo-6.21201.  SciPy has them too, but
`scipy.stats` takes a second to import, and its scrambling may change between versions.  A fixed digital shift takes the
points off the origin.  The normal nodes are then given mean zero and unit covariance exactly, so that an integrand
that is nearly quadratic is integrated nearly exactly.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from blr.arrays import Matrix

__all__ = ["normal_nodes", "sobol_points"]

_BITS = 30

# Degree s, coefficients a and initial numbers m of the primitive polynomials of dimensions 2 to 21.
_DIRECTIONS: tuple[tuple[int, int, tuple[int, ...]], ...] = (
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
    (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)),
    (5, 4, (1, 1, 5, 5, 5)),
    (5, 7, (1, 1, 7, 11, 19)),
    (5, 11, (1, 1, 5, 1, 1)),
    (5, 13, (1, 1, 1, 3, 11)),
    (5, 14, (1, 3, 5, 5, 31)),
    (6, 1, (1, 3, 3, 9, 7, 49)),
    (6, 13, (1, 1, 1, 15, 21, 21)),
    (6, 16, (1, 3, 1, 13, 27, 49)),
    (6, 19, (1, 1, 1, 15, 7, 5)),
    (6, 22, (1, 3, 1, 15, 13, 25)),
    (6, 25, (1, 1, 5, 5, 19, 61)),
    (7, 1, (1, 3, 7, 11, 23, 15, 103)),
    (7, 4, (1, 3, 7, 13, 13, 15, 69)),
)


def _directions(dimension: int) -> NDArray[np.int64]:
    """Return the direction integers, (30,), of dimension 0, 1, ..."""
    v = np.zeros(_BITS, dtype=np.int64)
    if dimension == 0:
        v[:] = 1 << np.arange(_BITS - 1, -1, -1)
        return v
    s, a, m = _DIRECTIONS[dimension - 1]
    for i in range(_BITS):
        if i < s:
            v[i] = m[i] << (_BITS - 1 - i)
            continue
        v[i] = v[i - s] ^ (v[i - s] >> s)
        for k in range(1, s):
            if (a >> (s - 1 - k)) & 1:
                v[i] ^= v[i - k]
    return v


def sobol_points(n: int, d: int) -> NDArray[np.int64]:
    """Return the first n points of the Sobol sequence, (n, d), in units of 2^-30, d at most 21, in Gray code order."""
    if d > len(_DIRECTIONS) + 1:
        raise ValueError(
            f"got {d} dimensions for Sobol points, expected at most {len(_DIRECTIONS) + 1}; use method 'monte_carlo'"
        )
    index = np.arange(n)
    gray = index ^ (index >> 1)
    points = np.zeros((n, d), dtype=np.int64)
    for j in range(d):
        v = _directions(j)
        for bit in range(max(n - 1, 1).bit_length()):
            points[:, j] ^= np.where((gray >> bit) & 1, v[bit], 0)
    return points


@lru_cache(maxsize=64)
def normal_nodes(n: int, d: int) -> Matrix:
    """Return n nodes, (n, d), of equal weight for the standard normal, n a power of two and well above d.

    Beyond 21 dimensions, which are to be those of the least variance, the nodes are pseudo-random with a fixed seed.
    """
    tabulated = min(d, len(_DIRECTIONS) + 1)
    rng = np.random.default_rng(20241)
    shift = rng.integers(0, 1 << _BITS, tabulated)
    u = ((sobol_points(n, tabulated) ^ shift) + 0.5) / (1 << _BITS)
    z = np.concatenate([ndtri(u), rng.standard_normal((n, d - tabulated))], axis=1)
    z -= z.mean(axis=0)
    L = np.linalg.cholesky(z.T @ z / n)
    z = np.linalg.solve(L, z.T).T
    z.flags.writeable = False
    return np.asarray(z)
