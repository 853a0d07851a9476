"""Whether chains have converged, and how many independent draws they are worth.

Rank-normalised split R-hat and effective sample sizes, of the bulk and of the tails (Vehtari, Gelman, Simpson,
Carpenter and Bürkner 2021, doi:10.1214/20-BA1221).  Shapes: draws (C, n, D), C chains of n draws of D quantities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

from blr.arrays import Matrix, Vector, mid_ranks

__all__ = ["Convergence", "convergence", "effective_size", "nested_r_hat"]


@dataclass(frozen=True, eq=False)
class Convergence:
    """R-hat and effective sample sizes of each quantity, (D,)."""

    r_hat: Vector
    ess_bulk: Vector
    ess_tail: Vector


def convergence(draws: Matrix) -> Convergence:
    """Return the diagnostics of draws (C, n, D), n at least 8."""
    halves = _split(draws)
    normal = _rank_normalised(halves)
    folded = _rank_normalised(np.abs(halves - np.median(halves, axis=(0, 1))))
    low, high = np.quantile(halves, [0.05, 0.95], axis=(0, 1))
    tails = [effective_size((halves <= q).astype(np.float64)) for q in (low, high)]
    return Convergence(
        np.maximum(_r_hat(normal), _r_hat(folded)), effective_size(normal), np.minimum(tails[0], tails[1])
    )


def nested_r_hat(draws: Matrix, together: int) -> Vector:
    """Return R-hat between groups of `together` chains, split in halves, of draws (C, n, D): (D,).

    For many short chains, whose own means are too noisy to compare (Margossian et al. 2024, arXiv:2110.13017).  Of
    quantities without long tails, such as probabilities.
    """
    C, n, D = draws.shape
    groups = C // together
    halves = _split(draws[: groups * together])
    return _r_hat(halves.reshape(2 * groups, together * (n // 2), D))


def _split(draws: Matrix) -> Matrix:
    """Return each chain's halves as chains of their own, (2 C, n // 2, D)."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _rank_normalised(x: Matrix) -> Matrix:
    flat = x.reshape(-1, x.shape[2])
    rank = np.stack([mid_ranks(column) for column in flat.T], axis=1)
    return np.asarray(ndtri((rank - 0.375) / (len(flat) + 0.25))).reshape(x.shape)


def _variances(x: Matrix) -> tuple[Vector, Vector]:
    """Return the variance within chains and its estimate from all of them, (D,) each."""
    n = x.shape[1]
    within = x.var(axis=1, ddof=1).mean(axis=0)
    return within, (n - 1) / n * within + x.mean(axis=1).var(axis=0, ddof=1)


def _r_hat(x: Matrix) -> Vector:
    within, total = _variances(x)
    # A quantity that never moves (a direction held by its prior alone may not) has converged.
    return np.sqrt(np.divide(total, within, out=np.ones_like(total), where=within > 0))


def effective_size(x: Matrix) -> Vector:
    """Return how many independent draws the mean of x (C, n, D) is worth, (D,): Geyer's initial monotone sequence."""
    C, n, _ = x.shape
    within, total = _variances(x)
    autocovariance = _mean_autocovariance(x) * (n / (n - 1.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1 - (within - autocovariance) / total
    rho[0] = 1.0
    even = rho[: n - n % 2].reshape(n // 2, 2, -1).sum(axis=1)
    # From the first pair that is not positive on nothing counts; pairs before it may not rise.
    positive = np.cumprod(even > 0, axis=0, dtype=bool)
    tau = -1 + 2 * np.where(positive, np.minimum.accumulate(even, axis=0), 0.0).sum(axis=0)
    size = C * n / np.maximum(tau, 1 / np.log10(C * n))
    return np.where(total > 0, size, float(C * n))


def _mean_autocovariance(x: Matrix) -> Matrix:
    """Return the autocovariance at lags 0 to n - 1, its mean over the chains, (n, D)."""
    C, n, _ = x.shape
    size = next_fast_len(2 * n, real=True)
    power = np.zeros((size // 2 + 1, x.shape[2]))
    for chain in x:  # the transform back is linear: one of the mean serves for all chains
        spectrum = rfft(chain - chain.mean(axis=0), size, axis=0)
        power += spectrum.real**2 + spectrum.imag**2
    return np.asarray(irfft(power, size, axis=0)[:n]) / (n * C)
