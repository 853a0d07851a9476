"""The search for the mode of the log posterior, under a Gaussian prior of any mean: Newton's method, steps on batches.

Newton's method (IRLS; PRML 4.3.3) solves (ΦᵀRΦ + S0⁻¹) Δw = Φᵀ(t - y) - S0⁻¹(w - m0): the step form, since R⁻¹ of the
textbook's working response overflows.  The search stops on the Newton decrement, the distance to the mode in posterior
standard deviations, which, unlike |Δw|, does not depend on the features' scales.  The result states how the search
ended; no exception is raised.

Streams that cannot be read twice have Robbins-Monro steps on mini-batches (PRML 3.1.3, 4.3.2), each preconditioned by
the curvature seen so far, and the average of the iterates (Polyak and Juditsky 1992, doi:10.1137/0330046): the average
is as good as the exact mode to the order of its own uncertainty.  The prior's gradient counts with its share of each
batch, batch/N, N the rows so far or as stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from blr.arrays import Matrix, Vector
from blr.gaussian import Gaussian, cholesky_of_precision
from blr.likelihood.likelihoods import Likelihood
from blr.sums import Chunk, Terms, likelihood_terms
from blr.threads import single_threaded_blas

_MAX_HALVINGS = 40
# Steps that did not halve the decrement: huge weights beside a broad prior round the gradient coarsely.
_IDLE = 5
_ROUNDING = 64 * np.finfo(float).eps
_DECAY = 0.7  # of the step, between 1/2 and 1 as averaging wants
_FADING = 0.6  # of the curvature's memory
_RECENCY = 2.0  # weight of the iterates in the average grows as the step's number to this less one
_BATCHES = 150  # from which the average lies within a posterior sd a weight: of 55 batches it did in half of the cases
_RIDGE = 1.0  # relative, on the first batches' curvature, which need not have full rank
_BATCH = 128


@dataclass(frozen=True, eq=False)
class SolverPrior:
    """A Gaussian prior in the solver's coordinates: mean (D,), precision (D, D) (zero for maximum likelihood)."""

    mean: Vector
    precision: Matrix

    def energy(self, theta: Vector) -> float:
        """Return (θ - m)ᵀ P (θ - m) / 2."""
        d = theta - self.mean
        return 0.5 * float(d @ (self.precision @ d))

    @cached_property
    def log_det_precision(self) -> float:
        """Natural logarithm of det P."""
        return Gaussian(self.mean, self.precision).log_det_precision

    @cached_property
    def _diagonal(self) -> Vector | None:
        """Return the diagonal of P (D,), None where there is more."""
        p = np.diag(self.precision).copy()
        return p if np.count_nonzero(self.precision) == np.count_nonzero(p) else None

    def pull(self, away: Matrix) -> Matrix:
        """Return P d for each row d of `away` (S, D)."""
        p = self._diagonal
        return away @ self.precision if p is None else away * p

    def trace(self, inverse_cholesky: Matrix) -> float:
        """Return tr(P A⁻¹), given L⁻¹ (D, D) of A = L Lᵀ."""
        U, p = inverse_cholesky, self._diagonal
        if p is None:
            return float(np.einsum("ij,ij->", U @ self.precision, U))
        return float(np.einsum("ij,ij->j", U, U) @ p)


@dataclass(frozen=True, eq=False)
class Mode:
    """Where the search ended: θ (D,), ln p(D|θ), its gradient and Hessian there, and how it went."""

    theta: Vector
    log_likelihood: float
    gradient: Vector
    hessian: Matrix
    decrement: float
    converged: bool
    n_iter: int
    status: str
    path: Matrix | None = None  # (I, D) where each iteration stood, the start first

    def precision(self, prior: SolverPrior) -> Matrix:
        """Return A = H + P, (D, D)."""
        return self.hessian + prior.precision


def newton_step(gradient: Vector, A: Matrix) -> tuple[Vector, float]:
    """Return A⁻¹ g and the decrement sqrt(gᵀA⁻¹g); an indefinite A is shifted until it descends."""
    shift = 0.0
    while True:
        try:
            L, _ = cholesky_of_precision(A + np.diag(shift * np.diag(A).clip(min=1e-300)) if shift else A)
            break
        except np.linalg.LinAlgError:
            if shift > 1e6:
                raise
            d = np.diag(A)  # a negative one changes its sign: no scale but its own is known
            A = A + np.diag(np.where(d < 0, -2 * d, np.where(d == 0, 1.0, 0.0)))
            shift = max(1e-3, 10 * shift)
    z = scipy.linalg.solve_triangular(L, gradient, lower=True, check_finite=False)
    step: Vector = scipy.linalg.solve_triangular(L, z, lower=True, trans=1, check_finite=False)
    return step, float(np.sqrt(z @ z))


