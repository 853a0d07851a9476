"""Prior precision by evidence maximisation: one for all weights, or one a group.

PRML 3.5 and 4.4; MacKay (1992), doi:10.1162/neco.1992.4.5.720.  The Laplace evidence is maximised in ln α by its exact
gradient

    dL/d ln α = 1/2 [ C M - α wᵀw - α tr A⁻¹ + α gᵀ A⁻¹ w ],   g = d/dw tr(H(w) A⁻¹).

MacKay's fixed point drops the last term, the change of the curvature as the mode moves with α, and stops short (0.7
nats at N = 60).  α is optimised inside the quadratic model of the likelihood between Newton's passes over the data, so
that it costs almost no further pass; large data are first solved on every n-th row.  D = C M weights, G groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from blr.arrays import Matrix, Vector
from blr.fitting.newton import SolverPrior, maximise, newton_step
from blr.fitting.problem import Problem, pose
from blr.gaussian import Gaussian, cholesky_of_precision
from blr.likelihood.prior import GaussianPrior, is_column
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import posterior_at
from blr.sums import Rows, Terms, skewness_term
from blr.threads import single_threaded_blas

__all__ = ["fit_evidence"]

_RANGE = (np.log(1e-10), np.log(1e10))  # of α for columns of unit scale: beyond, the data say nothing
# How far from the columns' scale, in ln α, the ascent may start: farther out, the evidence is flat.
_START = 5.0
_MAX_STEP = 2.0  # in ln α within one quadratic model
_TOLERANCE = 1e-4  # in ln α: the evidence is flat there, so this is 1e-8 of a nat and less
_NEAR = 1.0  # decrement, in posterior sd, below which the quadratic model is good enough to move α
_MAX_ROUNDS = 60
_MAX_RAISES = 12
_ROUGH = 0.1  # tolerance in ln α where that has a prior
_EXACT: Any = {"ftol": 1e-15, "gtol": 1e-9}  # of the search in the quadratic model
_FEW: Any = {**_EXACT, "ftol": 1e-5, "maxiter": 2}


@dataclass(frozen=True, eq=False)
class _Groups:
    """Which weights share a precision: `index` (D,) is the group, -1 where the precision is fixed.

    `low` and `high` bound ln α of each group, scalars or (G,).
    """

    index: NDArray[np.intp]
    fixed: Vector  # (D,) precision where index is -1, else 0
    n_groups: int
    low: Vector | float = _RANGE[0]
    high: Vector | float = _RANGE[1]
    centre: float = 0.0  # of the normal prior on each ln α, where the ascent starts
    spread: float = np.inf

    def scaled(self, curvature: Vector) -> tuple[_Groups, Vector]:
        """Return the groups with the range of ln α that columns of any scale need, and where to start (G,).

        `curvature` (D,) of the likelihood a row, at weights of zero, goes with the square of a column's scale.
        """
        low, high = np.zeros(self.n_groups), np.zeros(self.n_groups)
        for g in range(self.n_groups):
            group_curvature = curvature[(self.index == g) & (curvature > 0)]
            if group_curvature.size:
                low[g], high[g] = np.log(group_curvature.min()), np.log(group_curvature.max())
        ranged = replace(self, low=_RANGE[0] + np.minimum(low, 0), high=_RANGE[1] + np.maximum(high, 0))
        return ranged, np.clip(self.centre, low - _START, high + _START)

    @property
    def sizes(self) -> Vector:
        """Weights in each group, (G,)."""
        return self.sum(np.ones(len(self.index)))

    def precision(self, log_alpha: Vector) -> Vector:
        """Return the prior precision of each weight, (D,)."""
        return np.where(self.index >= 0, np.exp(log_alpha)[self.index], self.fixed)

    def log_prior(self, log_alpha: Vector) -> tuple[float, Vector]:
        """Return the log density of ln α up to a constant, and its gradient (G,); 0 where there is no prior."""
        z = (log_alpha - self.centre) / self.spread
        return -0.5 * float(z @ z), -z / self.spread

    def sum(self, x: Vector) -> Vector:
        """Return the sum of x (D,) over each group, (G,)."""
        inside = self.index >= 0
        return np.bincount(self.index[inside], weights=x[inside], minlength=self.n_groups).astype(np.float64)


def _as_groups(
    groups: ArrayLike | None, M: int, C: int, intercept: int | None, intercept_variance: float
) -> _Groups:
    group = np.zeros(M, dtype=np.intp) if groups is None else np.asarray(groups)
    if group.shape != (M,) or group.dtype.kind not in "iu":
        raise ValueError(
            f"groups must be {M} integers, the group of each column of Phi, got {group.dtype} of shape {group.shape}"
        )
    if intercept is not None and not is_column(intercept, M):
        raise ValueError(
            f"intercept is column {intercept} but Phi has {M} columns; give None for no intercept"
        )
    if not 0 < intercept_variance < np.inf:
        raise ValueError(f"intercept_variance must be positive and finite, got {intercept_variance}")
    free = np.ones(M, dtype=bool)
    if intercept is not None:
        free[intercept] = False
    if not free.any():
        raise ValueError(
            f"Phi has {M} column(s), the intercept alone: there is no prior precision to be found; use fit with a "
            "prior, or give intercept=None"
        )
    labels, compact = np.unique(group[free], return_inverse=True)
    index = np.full(M, -1, dtype=np.intp)
    index[free] = compact
    fixed = np.where(free, 0.0, 1.0 / intercept_variance)
    return _Groups(np.tile(index, C), np.tile(fixed, C), len(labels))


@dataclass(frozen=True, eq=False)
class _QuadraticModel:
    """The likelihood about θ0 to second order, and its log determinant's change to first."""

    theta: Vector
    gradient: Vector
    hessian: Matrix
    skewness: Vector
    groups: _Groups

    def solve(self, log_alpha: Vector) -> tuple[Vector, float, Vector]:
        """Return the model's mode (D,), its evidence up to a constant, and the gradient in ln α (G,)."""
        p = self.groups.precision(log_alpha)
        L, _ = cholesky_of_precision(self.hessian + np.diag(p))
        U = scipy.linalg.solve_triangular(L, np.eye(len(p)), lower=True, check_finite=False)
        theta = U.T @ (U @ (self.hessian @ self.theta + self.gradient))
        d = theta - self.theta
        value = self.gradient @ d - 0.5 * (d @ self.hessian @ d) - 0.5 * float(p @ theta**2)
        value += (
            0.5 * float(self.groups.sizes @ log_alpha)
            - float(np.log(np.diag(L)).sum())
            - 0.5 * self.skewness @ d
        )
        pull = U.T @ (U @ self.skewness)
        slope = self.groups.sizes - self.groups.sum(
            p * (theta**2 + np.einsum("ij,ij->j", U, U) - pull * theta)
        )
        return theta, float(value), 0.5 * slope

    def _lowest(self, log_alpha: Vector, low: Vector) -> Vector:
        """Return `low`, raised towards ln α until A is a precision: a likelihood need not be log-concave."""
        for _ in range(_MAX_RAISES):
            try:
                self.solve(low)
            except np.linalg.LinAlgError:
                low = 0.5 * (low + log_alpha)
            else:
                return low
        return log_alpha

    def best(self, log_alpha: Vector) -> tuple[Vector, Vector]:
        """Return ln α and the mode that maximise the model's evidence within a bounded step."""
        low = self._lowest(log_alpha, np.maximum(log_alpha - _MAX_STEP, self.groups.low))
        high = np.minimum(log_alpha + _MAX_STEP, self.groups.high)

        def objective(x: Vector) -> tuple[float, Vector]:
            _, value, slope = self.solve(x)
            log_prior, pull = self.groups.log_prior(x)
            return -value - log_prior, -slope - pull

        optimum = minimize(
            objective,
            log_alpha,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            options=_EXACT if self.groups.spread == np.inf else _FEW,
        )
        return optimum.x, self.solve(optimum.x)[0]


