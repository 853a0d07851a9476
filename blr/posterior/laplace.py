"""The Laplace approximation: a Gaussian about the mode, with the curvature found there (PRML 4.4, 4.5.1).

    q(w) = N(w | w_MAP, A⁻¹),  A = S0⁻¹ + Σ_n R_n ⊗ φ_n φ_nᵀ

A is a precision (PRML 4.132 and 4.143 define its inverse S_N by it).

Of many rows the search starts at the mode of every n-th row, then takes quasi-Newton steps, which need no Hessian.  A
pass with a Hessian takes about three times as long as one without.  The Hessian of every n-th row is near that of all,
and so the steps that it gives converge; each difference of gradients improves it (BFGS; Nocedal and Wright 2006,
Numerical Optimization, algorithm 7.4).  One Hessian of all rows, that near the mode, ends the search.  Of many classes
a Hessian takes a hundred times longer than a gradient: `by_gradients` does without one from the first step on.
Shapes: N rows, M basis functions, K classes, D weights in the solver's coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector, as_vector
from blr.covariances import packed_grams, unpacked_grams
from blr.fitting.newton import Mode, ascend, maximise
from blr.fitting.problem import Problem, Stream, pose
from blr.gaussian import Gaussian, GaussianPrior
from blr.likelihood.likelihoods import Categorical
from blr.posterior.kinds import LaplacePosterior
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
from blr.threads import single_threaded_blas

_ROUGH = 0.1  # decrement, in posterior sd, at which the search on part of the rows ends: theirs are four times as wide
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


def posterior_at(problem: Problem, mode: Mode) -> LaplacePosterior:
    """Return the Laplace posterior about a mode found for the problem."""
    return LaplacePosterior(
        problem=problem,
        gaussian=Gaussian(mode.theta, mode.hessian + problem.solver_prior.precision),
        log_likelihood=mode.log_likelihood,
        converged=mode.converged,
        n_iter=mode.n_iter,
        status=mode.status,
    )


def fit(
    Phi: Any,
    t: Any,
    prior: GaussianPrior | None,
    likelihood: str = "logistic",
    *,
    trials: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    confusion: ArrayLike | None = None,
    threads: int | None = None,
    tolerance: float = 1e-9,
    max_iter: int = 100,
) -> LaplacePosterior:
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
    confusion
        Of labels that may be wrong: (K, K), how often each true class is recorded as each, or (N, K, K), one a row, or
        a rate for all classes.  Predictions are of the true class.

    Raises
    ------
    ValueError
        If shapes, values, labels or the prior do not fit; the message says what was got and what to do.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> t = rng.random(200) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> q = blr.fit(np.column_stack([np.ones(200), X]), t, blr.GaussianPrior.isotropic(3))
    >>> q
    <LaplacePosterior: logistic, classes 0, 1, 3 functions, 200 rows, log evidence -91.0 nats, trust not computed>
    >>> q.predict_proba([[1, 0, 0], [1, 2, 0]]).round(2).tolist()
    [0.48, 0.99]
    """
    problem = pose(
        Phi,
        t,
        prior,
        likelihood,
        trials=trials,
        sample_weight=sample_weight,
        classes=classes,
        confusion=confusion,
        threads=threads,
    )
    with single_threaded_blas():
        near, close = _by_part(problem), CLOSE
        if near is None:
            near, close = by_gradients(problem, problem.solver_prior, np.zeros(problem.n_solved)), 0.0
        start, evaluated = _start(problem) if near is None else (near, None)
        stop: Any = {"tolerance": tolerance, "max_iter": max_iter, "close": close}
        return posterior_at(
            problem, maximise(problem.evaluate, problem.solver_prior, start, evaluated=evaluated, **stop)
        )


def _by_part(problem: Problem) -> Vector | None:
    """Return weights close to the mode by every n-th row; None if rows are few, or they lead elsewhere."""
    # Of labels that may be wrong there may be several modes.
    part = None if problem.mislabelled else part_of(problem)
    if part is None:
        return None
    start, evaluated = _start(part)
    rough = maximise(part.evaluate, part.solver_prior, start, evaluated=evaluated, tolerance=_ROUGH)
    return approach(problem, problem.solver_prior, rough.theta, rough.hessian) if rough.converged else None


