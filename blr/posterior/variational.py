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

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from blr.arrays import Vector
from blr.fitting.newton import newton_step
from blr.fitting.problem import Problem
from blr.gaussian import Gaussian
from blr.posterior.kinds import Posterior, RefinedPosterior, ShiftedPosterior
from blr.predictive.expectations import expected_terms
from blr.sums import Rows, Terms, many_classes, skewness_term
from blr.threads import single_threaded_blas

_TOLERANCE = 1e-6  # nats gained by a step: the bound is flat, so the mean is within 1e-3 sd of the best
_STALLED = 1e-4  # nats: what an inexact expectation may lose without being halved for
_DRAFT_NODES = 500_000  # of all rows together in a draft
_NODES = 4_000_000  # of all rows together, of a softmax of so many classes that its nodes are Sobol points
_MOST_AXES = 3  # contrasts that have products of rules instead
_MANY_ROWS = 100_000  # of a stream, whose number is not known
_DRAFT = 0.05  # nats gained by a step, at which a draft is done; or where rows are many, so many a row
_DRAFT_A_ROW = 3e-4
_COARSE_NODES = 128  # of a row, with which a draft of the softmax begins
_COARSE = 0.3  # nats gained by a step, at which it goes on with all of its nodes
# Nats a weight that three steps gain, below which a search that was ever halved ends: 0.014 sd of each weight, in a
# draft 0.03.
_SLOW, _SLOW_DRAFT = 1e-4, 5e-4
# Nats a weight that a whole step gains, below which a search of many classes ends: 0.0045 sd of each, in a draft 0.045.
_LITTLE, _LITTLE_DRAFT = 1e-5, 1e-3
_MAX_STEPS = 200
_MAX_HALVINGS = 12
_NEAR_END = 0.1  # nats gained by a step of a draft, below which the next one is halved a few times only
_FEW_HALVINGS = 4
_SHRINKS = 4.0  # how much shorter the next step may begin
# Share of the way to the next precision, from when a whole step fails: else mean and precision chase each other.
_SLOWER = 0.5
_LOST = 10.0  # nats a weight that a search ends below the Laplace evidence, from which it is lost
_NARROWER = 4.0  # factor of the precision with which a lost search begins again
_IDLE = 1  # halved steps in a row that may gain nothing before the search ends

_State = tuple[Gaussian, float, Terms]
"""A Gaussian, its bound, and the expected terms there."""


def refine(
    q: Posterior,
    *,
    start: Posterior | None = None,
    draft: bool = False,
    most_steps: int = _MAX_STEPS,
    on_step: Callable[[], None] | None = None,
) -> RefinedPosterior:
    """Return the Gaussian variational posterior of the problem that `q` is the Laplace fit of.

    Its `elbo` is the lower bound in nats; evidence, BIC and trust stay those of the Laplace fit, since a bound is never
    ranked against an approximation.

    Parameters
    ----------
    start
        A posterior of the same weights to begin at, such as a draft; default: the Laplace fit.
    draft
        Stop sooner, and of a softmax with fewer nodes: probabilities err by less than a thousandth in the mean.
    most_steps
        After so many steps the search ends, converged or not.
    on_step
        Called after each step, a few passes over the rows.

    Raises
    ------
    ValueError
        If there is no prior, without which there may be no posterior.
    RuntimeError
        If `q` was loaded from a file: it has no data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> t = rng.random(200) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> r = blr.refine(blr.fit_evidence(np.column_stack([np.ones(200), X]), t))
    >>> bool(r.elbo < r.log_evidence + 0.1)
    True
    """
    laplace = q.fitted
    problem = laplace.problem
    with single_threaded_blas():
        most_nodes = _most_nodes(problem, draft=draft)
        begin = (start or laplace).gaussian, _COARSE_NODES if draft and start is None else None
        (gaussian, elbo, _), n_iter, status = _ascended(
            problem, *begin, most_nodes, draft=draft, most_steps=most_steps, on_step=on_step
        )
        if start is None and laplace.log_evidence - elbo > _LOST * problem.n_solved:
            narrow = replace(laplace, gaussian=_narrower(problem, laplace.gaussian, most_nodes))
            return refine(q, start=narrow, draft=draft, most_steps=most_steps, on_step=on_step)
    return RefinedPosterior.of(
        laplace,
        gaussian,
        converged=laplace.converged and status == "converged",
        n_iter=n_iter,
        status=status if laplace.converged else laplace.status,
        elbo=elbo,
    )


def _most_nodes(problem: Problem, *, draft: bool) -> int | None:
    """Return how many nodes a row has at most, None for all: where rows are many, their errors cancel."""
    data = problem.require_data()
    n = len(data.Phi) if isinstance(data, Rows) else _MANY_ROWS
    nodes, least, most = (_DRAFT_NODES / n, 64, 1024) if draft else (_NODES / n, 512, 4096)
    if not draft and (problem.n_classes - 1 <= _MOST_AXES or nodes >= most):
        return None
    return int(np.clip(2 ** int(np.floor(np.log2(max(nodes, 1.0)))), least, most))


