"""The evidence as a function of the prior's precisions: its maximum (PRML, section 3.5; MacKay 1992) or average."""

from __future__ import annotations

__all__ = ["SCALES", "fit_scales", "log_hyperprior"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Matrix, Vector
from blr.fitting.newton import maximise, newton_step
from blr.fitting.problem import Problem, pose
from blr.gaussian import Gaussian, GaussianPrior, cholesky_of_precision, is_column
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import CLOSE, approach, by_gradients, mode_from, part_of, posterior_at
from blr.sums import Rows, Terms, many_classes, skewness_term
from blr.threads import single_threaded_blas

_INTERCEPT_VARIANCE = 1e4
# Groups of weights that share a prior precision.  D = C M weights, G groups.

_RANGE = (np.log(1e-10), np.log(1e10))  # of α for columns of unit scale: beyond, the data say nothing
# How far from the columns' scale, in ln α, the ascent may start: farther out, the evidence is flat.
_START = 5.0


Groups = tuple[NDArray[np.intp], Vector]
"""Which weights share a precision: the group (D,) of each, -1 where its precision is fixed, and that one (D,), else 0.
"""


def as_groups(
    groups: ArrayLike | None, M: int, C: int, intercept: int | None, intercept_variance: float
) -> Groups:
    """Return the groups of C M weights from those of M columns, (M,) integers; ValueError if they do not fit."""
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
            f"Phi has {M} column(s), which is the intercept: there is no other weight whose prior precision "
            "could be estimated; use fit with a prior, or give intercept=None"
        )
    index = np.full(M, -1, dtype=np.intp)
    index[free] = np.unique(group[free], return_inverse=True)[1]
    fixed = np.where(free, 0.0, 1.0 / intercept_variance)
    return np.tile(index, C), np.tile(fixed, C)


# The evidence of one precision α in a quadratic model of the likelihood, in the eigenvectors of its curvature.
#
# Of D weights, F have the precision α; that of the others is fixed, and they are solved for.  S is the curvature that
# is left for the F (Schur's complement), and λ are its eigenvalues.  In its eigenvectors S + α I is diagonal: an
# evaluation costs F operations, where a Cholesky factor costs D³/3:
#
#     L(α) = 1/2 Σ c²/(λ + α) + 1/2 F ln α - 1/2 Σ ln(λ + α) - 1/2 Σ σ c/(λ + α) + constant,
#
# c the pull of the data and σ the skewness g, both in the eigenvectors.

_WIDTH = 0.125  # in ln α, of the first step of the search for an interval that holds the maximum
_CLOSE = 1e-10  # in ln α, of the maximum


def _climbed(slope: Callable[[float], float], start: float, low: float, high: float) -> float:
    """Return the maximum between the bounds to which a function of ln α with this slope climbs from the start."""
    at_start = slope(start)
    end, width = (high, _WIDTH) if at_start > 0 else (low, -_WIDTH)
    here = start
    while here != end:
        there = min(here + width, end) if at_start > 0 else max(here + width, end)
        if slope(there) * at_start <= 0:
            return float(scipy.optimize.brentq(slope, here, there, xtol=_CLOSE))
        here, width = there, 2 * width
    return end


# Prior precision by evidence maximisation: one for all weights, or one a group.
#
# PRML 3.5 and 4.4; MacKay (1992), doi:10.1162/neco.1992.4.5.720.  The Laplace evidence is maximised in ln α by its
# exact gradient
#
#     dL/d ln α = 1/2 [ C M - α wᵀw - α tr A⁻¹ + α gᵀ A⁻¹ w ],   g = d/dw tr(H(w) A⁻¹).
#
# MacKay's fixed point drops the last term, the change of the curvature as the mode moves with α, and stops short (0.7
# nats at N = 60).  α is optimised inside the quadratic model of the likelihood between Newton's passes over the data,
# so that it costs almost no further pass; large data are first solved on every n-th row.  D = C M weights, G groups.