@dataclass(frozen=True, eq=False)
class _State:
    theta: Vector
    log_alpha: Vector
    skewness: Vector
    evaluated: Terms | None = None  # of the likelihood at theta, once it has been


def _skewness(problem: Problem, theta: Vector, A: Matrix) -> Vector:
    U = Gaussian(theta, A).inverse_cholesky
    (g,) = problem.require_data().accumulate(skewness_term(problem.likelihood, theta, U))
    return np.asarray(g)


def _ascend(problem: Problem, groups: _Groups, state: _State, *, keep_skewness: bool = False) -> _State:
    """Alternate passes over the data with optimisation of ln α in the quadratic model, until neither moves.

    `keep_skewness`: use the state's g, found on part of the data, instead of a pass of its own.  g hardly depends on
    the number of rows: its h falls as 1/N where the sum grows as N.
    """
    theta, log_alpha, g = state.theta, state.log_alpha, state.skewness
    evaluated = state.evaluated or problem.evaluate(theta)
    for _ in range(_MAX_ROUNDS):
        value, gradient, hessian = evaluated
        prior = SolverPrior(np.zeros_like(theta), np.diag(groups.precision(log_alpha)))
        step, decrement = newton_step(gradient - prior.precision @ theta, hessian + prior.precision)
        curved = problem.likelihood.log_concave or _is_precision(hessian + prior.precision)
        if decrement < _NEAR and curved:
            if not keep_skewness:
                g = _skewness(problem, theta, hessian + prior.precision)
            moved, target = _QuadraticModel(theta, gradient, hessian, g, groups).best(log_alpha)
            change = float(np.abs(moved - log_alpha).max(initial=0.0))
            log_alpha = moved
            if change < (_TOLERANCE if groups.spread == np.inf else _ROUGH) and decrement < 1e-3:
                break
            prior = SolverPrior(np.zeros_like(theta), np.diag(groups.precision(log_alpha)))
            step = target - theta
        theta, evaluated = _guarded(problem, prior, theta, step, value)
    return _State(theta, log_alpha, g, evaluated)


