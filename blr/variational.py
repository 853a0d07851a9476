"""The refined posterior: the Gaussian that is nearest to the posterior as a whole, not only at its mode.

It maximises the evidence lower bound (PRML 10.1; Opper and Archambeau 2009, doi:10.1162/neco.2008.08-07-592)

    ELBO = E_q[ln p(D|w)] - KL(q || prior),   q = N(m, A⁻¹),

whose stationary point is A = S0⁻¹ + E_q[H], E_q[d ln p/dw] = S0⁻¹ (m - m0): Newton's equations with the likelihood's
derivatives replaced by their expectations, "moderated IRLS".  The posterior mean lies further out than the mode, so
the textbook's Laplace posterior moderates too much; this one does not.  `mean_shift` corrects the mean alone, to first
order.
D = C M weights in the solver's coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from blr.arrays import Matrix, Vector
from blr.expectations import expected_terms
from blr.gaussian import Gaussian
from blr.newton import newton_step
from blr.posterior import Posterior
from blr.problem import Problem
from blr.sums import Terms, skewness_term
from blr.threads import single_threaded_blas

__all__ = ["mean_shift", "refine"]

_TOLERANCE = 1e-6  # nats gained by a step: the bound is flat, so the mean is within 1e-3 sd of the best
_STALLED = 1e-4  # nats: what an inexact expectation may lose without being halved for
_MAX_ITER = 200
_MAX_HALVINGS = 12
_DRAFT = 1e-3  # nats gained by a step, at which a draft is done


@dataclass(frozen=True, eq=False)
class _State:
    """A Gaussian, its bound, the expected terms there, and the length of the step that led to it."""

    q: Gaussian
    elbo: float
    terms: Terms
    length: float = 1.0


def refine(q: Posterior, *, start: Posterior | None = None, draft: bool = False) -> Posterior:
    """Return the Gaussian variational posterior of the problem that `q` is the Laplace fit of.

    Its `elbo` is the lower bound in nats; evidence, BIC and trust stay those of the Laplace fit, since a bound is never
    ranked against an approximation.

    Parameters
    ----------
    start
        A posterior of the same weights to begin at, such as a draft; default: the Laplace fit.
    draft
        Stop sooner, and of a softmax with fewer nodes: to compare models, not to be kept.

    Raises
    ------
    ValueError
        If there is no prior, without which there may be no posterior.
    RuntimeError
        If `q` was loaded from a file: it has no data.
    """
    laplace = q.fitted
    problem = laplace.problem
    enough = _DRAFT if draft else _TOLERANCE
    with single_threaded_blas():
        state = _evaluate(problem, (start or laplace).gaussian, draft=draft)
        n_iter, status = 1, "iterations exhausted"
        while n_iter < _MAX_ITER:
            following = _step(problem, state, draft=draft)
            gain, state = following.elbo - state.elbo, following
            n_iter += 1
            # A step that had to be halved for so little is at the end of what expectations at nodes can tell.
            if gain < (enough if state.length == 1.0 else max(enough, _STALLED)):
                status = "converged"
                break
    return replace(
        laplace,
        gaussian=state.q,
        converged=laplace.converged and status == "converged",
        n_iter=n_iter,
        status=status if laplace.converged else laplace.status,
        kind="refined",
        laplace=laplace,
        elbo=state.elbo,
    )


def _evaluate(problem: Problem, q: Gaussian, *, draft: bool, length: float = 1.0) -> _State:
    expected = expected_terms(problem.likelihood, q.mean, q.inverse_cholesky, draft=draft)
    terms = problem.require_data().accumulate(expected)
    prior = problem.solver_prior
    P = Gaussian(prior.mean, prior.precision)
    divergence = prior.energy(q.mean) + 0.5 * (
        float(np.einsum("ij,ij->", prior.precision, q.covariance))
        - len(q.mean)
        + q.log_det_precision
        - P.log_det_precision
    )
    return _State(q, float(terms[0]) - divergence, terms, length)


def _step(problem: Problem, state: _State, *, draft: bool) -> _State:
    """Return where the moderated Newton step leads, halved until the bound does not fall.

    The first length tried is twice that of the last step: where the classes are separable, whole steps overshoot again
    and again.
    """
    prior = problem.solver_prior
    _, gradient, hessian = state.terms
    A = hessian + prior.precision
    direction, _ = newton_step(gradient - prior.precision @ (state.q.mean - prior.mean), A)
    length = min(1.0, 2.0 * state.length)
    for _ in range(_MAX_HALVINGS):
        moved = _moved(state.q, direction, A, length)
        if moved is not None:
            following = _evaluate(problem, moved, draft=draft, length=length)
            if following.elbo >= state.elbo - _STALLED:
                return following
        length *= 0.5
    return replace(state, length=0.0)


def _moved(q: Gaussian, direction: Vector, A: Matrix, length: float) -> Gaussian | None:
    """Return the Gaussian at part of the way; None if its precision is not one (a link that is not log-concave)."""
    found = Gaussian(q.mean + length * direction, (1 - length) * q.precision + length * A)
    try:
        _ = found.cholesky
    except np.linalg.LinAlgError:
        return None
    return found


def mean_shift(q: Posterior) -> Posterior:
    """Return the Laplace posterior with its mean moved by δ = -1/2 A⁻¹ Σ c3 h φ, the first-order posterior mean.

    One pass over the data.  Good on ordinary problems, wrong on separable ones: `q.trust` tells which, and `refine` is
    the remedy.
    """
    laplace = q.fitted
    problem, gaussian = laplace.problem, laplace.gaussian
    U = gaussian.inverse_cholesky
    with single_threaded_blas():
        (g,) = problem.require_data().accumulate(skewness_term(problem.likelihood, gaussian.mean, U))
    moved = Gaussian(gaussian.mean - 0.5 * (U.T @ (U @ g)), gaussian.precision)
    return replace(laplace, gaussian=moved, kind="shifted", laplace=laplace)
