"""The share of wrong labels: a model of it, and its posterior from left-out probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Matrix, Vector
from blr.covariances import output_covariances
from blr.fitting.newton import maximise
from blr.fitting.problem import Problem, pose
from blr.gaussian import GaussianPrior
from blr.likelihood.targets import even_confusion, label_likelihood, most_likely_class
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import posterior_at
from blr.selection.evidence import log_hyperprior
from blr.sums import activations, skewness_term
from blr.threads import single_threaded_blas

# The posterior density of rates of wrong labels, and of the prior's precision, with the weights integrated out.
#
# x = (ln α, rates by annotator and class): the density is the Laplace evidence times the hyperprior of `prior_scale` on
# the weights' scale and a Beta prior on each rate.  Shapes: N rows, M basis functions, K classes, A annotators.

_STEP = 1e-4  # relative, of likelihoods: for their derivatives
_HYPER_STEP = 1e-4  # in ln α


@dataclass(eq=False)
class NoiseDensity:
    """The log posterior of x = (ln α, rates (A K,)), its gradient, and the weights where the last one was.

    The prior of each weight but the intercept's is N(0, 1/α).
    """

    problem: Problem
    recorded: Matrix
    who: NDArray[np.intp]
    wrong: Matrix  # (A, K) pseudo-rows that the Beta prior counts as labelled wrongly
    right: Matrix
    theta: Vector = field(init=False)

    def __post_init__(self) -> None:
        self.theta = np.zeros(self.problem.n_solved)

    def posterior(self, x: Vector) -> LaplacePosterior:
        """Return the Laplace fit."""
        t = label_likelihood(self.recorded, even_confusion(x[1:].reshape(self.wrong.shape))[self.who])
        alpha = float(np.exp(x[0]))
        prior = GaussianPrior.isotropic(self.problem.n_functions, alpha, 0)
        posed = replace(self.problem, prior=prior, data=replace(self.problem.require_rows(), t=t))
        q = posterior_at(posed, maximise(posed.evaluate, posed.solver_prior, self.theta))
        self.theta = q.mode
        return q

    def value(self, x: Vector, q: LaplacePosterior) -> float:
        """Return the log posterior density of x, up to a constant."""
        e = x[1:].reshape(self.wrong.shape)
        before = float(np.sum(self.wrong * np.log(e) + self.right * np.log1p(-e)))
        return q.log_evidence + float(log_hyperprior(np.exp(-0.5 * x[0]))) + before

    def density(self, x: Vector) -> float:
        """Return the log posterior density of x; -inf where the fit has no Gaussian about it."""
        try:
            return self.value(x, self.posterior(x))
        except np.linalg.LinAlgError:
            return -np.inf

    def gradient(self, x: Vector, q: LaplacePosterior) -> Vector:
        """Return the gradient of the log posterior, (1 + A K,): exact but for the rows' own differences."""
        problem, theta, U = q.problem, q.mode, q.gaussian.inverse_cholesky
        data = problem.require_data()
        (g,) = data.accumulate(skewness_term(problem.likelihood, theta, U))
        pull = U.T @ (U @ np.asarray(g))
        free = np.arange(len(theta)) % problem.n_functions != 0
        variance = np.einsum("ij,ij->j", U, U)
        alpha = float(np.exp(x[0]))
        slope = 0.5 * (free.sum() - alpha * float(np.sum((theta**2 + variance - pull * theta)[free])))
        above, below = (log_hyperprior(np.exp(-0.5 * (x[0] + h))) for h in (_HYPER_STEP, -_HYPER_STEP))
        hyper = (above - below) / (2 * _HYPER_STEP)
        e = x[1:].reshape(self.wrong.shape)
        rates = self._by_rate(q, pull) + self.wrong / e - self.right / (1 - e)
        return np.concatenate([[slope + float(hyper)], rates.ravel()])

    def _by_rate(self, q: LaplacePosterior, pull: Vector) -> Matrix:
        """Return the log evidence's derivative by the rates, (A, K).

        A row's share in it is ln p - tr(V R)/2 - bᵀg/2: of V, its activations' covariance, R and g its curvature and
        gradient, b how far the skewness pulls its activations.
        """
        data, likelihood = q.problem.require_rows(), q.problem.likelihood
        C, K = likelihood.n_outputs, self.recorded.shape[1]
        a, b = (activations(data.Phi, x, C) for x in (q.mode, pull))
        V = output_covariances(data.Phi, q.gaussian.inverse_cholesky, C)
        rows, columns = np.triu_indices(C)
        packed = V[:, rows, columns] * np.where(rows == columns, 1.0, 2.0)

        def share(t: Matrix) -> Vector:
            value, gradient, curvature = likelihood.derivatives(a, t)
            own = np.einsum("np,np->n", packed, curvature) + np.einsum("nc,nc->n", b, gradient)
            return np.asarray(value - 0.5 * own)

        slope = np.empty_like(data.t)
        for k in range(K):
            step = np.where(np.arange(K) == k, _STEP, 0.0)
            change = share(data.t * (1 + step)) - share(data.t * (1 - step))
            slope[:, k] = change / (2 * _STEP * data.t[:, k])
        slope *= np.where(self.recorded == 1, -1.0, 1.0 / (K - 1))
        if data.weight is not None:
            slope *= data.weight[:, None]
        total = np.zeros(self.wrong.shape)
        np.add.at(total, self.who, slope)
        return total