def maximise(
    evaluate: Callable[[Vector], Terms],
    prior: SolverPrior,
    start: Vector,
    *,
    evaluated: Terms | None = None,
    tolerance: float = 1e-9,
    max_iter: int = 100,
    close: float = 0.0,
) -> Mode:
    """Return the mode of ln p(D|θ) - energy(θ), from `start`.

    `evaluate` gives the value, the gradient (D,) and the Hessian (D, D) of -ln p(D|θ); `evaluated` is what it
    gave at `start`, where that is known.  Converged is a decrement below
    `tolerance`, evaluated where the search ended, or rounding's floor.  From a decrement below `close`, the last step
    is taken without another pass: value and gradient are then those of the quadratic model, the Hessian is kept.
    """
    theta = np.array(start, dtype=np.float64)
    value, gradient, hessian = evaluate(theta) if evaluated is None else evaluated
    n_iter, status, previous, idle = 1, "iterations exhausted", np.inf, 0
    path = [theta]
    while True:
        g = gradient - prior.precision @ (theta - prior.mean)
        step, decrement = newton_step(g, hessian + prior.precision)
        objective = value - prior.energy(theta)
        # Near the mode each decrement is about the square of the last; a small one that stops falling is rounding
        # error.
        idle = idle + 1 if decrement > 0.5 * previous else 0
        stalled = idle > 0 and decrement < (1e-6 if idle < _IDLE else 1e-4)
        near = tolerance <= decrement < close and not stalled
        if near:
            value, gradient = value + _gain(gradient, step, hessian), gradient - hessian @ step
            theta, decrement, n_iter = theta + step, decrement**2, n_iter + 1
            path.append(theta)
        if near or decrement < tolerance or stalled:
            return Mode(
                theta,
                value,
                gradient,
                hessian,
                decrement,
                converged=True,
                n_iter=n_iter,
                status="converged",
                path=np.stack(path),
            )
        if n_iter >= max_iter:
            break
        accepted = _search(evaluate, prior, theta, step, objective, float(g @ step))
        if accepted is None:
            status = "no step increases the posterior"
            break
        theta, (value, gradient, hessian) = accepted
        previous, n_iter = decrement, n_iter + 1
        path.append(theta)
    return Mode(theta, value, gradient, hessian, decrement, decrement < 1e-6, n_iter, status, np.stack(path))


def _gain(gradient: Vector, step: Vector, hessian: Matrix) -> float:
    """Return what a step adds to the log likelihood in the quadratic model."""
    return float(gradient @ step - 0.5 * step @ (hessian @ step))


def _search(
    evaluate: Callable[[Vector], Terms],
    prior: SolverPrior,
    theta: Vector,
    step: Vector,
    objective: float,
    slope: float,
) -> tuple[Vector, Terms] | None:
    """Halve the step until the objective increases enough (Armijo), within rounding."""
    length = 1.0
    for _ in range(_MAX_HALVINGS):
        trial = theta + length * step
        terms = evaluate(trial)
        gain = terms[0] - prior.energy(trial) - objective
        if gain >= 1e-4 * length * slope - _ROUNDING * abs(objective):  # NaN compares false: halve on
            return trial, terms
        length *= 0.5
    return None


def _bounded(direction: Vector, scale: Matrix) -> Vector:
    """Return the direction, shortened where it would move the activations by more than a few units at once."""
    length = float(np.sqrt(direction @ scale @ direction))
    return direction if length < 1 else direction / length


def _batches(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    for Phi, t, weight in chunks:
        for i in range(0, len(Phi), _BATCH):
            part = slice(i, i + _BATCH)
            yield Phi[part], t[part], None if weight is None else weight[part]


def ascend(
    chunks: Iterator[Chunk], likelihood: Likelihood, prior: SolverPrior, *, n_rows: float | None = None
) -> tuple[Mode, float]:
    """Return the averaged iterate after one pass over the chunks, the curvature met on the way, and the weight seen.

    The log likelihood is that of each batch under the weights before it was learnt from: a predictive one, below that
    at the mode.  `converged` says that the stream was long enough for averaging, 150 batches and 100 rows a weight: the
    result then lies about half a posterior sd from the mode, root mean square a weight (0.9 at most in 36 problems).
    """
    D = len(prior.mean)
    theta, curvature, average = prior.mean.copy(), np.zeros((D, D)), prior.mean
    seen = log_likelihood = 0.0
    step = 0
    with single_threaded_blas():
        for batch in _batches(chunks):
            n = float(len(batch[0]) if batch[2] is None else batch[2].sum())
            if n == 0:
                continue  # Rows of weight zero are left out.
            value, gradient, hessian = likelihood_terms(likelihood, theta)(*batch)
            step += 1
            seen += n
            log_likelihood += value
            total = n_rows or seen
            # The curvature at the start is not that at the mode: older batches fade at the pace at which steps shrink.
            curvature = curvature + step**-_FADING * (hessian / n - curvature)
            g = gradient / n - prior.precision @ (theta - prior.mean) / total
            scale = curvature + prior.precision / total
            direction, _ = newton_step(g, scale + _RIDGE / step * np.diag(np.diag(scale).clip(min=1e-300)))
            theta = theta + step**-_DECAY * _bounded(direction, scale)
            # Later iterates count for more, so that the start is forgotten without a burn-in to choose.
            share = min(1.0, _RECENCY / (step + _RECENCY - 1))
            average = theta if step == 1 else average + share * (theta - average)
    if not step:
        raise ValueError("the stream is empty; give at least one chunk (Phi, t, weight)")
    enough = seen >= 100 * D and step >= _BATCHES
    status = "one pass, averaged iterate" if enough else f"only {seen:.0f} rows for {D} weights"
    H = (n_rows or seen) * curvature
    return Mode(average, log_likelihood, np.zeros(D), H, float("nan"), enough, step, status), seen