def _start(problem: Problem) -> tuple[Vector, Terms]:
    """Return the prior mean, or zero where that is the likelier, and the likelihood's terms there.

    A prior mean that the data contradict may be hundreds of Newton steps away, each of a unit of activation.
    """
    prior = problem.solver_prior
    starts = [prior.mean, np.zeros_like(prior.mean)] if prior.mean.any() else [prior.mean]
    tried = [(theta, problem.evaluate(theta)) for theta in starts]
    return max(tried, key=lambda x: np.nan_to_num(x[1][0] - prior.energy(x[0]), nan=-np.inf))


def fit_sgd(
    stream: Any,
    prior: GaussianPrior,
    likelihood: str = "logistic",
    *,
    classes: Sequence[Any] | None = None,
) -> LaplacePosterior:
    """Return the posterior after one pass over a stream of (Phi, t, weight) chunks that need not be readable again.

    Stochastic gradient ascent with averaged iterates; agrees with `fit` to well within the posterior's own width on
    long streams.  Its log likelihood is prequential: each batch under the weights learnt before it.

    Raises
    ------
    ValueError
        As `fit`; or if the stream is empty, or there is no prior.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> t = rng.random(200) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> Phi = np.column_stack([np.ones(200), X])
    >>> chunks = ((Phi[i : i + 50], t[i : i + 50], None) for i in range(0, 200, 50))
    >>> blr.fit_sgd(chunks, blr.GaussianPrior.isotropic(3), classes=[False, True]).mean.shape
    (3,)
    """
    if prior is None:
        raise ValueError(
            "prior is None, expected a GaussianPrior: one pass over a stream does not reach the maximum of "
            "the likelihood; give GaussianPrior.isotropic(M), or use fit"
        )
    chunks = iter(stream)
    first = next(chunks, None)
    if first is None:
        raise ValueError("the stream is empty; give at least one chunk (Phi, t, weight)")
    posed = pose([first], None, prior, likelihood, classes=classes, threads=1)
    assert isinstance(posed.data, Stream)  # noqa: S101  pose was given one
    rest = replace(posed.data, source=chain([first], chunks))
    mode, weight = ascend(rest.chunks(), posed.likelihood, posed.solver_prior)
    return posterior_at(replace(posed, data=None, n_effective=weight), mode)


def laplace_approximation(
    log_density: Callable[[Vector], float],
    gradient: Callable[[Vector], ArrayLike],
    hessian: Callable[[Vector], ArrayLike],
    start: ArrayLike,
) -> tuple[Gaussian, float]:
    """Return the Laplace approximation of a density f known up to a factor, and the logarithm of its integral Z.

    ln Z ≈ ln f(z0) + D/2 ln 2π - 1/2 ln det A (PRML 4.135), A the Gaussian's precision.  `gradient` (D,) and `hessian`
    (D, D) are those of `log_density`, ln f.

    Raises
    ------
    ValueError
        If shapes do not fit, the density is not finite at the start, or no maximum was found (the search did not
        end, or the Hessian is not negative definite there).

    Examples
    --------
    >>> normal, log_integral = blr.laplace_approximation(
    ...     lambda z: -0.5 * z @ z, lambda z: -z, lambda z: -np.eye(1), [0.3]
    ... )
    >>> bool(np.isclose(log_integral, 0.5 * np.log(2 * np.pi)))
    True
    """
    z = as_vector(start, "start")
    D = len(z)

    def evaluate(theta: Vector) -> tuple[float, Vector, Matrix]:
        g, H = np.asarray(gradient(theta), dtype=np.float64), np.asarray(hessian(theta), dtype=np.float64)
        if g.shape != (D,) or H.shape != (D, D):
            raise ValueError(
                f"for a start of {D} numbers the gradient must be ({D},), the Hessian ({D}, {D}); "
                f"got {g.shape} and {H.shape}"
            )
        return float(log_density(theta)), g, -H

    value, slope, curvature = evaluate(z)
    if not (np.isfinite(value) and np.isfinite(slope).all() and np.isfinite(curvature).all()):
        raise ValueError(
            f"at the start {z} the log density is {value}, or a derivative is not finite; start elsewhere"
        )
    flat = Gaussian(np.zeros(D), np.zeros((D, D)))
    mode = maximise(evaluate, flat, z)
    smallest = float(np.linalg.eigvalsh(mode.hessian)[0])
    if not (mode.converged and smallest > 0):
        raise ValueError(
            f"the log density has no maximum near {mode.theta} ({mode.status}): its Hessian there has an eigenvalue of "
            f"{-smallest:.3g} where all must be negative; start elsewhere, or reparameterise"
        )
    found = Gaussian(mode.theta, mode.hessian)
    return found, mode.log_likelihood + 0.5 * (D * float(np.log(2 * np.pi)) - found.log_det_precision)


