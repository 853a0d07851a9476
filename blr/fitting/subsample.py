"""A starting point for many rows: the mode of every n-th row, then quasi-Newton steps, which need no Hessian.

A pass with a Hessian takes about three times as long as one without.  The Hessian of every n-th row is near that of
all, and so the steps that it gives converge; each difference of gradients improves it (BFGS; Nocedal and Wright 2006,
Numerical Optimization, algorithm 7.4).  One Hessian of all rows, that near the mode, ends the search. D weights in the
solver's coordinates.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg

from blr.arrays import Matrix, Vector
from blr.fitting._accumulated import sample_of
from blr.fitting.newton import SolverPrior
from blr.fitting.problem import Problem
from blr.gaussian import cholesky_of_precision
from blr.sums import Rows, likelihood_terms

__all__ = ["CLOSE", "approach", "part_of"]

CLOSE = 3e-4
"""Distance to the mode, in posterior sd, from which one Newton step ends within 1e-8 sd of it.

The step leaves the distance's square times the relative change of the Hessian over one sd, which is below 0.1 where
there are 160 rows or more for each weight.
"""

_MOST_STEP = 16  # every so many rows, at most
_FEWEST_ROWS = 10_000
_ROWS_A_WEIGHT = 40
_WORTHWHILE = 4  # If fewer rows would be left out, a fit of all rows is as fast.
_MAX_ITER = 12
_SLOW = 0.5  # a step that shortens the distance by less ends the search
_ROUNDING = 64 * np.finfo(float).eps


def part_of(problem: Problem) -> Problem | None:
    """Return the problem of every n-th row, with weights that make up for the rest; None where all are as quick.

    Of data that name a sample, it is the problem of that.
    """
    if not isinstance(problem.data, Rows):
        sample = None if problem.data is None else sample_of(problem.data)
        return None if sample is None else replace(problem, data=sample)
    n = len(problem.data.Phi)
    step = min(_MOST_STEP, n // max(_FEWEST_ROWS, _ROWS_A_WEIGHT * problem.n_solved))
    return replace(problem, data=problem.data.every(step)) if step >= _WORTHWHILE else None


def approach(
    problem: Problem, prior: SolverPrior, start: Vector, hessian: Matrix, *, within: float = CLOSE
) -> Vector | None:
    """Return weights (D,) so near the mode, by steps from `start`; None where the steps do not lead there.

    `within`: the distance, in posterior sd.  `hessian` (D, D) of -ln p is that of part of the rows, or of weights near
    the mode.
    """

    def evaluated(theta: Vector) -> tuple[float, Vector]:
        value, gradient = problem.require_data().accumulate(
            likelihood_terms(problem.likelihood, theta, hessian=False)
        )
        return value - prior.energy(theta), gradient - prior.precision @ (theta - prior.mean)

    try:
        L, _ = cholesky_of_precision(hessian + prior.precision)
    except np.linalg.LinAlgError:
        return None
    theta, changes, distance = start, list[tuple[Vector, Vector]](), np.inf
    objective, gradient = evaluated(theta)
    for _ in range(_MAX_ITER):
        step = _step(L, changes, gradient)
        squared, previous = float(gradient @ step), distance
        distance = float(np.sqrt(squared)) if squared >= 0 else np.nan
        if distance < within:
            return theta
        if not distance < max(_SLOW * previous, within):
            return None
        after, slope = evaluated(theta + step)
        if not after >= objective - _ROUNDING * abs(objective):
            return None
        changes.append((step, gradient - slope))
        theta, objective, gradient = theta + step, after, slope
    return None


def _step(L: Matrix, changes: list[tuple[Vector, Vector]], gradient: Vector) -> Vector:
    """Return the step by BFGS' inverse of the Hessian, from L Lᵀ and the changes of weights and gradient so far."""
    kept = [(s, y, 1 / float(s @ y)) for s, y in changes if s @ y > 0]
    q, shares = gradient.copy(), []
    for s, y, rho in reversed(kept):
        shares.append(rho * float(s @ q))
        q -= shares[-1] * y
    step: Vector = scipy.linalg.cho_solve((L, True), q, check_finite=False)
    for (s, y, rho), share in zip(kept, reversed(shares), strict=True):
        step += (share - rho * float(y @ step)) * s
    return step
