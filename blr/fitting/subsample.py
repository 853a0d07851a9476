"""A starting point for many rows: the mode of every n-th row, then quasi-Newton steps, which need no Hessian.

A pass with a Hessian takes about three times as long as one without.  The Hessian of every n-th row is near that of
all, and so the steps that it gives converge; each difference of gradients improves it (BFGS; Nocedal and Wright 2006,
Numerical Optimization, algorithm 7.4).  One Hessian of all rows, that near the mode, ends the search.  Of many classes
a Hessian takes a hundred times longer than a gradient: `by_gradients` does without one from the first step on.
D weights in the solver's coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.linalg

from blr.arrays import Matrix, Vector
from blr.covariances import packed_grams, unpacked_grams
from blr.fitting.newton import Mode, SolverPrior, maximise
from blr.fitting.problem import Problem, sample_of
from blr.gaussian import Gaussian, cholesky_of_precision
from blr.likelihood.likelihoods import Categorical
from blr.sums import (
    ChunkFunction,
    Rows,
    Terms,
    activations,
    blockwise,
    in_classes,
    likelihood_terms,
    many_classes,
)

CLOSE = 3e-4
"""Distance to the mode, in posterior sd, from which one Newton step ends within 1e-8 sd of it.

The step leaves the distance's square times the relative change of the Hessian over one sd, which is below 0.1 where
there are 160 rows or more for each weight.
"""

_CLOSER = 1e-5  # posterior sd, whose square is nothing
_MOST_STEP = 16  # every so many rows, at most
_FEWEST_ROWS = 10_000
_ROWS_A_WEIGHT = 40
_WORTHWHILE = 4  # If fewer rows would be left out, a fit of all rows is as fast.
_MAX_ITER = 12
_SLOW = 0.5  # a step that shortens the distance by less ends the search
_ROUNDING = 64 * np.finfo(float).eps
_MOST_STEPS, _MOST_PRODUCTS, _MOST_HALVINGS = 40, 200, 20  # of `by_gradients`
_FORCED = 0.1  # share of the gradient that a step may leave, far from the mode
_EXACT = 1e-11  # posterior sd that it may leave near the mode


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


def by_gradients(
    problem: Problem, prior: SolverPrior, start: Vector, *, within: float = _CLOSER
) -> Vector | None:
    """Return weights (D,) of many classes so near the mode, by Newton's steps that need no Hessian.

    Each step is solved by conjugate gradients, whose products with the Hessian cost what a gradient does; the Hessian
    itself costs as many times more as there are pairs of classes to a class, times M / 2.  The preconditioner is the
    Hessian's block of each class.  None of other likelihoods, and where the steps do not lead there.
    """
    likelihood, data = problem.likelihood, problem.require_data()
    if problem.mislabelled or not many_classes(likelihood) or not prior.precision.any():
        return None

    def evaluated(theta: Vector) -> tuple[float, Vector]:
        value, gradient = data.accumulate(likelihood_terms(likelihood, theta, hessian=False))
        return value - prior.energy(theta), gradient - prior.pull(theta - prior.mean)

    theta, (objective, gradient) = start, evaluated(start)
    for _ in range(_MOST_STEPS):
        try:
            step, distance = _solved(problem, prior, theta, gradient)
        except np.linalg.LinAlgError:
            return None
        if distance < within:
            return theta + step
        for _ in range(_MOST_HALVINGS):
            after, slope = evaluated(theta + step)
            if after >= objective - _ROUNDING * abs(objective):
                break
            step = 0.5 * step
        else:
            return None
        theta, objective, gradient = theta + step, after, slope
    return None


def mode_from(
    problem: Problem, start: Vector, evaluated: Terms | None = None, *, hessian: Matrix | None = None
) -> Mode:
    """Return the mode under the problem's prior, to 1e-8 posterior sd; the Hessian is that within `CLOSE` of it.

    `evaluated` are the likelihood's terms at the start, where known, or at least the `hessian` (D, D) of -ln p there.
    """
    prior, known = problem.solver_prior, hessian if evaluated is None else evaluated[2]
    near = by_gradients(problem, prior, start)
    if near is None and known is not None and known.any():
        near = approach(problem, prior, start, known, within=CLOSE)
    if near is None:
        return maximise(problem.evaluate, prior, start, evaluated=evaluated, close=CLOSE)
    mode = maximise(problem.evaluate, prior, near, close=CLOSE)
    return mode if mode.path is None else replace(mode, path=np.concatenate([start[None], mode.path]))


def _solved(problem: Problem, prior: SolverPrior, theta: Vector, gradient: Vector) -> tuple[Vector, float]:
    """Return a Newton step of many classes, roughly, and its length in posterior sd."""
    likelihood, data, M = problem.likelihood, problem.require_data(), problem.n_functions
    assert many_classes(likelihood)  # noqa: S101  the caller has asked
    T = likelihood.transform
    (blocks,) = data.accumulate(_class_blocks(likelihood, theta))
    inverse = np.stack([Gaussian(theta, block + prior.precision[:M, :M]).covariance for block in blocks])

    def product(v: Vector) -> Vector:
        (image,) = data.accumulate(_curvature_products(likelihood, theta, v))
        return np.asarray(image + prior.pull(v))

    def precondition(v: Vector) -> Vector:
        by_class = np.matmul(inverse, (T @ v.reshape(-1, M))[:, :, None])
        return np.asarray(T.T @ by_class[:, :, 0]).ravel()

    return _conjugate(product, precondition, gradient)


def _curvature_products(likelihood: Categorical, theta: Vector, direction: Vector) -> ChunkFunction:
    """Return the function of a chunk that gives the Hessian of -ln p times a direction, (D,), many classes' only."""
    _, weights = in_classes(likelihood, theta)
    of_classes, along = in_classes(likelihood, direction)
    K, T = likelihood.n_classes, likelihood.transform

    def terms(Phi: Matrix, _t: Matrix, weight: Vector | None) -> Terms:
        y = of_classes.probability(activations(Phi, weights, K))
        change = activations(Phi, along, K)
        change -= np.einsum("nk,nk->n", y, change)[:, None]
        change *= y if weight is None else weight[:, None] * y
        return ((T.T @ (change.T @ Phi)).ravel(),)

    return blockwise(terms, 4 * K)