_MAX_STEP = 2.0  # in ln α within one quadratic model
_TOLERANCE = 1e-4  # in ln α: the evidence is flat there, so this is 1e-8 of a nat and less
_ROUGHLY = 0.03  # distance to the mode, in posterior sd, from which the quadratic model tells α
_SETTLED = 0.01  # change in ln α that the quadratic model at the mode tells to within the tolerance
_NEAR = 1.0  # decrement, in posterior sd, below which the quadratic model is good enough to move α
_AT_MODE = 1e-3  # decrement, in posterior sd, below which a change of ln α can be the last
_MAX_ROUNDS, _MAX_RAISES = 60, 12
_EXACT: Any = {"ftol": 1e-15, "gtol": 1e-9}  # of the search in the quadratic model


@dataclass(frozen=True, eq=False)
class _Place:
    """Weights and ln α that an ascent has reached, with a quadratic model of the likelihood about these weights.

    It has the likelihood's value, gradient and Hessian there, and g: its log determinant's change to first order.
    `index` and `fixed` (D,) are those of `Groups`; `low` and `high` (G,) bound ln α.
    """

    index: NDArray[np.intp]
    fixed: Vector
    low: Vector
    high: Vector
    theta: Vector
    log_alpha: Vector
    skewness: Vector
    evaluated: Terms

    @classmethod
    def first(cls, problem: Problem, groups: Groups, n_effective: float, least: float) -> _Place:
        """Return where all weights are zero, with the range of ln α that columns of any scale need, from `least` up.

        The curvature of the likelihood a row, at weights of zero, goes with the square of a column's scale.
        """
        (index, fixed), theta = groups, np.zeros(problem.n_solved)
        evaluated = problem.evaluate(theta)
        curvature = np.diag(evaluated[2]) / n_effective
        low, high = np.zeros((2, int(index.max()) + 1))
        for g in range(len(low)):
            group_curvature = curvature[(index == g) & (curvature > 0)]
            if group_curvature.size:
                low[g], high[g] = np.log(group_curvature.min()), np.log(group_curvature.max())
        range_ = np.maximum(_RANGE[0] + np.minimum(low, 0), least), _RANGE[1] + np.maximum(high, 0)
        return cls(index, fixed, *range_, theta, np.clip(0.0, low - _START, high + _START), theta, evaluated)

    def precision(self, log_alpha: Vector) -> Vector:
        """Return the prior precision of each weight, (D,)."""
        return np.where(self.index >= 0, np.exp(log_alpha)[self.index], self.fixed)

    @property
    def prior(self) -> Gaussian:
        """The prior of these α."""
        return Gaussian(np.zeros_like(self.theta), np.diag(self.precision(self.log_alpha)))

    def solve(self, log_alpha: Vector) -> tuple[Vector, float, Vector]:
        """Return the model's mode (D,), its evidence up to a constant, and the gradient in ln α (G,)."""
        p, (_, gradient, hessian) = self.precision(log_alpha), self.evaluated
        L, _ = cholesky_of_precision(hessian + np.diag(p))
        U = scipy.linalg.solve_triangular(L, np.eye(len(p)), lower=True, check_finite=False)
        theta = U.T @ (U @ (hessian @ self.theta + gradient))
        d = theta - self.theta
        value = gradient @ d - 0.5 * (d @ hessian @ d) - 0.5 * float(p @ theta**2)
        inside = self.index >= 0
        sizes = np.bincount(self.index[inside]).astype(np.float64)
        value += 0.5 * float(sizes @ log_alpha) - float(np.log(np.diag(L)).sum()) - 0.5 * self.skewness @ d
        pull = U.T @ (U @ self.skewness)
        of_weight = p * (theta**2 + np.einsum("ij,ij->j", U, U) - pull * theta)
        slope = sizes - np.bincount(self.index[inside], weights=of_weight[inside])
        return theta, float(value), 0.5 * slope

    def _lowest(self, low: Vector) -> Vector:
        """Return `low`, raised towards ln α until A is a precision: a likelihood need not be log-concave."""
        for _ in range(_MAX_RAISES):
            try:
                self.solve(low)
            except np.linalg.LinAlgError:
                low = 0.5 * (low + self.log_alpha)
            else:
                return low
        return self.log_alpha

    def best(self) -> tuple[Vector, Vector]:
        """Return ln α and the mode that maximise the model's evidence within a bounded step."""
        low = np.maximum(self.log_alpha - _MAX_STEP, self.low)
        high = np.minimum(self.log_alpha + _MAX_STEP, self.high)
        one = self._of_one(low, high) if len(self.log_alpha) == 1 else None
        return one or self._searched(self._lowest(low), high)

    def _searched(self, low: Vector, high: Vector) -> tuple[Vector, Vector]:
        """Return what `best` does, of any number of groups: a Cholesky factor for each trial of ln α."""

        def objective(x: Vector) -> tuple[float, Vector]:
            _, value, slope = self.solve(x)
            return -value, -slope

        optimum = scipy.optimize.minimize(
            objective,
            self.log_alpha,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            options=_EXACT,
        )
        return optimum.x, self.solve(optimum.x)[0]

    def _of_one(self, low: Vector, high: Vector) -> tuple[Vector, Vector] | None:
        """Return what `best` does, of a single α by eigenvectors; None if at the lowest one A is no precision."""
        free, (_, gradient, hessian) = self.index >= 0, self.evaluated
        rest, curvature = ~free, hessian + np.diag(self.fixed)
        pull, cross = hessian @ self.theta + gradient, curvature[np.ix_(rest, free)]
        try:
            L, _ = cholesky_of_precision(curvature[np.ix_(rest, rest)])
            # The rest's weights are `apart` less `along` times those that have α.
            along, apart = (scipy.linalg.cho_solve((L, True), x) for x in (cross, pull[rest]))
            eigenvalue, Q = np.linalg.eigh(curvature[np.ix_(free, free)] - cross.T @ along)
        except np.linalg.LinAlgError:
            return None
        if not eigenvalue[0] > -0.5 * np.exp(self.log_alpha[0] - _MAX_STEP):  # with room for rounding
            return None
        # From the eigenvectors' coordinates to the weights, and the mode where all F weights are zero.
        to_weights, held = np.zeros((len(free), len(eigenvalue))), np.zeros(len(free))
        to_weights[free], to_weights[rest], held[rest] = Q, -along @ Q, apart
        pull, skewness = Q.T @ (pull[free] - cross.T @ apart), to_weights.T @ self.skewness

        def slope(x: float) -> float:
            alpha = np.exp(x)
            variance = 1 / (eigenvalue + alpha)
            mean = pull * variance
            return 0.5 * (len(mean) - alpha * float((mean * (mean - skewness * variance) + variance).sum()))

        best = _climbed(slope, float(self.log_alpha[0]), float(low[0]), float(high[0]))
        return np.array([best]), held + to_weights @ (pull / (eigenvalue + np.exp(best)))


