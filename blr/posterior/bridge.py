"""Log evidence of a sampled posterior by bridge sampling, with its Monte Carlo error.

    p(D) = E_g[h p*] / E_p[h g],   h = 1 / (s1 p* + s2 p(D) g)

The optimal bridge of Meng and Wong (1996, Statistica Sinica 6, 831), iterated to its fixed point; p* = p(D|θ) p(θ), g a
Gaussian.  Half of the draws fit the Gaussian, the other half enter the estimate, then they change places (Gronau et al.
2017, doi:10.1016/j.jmp.2017.09.005).  The posterior is folded about its centre first, (p*(m + Lx) + p*(m - Lx)) / 2,
which has the same integral and no skewness (warp III of Meng and Schilling 2002, doi:10.1198/106186002457).
Shapes: S draws of D weights in the solver's coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logsumexp

from blr.arrays import Matrix, Vector
from blr.fitting.problem import Problem
from blr.gaussian import Gaussian, cholesky_of_precision
from blr.posterior._hamiltonian import effective_size
from blr.posterior.kinds import SampledPosterior
from blr.threads import single_threaded_blas
from blr.trust.whitened import log_posterior, single_serves

_FEWEST = 64  # draws
_MOST_ITERATIONS = 500
_SETTLED = 1e-8  # nats
_BLOCK = 512  # weights whose densities are evaluated at once
_SHRINK = 16.0  # draws a weight at which half of the covariance is the stand-in's
_STRETCHES = 4  # of consecutive draws, by which their autocorrelation is judged
_OVERLAP = 2.0  # factor of the stated error's square: the two halves share chains and fits


@dataclass(frozen=True, eq=False)
class _Warp:
    """Coordinates x, θ = centre + L x, in which the fitted Gaussian is standard normal."""

    centre: Vector
    L: Matrix

    @classmethod
    def of(cls, draws: Matrix, near: Gaussian | None) -> _Warp:
        """Return the coordinates of the draws' mean and covariance, the latter shrunk where S is small.

        To that of `near`, whose scale is fitted, else to its own diagonal.
        """
        S, D = draws.shape
        covariance = np.cov(draws.T).reshape(D, D)
        if near is None:
            share, known = S / (S + D), np.diag(np.diag(covariance))
        else:
            share, known = S / (S + _SHRINK * D), near.covariance
            known = known * (np.trace(near.precision @ covariance) / D)
        return cls(draws.mean(axis=0), cholesky_of_precision(share * covariance + (1 - share) * known)[0])

    def log_ratio(self, problem: Problem, x: Matrix) -> Vector:
        """Return ln of the folded posterior, not normalised, over the standard normal, at x (S, D): (S,)."""
        D = x.shape[1]
        parts = []
        single = single_serves(problem, self.centre + x[:_BLOCK] @ self.L.T)
        for block in np.array_split(x, max(1, len(x) // _BLOCK)):
            step = block @ self.L.T
            both = log_posterior(
                problem, np.concatenate([self.centre + step, self.centre - step]), single=single
            )
            parts.append(logsumexp(both.reshape(2, -1), axis=0) - np.log(2.0))
        scale = float(np.log(np.diag(self.L)).sum()) + 0.5 * D * np.log(2 * np.pi)
        return np.concatenate(parts) + scale + 0.5 * np.einsum("sd,sd->s", x, x)


def bridge_evidence(
    q: SampledPosterior, *, near: Gaussian | None = None, rng: np.random.Generator | None = None
) -> tuple[float, float]:
    """Return ln p(D) of the problem that `q` is a sampled posterior of, and its standard error, both in nats.

    Parameters
    ----------
    q
        What `sample_posterior` gives; draws of one chain lie one behind the other.
    near
        A Gaussian near the posterior that is not made of its draws, such as the refined one's: it stands in for what
        few draws of many weights do not tell of their covariance.
    rng
        Source of the Gaussian's draws; default: seed 0.

    Raises
    ------
    ValueError
        If `q` has no draws, or fewer than 64.
    RuntimeError
        If `q` was loaded from a file: it has no data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> t = rng.random(200) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> q = blr.fit_evidence(np.column_stack([np.ones(200), X]), t)
    >>> log_evidence, error = blr.bridge_evidence(blr.sample_posterior(q, n_draws=200, rng=rng))
    >>> bool(abs(log_evidence - q.log_evidence) < 0.2), bool(error < 0.1)
    (True, True)
    """
    n_draws = len(getattr(q, "draws", ()))  # a caller without type checks may hand over another kind
    if n_draws < _FEWEST:
        raise ValueError(
            f"bridge sampling needs a posterior with {_FEWEST} draws or more, got one with {n_draws or 'none'}; "
            "sample it with sample_posterior"
        )
    rng = np.random.default_rng(0) if rng is None else rng
    half = n_draws // 2
    parts = q.draws[:half], q.draws[half:]
    with single_threaded_blas():
        estimates = [
            _estimate(q.problem, _Warp.of(fitted, near), used, rng) for fitted, used in (parts, parts[::-1])
        ]
    value, variance = np.mean(estimates, axis=0)
    spread = 0.25 * (estimates[0][0] - estimates[1][0]) ** 2  # of the mean, as the two halves tell it
    return float(value), float(np.sqrt(max(0.5 * _OVERLAP * variance, spread)))


def _estimate(problem: Problem, warp: _Warp, used: Matrix, rng: np.random.Generator) -> tuple[float, float]:
    """Return ln p(D) and its variance by the draws `used`, with the Gaussian of other draws."""
    x = np.asarray(np.linalg.solve(warp.L, (used - warp.centre).T).T)
    of_draws = warp.log_ratio(problem, x)
    of_gaussian = warp.log_ratio(problem, rng.standard_normal(used.shape))
    n2 = len(of_gaussian)
    n1 = float(min(_size(of_draws), n2))
    odds = np.log(n1 / n2)
    value = float(np.median(of_draws))
    for _ in range(_MOST_ITERATIONS):
        # expit(odds + l - value) = s1 p / (s1 p + s2 g): the share of the posterior at a point.
        # The floor keeps the logarithm finite where the two densities do not overlap at all.
        above = logsumexp(np.log(np.maximum(expit(odds + of_gaussian - value), 1e-300)))
        below = logsumexp(np.log(np.maximum(expit(-odds - of_draws + value), 1e-300)))
        change = above - np.log(n2) - (below - np.log(len(of_draws))) - odds
        value += change
        if abs(change) < _SETTLED:
            break
    posterior_share, gaussian_share = expit(odds + of_gaussian - value), expit(-odds - of_draws + value)
    return value, _relative(posterior_share) / n2 + _relative(gaussian_share) / min(_size(gaussian_share), n2)


def _size(x: Vector) -> float:
    """Return how many independent draws the mean of x (S,), chain after chain, is worth."""
    n = len(x) // _STRETCHES
    return float(effective_size(x[: n * _STRETCHES].reshape(_STRETCHES, n, 1))[0])


def _relative(x: Vector) -> float:
    """Return the variance of x over its squared mean."""
    return float(x.var() / x.mean() ** 2)
