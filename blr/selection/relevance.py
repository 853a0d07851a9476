"""A width for each feature of radial functions, or a height of its steps, found by evidence: automatic relevance.

A feature that tells little gets a large width, or low steps, and drops out (Bishop 2006, PRML, 6.4.4 and 7.2.1).
Widths are searched along one feature at a time, heights by the evidence's gradient.  Each has a log-normal prior, so
that a few rows change it little.  Shapes: N rows, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blr.arrays import Vector, as_matrix
from blr.basis.rbf import RBF
from blr.basis.sigmoid import Sigmoid
from blr.fitting.newton import maximise
from blr.fitting.problem import Problem, pose
from blr.likelihood.prior import GaussianPrior
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import posterior_at
from blr.selection.evidence import fit_evidence
from blr.selection.prior_scale import SCALES, log_hyperprior
from blr.threads import single_threaded_blas

__all__ = ["with_relevant_heights", "with_relevant_widths"]

_SPREAD = 1.0  # prior sd of ln width; the mean is the width at the start
_FIRST, _LONGEST = 0.7, 1.5  # first and largest step of the search, in ln width
_GROWTH = 1.5  # factor of the next step after one that raised the score
_SWEEPS = 3  # passes over all features

_OCCAM = 0.5  # nats that each further scale must gain
_SCALE_PRIOR = (3.0, 1.0)  # of the weights' scale: median as in the hyperprior, sd of ln


def with_relevant_widths(
    basis: RBF,
    X: ArrayLike,
    t: ArrayLike,
    likelihood: str = "logistic",
    *,
    trials: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    confusion: ArrayLike | None = None,
    threads: int | None = None,
    on_step: Callable[[], None] | None = None,
) -> RBF:
    """Return the basis with a width for each feature, of the highest evidence near its own.

    Centres stay.  The prior's scale is the one of highest evidence at the start.  One fit is made for each step
    of the search: at most six a feature, and one for each of `SCALES`.

    Parameters
    ----------
    basis
        Radial functions with their centres; where widths differ already, the search starts there.
    X, t, likelihood, trials, sample_weight, classes, confusion
        The features (N, F), and the rest as of `fit`.
    on_step
        Called after each fit.

    Raises
    ------
    ValueError
        As `fit`.
    """
    rows = as_matrix(X, "X")
    response: dict[str, Any] = {
        "trials": trials,
        "sample_weight": sample_weight,
        "classes": classes,
        "confusion": confusion,
        "threads": threads,
    }

    mode: Vector | None = None

    def score(log_width: Vector, scale: float) -> float:
        """Return the log evidence plus the log prior of the widths; each fit starts at the mode of the last one."""
        nonlocal mode
        prior = GaussianPrior.isotropic(basis.n_functions, precision=scale**-2, intercept=0)
        Phi = replace(basis, width=np.exp(log_width))(rows)
        q = _fitted(pose(Phi, t, prior, likelihood, **response), mode)
        mode = q.mode
        if on_step is not None:
            on_step()
        return q.log_evidence - float(np.sum(np.square(log_width - start))) / (2 * _SPREAD**2)

    start = np.log(np.broadcast_to(basis.width, (basis.n_features,)).astype(np.float64))
    at_scale = [score(start, scale) + float(log_hyperprior(scale)) for scale in SCALES]
    scale = SCALES[int(np.argmax(at_scale))]
    width, best = start, at_scale[SCALES.index(scale)] - float(log_hyperprior(scale))
    step = np.full(basis.n_features, _FIRST)
    for _ in range(_SWEEPS):
        for f in range(basis.n_features):
            for signed in (step[f], -step[f]):
                tried = width.copy()
                tried[f] += signed
                value = score(tried, scale)
                if value > best:
                    width, best = tried, value
                    step[f] = np.copysign(min(_GROWTH * abs(step[f]), _LONGEST), signed)
                    break
            else:
                step[f] /= 2
    return replace(basis, width=np.exp(width))


def with_relevant_heights(
    basis: Sigmoid,
    X: ArrayLike,
    t: ArrayLike,
    likelihood: str = "logistic",
    *,
    trials: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    confusion: ArrayLike | None = None,
    threads: int | None = None,
) -> Sigmoid:
    """Return the basis with a height of the steps for each feature, of geometric mean 1, where rows favour that.

    The weights of a feature's steps have a prior precision of their own; the precisions of highest evidence, under a
    log-normal prior, are found together.  Heights are the prior's standard deviations, relative to their mean, so that
    a common prior for all weights does the same.  They are used
    if log evidence plus log prior exceeds that of one common precision by half a nat for each further precision: this
    is its Occam factor if the rows determine ln s to 0.6.  Otherwise, and for a feature without steps, it is 1.

    Parameters
    ----------
    basis
        Steps; heights that it has already do not matter.
    X, t, likelihood, trials, sample_weight, classes, confusion
        The features (N, F), and the rest as of `fit`.

    Raises
    ------
    ValueError
        As `fit`.
    """
    equal = replace(basis, height=np.ones(basis.n_features))
    stepped, first = np.unique(basis.feature, return_index=True)
    if len(stepped) < 2:
        return equal
    Phi = equal(as_matrix(X, "X"))

    def scales(groups: ArrayLike | None, columns: NDArray[np.intp]) -> tuple[Vector, float]:
        """Return ln s of the weights in these columns, and the log evidence plus the log prior of all ln s."""
        q = fit_evidence(
            Phi,
            t,
            likelihood,
            groups=groups,
            scale_prior=_SCALE_PRIOR,
            trials=trials,
            sample_weight=sample_weight,
            classes=classes,
            confusion=confusion,
            threads=threads,
        )
        assert q.prior is not None  # noqa: S101  fit_evidence gives one
        log_scale = -0.5 * np.log(np.diag(q.prior.precision(basis.n_functions))[columns])
        z = (log_scale - np.log(_SCALE_PRIOR[0])) / _SCALE_PRIOR[1]
        return log_scale, q.log_evidence - 0.5 * float(z @ z)

    _, score_of_one_scale = scales(None, np.array([1]))
    log_scale, score_of_each_scale = scales(np.concatenate([[0], basis.feature]), 1 + first)
    if score_of_each_scale - score_of_one_scale < _OCCAM * (len(stepped) - 1):
        return equal
    height = np.ones(basis.n_features)
    height[stepped] = np.exp(log_scale - log_scale.mean())
    return replace(equal, height=height)


def _fitted(problem: Problem, mode: Vector | None) -> LaplacePosterior:
    """Return the Laplace fit; the search starts at `mode` (C M,), that of a fit with other widths, if it is given.

    With labels that may be wrong there may be several modes, so the search starts at zero.
    """
    start = np.zeros(problem.n_solved) if mode is None or problem.mislabelled else mode
    with single_threaded_blas():
        return posterior_at(problem, maximise(problem.evaluate, problem.solver_prior, start))
