"""Thinning of draws: fewer of them, with the mean and covariance of all.

Shapes: C chains of n draws of D weights, S draws kept.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from blr.arrays import Matrix, Vector
from blr.gaussian import cholesky_of_precision

__all__ = ["centred_at", "evenly", "matched"]

_ENOUGH = 4  # draws a weight from which they have a covariance of their own


def evenly(draws: Matrix, n_draws: int) -> Matrix:
    """Return about `n_draws` of the draws (C, n, D), as many of each chain, evenly spaced: (S, D)."""
    chains, n, D = draws.shape
    chosen = np.unique(np.linspace(0, n - 1, min(n, n_draws // chains)).round().astype(int))
    return draws[:, chosen].reshape(-1, D)


def centred_at(kept: Matrix, mean: Vector) -> Matrix:
    """Return the kept draws (S, D), moved to the mean of all, which these know better."""
    return np.asarray(kept + (mean - kept.mean(axis=0)))


def matched(kept: Matrix, mean: Vector, covariance: Matrix) -> Matrix:
    """Return the kept draws (S, D), moved to the mean and covariance of all: what these know better is not thrown away.

    Of fewer than four draws a weight the mean alone is moved.
    """
    own = kept.mean(axis=0)
    if len(kept) < _ENOUGH * len(mean):
        return kept + (mean - own)
    L, _ = cholesky_of_precision(np.cov(kept.T).reshape(covariance.shape))
    target, _ = cholesky_of_precision(covariance)
    return np.asarray(mean + solve_triangular(L, (kept - own).T, lower=True).T @ target.T)