def _evaluate(problem: Problem, q: Gaussian, most_nodes: int | None) -> _State:
    expected = expected_terms(problem.likelihood, q.mean, q.inverse_cholesky, most_nodes=most_nodes)
    terms = problem.require_data().accumulate(expected)
    prior = problem.solver_prior
    divergence = prior.energy(q.mean) + 0.5 * (
        prior.trace(q.inverse_cholesky) - len(q.mean) + q.log_det_precision - prior.log_det_precision
    )
    return q, float(terms[0]) - divergence, terms


def _narrower(problem: Problem, q: Gaussian, most_nodes: int | None) -> Gaussian:
    """Return the Gaussian with its precision multiplied by 4 again and again, as long as the bound rises.

    The Laplace fit of separable classes may be so wide that rows have almost no expected curvature.  Each step then
    leads to a smaller precision.
    """
    bound = _evaluate(problem, q, most_nodes)[1]
    while (following := _evaluate(problem, Gaussian(q.mean, _NARROWER * q.precision), most_nodes))[1] > bound:
        q, bound = following[:2]
    return q


def _ascended(
    problem: Problem,
    q: Gaussian,
    first_nodes: int | None,
    most_nodes: int | None,
    *,
    draft: bool,
    most_steps: int,
    on_step: Callable[[], None] | None,
) -> tuple[_State, int, str]:
    """Return where Newton's steps from `q` lead, how many evaluations they took, and how they ended.

    A softmax of more classes begins with the `first_nodes`, if these are fewer, and goes on with all of them.
    """
    coarse = first_nodes is not None and problem.n_classes > 2 and (most_nodes or 0) > first_nodes
    nodes = first_nodes if coarse else most_nodes
    state, pace, halved = _evaluate(problem, q, nodes), (1.0, 1.0), False
    gain, last, idle = np.inf, [np.inf] * 3, 0
    enough = max(_DRAFT, _DRAFT_A_ROW * problem.n_effective) if draft else _TOLERANCE
    slow = (_SLOW_DRAFT if draft else _SLOW) * problem.n_solved
    little = (_LITTLE_DRAFT if draft else _LITTLE) * problem.n_solved
    little = little if many_classes(problem.likelihood) else 0.0
    for n_iter in range(2, most_steps + 2):
        halvings = _FEW_HALVINGS if draft and gain < _NEAR_END else _MAX_HALVINGS
        following, length, after = _step(problem, state, nodes, pace, halvings)
        halved = halved or length < pace[0] or after[1] < pace[1]
        gain, state, pace = following[1] - state[1], following, after
        if on_step is not None:
            on_step()
        if coarse and gain < max(_COARSE, enough):
            coarse, nodes, pace = False, most_nodes, (1.0, pace[1])
            state = _evaluate(problem, state[0], nodes)
            continue
        # A step that had to be halved for so little is at the end of what expectations at nodes can tell.
        least = max(enough, _STALLED if length < 1 else 0.0, length * little)
        idle, last = idle + 1 if gain < least else 0, [*last[1:], gain]
        if (idle and length in {0.0, 1.0}) or idle > _IDLE or (halved and sum(last) < slow):
            return state, n_iter, "converged"
    return state, most_steps + 1, "iterations exhausted"


def _step(
    problem: Problem, state: _State, nodes: int | None, pace: tuple[float, float], most_halvings: int
) -> tuple[_State, float, tuple[float, float]]:
    """Return where a step leads without a fall of the bound, its length, and the pace of the next one.

    A pace is the length that a step begins with, and the share of the way to the next precision that a step as long as
    the mean's takes.  A step is halved until the bound does not fall; steps then grow again.
    """
    prior, (begin, share) = problem.solver_prior, pace
    q, bound, (_, gradient, hessian) = state
    goal = Gaussian(q.mean, hessian + prior.precision)
    slope = gradient - prior.precision @ (q.mean - prior.mean)
    try:
        direction = goal.solve(slope)
    except np.linalg.LinAlgError:  # not positive definite: shifted
        direction = newton_step(slope, goal.precision)[0]
    length = begin
    for halvings in range(most_halvings):
        moved = _moved(q, direction, goal, length, share * length)
        following = None if moved is None else _evaluate(problem, moved, nodes)
        if following is not None and following[1] >= bound - _STALLED:
            # A step far shorter than the one before says little of the next one, which begins longer.
            longer = max(length, begin / _SHRINKS) if halvings else min(1.0, 2 * length)
            return following, length, (longer, share)
        length, share = (0.5 * length, share) if share == _SLOWER else (length, _SLOWER)
    return state, 0.0, (begin, share)


def _moved(q: Gaussian, direction: Vector, goal: Gaussian, length: float, share: float) -> Gaussian | None:
    """Return the Gaussian moved by `length` of a direction, and a `share` of the way to the precision of `goal`.

    None if its precision is not one (a link that is not log-concave).
    """
    mean = q.mean + length * direction
    moved = goal.about(mean)  # whose factor is known
    if share != 1.0:
        moved = Gaussian(mean, (1 - share) * q.precision + share * goal.precision)
    return moved if moved.proper else None


def mean_shift(q: Posterior) -> ShiftedPosterior:
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
    return ShiftedPosterior.of(laplace, moved)