def _is_precision(A: Matrix) -> bool:
    """Whether A is positive definite, which it need not be away from a mode where a likelihood is not log-concave."""
    try:
        cholesky_of_precision(A)
    except np.linalg.LinAlgError:
        return False
    return True


def _guarded(
    problem: Problem, prior: SolverPrior, theta: Vector, step: Vector, value: float
) -> tuple[Vector, Any]:
    """Take the step, halved until the posterior does not fall."""
    before = value - prior.energy(theta)
    length = 1.0
    while True:
        trial = theta + length * step
        evaluated = problem.evaluate(trial)
        after = evaluated[0] - prior.energy(trial)
        if after >= before - 1e-12 * abs(before) or length < 1e-6:
            return trial, evaluated
        length *= 0.5


def _started(problem: Problem, groups: _Groups, n: float) -> tuple[_Groups, _State]:
    """Return the groups in the range that the data's scale asks for, and the state to start from, weights of zero."""
    theta = np.zeros(problem.n_solved)
    evaluated = problem.evaluate(theta)
    ranged, log_alpha = groups.scaled(np.diag(evaluated[2]) / n)
    return ranged, _State(theta, log_alpha, theta, evaluated)


def _matters(problem: Problem, groups: _Groups, state: _State) -> bool:
    """Whether the skewness moves ln α by more than ten tolerances, so that it has to be exact."""
    _, gradient, hessian = state.evaluated or problem.evaluate(state.theta)
    shifts = [
        _QuadraticModel(state.theta, gradient, hessian, g, groups).best(state.log_alpha)[0]
        for g in (state.skewness, np.zeros_like(state.skewness))
    ]
    return bool(np.abs(shifts[0] - shifts[1]).max(initial=0.0) > 10 * _TOLERANCE)


def _subsample_step(problem: Problem) -> int:
    """Return n to start on every n-th row, or 1 where all rows are as quick."""
    if not isinstance(problem.data, Rows):
        return 1
    step = min(16, len(problem.data.Phi) // max(10_000, 40 * problem.n_solved))
    return step if step >= 4 else 1


def fit_evidence(
    Phi: Any,
    t: Any,
    likelihood: str = "logistic",
    *,
    groups: ArrayLike | None = None,
    scale_prior: tuple[float, float] | None = None,
    intercept: int | None = 0,
    intercept_variance: float = 1e4,
    trials: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    confusion: ArrayLike | None = None,
    threads: int | None = None,
) -> LaplacePosterior:
    """Return the Laplace posterior under the prior N(0, diag(1/α)) whose α maximises the evidence; it is in `q.prior`.

    Parameters
    ----------
    Phi, t, trials, sample_weight, classes, confusion
        As of `fit`.
    groups
        (M,) integers: columns of the same number share a precision.  Default: one precision for all.  Columns that
        share one should be of like scale, as those of a basis are: else the evidence may have several maxima, of which
        the one that ascent leads to is found.
    scale_prior
        Median of each group's standard deviation s = α^(−1/2), and standard deviation of ln s, in a log-normal prior.
        Evidence times prior is then maximised, to a tenth in ln α.  Default: no prior.
    intercept
        Column whose prior variance stays at `intercept_variance`, or None.

    Raises
    ------
    ValueError
        As `fit`; or if the groups do not fit the columns, or the prior's numbers are not positive.
    """
    if scale_prior is not None and not min(scale_prior) > 0:
        raise ValueError(f"expected a positive median and spread of the prior's scales, got {scale_prior}")
    problem = pose(
        Phi,
        t,
        None,
        likelihood,
        trials=trials,
        sample_weight=sample_weight,
        classes=classes,
        confusion=confusion,
        threads=threads,
    )
    M, C = problem.n_functions, problem.likelihood.n_outputs
    split = _as_groups(groups, M, C, intercept, intercept_variance)
    if scale_prior is not None:
        split = replace(split, centre=-2 * np.log(scale_prior[0]), spread=2 * scale_prior[1])
    with single_threaded_blas():
        step = _subsample_step(problem)
        keep = False
        if step > 1:
            assert isinstance(problem.data, Rows)  # noqa: S101  _subsample_step said so
            part = replace(problem, data=problem.data.every(step))
            split, state = _started(part, split, problem.n_effective / step)
            state = _ascend(part, split, state)
            keep = not _matters(part, split, state)
            state = replace(state, evaluated=None)  # of part of the data
        else:
            split, state = _started(problem, split, problem.n_effective)
        state = _ascend(problem, split, state, keep_skewness=keep)
        prior = GaussianPrior(np.zeros(M), 1.0 / split.precision(state.log_alpha)[:M])
        problem = replace(problem, prior=prior)
        mode = maximise(problem.evaluate, problem.solver_prior, state.theta, evaluated=state.evaluated)
        return posterior_at(problem, mode)
