"""Importance sampling as a test of an approximation: whether the posterior has heavier tails.

Pareto-smoothed importance sampling (Vehtari et al. 2024, JMLR 25(72), arXiv:1507.02646): a generalised Pareto fitted to
the largest ratios, by Zhang and Stephens (2009, doi:10.1198/tech.2009.08017).  Its shape k tells whether the posterior
has tails that the approximation misses: the larger, the worse; from 0.7 on averages over the draws are unreliable.

The log posterior and its gradient are taken at many weights at once, in coordinates that the Gaussian makes white: one
pass over the rows for all, as matrix products.  Markov chains side by side evaluate the same.
Shapes: n rows, S draws or weights, D = C M weights in the solver's coordinates, K classes (1 for two, by the logit of
the second).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blr import compiled
from blr.arrays import Matrix, Vector
from blr.fitting.problem import Problem
from blr.gaussian import Gaussian
from blr.likelihood.likelihoods import (
    LOGISTIC,
    Bernoulli,
    Categorical,
    Likelihood,
    MislabelledCategorical,
    unpack,
)
from blr.sums import ChunkFunction, Data, Terms, activations, blockwise, thinned

_WORK = 5e6  # activations to evaluate: more draws where there are few rows
_ROWS = 2500  # with more rows, every n-th is used: see `laplace_ratios`
_BEYOND_SMOOTHING = 10.0  # shape from which one draw has all the weight
_FEWEST, _MOST = 400, 2000  # draws


def smooth(log_ratio: Vector) -> tuple[Vector, float, float]:
    """Return Pareto-smoothed weights (S,) of log ratios (S,), the shape k, and the effective sample size over S."""
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
    return w, k, float(1 / np.sum(w**2)) / S


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


def whitened_density(problem: Problem, white: Gaussian) -> Callable[[Matrix], tuple[Vector, Matrix]]:
    """Return the log posterior and its gradient in the whitened coordinates z, θ = mean + z L⁻¹."""
    data, prior, U = problem.require_data(), problem.solver_prior, white.inverse_cholesky

    def evaluate(z: Matrix) -> tuple[Vector, Matrix]:
        theta = white.mean + z @ U
        value, gradient = data.accumulate(draw_terms(problem.likelihood, theta))
        away = theta - prior.mean
        pull = prior.pull(away)
        return value - 0.5 * np.einsum("sd,sd->s", away, pull), (gradient - pull) @ U.T

    return evaluate


def log_posterior(problem: Problem, theta: Matrix) -> Vector:
    """Return ln p(D|θ) + ln p(θ) at weights theta (S, D), the prior's constant included: (S,)."""
    prior = problem.solver_prior
    terms = draw_terms(problem.likelihood, theta, gradients=False)
    (value,) = problem.require_data().accumulate(terms)
    away = theta - prior.mean
    constant = 0.5 * (prior.log_det_precision - len(prior.mean) * np.log(2 * np.pi))
    return np.asarray(value - 0.5 * np.einsum("sd,sd->s", away, prior.pull(away)) + constant)


def draw_terms(likelihood: Likelihood, theta: Matrix, *, gradients: bool = True) -> ChunkFunction:
    """Return the function of a chunk that gives ln p (S,) at S weights theta (S, D), and its `gradients` (S, D).

    Rows run along the last axis, so that every elementary operation has long contiguous runs.
    """
    T = likelihood.transform if isinstance(likelihood, Categorical) else np.eye(1)
    K, S = len(T), len(theta)
    W = np.einsum("kc,scm->skm", T, theta.reshape(S, T.shape[1], -1)).reshape(S * K, -1)

    def terms(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        value, pull = _by_rows(likelihood, (W @ Phi.T).reshape(S, K, len(Phi)), t)
        values = np.asarray(value.sum(axis=1) if weight is None else value @ weight)
        if not gradients:
            return (values,)
        if weight is not None:
            pull *= weight
        by_class = (pull.reshape(S * K, len(Phi)) @ Phi).reshape(S, K, -1)
        return values, np.einsum("kc,skm->scm", T, by_class).reshape(S, -1)

    return blockwise(terms, 6 * len(W) if K == 1 else 3 * len(W))


def _by_rows(likelihood: Likelihood, a: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:
    """Return ln p (S, n) and its gradient by the activations (S, K, n), of a (S, K, n), which is lost, and t."""
    if isinstance(likelihood, MislabelledCategorical):
        return _mislabelled_rows(a, t)
    if isinstance(likelihood, Categorical):
        return _softmax_rows(a, np.ascontiguousarray(t.T))
    if type(likelihood) is Bernoulli and likelihood.link is LOGISTIC:
        return _logistic_rows(a, t[None])
    repeated = np.broadcast_to(t, (len(a), *t.shape)).reshape(-1, *t.shape[1:])
    value, slope, _ = likelihood.derivatives(a.reshape(-1, 1), repeated)
    return value.reshape(len(a), -1), slope.reshape(a.shape)


def _mislabelled_rows(a: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:
    """Return what `_softmax_rows` does, of likelihoods t (n, K) of what was recorded."""
    a -= a.max(axis=1)[:, None]
    with np.errstate(divide="ignore"):
        q = a + np.log(t).T
    top = q.max(axis=1)
    q = np.exp(q - top[:, None])
    given = q.sum(axis=1)
    np.exp(a, out=a)
    total = a.sum(axis=1)
    a /= -total[:, None]
    a += q / given[:, None]
    return top + np.log(given) - np.log(total), a


def _softmax_rows(a: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:
    """Return ln p (S, n) and its gradient by the activations (S, K, n), of a (S, K, n), which is lost, and t (K, n)."""
    if compiled.loops is not None and 2 <= len(t) <= compiled.MOST_OUTPUTS:
        value = np.empty((len(a), a.shape[2]))
        compiled.loops.softmax_rows(a, t, value)
        return value, a
    a -= a.max(axis=1)[:, None]
    value = np.einsum("kn,skn->sn", t, a)
    np.exp(a, out=a)
    total = a.sum(axis=1)
    value -= np.log(total)
    a *= (-1 / total)[:, None]
    a += t
    return value, a


def _logistic_rows(a: Matrix, t: Matrix) -> tuple[Matrix, Matrix]:
    """Return ln p (S, n) and its gradient by the activations (S, 1, n), of a (S, 1, n) and t (1, n)."""
    if compiled.loops is not None:
        value, pull = np.empty_like(a[:, 0]), np.empty_like(a[:, 0])
        activation, shares = np.ascontiguousarray(a[:, 0]), np.ascontiguousarray(t[0])
        compiled.loops.logistic_rows(activation, shares, value, pull, None)
        return value, pull[:, None]
    size, positive = np.abs(a), a >= 0
    e = np.exp(-size)
    value = -np.log1p(e) - size * np.where(positive, 1 - t, t)
    return value[:, 0], t - np.where(positive, 1, e) / (1 + e)
