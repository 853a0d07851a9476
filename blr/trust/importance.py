"""Importance sampling as a test of an approximation: whether the posterior has heavier tails.

Pareto-smoothed importance sampling (Vehtari et al. 2024, JMLR 25(72), arXiv:1507.02646): a generalised Pareto fitted to
the largest ratios, by Zhang and Stephens (2009, doi:10.1198/tech.2009.08017).  Its shape k tells whether the posterior
has tails that the approximation misses: the larger, the worse; from 0.7 on averages over the draws are unreliable.
Shapes: S draws, D = C M weights in the solver's coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blr.arrays import Matrix, Vector
from blr.fitting.problem import Problem
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import Likelihood, unpack
from blr.sums import ChunkFunction, Data, Terms, activations, blockwise, thinned
from blr.trust.whitened import whitened_density

_WORK = 5e6  # activations to evaluate: more draws where there are few rows
_ROWS = 2500  # with more rows, every n-th is used: see `laplace_ratios`
_BEYOND_SMOOTHING = 10.0  # shape from which one draw has all the weight
_FEWEST, _MOST = 400, 2000  # draws


@dataclass(frozen=True, eq=False)
class Importance:
    """Smoothed, normalised weights (S,), the Pareto shape k and the effective sample size as a share of S."""

    weight: Vector
    k_hat: float
    effective: float


def smooth(log_ratio: Vector) -> Importance:
    """Return Pareto-smoothed importance weights of log ratios (S,)."""
    S = len(log_ratio)
    log_w = log_ratio - log_ratio.max()
    n_tail = int(np.ceil(min(0.2 * S, 3 * np.sqrt(S))))
    order = np.argsort(log_w, kind="stable")
    tail = order[S - n_tail :]
    cutoff = log_w[order[S - n_tail - 1]]
    exceedance = np.exp(log_w[tail]) - np.exp(cutoff)
    k = 0.0
    if exceedance[-1] > 1e-12:  # otherwise all ratios are equal: the approximation is exact
        k, scale = fit_pareto(exceedance)
        if k < _BEYOND_SMOOTHING:
            middle = (np.arange(n_tail) + 0.5) / n_tail
            smoothed = np.exp(cutoff) + _pareto_quantile(middle, k, scale)
            log_w[tail] = np.minimum(np.log(smoothed), 0.0)
    w = np.exp(log_w)
    w /= w.sum()
    return Importance(w, k, float(1 / np.sum(w**2)) / S)


def fit_pareto(x: Vector) -> tuple[float, float]:
    """Return shape k and scale σ of the generalised Pareto distribution of exceedances x (n,), sorted, positive.

    Zhang and Stephens' posterior mean over a grid, with the weak prior of Vehtari et al. (appendix C) at k = 0.5.
    """
    x = np.maximum(x, 1e-300 * x[-1])  # exceedances that underflowed to 0 become tiny but positive
    n = len(x)
    m = 30 + int(np.sqrt(n))
    j = np.arange(1, m + 1)
    theta = 1 / x[-1] + (1 - np.sqrt(m / (j - 0.5))) / (3 * x[int(n / 4 + 0.5) - 1])
    k = np.log1p(-np.outer(theta, x)).mean(axis=1)
    log_density = n * (np.log(-theta / k) - k - 1)
    weight = np.exp(log_density - log_density.max())
    best = float(theta @ weight / weight.sum())
    shape = float(np.log1p(-best * x).mean())
    return (n * shape + 5.0) / (n + 10.0), -shape / best


def _pareto_quantile(p: Vector, k: float, scale: float) -> Vector:
    if abs(k) < 1e-12:
        return -scale * np.log1p(-p)
    return scale * np.expm1(-k * np.log1p(-p)) / k


def laplace_ratios(data: Data, likelihood: Likelihood, gaussian: Gaussian, n_rows: int) -> Vector:
    """Return ln posterior less ln of its Laplace approximation, up to a constant, at draws from the latter, (S,).

    At the mode, the gradients and curvatures of all rows cancel against the approximation.  So the ratio is the sum
    over rows of ln p minus its own quadratic expansion: terms of third order.  Of a large set every n-th row is enough
    to estimate this sum with a small relative error.
    """
    step = max(1, n_rows // _ROWS)
    work = n_rows // step * likelihood.n_outputs
    S = int(np.clip(_WORK / work, _FEWEST, _MOST))
    draws = np.random.default_rng(0).standard_normal((S, len(gaussian.mean))) @ gaussian.inverse_cholesky
    ratio, used = data.accumulate(thinned(_remainders(likelihood, gaussian.mean, draws), step))
    return np.asarray(ratio) * (n_rows / used)


def _remainders(likelihood: Likelihood, theta: Vector, draws: Matrix) -> ChunkFunction:
    """Return the sum over rows of ln p minus its quadratic expansion at theta, for each deviation in `draws` (S, D)."""
    C, S = likelihood.n_outputs, len(draws)
    by_output = np.ascontiguousarray(draws.reshape(S, C, -1).transpose(2, 0, 1).reshape(-1, S * C))

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        n = len(Phi)
        a = activations(Phi, theta, C)
        value, gradient, curvature = likelihood.derivatives(a, t)
        moved = (Phi @ by_output).reshape(n, S, C)
        if C == 1:  # the products of einsum would take half of the time
            quadratic = moved[:, :, 0] * (gradient - 0.5 * curvature * moved[:, :, 0])
        else:
            quadratic = np.einsum("nsc,nc->ns", moved, gradient)
            quadratic -= 0.5 * np.einsum("nsc,ncd,nsd->ns", moved, unpack(curvature, C), moved, optimize=True)
        at = (moved + a[:, None, :]).reshape(n * S, C)
        log_likelihood = likelihood.log_likelihood(at, np.repeat(t, S, axis=0)).reshape(n, S)
        remainder = log_likelihood - value[:, None] - quadratic
        return (remainder.sum(axis=0) if weight is None else weight @ remainder), n

    return blockwise(terms, 4 * S * (C + 1))


# What the log evidence lacks beyond its second-order term.  That may be small because its parts cancel, or because
# there are hardly any rows, and still be wrong by more than it says.  Draws from the Laplace posterior come in pairs
# ±z, in which the cubic of the log posterior, most of the ratio's spread, cancels to first order; they go on until the
# answer is clear.  Shapes: S pairs of D weights.


_PAIRS = 250  # a batch: its activations stay in a core's cache where rows are few
_FEWEST_BATCHES, _MOST_BATCHES = 8, 60  # batches
_CLEAR = 2.5  # standard errors


def evidence_left(
    problem: Problem, laplace: Gaussian, second_order: float, limit: float, n_rows: int
) -> tuple[float, float]:
    """Return what is to be added beyond Laplace and `second_order`, nats, and its standard error.

    Batches of draws end when the size of that is clearly below or above `limit`, or at a second's work at most.
    """
    log_density, D = whitened_density(problem, laplace), len(laplace.mean)
    peak = float(log_density(np.zeros((1, D)))[0][0])
    batches = int(
        np.clip(_WORK / (2 * _PAIRS * n_rows * problem.likelihood.n_outputs), _FEWEST_BATCHES, _MOST_BATCHES)
    )
    rng, ratios = np.random.default_rng(0), np.empty(0)
    left, error = 0.0, np.inf
    for batch in range(batches):
        z = rng.standard_normal((_PAIRS, D))
        log_ratio = log_density(np.concatenate([z, -z]))[0] - peak + 0.5 * np.tile(np.sum(z**2, axis=1), 2)
        # A ratio of the peak's own size is ordinary; what overflows is a posterior wider than this Gaussian by far.
        pairs = np.exp(np.minimum(log_ratio, 600.0)).reshape(2, -1).mean(axis=0)
        ratios = np.concatenate([ratios, pairs])
        mean = float(ratios.mean())
        left = float(np.log(mean)) - second_order
        error = float(ratios.std()) / mean / np.sqrt(len(ratios))
        if batch + 1 >= _FEWEST_BATCHES and abs(abs(left) - limit) > _CLEAR * error:
            break
    return left, error
