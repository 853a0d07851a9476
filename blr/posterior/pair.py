"""Two weights: their exact posterior by importance draws, beside its Laplace and refined approximations.

Reports show these two of a posterior with many weights.  Draws of the refined Gaussian are weighted by the exact
density over their own, with Pareto-smoothed weights (Vehtari et al. 2024, arXiv:1507.02646).  Shapes: D weights, S
draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blr.arrays import Matrix, Vector
from blr.gaussian import Gaussian
from blr.posterior.kinds import LaplacePosterior, SampledPosterior
from blr.posterior.posterior import Posterior
from blr.threads import single_threaded_blas
from blr.trust.importance import smooth
from blr.trust.whitened import log_posterior

__all__ = ["WeightPair", "weight_pair"]

_WORK = 6e8
"""Most rows times weights times draws, which take half a second."""
_FEWEST, _MOST = 200, 4000
"""Numbers of draws."""
_ENOUGH = 60.0
"""Least effective number of draws; contours of fewer would be noise."""
_K_HAT = 0.7
"""Largest Pareto shape of reliable importance weights."""
_FREEDOM = 4.0
"""Degrees of freedom of the draws with heavy tails."""


@dataclass(frozen=True, eq=False)
class WeightPair:
    """Two of the D weights, by their `indices`, with three descriptions of their posterior.

    A mean (2,) and a covariance (2, 2) each for the Laplace and the refined posterior; `draws` (S, 2) of the exact
    one, each with its `weight` (S,), which sum to one.
    """

    indices: tuple[int, int]
    laplace: tuple[Vector, Matrix]
    refined: tuple[Vector, Matrix]
    draws: Matrix
    weight: Vector


def weight_pair(laplace: LaplacePosterior, served: Posterior, rng: np.random.Generator) -> WeightPair | None:
    """Return the two weights whose refined means are furthest from the mode; None if importance sampling fails.

    `laplace` has its data; `served` improves on it, and its own draws are used if it has any.
    """
    problem, refined = laplace.problem, served.gaussian
    shift = np.abs(served.mean - laplace.mean) / np.sqrt(_variances(served))
    if len(shift) < 2:
        return None
    first, second = np.argsort(-shift, kind="stable")[:2].tolist()
    R = _projection(laplace, (first, second))
    if isinstance(served, SampledPosterior):
        theta, weight = served.draws, np.full(len(served.draws), 1 / len(served.draws))
    else:
        drawn = _importance(laplace, refined, rng)
        if drawn is None:
            return None
        theta, weight = drawn
    offset = problem.class_weights(np.zeros(problem.n_solved))[[first, second]]
    return WeightPair(
        (first, second),
        _moments(laplace.gaussian, R, offset),
        _moments(refined, R, offset),
        theta @ R.T + offset,
        weight,
    )


def _importance(
    laplace: LaplacePosterior, start: Gaussian, rng: np.random.Generator
) -> tuple[Matrix, Vector] | None:
    """Return draws (S, C M) and their weights (S,); None where their effective number is too small."""
    problem = laplace.problem
    n_rows = max(1.0, problem.n_effective)
    size = int(np.clip(_WORK / (n_rows * problem.n_solved), _FEWEST, _MOST))
    for freedom in (np.inf, _FREEDOM):  # a posterior with heavy tails needs draws with heavier tails
        z, log_density = _proposal(size, problem.n_solved, freedom, rng)
        theta = start.mean + z @ start.inverse_cholesky
        with single_threaded_blas():
            smoothed = smooth(log_posterior(problem, theta) - log_density)
        if smoothed.k_hat <= _K_HAT and smoothed.effective * size >= _ENOUGH:
            return theta, smoothed.weight
    return None


def _proposal(n: int, D: int, freedom: float, rng: np.random.Generator) -> tuple[Matrix, Vector]:
    """Return n draws (n, D) of Student's t in D dimensions, and their log density (n,) up to a constant."""
    z = rng.standard_normal((n, D))
    if np.isinf(freedom):
        return z, -0.5 * np.einsum("sd,sd->s", z, z)
    z = z / np.sqrt(rng.chisquare(freedom, (n, 1)) / freedom)
    return z, -0.5 * (freedom + D) * np.log1p(np.einsum("sd,sd->s", z, z) / freedom)


def _projection(q: LaplacePosterior, indices: tuple[int, int]) -> Matrix:
    """Return R (2, C M): R times the solver's weights gives two of the D weights without their offset."""
    problem, M = q.problem, q.problem.n_functions
    if problem.binary:
        return np.asarray(np.eye(problem.n_solved)[list(indices)])
    R = np.zeros((2, problem.n_solved))
    for row, index in enumerate(indices):
        k, m = divmod(index, M)
        R[row, m::M] = problem.transform[k]
    return R


def _variances(q: Posterior) -> Vector:
    """Return the variance of each of the D weights, without the shift of all classes that only the prior determines."""
    problem, M = q.problem, q.problem.n_functions
    if problem.binary:
        return np.einsum("dm,dm->m", q.gaussian.inverse_cholesky, q.gaussian.inverse_cholesky)
    T, U = problem.transform, q.gaussian.inverse_cholesky.reshape(problem.n_solved, -1, M)
    spread = np.einsum("kc,dcm->dkm", T, U)
    return np.asarray(np.einsum("dkm,dkm->km", spread, spread).ravel())


def _moments(q: Gaussian, R: Matrix, offset: Vector) -> tuple[Vector, Matrix]:
    """Return the moments of R θ + offset under q."""
    white = q.whiten(R)
    return R @ q.mean + offset, white @ white.T