def _skewness(problem: Problem, theta: Vector, A: Matrix) -> Vector:
    U = Gaussian(theta, A).inverse_cholesky
    (g,) = problem.require_data().accumulate(skewness_term(problem.likelihood, theta, U))
    return np.asarray(g)


def _ascend(
    problem: Problem,
    place: _Place,
    *,
    keep_skewness: bool = False,
    tolerance: float = _TOLERANCE,
    rounds: int = _MAX_ROUNDS,
) -> tuple[_Place, bool]:
    """Alternate passes over the data with optimisation of ln α in the quadratic model; return whether both settled.

    A change of ln α below `tolerance` ends it, and `rounds` do: where the data hardly tell α, sixty are not enough.
    `keep_skewness`: use the g of the start, found on part of the data, instead of a pass of its own.  g hardly depends
    on the number of rows: its h falls as 1/N where the sum grows as N.
    """
    for _ in range(rounds):
        theta, prior, (value, gradient, hessian) = place.theta, place.prior, place.evaluated
        step, decrement = newton_step(gradient - prior.precision @ theta, hessian + prior.precision)
        curved = problem.likelihood.log_concave or Gaussian(theta, hessian + prior.precision).proper
        if decrement < _NEAR and curved:
            if not keep_skewness:
                place = replace(place, skewness=_skewness(problem, theta, hessian + prior.precision))
            moved, target = place.best()
            change = float(np.abs(moved - place.log_alpha).max(initial=0.0))
            place = replace(place, log_alpha=moved)
            if change < tolerance and decrement < max(_AT_MODE, 0.1 * tolerance):
                return place, True
            prior, step = place.prior, target - theta
        theta, evaluated = _guarded(problem, prior, theta, step, value)
        place = replace(place, theta=theta, evaluated=evaluated)
    return place, False


