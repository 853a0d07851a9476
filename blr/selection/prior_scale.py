"""The prior's scale, averaged over its posterior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from blr.arrays import Vector
from blr.fitting.problem import Problem, pose
from blr.gaussian import GaussianPrior
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import mode_from, posterior_at
from blr.selection.evidence import as_groups, at_highest_evidence
from blr.sums import Rows
from blr.threads import single_threaded_blas

__all__ = [
    "SCALES",
    "ScaleFit",
    "fit_scales",
    "log_hyperprior",
]

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


@dataclass(frozen=True, eq=False)
class ScaleFit:
    """Laplace fits at the scales that matter, and their shares.

    `scale` (S,) is the prior's standard deviation in each, `weight` (S,) the share, which sums to one, `log_evidence`
    the logarithm of the evidence integrated over the scale, in nats.
    """

    posteriors: tuple[LaplacePosterior, ...]
    scale: Vector
    weight: Vector
    log_evidence: float


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
    intercept: int | None = 0,
    intercept_variance: float = 1e4,
    trials: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    confusion: ArrayLike | None = None,
    threads: int | None = None,
) -> ScaleFit:
    """Return Laplace fits under the priors N(0, s²), weighted by evidence and hyperprior; those that matter are kept.

    Parameters
    ----------
    Phi, t, likelihood, trials, sample_weight, classes, confusion
        As of `fit`.
    scales
        The standard deviations to try, ascending, evenly spaced in their logarithm.
    intercept, intercept_variance
        As of `fit_evidence`.

    Raises
    ------
    ValueError
        As `fit_evidence`; or if the scales are not two or more positive ascending numbers.
    """
    grid = np.asarray(scales, dtype=np.float64)
    if grid.ndim != 1 or len(grid) < 2 or not (grid[0] > 0 and np.all(np.diff(grid) > 0)):
        raise ValueError(f"scales must be two or more positive numbers in ascending order, got {scales!r}")
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
    # An intercept alone has no scale, and is refused.
    as_groups(None, problem.n_functions, problem.likelihood.n_outputs, intercept, intercept_variance)
    search = _Search(problem, grid, intercept, intercept_variance)
    return search.of_part() or search.of_all(grid, np.zeros(problem.n_solved))


@dataclass(frozen=True, eq=False)
class _Search:
    """The scales of a problem that matter, among those of a `grid` (S,), evenly spaced in their logarithm."""

    problem: Problem
    grid: Vector
    intercept: int | None
    intercept_variance: float

    @property
    def spacing(self) -> float:
        """Distance of the scales in ln s."""
        return float(np.log(self.grid[-1] / self.grid[0])) / (len(self.grid) - 1)

    @property
    def column(self) -> int:
        """A column that is not the intercept."""
        return int(self.intercept == 0)

    def prior(self, scale: float) -> GaussianPrior:
        """Return the prior N(0, scale²) of all weights but the intercept."""
        return GaussianPrior.isotropic(
            self.problem.n_functions,
            precision=scale**-2,
            intercept=self.intercept,
            intercept_variance=self.intercept_variance,
        )

    def of_all(self, scales: Vector, start: Vector) -> ScaleFit:
        """Return the fits at those of some scales, ascending, that matter, or at one between where the data fix it."""
        fits = self._along(scales, start)
        scales = scales[: len(fits)]
        log_weight = np.array([q.log_evidence for q in fits]) + log_hyperprior(scales)
        share = np.exp(log_weight - scipy.special.logsumexp(log_weight))
        best = int(share.argmax())
        # Beyond the largest scale the hyperprior decides, not the data.
        fixed = share[best] > _FIXED and scales[best] < self.grid[-1]
        if fixed and fits[best].effective_parameters >= _MANY_PARAMETERS:
            return _single(self._highest_near(fits, scales), self.column)
        kept = [
            i for i in np.argsort(-share, kind="stable")[:_MOST].tolist() if share[i] > _LEAST * share[best]
        ]
        return ScaleFit(
            tuple(fits[i] for i in kept),
            scales[kept],
            share[kept] / share[kept].sum(),
            float(scipy.special.logsumexp(log_weight) + np.log(self.spacing)),
        )

    def of_part(self) -> ScaleFit | None:
        """Return what `of_all` does, of the scales that matter for every n-th row; None where rows are few.

        The scale is the population's, not the sample's: a part of the rows tells it nearly as well.
        """
        problem = self.problem
        if not isinstance(problem.data, Rows):
            return self._of_stream()
        step = len(problem.data.Phi) // max(_ENOUGH_ROWS, _ROWS_A_FUNCTION * problem.n_functions)
        if step < 2:
            return None
        part = problem.data.chosen(np.arange(len(problem.data.Phi)) % step == 0)
        weight = len(part.Phi) if part.weight is None else part.weight.sum()
        found = replace(self, problem=replace(problem, data=part, n_effective=float(weight))).of_all(
            self.grid, np.zeros(problem.n_solved)
        )
        near = found.posteriors[0].mode
        if len(found.scale) > 1:
            return self.of_all(np.sort(found.scale), near)
        (q,) = self._along(found.scale, near)
        # One step towards the evidence's maximum of all rows (MacKay 1992): s² becomes w'w / γ.
        fixed = q.effective_parameters - problem.likelihood.n_outputs * (self.intercept is not None)
        better = found.scale * np.sqrt(2 * q.problem.solver_prior.energy(q.mode) / max(fixed, 1.0))
        if better[0] < self.grid[-1] and abs(np.log(better / found.scale)[0]) > _FAR:
            q = max(q, *self._along(better, q.mode), key=lambda one: one.log_evidence)
        return _single(q, self.column)

    def _of_stream(self) -> ScaleFit | None:
        """Return the fit of the highest evidence of rows on the disk where it fixes the scale; else None."""
        C, M = self.problem.likelihood.n_outputs, self.problem.n_functions
        groups = as_groups(None, M, C, self.intercept, self.intercept_variance)
        # Beyond the largest scale the hyperprior decides, not the data.
        inside = replace(groups, least=float(-2 * np.log(self.grid[-1])))
        q = at_highest_evidence(self.problem, inside, tolerance=2 * _NEAR_ENOUGH, rounds=_FEW_ROUNDS)
        if (
            q is not None
            and q.effective_parameters >= _MANY_PARAMETERS
            and _scale(q, self.column) < (1 - _NEAR_ENOUGH) * self.grid[-1]
        ):
            return _single(q, self.column)
        return None

    def _along(self, scales: Vector, start: Vector) -> list[LaplacePosterior]:
        """Return the fits at the scales, each started where the one before ended, the first at weights `start`.

        The last ones are left out where the evidence has fallen too far, and no weight is left that could make it rise.
        """
        fits: list[LaplacePosterior] = []
        theta, evaluated = start, None
        with single_threaded_blas():
            for scale in scales.tolist():
                posed = replace(self.problem, prior=self.prior(scale))
                mode = mode_from(posed, theta, evaluated)
                fits.append(posterior_at(posed, mode))
                theta, evaluated = mode.theta, (mode.log_likelihood, mode.gradient, mode.hessian)
                fallen = max(q.log_evidence for q in fits) - fits[-1].log_evidence
                if fallen > _FALLEN and posed.n_solved - fits[-1].effective_parameters < _UNFREED:
                    break
        return fits

    def _highest_near(self, fits: Sequence[LaplacePosterior], scales: Vector) -> LaplacePosterior:
        """Return the fit at the scale of highest evidence, near the best of the fits.

        It is looked for at the top of the parabola in ln s through the best fit and its neighbours.  Each fit starts
        where the best one ended.
        """
        found = dict(zip(np.log(scales[: len(fits)]).tolist(), fits, strict=True))
        for _ in range(_PARABOLAS):
            near = max(found, key=lambda tried: found[tried].log_evidence)
            below = max((x for x in found if x < near), default=None)
            above = min((x for x in found if x > near), default=None)
            if below is None or above is None:
                top = near + (self.spacing if above is None else -self.spacing)
            else:
                top = _top_of_parabola(*((x, found[x].log_evidence) for x in (below, near, above)))
            if abs(top - near) < _AT_THE_TOP:
                break
            posed = replace(found[near].problem, prior=self.prior(float(np.exp(top))))
            with single_threaded_blas():
                hessian = found[near].gaussian.precision - found[near].problem.solver_prior.precision
                found[top] = posterior_at(posed, mode_from(posed, found[near].mode, hessian=hessian))
        return max(found.values(), key=lambda q: q.log_evidence)


def _top_of_parabola(low: tuple[float, float], mid: tuple[float, float], high: tuple[float, float]) -> float:
    """Return where the parabola through three points (x, y) is highest; the middle one is the highest of them."""
    (a, p), (b, q), (c, r) = low, mid, high
    left, right = (b - a) * (q - r), (b - c) * (q - p)
    return b if left == right else b - 0.5 * ((b - a) * left - (b - c) * right) / (left - right)


def _scale(q: LaplacePosterior, column: int) -> float:
    """Return the prior's standard deviation of a weight."""
    assert q.prior is not None  # noqa: S101  fit_evidence gives one
    return float(np.sqrt(np.diag(np.atleast_2d(q.prior.precision(q.problem.n_functions)))[column] ** -1))


def _single(q: LaplacePosterior, column: int) -> ScaleFit:
    """Return the fit of one scale, its integral over ln s by Laplace's method: ln s has a variance of 1/2γ."""
    s = _scale(q, column)
    width = 0.5 * float(np.log(np.pi / max(q.effective_parameters, 1.0)))
    return ScaleFit((q,), np.array([s]), np.ones(1), float(q.log_evidence + log_hyperprior(s) + width))