# Rates of wrong labels, estimated with the weights integrated out: by class, or by annotator and class.
#
# A true class k is recorded as another one with probability e_k, spread evenly over the others.  The rates maximise
#
#     ln p(D | e, α) + ln p(α) + Σ_k ln Beta(e_k | 1, 4),
#
# p(D | e, α) the Laplace evidence of the model that the design matrix spells, α the prior's precision and p(α) the
# hyperprior of `prior_scale`.  Rates are below one half, beyond which labels do not say which class is which. Intervals
# hold 95 % of a rate's density, highest first, the others and α integrated over by importance draws, or, where rates
# are many, at their best answer: they reach 0 where no label need be wrong.  An annotator's rate has the Beta prior
# about the common rate of its class that is worth ten rows: who labelled little is taken to be as the others.  What the
# model cannot describe counts as noise, so it should be a flexible one. Shapes: N rows, M basis functions, K classes, A
# annotators, P = A K rates.

PRIOR = 1.0, 4.0
"""Of the Beta prior on a class' rate: its mean is 0.2, its mode 0."""
WORTH = 10.0
"""Rows that the common rate of a class counts for in an annotator's."""
_LEAST, _MOST = 1e-4, 0.49
_LOG_ALPHA = -2 * np.log(50.0), -2 * np.log(0.1)
_STARTS = 0.05, 0.25
_LEVEL = 0.95
_FEW = 9  # parameters that are integrated over by draws
_DRAWS = 300
_TAIL, _WIDER = 6.0, 1.2  # of the draws: degrees of freedom, and their width against the curvature's
_KERNEL = 0.7
_POINTS = 6  # of a profile, on each side
_DEPTH = 5.0  # nats below the mode that a profile reaches
_ANSWERS = 3  # steps of the other rates at each point of a profile
_REACHES = 6  # times that it is extended


@dataclass(frozen=True, eq=False)
class LabelNoise:
    """Rates of wrong labels (K,) by true class, or (A, K) by annotator and class.

    `standard_error` is the posterior's own, `low` and `high` bound 95 % of it, all of the rates' shape.  `common` has
    the rates by class where they are by annotator.  `log_evidence` is that at the rates, in nats.
    """

    rate: Matrix
    standard_error: Matrix
    low: Matrix
    high: Matrix
    log_evidence: float
    converged: bool
    common: LabelNoise | None = None

    @property
    def confusion(self) -> Matrix:
        """C[k, j] = p(recorded j | true k), (K, K) or (A, K, K)."""
        return even_confusion(self.rate)


ARRAYS = ("rate", "standard_error", "low", "high")


def estimate_label_noise(
    Phi: Any,
    t: Any,
    likelihood: str = "logistic",
    *,
    annotator: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    threads: int | None = None,
) -> LabelNoise:
    """Return the rates of wrong labels among t (N,), by true class, or by annotator and class.

    Parameters
    ----------
    Phi
        Design matrix (N, M) of a model that can describe the classes without noise, column 0 its intercept.
    annotator
        Who labelled each row, (N,) integers from 0; default: the rates are those of all rows.
    likelihood, sample_weight, classes
        As of `fit_evidence`.

    Raises
    ------
    ValueError
        As `fit`; or if the annotators are not one integer a row.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> t = rng.random(200) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> wrong = rng.random(200) < 0.1
    >>> noise = blr.estimate_label_noise(np.column_stack([np.ones(200), X]), t ^ wrong)
    >>> noise.rate.shape, bool(noise.rate.max() < 0.3)
    ((2,), True)
    """
    # A rate that is not zero, so that targets are the likelihoods of records.
    problem = pose(
        Phi,
        t,
        None,
        likelihood,
        sample_weight=sample_weight,
        classes=classes,
        confusion=_STARTS[0],
        threads=threads,
    )
    data = problem.require_rows()
    recorded = most_likely_class(data.t)
    everyone = np.zeros(len(recorded), dtype=np.intp)
    a, b = PRIOR
    K = problem.n_classes
    shape = np.full((1, K), a - 1), np.full((1, K), b - 1)
    with single_threaded_blas():
        common = _estimated(NoiseDensity(problem, recorded, everyone, *shape), _STARTS)
        if annotator is None:
            return common
        who = np.asarray(annotator)
        if who.shape != everyone.shape or who.dtype.kind not in "iu" or who.min() < 0:
            raise ValueError(
                f"annotator must be {len(everyone)} integers from 0, one for each row, got {who.dtype} of shape "
                f"{who.shape}; number the annotators, as numpy.unique(names, return_inverse=True) does"
            )
        ones = np.ones((int(who.max()) + 1, 1))
        worth = ones * WORTH * common.rate, ones * WORTH * (1 - common.rate)
        noise = _estimated(
            NoiseDensity(problem, recorded, who.astype(np.intp), *worth),
            (common.rate,),
            by_annotator=True,
        )
    return replace(noise, common=common)