def _approached(problem: Problem, place: _Place, *, keep_skewness: bool) -> _Place | None:
    """Return where α and weights settle, one pass with a Hessian for each move of α, from a place of part of the data.

    None where the steps from there do not lead to the mode.
    """
    many = many_classes(problem.likelihood) and not problem.mislabelled
    again, within = many and not keep_skewness, _ROUGHLY
    theta, hessian = place.theta, place.evaluated[2]
    for _ in range(_MAX_ROUNDS):
        prior = place.prior
        # From the second time on the quadratic model has told where the mode is: mostly no step is needed.  Of many
        # classes steps are cheaper than the Hessian that would tell.
        evaluated = problem.evaluate(theta) if within == CLOSE and not many else None
        near, distance = theta, np.inf
        if evaluated is not None:
            _, gradient, hessian = evaluated
            distance = newton_step(gradient - prior.precision @ theta, hessian + prior.precision)[1]
        if evaluated is None or not distance < CLOSE:
            nearer = by_gradients(problem, prior, theta, within=within)
            if nearer is None:
                nearer = approach(problem, prior, theta, hessian, within=within)
            if nearer is None:
                return None
            near, evaluated = nearer, problem.evaluate(nearer)
        hessian = evaluated[2]
        place = replace(place, theta=near, evaluated=evaluated)
        if again or not keep_skewness:  # it hardly changes from here to the mode, where α is near
            skewness, keep_skewness = _skewness(problem, near, hessian + prior.precision), True
            place = replace(place, skewness=skewness)
        moved, theta = place.best()
        change = float(np.abs(moved - place.log_alpha).max(initial=0.0))
        place = replace(place, log_alpha=moved)
        again = again and change > _SETTLED
        if change < _SETTLED and within == CLOSE:
            return place
        within = CLOSE
    return None


