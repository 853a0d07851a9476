"""Newton's method (IRLS) to the mode of the log posterior (PRML 4.3.3), with a Gaussian prior of any mean.

The step solves (ΦᵀRΦ + S0⁻¹) Δw = Φᵀ(t - y) - S0⁻¹(w - m0): the step form, since R⁻¹ of the textbook's working response
overflows.  The search stops on the Newton decrement, the distance to the mode in posterior standard deviations,
which, unlike |Δw|, does not depend on the features' scales.  The result states how the search ended; no exception is
raised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from blr.arrays import Matrix, Vector
from blr.gaussian import Gaussian, cholesky_of_precision
from blr.sums import Terms

_MAX_HALVINGS = 40
# Steps that did not halve the decrement: huge weights beside a broad prior round the gradient coarsely.
_IDLE = 5
_ROUNDING = 64 * np.finfo(float).eps


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
