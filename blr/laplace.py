"""The Laplace approximation: a Gaussian about the mode, with the curvature found there (PRML 4.4, 4.5.1).

    q(w) = N(w | w_MAP, A⁻¹),  A = S0⁻¹ + Σ_n R_n ⊗ φ_n φ_nᵀ

A is a precision (PRML 4.132 and 4.143 define its inverse S_N by it).  Shapes: N rows, M basis functions, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from blr.gaussian import Gaussian
from blr.newton import Mode, maximise
from blr.posterior import Posterior
from blr.prior import GaussianPrior
from blr.problem import Problem, pose
from blr.threads import single_threaded_blas

__all__ = ["fit", "posterior_at"]


def posterior_at(problem: Problem, mode: Mode) -> Posterior:
    """Return the Laplace posterior about a mode found for the problem."""
    gaussian = Gaussian(mode.theta, mode.precision(problem.solver_prior))
    return Posterior(problem, gaussian, mode.log_likelihood, mode.converged, mode.n_iter, mode.status)


def fit(
    Phi: Any,
    t: Any,
    prior: GaussianPrior | None,
    likelihood: str = "logistic",
    *,
    trials: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    threads: int | None = None,
    tolerance: float = 1e-9,
    max_iter: int = 100,
) -> Posterior:
    """Return the Laplace posterior of the weights (PRML 4.5.1).

    Parameters
    ----------
    Phi
        Design matrix (N, M), or a re-iterable of (Phi, t, weight) chunks with t=None.
    t
        (N,) labels, soft labels or (with `trials`) successes; (N, K) one-hot, soft labels or vote counts.
    prior
        The Gaussian prior; None for maximum likelihood, which has no evidence.
    likelihood
        "logistic", "probit", "cauchit", "cloglog" or "softmax".
    classes
        Names in the order wanted; needed where a class may be absent.

    Raises
    ------
    ValueError
        If shapes, values, labels or the prior do not fit; the message says what was got and what to do.
    """
    problem = pose(
        Phi,
        t,
        prior,
        likelihood,
        trials=trials,
        sample_weight=sample_weight,
        classes=classes,
        threads=threads,
    )
    with single_threaded_blas():
        start = problem.solver_prior.mean
        mode = maximise(problem.evaluate, problem.solver_prior, start, tolerance=tolerance, max_iter=max_iter)
        return posterior_at(problem, mode)