def _class_blocks(likelihood: Categorical, theta: Vector) -> ChunkFunction:
    """Return the function of a chunk that gives the Hessian's block of each class, (K, M, M)."""
    of_classes, weights = in_classes(likelihood, theta)
    K = likelihood.n_classes

    def terms(Phi: Matrix, _t: Matrix, weight: Vector | None) -> Terms:
        y = of_classes.probability(activations(Phi, weights, K))
        r = y * (1 - y) if weight is None else weight[:, None] * y * (1 - y)
        return (unpacked_grams(packed_grams(Phi, r), Phi.shape[1]),)

    return terms


def _conjugate(
    product: Callable[[Vector], Vector],
    precondition: Callable[[Vector], Vector],
    gradient: Vector,
) -> tuple[Vector, float]:
    """Return the step that solves A x = gradient roughly, and its length sqrt(xᵀ A x); as exactly as it is short."""
    step, residual = np.zeros_like(gradient), gradient
    direction = z = precondition(residual)
    squared = first = float(residual @ z)
    length = 0.0
    for _ in range(_MOST_PRODUCTS):
        if squared <= max(_EXACT**2, min(_FORCED, np.sqrt(first)) ** 2 * first):
            break
        image = product(direction)
        share = squared / float(direction @ image)
        length += share * squared
        step, residual = step + share * direction, residual - share * image
        z = precondition(residual)
        previous, squared = squared, float(residual @ z)
        direction = z + squared / previous * direction
    return step, float(np.sqrt(length))


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