def _best(search: NoiseDensity, start: Vector) -> tuple[Vector, float, bool]:
    """Return x at the maximum, its log density, and whether the ascent ended there."""
    P = search.wrong.size

    def objective(z: Vector) -> tuple[float, Vector]:
        x = np.concatenate([z[:1], 1 / (1 + np.exp(-z[1:]))])
        try:
            q = search.posterior(x)
            value, slope = search.value(x, q), search.gradient(x, q)
        except np.linalg.LinAlgError:
            search.theta = np.zeros_like(search.theta)
            return 1e12, np.zeros(1 + P)
        slope[1:] *= x[1:] * (1 - x[1:])
        return -value, -slope

    limits = [_LOG_ALPHA, *[(float(_logit(_LEAST)), float(_logit(_MOST)))] * P]
    z: Any = np.concatenate([start[:1], _logit(start[1:])])
    options: Any = {"ftol": 1e-9, "gtol": 1e-3, "maxiter": 200}
    optimum = scipy.optimize.minimize(
        objective, z, jac=True, method="L-BFGS-B", bounds=limits, options=options
    )
    x = np.concatenate([optimum.x[:1], 1 / (1 + np.exp(-optimum.x[1:]))])
    return x, -float(optimum.fun), bool(optimum.success)


def _curvature(search: NoiseDensity, x: Vector) -> tuple[Vector, Matrix]:
    """Return minus gradient and minus Hessian of the log posterior, by differences of the gradient."""
    centre = search.gradient(x, search.posterior(x))
    H = np.empty((len(x), len(x)))
    for i in range(len(x)):
        h = 0.05 if i == 0 else 0.05 * max(x[i], 0.02)
        moved = [x.copy() for _ in range(2)]
        moved[0][i] += h
        moved[1][i] -= 0.0 if i > 0 and x[i] - h < _LEAST else h
        up, down = (search.gradient(y, search.posterior(y)) for y in moved)
        H[i] = (down - up) / (moved[0][i] - moved[1][i])
    return -centre, 0.5 * (H + H.T)


def _logit(e: Any) -> Any:
    return np.log(e) - np.log1p(-np.asarray(e))


def _estimated(search: NoiseDensity, starts: Sequence[Any], *, by_annotator: bool = False) -> LabelNoise:
    """Return the rates from the best of the starts, and their intervals."""
    shape = search.wrong.shape
    tried = []
    for start in starts:
        rates = np.clip(np.broadcast_to(start, shape), 2 * _LEAST, _MOST).ravel()
        search.theta = np.zeros_like(search.theta)
        tried.append(_best(search, np.concatenate([[0.0], rates])))
    x, peak, converged = max(tried, key=lambda maximum: maximum[1])
    slope, H = _curvature(search, x)
    search.theta = search.posterior(x).mode
    if len(x) <= _FEW:
        error, low, high = _marginals(search, x, peak, slope, H).T
    else:
        error, low, high = np.array([_interval(search, x, peak, slope, H, i) for i in range(1, len(x))]).T
    rate, error, low, high = (y.reshape(shape) if by_annotator else y for y in (x[1:], error, low, high))
    return LabelNoise(rate, error, low, high, search.posterior(x).log_evidence, converged)


def _marginals(search: NoiseDensity, x: Vector, peak: float, slope: Vector, H: Matrix) -> Matrix:
    """Return standard error and interval (P, 3) of each rate, the others integrated over by importance draws."""
    rng, D = np.random.default_rng(0), len(x)
    # A rate at its bound falls off by its slope; what the density says nothing of keeps within the range.
    edge = np.where((np.arange(D) > 0) & (x < 2 * _LEAST), np.maximum(slope, 0.0) ** 2, 0.0)
    values, axes = np.linalg.eigh(H)
    precision = (axes * np.maximum(values, 0.0)) @ axes.T + np.diag(edge + np.where(np.arange(D), 16.0, 0.25))
    U = np.linalg.inv(np.linalg.cholesky(precision))
    draws: list[Vector] = []
    while len(draws) < _DRAWS:
        z = rng.standard_normal((_DRAWS, D)) * np.sqrt(_TAIL / rng.chisquare(_TAIL, (_DRAWS, 1)))
        moved = x + _WIDER * z @ U
        draws += list(moved[(moved == _within(moved)).all(axis=1)])
    chosen = np.array(draws[:_DRAWS])
    start, log_weight = search.theta, np.empty(_DRAWS)
    distance = np.sum(((chosen - x) @ np.linalg.cholesky(precision)) ** 2, axis=1) / _WIDER**2
    for s, y in enumerate(chosen):
        search.theta = start
        log_weight[s] = search.density(y) - peak
    log_weight += 0.5 * (_TAIL + D) * np.log1p(distance / _TAIL)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    return np.array([_smoothed(chosen[:, i], weight) for i in range(1, D)])