def part_of(problem: Problem) -> Problem | None:
    """Return the problem of every n-th row, with weights that make up for the rest; None where all are as quick.

    Of data that name a sample, it is the problem of that.
    """
    if not isinstance(problem.data, Rows):
        sample = getattr(problem.data, "sample", None)
        return None if sample is None else replace(problem, data=sample)
    n = len(problem.data.Phi)
    step = min(_MOST_STEP, n // max(_FEWEST_ROWS, _ROWS_A_WEIGHT * problem.n_solved))
    return replace(problem, data=problem.data.every(step)) if step >= _WORTHWHILE else None


def _log_posterior(problem: Problem, prior: Gaussian) -> Callable[[Vector], tuple[float, Vector]]:
    """Return the function of weights (D,) that gives the log posterior, up to a constant, and its gradient (D,)."""
    data = problem.require_data()

    def evaluated(theta: Vector) -> tuple[float, Vector]:
        value, gradient = data.accumulate(likelihood_terms(problem.likelihood, theta, hessian=False))
        return value - prior.energy(theta), gradient - prior.pull(theta - prior.mean)

    return evaluated


def approach(
    problem: Problem, prior: Gaussian, start: Vector, hessian: Matrix, *, within: float = CLOSE
) -> Vector | None:
    """Return weights (D,) so near the mode, by steps from `start`; None where the steps do not lead there.

    `within`: the distance, in posterior sd.  `hessian` (D, D) of -ln p is that of part of the rows, or of weights near
    the mode.
    """
    near, evaluated = Gaussian(start, hessian + prior.precision), _log_posterior(problem, prior)
    if not near.proper:
        return None
    theta, changes, distance = start, list[tuple[Vector, Vector]](), np.inf
    objective, gradient = evaluated(theta)
    for _ in range(_MAX_ITER):
        step = _step(near.cholesky, changes, gradient)
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
    problem: Problem, prior: Gaussian, start: Vector, *, within: float = _CLOSER
) -> Vector | None:
    """Return weights (D,) of many classes so near the mode, by Newton's steps that need no Hessian.

    Each step is solved by conjugate gradients, whose products with the Hessian cost what a gradient does; the Hessian
    itself costs as many times more as there are pairs of classes to a class, times M / 2.  The preconditioner is the
    Hessian's block of each class.  None of other likelihoods, and where the steps do not lead there.
    """
    if problem.mislabelled or not many_classes(problem.likelihood) or not prior.precision.any():
        return None
    evaluated = _log_posterior(problem, prior)
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
        near = approach(problem, prior, start, known)
    if near is None:
        return maximise(problem.evaluate, prior, start, evaluated=evaluated, close=CLOSE)
    return maximise(problem.evaluate, prior, near, close=CLOSE)


def _solved(problem: Problem, prior: Gaussian, theta: Vector, gradient: Vector) -> tuple[Vector, float]:
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
    product: Callable[[Vector], Vector], precondition: Callable[[Vector], Vector], gradient: Vector
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