def _guarded(
    problem: Problem, prior: Gaussian, theta: Vector, step: Vector, value: float
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


def fit_evidence(
    Phi: Any,
    t: Any,
    likelihood: str = "logistic",
    *,
    groups: ArrayLike | None = None,
    intercept: int | None = 0,
    intercept_variance: float = _INTERCEPT_VARIANCE,
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
        (M,) integers: columns of the same number share a precision; default: one for all.  Columns that share one
        should be of like scale, as those of a basis are: else the ascent may end at one of several maxima.
    intercept
        Column whose prior variance stays at `intercept_variance`, or None.

    Raises
    ------
    ValueError
        As `fit`; or if the groups do not fit the columns.

    Examples
    --------
    >>> blr.fit_evidence([[1, 0.2], [1, 0.9], [1, 0.4], [1, 0.5]], ["S", "E", "S", "E"]).classes
    ('E', 'S')
    """
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
    split = as_groups(groups, M, C, intercept, intercept_variance)
    q = at_highest_evidence(problem, split)
    assert q is not None  # noqa: S101  the most rounds are allowed
    return q


def at_highest_evidence(
    problem: Problem,
    groups: Groups,
    *,
    least: float = -np.inf,
    tolerance: float = _TOLERANCE,
    rounds: int = _MAX_ROUNDS,
) -> LaplacePosterior | None:
    """Return the posterior of a posed problem at the precisions of the highest evidence.

    `least` and `tolerance` are those of ln α.  Each of the `rounds` at most takes a pass over the rows or two.  None
    where α has not settled by then, unless these are the most that are ever made.
    """
    ascend = partial(_ascend, tolerance=tolerance, rounds=rounds)
    with single_threaded_blas():
        part, close = part_of(problem), 0.0
        many = many_classes(problem.likelihood) and not problem.mislabelled
        first = problem if part is None else part
        place = _Place.first(first, groups, problem.n_effective, least)
        near = _approached(problem, place, keep_skewness=False) if many and part is None else None
        if near is None:
            place, settled = ascend(first, place)
            if not settled and rounds < _MAX_ROUNDS:
                return None
        if part is not None:
            # Skewness that moves ln α by more than ten tolerances has to be exact.
            symmetric = replace(place, skewness=np.zeros_like(place.skewness))
            keep = not np.any(np.abs(place.best()[0] - symmetric.best()[0]) > 10 * _TOLERANCE)
            near = _approached(problem, place, keep_skewness=keep)
            close = 0.0 if near is None else CLOSE
            if near is None:
                place = replace(place, evaluated=problem.evaluate(place.theta))
                place, _ = ascend(problem, place, keep_skewness=keep)
        place = near or place
        M = problem.n_functions
        variance = 1.0 / place.precision(place.log_alpha)[:M]
        problem = replace(problem, prior=GaussianPrior(np.zeros(M), variance))
        if many and part is None:
            return posterior_at(problem, mode_from(problem, place.theta, place.evaluated))
        mode = maximise(
            problem.evaluate, problem.solver_prior, place.theta, evaluated=place.evaluated, close=close
        )
        return posterior_at(problem, mode)


# Integration over the prior's scale: a few fits, each weighted by its evidence and a hyperprior.
#
# The prior is N(0, s²) for every weight but the intercept's.  With few labels, or separable classes, the evidence
# hardly depends on s, and its maximum runs into a corner; the mixture over s predicts better than any one s.  The
# hyperprior is a half-t of 4 degrees of freedom and scale 3 on s (Gelman 2006, doi:10.1214/06-BA117A), since the
# columns of a basis are of unit scale.  Where the data fix s, the mixture has one part: the fit at the evidence's
# maximum. Shapes: N rows, M basis functions, S scales.

SCALES = tuple(np.geomspace(0.236, 25.0, 6).tolist())
"""Standard deviations of the weights that are tried: a factor of 2.5 apart.

Without the least, hundred labels of classes that features hardly separate were predicted too surely: the evidence
ran into the end of the list, and too few effective parameters forbade its maximum.
"""
_DEGREES, _WIDTH = 4.0, 3.0  # of the half-t hyperprior
_LEAST = 0.03  # share of the best part below which a scale is left out
_MOST = 4  # scales kept
_FIXED = 0.9  # share of one scale from which the grid may be too coarse
_MANY_PARAMETERS = 30.0  # effective ones, from which the data fix ln s, to 0.13
_NEAR_ENOUGH = 0.03  # in ln s: of the evidence at most a fifth of a nat with 200 effective parameters
_PARABOLAS = 3  # fits at most
_AT_THE_TOP = 0.01  # in ln s, between the best fit and the top of a parabola, that is near enough
_FALLEN = 20.0  # nats below the highest evidence, from which larger scales are not tried
_UNFREED = 0.1  # weights that the prior still holds: with more of them, the evidence may rise again
_FAR = 0.2  # in ln s, from which the maximum of a part of the rows is not near enough to that of all
_ENOUGH_ROWS, _ROWS_A_FUNCTION = 1200, 8  # of the part of the rows that is asked for the scales that matter
_FEW_ROUNDS = 8
"""Rounds in which the maximum is found where streamed rows tell the scale; of separable classes not in sixty."""


_Scales = list[tuple[float, float, LaplacePosterior]]
"""Scales that matter, the likeliest first: each with its log weight, in nats, and the Laplace fit there.

The weights add up to the evidence integrated over the scale.
"""


def log_hyperprior(scale: ArrayLike) -> Any:
    """Return the log density in ln s of the half-t hyperprior, at standard deviations s."""
    s, n = np.asarray(scale, dtype=np.float64), _DEGREES
    constant = (
        np.log(2.0)
        + scipy.special.gammaln((n + 1) / 2)
        - scipy.special.gammaln(n / 2)
        - 0.5 * np.log(n * np.pi)
        - np.log(_WIDTH)
    )
    return constant - (n + 1) / 2 * np.log1p((s / _WIDTH) ** 2 / n) + np.log(s)


def fit_scales(
    Phi: Any,
    t: Any,
    likelihood: str = "logistic",
    *,
    scales: Sequence[float] = SCALES,
    **rows: Any,
) -> list[tuple[float, float, LaplacePosterior]]:
    """Return Laplace fits under the priors N(0, s²), weighted by evidence and hyperprior; those that matter are kept.

    They are triples (s, log weight, fit), the likeliest first.

    `scales` are the standard deviations to try, ascending, evenly spaced in their logarithm.  Column 0 is the
    intercept.  `rows` are `trials`, `sample_weight`, `classes`, `confusion` and `threads`, as of `fit`.  ValueError as
    there, or if the scales are not two or more positive ascending numbers.
    """
    grid = np.asarray(scales, dtype=np.float64)
    if grid.ndim != 1 or len(grid) < 2 or not (grid[0] > 0 and np.all(np.diff(grid) > 0)):
        raise ValueError(f"scales must be two or more positive numbers in ascending order, got {scales!r}")
    problem = pose(Phi, t, None, likelihood, **rows)
    M = problem.n_functions
    # An intercept alone has no scale, and is refused.
    groups = as_groups(None, M, problem.likelihood.n_outputs, 0, _INTERCEPT_VARIANCE)
    prior = partial(GaussianPrior.isotropic, M, intercept=0)
    zero = np.zeros(problem.n_solved)
    if not isinstance(problem.data, Rows):
        return _of_stream(problem, groups, grid) or _of_all(problem, prior, grid, grid, zero)
    # The scale is the population's, not the sample's: every n-th row tells it nearly as well.
    step = len(problem.data.Phi) // max(_ENOUGH_ROWS, _ROWS_A_FUNCTION * problem.n_functions)
    if step < 2:
        return _of_all(problem, prior, grid, grid, zero)
    part = problem.data.chosen(np.arange(len(problem.data.Phi)) % step == 0)
    weight = len(part.Phi) if part.weight is None else part.weight.sum()
    found = _of_all(replace(problem, data=part, n_effective=float(weight)), prior, grid, grid, zero)
    scale, near = np.sort([s for s, _, _ in found]), found[0][2].mode
    if len(scale) > 1:
        return _of_all(problem, prior, grid, scale, near)
    (q,) = _along(problem, prior, scale, near)
    # One step towards the evidence's maximum of all rows (MacKay 1992): s² becomes w'w / γ.
    fixed = q.effective_parameters - problem.likelihood.n_outputs
    better = scale * np.sqrt(2 * q.problem.solver_prior.energy(q.mode) / max(fixed, 1.0))
    if better[0] < grid[-1] and abs(np.log(better / scale)[0]) > _FAR:
        q = max(q, *_along(problem, prior, better, q.mode), key=lambda one: one.log_evidence)
    return _single(q, _scale(q))


_Prior = Callable[[float], GaussianPrior]
"""The prior of a precision."""


def _of_all(problem: Problem, prior: _Prior, grid: Vector, scales: Vector, start: Vector) -> _Scales:
    """Return the fits at those of some scales of the grid that matter, or at one between where the data fix it."""
    fits = _along(problem, prior, scales, start)
    scales, spacing = scales[: len(fits)], float(np.log(grid[-1] / grid[0])) / (len(grid) - 1)
    log_weight = np.array([q.log_evidence for q in fits]) + log_hyperprior(scales)
    share = np.exp(log_weight - scipy.special.logsumexp(log_weight))
    best = int(share.argmax())
    # Beyond the largest scale the hyperprior decides, not the data.
    fixed = share[best] > _FIXED and scales[best] < grid[-1]
    if fixed and fits[best].effective_parameters >= _MANY_PARAMETERS:
        return _single(*_highest_near(fits, prior, scales, spacing))
    kept = [i for i in np.argsort(-share, kind="stable")[:_MOST].tolist() if share[i] > _LEAST * share[best]]
    log_evidence = float(scipy.special.logsumexp(log_weight) + np.log(spacing))
    of_kept = log_evidence + np.log(share[kept] / share[kept].sum())
    return [(float(scales[i]), w, fits[i]) for i, w in zip(kept, of_kept.tolist(), strict=True)]


def _of_stream(problem: Problem, groups: Groups, grid: Vector) -> _Scales | None:
    """Return the fit of the highest evidence of rows on the disk where it fixes the scale; else None."""
    # Beyond the largest scale the hyperprior decides, not the data.
    least, within = float(-2 * np.log(grid[-1])), 2 * _NEAR_ENOUGH
    q = at_highest_evidence(problem, groups, least=least, tolerance=within, rounds=_FEW_ROUNDS)
    if q is None or q.effective_parameters < _MANY_PARAMETERS:
        return None
    return _single(q, scale) if (scale := _scale(q)) < (1 - _NEAR_ENOUGH) * grid[-1] else None


def _along(problem: Problem, prior: _Prior, scales: Vector, start: Vector) -> list[LaplacePosterior]:
    """Return the fits at the scales, ascending, each started where the one before ended, the first at weights `start`.

    The last ones are left out where the evidence has fallen too far, and no weight is left that could make it rise.
    """
    fits: list[LaplacePosterior] = []
    theta, evaluated = start, None
    with single_threaded_blas():
        for scale in scales.tolist():
            posed = replace(problem, prior=prior(scale**-2))
            mode = mode_from(posed, theta, evaluated)
            fits.append(posterior_at(posed, mode))
            theta, evaluated = mode.theta, (mode.log_likelihood, mode.gradient, mode.hessian)
            fallen = max(q.log_evidence for q in fits) - fits[-1].log_evidence
            if fallen > _FALLEN and posed.n_solved - fits[-1].effective_parameters < _UNFREED:
                break
    return fits


def _highest_near(
    fits: Sequence[LaplacePosterior], prior: _Prior, scales: Vector, spacing: float
) -> tuple[LaplacePosterior, float]:
    """Return the fit at the scale of highest evidence, near the best of the fits, and the scale.

    It is looked for at the top of the parabola in ln s through the best fit and its neighbours, which are `spacing`
    apart.  Each fit starts where the best one ended.
    """
    found = dict(zip(np.log(scales).tolist(), fits, strict=True))
    for _ in range(_PARABOLAS):
        near = max(found, key=lambda tried: found[tried].log_evidence)
        below = max((x for x in found if x < near), default=None)
        above = min((x for x in found if x > near), default=None)
        if below is None or above is None:
            top = near + (spacing if above is None else -spacing)
        else:
            p, q, r = (found[x].log_evidence for x in (below, near, above))
            left, right = (near - below) * (q - r), (near - above) * (q - p)
            fall = (near - below) * left - (near - above) * right
            top = near if left == right else near - 0.5 * fall / (left - right)
        if abs(top - near) < _AT_THE_TOP:
            break
        posed = replace(found[near].problem, prior=prior(float(np.exp(top)) ** -2))
        with single_threaded_blas():
            hessian = found[near].gaussian.precision - found[near].problem.solver_prior.precision
            found[top] = posterior_at(posed, mode_from(posed, found[near].mode, hessian=hessian))
    best = max(found, key=lambda tried: found[tried].log_evidence)
    return found[best], float(np.exp(best))


def _scale(q: LaplacePosterior) -> float:
    """Return the prior's standard deviation of a weight that is not the intercept's."""
    assert q.prior is not None  # noqa: S101  fit_evidence gives one
    return float(np.sqrt(np.diag(q.prior.precision(q.problem.n_functions))[1] ** -1))


def _single(q: LaplacePosterior, scale: float) -> _Scales:
    """Return the fit of one scale, its integral over ln s by Laplace's method: ln s has a variance of 1/2γ."""
    width = 0.5 * float(np.log(np.pi / max(q.effective_parameters, 1.0)))
    return [(scale, float(q.log_evidence + log_hyperprior(scale) + width), q)]
