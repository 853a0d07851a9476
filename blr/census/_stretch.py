"""Draws of shares from a density on the simplex, by an ensemble of walkers.

Affine-invariant moves: Goodman and Weare (2010), doi:10.2140/camcos.2010.5.65.  Shapes: K classes, S draws.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blr.arrays import Matrix, Vector

__all__ = ["draws_on_simplex"]

_WIDEST = 2.0
"""Largest factor by which a move stretches."""
_FIRST_SPREAD = 0.3
_FARTHEST, _GRID, _QUANTILES = 16.0, 4001, 2000
"""Of two classes: the largest log ratio of their shares, steps of it, and draws."""
_SEED = 20_100_000


def draws_on_simplex(
    log_density: Callable[[Matrix], Vector], start: Vector, *, walkers: int = 64, steps: int = 180
) -> Matrix:
    """Return draws (S, K) of shares; the first third of the walk is left out.

    `log_density` takes shares (s, K) and returns their log density with respect to the logarithms of their ratios.
    `start` (K,) are positive shares to begin at.
    """
    D = len(start) - 1
    if D == 1:
        return _by_quantiles(log_density)
    rng = np.random.default_rng(_SEED)
    half = max(walkers // 2, D + 1)
    at = np.log(start[:-1] / start[-1]) + _FIRST_SPREAD * rng.standard_normal((2 * half, D))
    value = log_density(_shares(at))
    kept = []
    halves = (slice(0, half), slice(half, None))
    for step in range(steps):
        for moved, others in (halves, halves[::-1]):
            z = (rng.random(half) * (_WIDEST**0.5 - _WIDEST**-0.5) + _WIDEST**-0.5) ** 2
            partner = at[others][rng.integers(half, size=half)]
            proposed = partner + z[:, None] * (at[moved] - partner)
            density = log_density(_shares(proposed))
            accepted = np.log(rng.random(half)) < (D - 1) * np.log(z) + density - value[moved]
            at[moved] = np.where(accepted[:, None], proposed, at[moved])
            value[moved] = np.where(accepted, density, value[moved])
        if step >= steps // 3:
            kept.append(_shares(at))
    return np.concatenate(kept)


def _by_quantiles(log_density: Callable[[Matrix], Vector]) -> Matrix:
    """Return draws (S, 2) of two shares, at equal steps of probability, in a random order."""
    grid = np.linspace(-_FARTHEST, _FARTHEST, _GRID)
    value = log_density(_shares(grid[:, None]))
    below = np.cumsum(np.exp(value - value.max()))
    at = np.interp((np.arange(_QUANTILES) + 0.5) / _QUANTILES, below / below[-1], grid)
    return _shares(np.random.default_rng(_SEED).permutation(at)[:, None])


def _shares(log_ratio: Matrix) -> Matrix:
    logits = np.column_stack([log_ratio, np.zeros(len(log_ratio))])
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
