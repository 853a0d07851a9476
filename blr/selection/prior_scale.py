"""Integration over the prior's scale: a few fits, each weighted by its evidence and a hyperprior.

The prior is N(0, s²) for every weight but the intercept's.  With few labels, or separable classes, the evidence hardly
depends on s, and its maximum runs into a corner; the mixture over s predicts better than any one s.  The hyperprior is
a half-t of 4 degrees of freedom and scale 3 on s (Gelman 2006, doi:10.1214/06-BA117A), since the columns of a basis are
of unit scale.  Where the data fix s, the mixture has one part: the fit at the evidence's maximum.
Shapes: N rows, M basis functions, S scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy  # its modules load when used
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp

from blr.arrays import Vector
from blr.fitting.problem import Problem, pose
from blr.fitting.subsample import mode_from
from blr.likelihood.prior import GaussianPrior
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import posterior_at
from blr.selection.evidence import fit_evidence
from blr.threads import single_threaded_blas

__all__ = ["SCALES", "ScaleFit", "fit_scales", "log_hyperprior"]

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
_NEAR_ENOUGH = 0.01  # in ln s: of the evidence two hundredths of a nat with 200 effective parameters
_MANY_ROWS = 5000  # from which the evidence's maximum is tried first: the grid costs as much again


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
    constant = np.log(2.0) + gammaln((n + 1) / 2) - gammaln(n / 2) - 0.5 * np.log(n * np.pi) - np.log(_WIDTH)
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
    common: dict[str, Any] = {
        "trials": trials,
        "sample_weight": sample_weight,
        "classes": classes,
        "confusion": confusion,
    }
    problem = pose(Phi, t, None, likelihood, threads=threads, **common)

    def at_maximum() -> LaplacePosterior:
        fixed: dict[str, Any] = {"intercept": intercept, "intercept_variance": intercept_variance}
        return fit_evidence(Phi, t, likelihood, threads=threads, **fixed, **common)

    column = int(intercept == 0)  # one that is not the intercept
    if problem.n_functions <= (intercept is not None):
        at_maximum()  # which says what is wrong
    if problem.n_effective > _MANY_ROWS:
        q = at_maximum()
        if q.effective_parameters >= _MANY_PARAMETERS and _scale(q, column) <= grid[-1]:
            return _single(q, column)
    priors = [
        GaussianPrior.isotropic(
            problem.n_functions, precision=s**-2, intercept=intercept, intercept_variance=intercept_variance
        )
        for s in grid.tolist()
    ]
    fits = _along(problem, priors)
    log_weight = np.array([q.log_evidence for q in fits]) + log_hyperprior(grid)
    share = np.exp(log_weight - logsumexp(log_weight))
    best = int(share.argmax())
    # Beyond the largest scale the hyperprior decides, not the data.
    if share[best] > _FIXED and best + 1 < len(grid) and fits[best].effective_parameters >= _MANY_PARAMETERS:
        return _single(_highest_near(fits, grid, best, intercept, intercept_variance), column)
    kept = [i for i in np.argsort(-share, kind="stable")[:_MOST].tolist() if share[i] > _LEAST * share[best]]
    spacing = float(np.log(grid[-1] / grid[0])) / (len(grid) - 1)
    return ScaleFit(
        tuple(fits[i] for i in kept),
        grid[kept],
        share[kept] / share[kept].sum(),
        float(logsumexp(log_weight) + np.log(spacing)),
    )


def _along(problem: Problem, priors: Sequence[GaussianPrior]) -> list[LaplacePosterior]:
    """Return the fits under the priors, each started where the one before ended."""
    fits: list[LaplacePosterior] = []
    theta, evaluated = np.zeros(problem.n_solved), None
    with single_threaded_blas():
        for prior in priors:
            posed = replace(problem, prior=prior)
            mode = mode_from(posed, theta, evaluated)
            fits.append(posterior_at(posed, mode))
            theta, evaluated = mode.theta, (mode.log_likelihood, mode.gradient, mode.hessian)
    return fits


def _highest_near(
    fits: Sequence[LaplacePosterior],
    grid: Vector,
    best: int,
    intercept: int | None,
    intercept_variance: float,
) -> LaplacePosterior:
    """Return the fit at the scale of highest evidence, near the best of the grid's fits.

    It is at most one step of the grid away.  Each fit starts where the nearest one ended.  With hundreds of weights of
    separable classes this takes a tenth of the time of `fit_evidence`, which makes an eigendecomposition in each step.
    """
    found = dict(zip(np.log(grid).tolist(), fits, strict=True))

    def loss(log_scale: float) -> float:
        nearest = found[min(found, key=lambda tried: abs(tried - log_scale))]
        prior = GaussianPrior.isotropic(
            nearest.problem.n_functions,
            precision=float(np.exp(-2 * log_scale)),
            intercept=intercept,
            intercept_variance=intercept_variance,
        )
        posed = replace(nearest.problem, prior=prior)
        with single_threaded_blas():
            found[log_scale] = posterior_at(posed, mode_from(posed, nearest.mode))
        return -found[log_scale].log_evidence

    step = float(np.log(grid[best + 1] / grid[best]))
    between = (float(np.log(grid[best])) - step, float(np.log(grid[best])) + step)
    scipy.optimize.minimize_scalar(loss, bounds=between, method="bounded", options={"xatol": _NEAR_ENOUGH})
    return max(found.values(), key=lambda q: q.log_evidence)


def _scale(q: LaplacePosterior, column: int) -> float:
    """Return the prior's standard deviation of a weight."""
    assert q.prior is not None  # noqa: S101  fit_evidence gives one
    return float(np.sqrt(np.diag(np.atleast_2d(q.prior.precision(q.problem.n_functions)))[column] ** -1))


def _single(q: LaplacePosterior, column: int) -> ScaleFit:
    """Return the fit of one scale, its integral over ln s by Laplace's method: ln s has a variance of 1/2γ."""
    s = _scale(q, column)
    width = 0.5 * float(np.log(np.pi / max(q.effective_parameters, 1.0)))
    return ScaleFit((q,), np.array([s]), np.ones(1), float(q.log_evidence + log_hyperprior(s) + width))
