"""Scaled principal axes of a softmax activation's contrasts, row by row.

Axes do not depend on the order of the classes, and a common shift of all activations is not among them.  LAPACK takes
a microsecond for the smallest matrix; up to three contrasts, Jacobi rotations of all rows at once are several times
faster.  Shapes: n rows, K classes, d = K - 1 axes.  Arrays have the rows last: the arithmetic is the same for all.
"""

from __future__ import annotations

import numpy as np

from blr.arrays import Matrix, Vector
from blr.contrasts import helmert

__all__ = ["principal_axes"]

_SWEEPS = {2: 1, 3: 5}  # rotations converge quadratically: after four sweeps 1e-14 is left at three contrasts


def principal_axes(covariance: Matrix) -> Matrix:
    """Return B (d, K, n), largest axis first, with Σ_j B_j B_jᵀ the covariance (n, K, K) less its common shift."""
    n, K, _ = covariance.shape
    T = helmert(K)
    C = covariance.reshape(n, K * K) @ np.kron(T, T)
    if K - 1 in _SWEEPS:
        variance, B = _rotated(np.array(C.T.reshape(K - 1, K - 1, n), order="C"), T)
    else:
        variance, U = np.linalg.eigh(C.reshape(n, K - 1, K - 1))
        variance = variance[:, ::-1].T
        B = np.array((T @ U[:, :, ::-1]).transpose(2, 1, 0), order="C")
    # The sign of an axis is arbitrary: tied to the classes' loads, it moves with them when they change places.
    sign = np.where((B * B * B).sum(axis=1) < 0, -1.0, 1.0)
    B *= (sign * np.sqrt(np.maximum(variance, 0.0)))[:, None]
    return B


def _rotated(C: Matrix, T: Matrix) -> tuple[Matrix, Matrix]:
    """Return the eigenvalues (d, n), falling, of C (d, d, n), which is lost, and T times its eigenvectors (d, K, n)."""
    d, n = len(C), C.shape[2]
    B = np.repeat(T.T[:, :, None], n, axis=2)
    for _ in range(_SWEEPS[d]):
        for p in range(d - 1):
            for q in range(p + 1, d):
                c, s = _rotation(C, p, q)
                for r in set(range(d)) - {p, q}:
                    x, y = c * C[r, p] + s * C[r, q], c * C[r, q] - s * C[r, p]
                    C[r, p] = C[p, r] = x
                    C[r, q] = C[q, r] = y
                B[p], B[q] = c * B[p] + s * B[q], c * B[q] - s * B[p]
    return np.einsum("ddn->dn", C), B


def _rotation(C: Matrix, p: int, q: int) -> tuple[Vector, Vector]:
    """Return cosine and sine, (n,), of the rotation that takes C[p, q] to zero, and update C[p, p] >= C[q, q]."""
    difference, off = C[p, p] - C[q, q], C[p, q]
    root = np.sqrt(difference * difference + 4 * off * off)
    turned = root > 1e-150  # below, squares underflow: there is nothing to turn
    root_or_one = np.where(turned, root, 1.0)
    large = np.sqrt(0.5 + 0.5 * np.where(turned, np.abs(difference) / root_or_one, 1.0))
    small = np.where(turned, np.abs(off) / (root_or_one * large), 0.0)
    ordered = difference >= 0
    c = np.where(ordered, large, small)
    s = np.copysign(np.where(ordered, small, large), off)
    middle = 0.5 * (C[p, p] + C[q, q])
    C[p, p], C[q, q] = middle + 0.5 * root, middle - 0.5 * root
    C[p, q] = C[q, p] = 0.0
    return c, s