def _smoothed(e: Vector, weight: Vector) -> tuple[float, float, float]:
    """Return standard deviation and shortest interval of a rate from weighted draws, smoothed by a kernel."""
    mean = float(weight @ e)
    error = float(np.sqrt(weight @ (e - mean) ** 2))
    width = max(_KERNEL * error * float(weight @ weight) ** 0.2, 1e-5)
    fine = np.linspace(_LEAST, _MOST, 1000)
    density = sum(
        np.exp(-0.5 * ((fine[:, None] - y) / width) ** 2) @ weight for y in (e, 2 * _LEAST - e, 2 * _MOST - e)
    )
    _, low, high = _highest(fine, np.log(np.maximum(density, 1e-300)))
    return error, low, high


def _interval(
    search: NoiseDensity, x: Vector, peak: float, slope: Vector, H: Matrix, i: int
) -> tuple[float, float, float]:
    """Return the standard error of rate i and the interval of highest density, the others at their best answer."""
    others = np.array([j for j in range(len(x)) if j != i])
    values, axes = np.linalg.eigh(H[np.ix_(others, others)])
    inverse = (axes / np.maximum(values, 1e-3 * max(values.max(), 1e-300))) @ axes.T
    along = np.zeros(len(x))
    along[others] = -inverse @ H[others, i]
    along[i] = 1.0
    curvature = max(float(along @ H @ along), 1e-6)
    push = max(float(slope[i]), 0.0)
    reach = (np.sqrt(push**2 + 2 * _DEPTH * curvature) - push) / curvature
    points, density = [float(x[i])], [peak]
    for sign in (1.0, -1.0):
        at, step = x.copy(), float(reach) / _POINTS
        search.theta = search.posterior(x).mode
        for n in range(_POINTS * _REACHES):
            moved = _within(at + along * sign * step)
            moved[i] = np.clip(at[i] + sign * step, _LEAST, _MOST)
            if moved[i] == at[i]:
                break
            at, value = _answered(search, moved, others, inverse)
            points.append(float(at[i]))
            density.append(value)
            if value < peak - _DEPTH:
                break
            if n >= _POINTS:
                step *= 1.3
    return _highest(np.array(points), np.array(density))


def _within(x: Matrix) -> Matrix:
    """Return points (..., D) with ln α and rates moved into their ranges."""
    low, high = (np.full(x.shape[-1], rate) for rate in (_LEAST, _MOST))
    low[0], high[0] = _LOG_ALPHA
    return np.clip(x, low, high)


def _answered(
    search: NoiseDensity, x: Vector, others: NDArray[np.intp], inverse: Matrix
) -> tuple[Vector, float]:
    """Return x with the others moved to where they answer best, in a few steps, and the log density there."""
    value = search.density(x)
    for _ in range(_ANSWERS):
        if not np.isfinite(value):
            break
        moved = x.copy()
        moved[others] += inverse @ search.gradient(x, search.posterior(x))[others]
        moved = _within(moved)
        gained = search.density(moved)
        if gained <= value + 1e-3:
            break
        x, value = moved, gained
    return x, value


def _highest(points: Vector, log_density: Vector) -> tuple[float, float, float]:
    """Return the standard deviation and the shortest interval of a density known at some points."""
    order = np.argsort(points)
    known = np.isfinite(log_density[order])
    e, value = points[order][known], log_density[order][known]
    if len(e) < 2:
        return 0.0, float(e[0]), float(e[0])
    fine = np.linspace(e[0], e[-1], 4001)
    p = np.exp(scipy.interpolate.PchipInterpolator(e, value)(fine) - value.max())
    p /= p.sum()
    mean = float(fine @ p)
    error = float(np.sqrt(np.maximum((fine - mean) ** 2 @ p, 0.0)))
    descending = np.argsort(-p, kind="stable")
    inside = descending[: int(np.searchsorted(np.cumsum(p[descending]), _LEVEL)) + 1]
    low, high = float(fine[inside.min()]), float(fine[inside.max()])
    return error, 0.0 if low <= 2 * _LEAST else low, high
