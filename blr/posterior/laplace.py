"""The Laplace approximation: a Gaussian about the mode, with the curvature found there (PRML 4.4, 4.5.1).

    q(w) = N(w | w_MAP, A⁻¹),  A = S0⁻¹ + Σ_n R_n ⊗ φ_n φ_nᵀ

A is a precision (PRML 4.132 and 4.143 define its inverse S_N by it).  Shapes: N rows, M basis functions, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector, as_vector
from blr.fitting.newton import Mode, SolverPrior, ascend, maximise
from blr.fitting.problem import Problem, Stream, pose
from blr.fitting.subsample import CLOSE, approach, by_gradients, part_of
from blr.gaussian import Gaussian, GaussianPrior
from blr.posterior.kinds import LaplacePosterior
from blr.sums import Terms
from blr.threads import single_threaded_blas

_ROUGH = 0.1  # decrement, in posterior sd, at which the search on part of the rows ends: theirs are four times as wide


def posterior_at(problem: Problem, mode: Mode) -> LaplacePosterior:
    """Return the Laplace posterior about a mode found for the problem."""
    gaussian = Gaussian(mode.theta, mode.precision(problem.solver_prior))
    return LaplacePosterior(
        problem=problem,
        gaussian=gaussian,
        log_likelihood=mode.log_likelihood,
        converged=mode.converged,
        n_iter=mode.n_iter,
        status=mode.status,
        path=mode.path,
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
        path, close = _by_part(problem), CLOSE
        if path is None:
            path, close = _by_gradients(problem), 0.0
        start, evaluated = _start(problem) if path is None else (path[-1], None)
        mode = maximise(
            problem.evaluate,
            problem.solver_prior,
            start,
            evaluated=evaluated,
            tolerance=tolerance,
            max_iter=max_iter,
            close=0.0 if path is None else close,
        )
        if path is not None and mode.path is not None:
            mode = replace(mode, path=np.concatenate([path[:-1], mode.path]))
        return posterior_at(problem, mode)


def _by_part(problem: Problem) -> Matrix | None:
    """Return the way to weights close to the mode by every n-th row; None if rows are few, or it leads elsewhere."""
    part = (
        None if problem.mislabelled else part_of(problem)
    )  # of labels that may be wrong there may be several modes
    if part is None:
        return None
    start, evaluated = _start(part)
    rough = maximise(part.evaluate, part.solver_prior, start, evaluated=evaluated, tolerance=_ROUGH)
    near = approach(problem, problem.solver_prior, rough.theta, rough.hessian) if rough.converged else None
    return None if near is None or rough.path is None else np.concatenate([rough.path, near[None]])


def _by_gradients(problem: Problem) -> Matrix | None:
    """Return the start and the mode as far as gradients tell, where classes are many; None elsewhere."""
    start = np.zeros(problem.n_solved)
    near = by_gradients(problem, problem.solver_prior, start)
    return None if near is None else np.stack([start, near])


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
    n_rows: float | None = None,
) -> LaplacePosterior:
    """Return the posterior after one pass over a stream of (Phi, t, weight) chunks that need not be readable again.

    Stochastic gradient ascent with averaged iterates; agrees with `fit` to well within the posterior's own width on
    long streams.  Its log likelihood is prequential: each batch under the weights learnt before it.

    Parameters
    ----------
    n_rows
        The stream's length, where known: the prior's share of each batch is then exact from the first.

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
    mode, weight = ascend(rest.chunks(), posed.likelihood, posed.solver_prior, n_rows=n_rows)
    return posterior_at(replace(posed, data=None, n_effective=weight), mode)


@dataclass(frozen=True, eq=False)
class LaplaceApproximation(Gaussian):
    """A Gaussian about the mode of a user's own density, and the integral that it estimates (PRML 4.134-135)."""

    log_peak: float
    converged: bool
    n_iter: int

    @property
    def log_normaliser(self) -> float:
        """Return ln Z ≈ ln f(z0) + D/2 ln 2π - 1/2 ln det A, Z the integral of f = exp(log_density)."""
        return self.log_peak + 0.5 * (len(self.mean) * float(np.log(2 * np.pi)) - self.log_det_precision)


def laplace_approximation(
    log_density: Callable[[Vector], float],
    gradient: Callable[[Vector], ArrayLike],
    hessian: Callable[[Vector], ArrayLike],
    start: ArrayLike,
    *,
    tolerance: float = 1e-9,
    max_iter: int = 100,
) -> LaplaceApproximation:
    """Return the Laplace approximation of a density known up to a factor, by its logarithm and two derivatives.

    `gradient` (D,) and `hessian` (D, D) are those of `log_density`.

    Raises
    ------
    ValueError
        If shapes do not fit, the density is not finite at the start, or the point found is no maximum (the Hessian
        is not negative definite there).

    Examples
    --------
    >>> normal = blr.laplace_approximation(lambda z: -0.5 * z @ z, lambda z: -z, lambda z: -np.eye(1), [0.3])
    >>> bool(np.isclose(normal.log_normaliser, 0.5 * np.log(2 * np.pi)))
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
            f"at the start {z} the log density is {value}, or a derivative is not finite; start at a point "
            "where all are finite"
        )
    flat = SolverPrior(np.zeros(D), np.zeros((D, D)))
    mode = maximise(evaluate, flat, z, tolerance=tolerance, max_iter=max_iter)
    smallest = float(np.linalg.eigvalsh(mode.hessian)[0])
    if not smallest > 0:
        raise ValueError(
            f"the log density has no maximum near {mode.theta}: its Hessian there has an eigenvalue of {-smallest:.3g} "
            "where all must be negative; start elsewhere, or reparameterise"
        )
    return LaplaceApproximation(
        mode.theta,
        mode.hessian,
        log_peak=mode.log_likelihood,
        converged=mode.converged,
        n_iter=mode.n_iter,
    )
