"""Class shares of a target, with draws that say how well they are known, under each of three assumptions.

"shares": objects of a class look alike in both sets, and class shares may differ.  "same": labelled rows are a random
sample of the target.  "features": at equal features the classes have equal probabilities, and labels may be biased.
Every function returns draws of the shares among the target's objects themselves, not of a population behind them.
Shapes: n labelled rows, N target rows, K classes, S draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from blr.arrays import Matrix, Vector
from blr.census._scaling import Scaling
from blr.census.results import StatedAssumption
from blr.census.rows import LabelledRows, TargetRows

LEVEL = 0.95
MODEL_ROWS = 20.0
"""Rows of each class that the calibrated model's expectation of the scores counts as: the mean of a few labelled rows
alone would say little, of two rows nothing."""
PRIOR_SPREAD = 1.0
PRIOR_DEGREES = 4.0
"""The prior of the shares is Student's t distribution of their logarithms, centred on those of the labelled shares:
shares that differ by a factor e from them are common, by a factor 20 seldom, and no factor is excluded."""
_FIRST_STEPS = 90
"""Steps of the walk that says where the scores are evaluated."""
_EM_TOLERANCE = 1e-7
_EM_STEPS = 1000
_RIDGE = 1e-8


@dataclass(frozen=True, eq=False)
class ShareDraws:
    """Draws (S, K) of the class shares of a target, and the calibration that led to them.

    `extremes`: the draws are the ends of what is possible, so that an interval holds all of them.
    """

    draws: Matrix
    scaling: Scaling
    extremes: bool = False

    @property
    def mean(self) -> Vector:
        """The expected shares (K,)."""
        return np.asarray(self.draws.mean(axis=0))

    def interval(self, level: float = LEVEL) -> tuple[Vector, Vector]:
        """Return the lower and the upper ends (K,) of the central intervals."""
        tail = 0.0 if self.extremes else (1 - level) / 2
        low, high = np.quantile(self.draws, [tail, 1 - tail], axis=0)
        return low, high


@dataclass(frozen=True, eq=False)
class Alternative:
    """One of the assumptions that an answer spans, its class shares, and labelled rows with the weights under it.

    Under "features" a labelled row counts as often as its like is in the target.
    """

    assumes: StatedAssumption
    labelled: LabelledRows
    shares: ShareDraws


def em_shares(odds: Matrix, weight: Vector, start: Vector) -> Vector:
    """Return the shares (K,) that are most probable, by EM from `start`.

    `odds` (N, K) are the probabilities over the shares that they hold for.  Saerens, Latinne and Decaestecker (2002),
    doi:10.1162/089976602753284446.
    """
    shares, total = start.copy(), weight.sum()
    for _ in range(_EM_STEPS):
        new = shares * (odds.T @ (weight / (odds @ shares))) / total
        change = np.abs(new - shares).max()
        shares = new
        if change < _EM_TOLERANCE:
            break
    return shares


def shares_if_shares(labelled: LabelledRows, target: TargetRows) -> ShareDraws:
    """Return the shares under the assumption that objects of a class look alike in both sets.

    The calibrated probabilities at the expected shares are the scores, which tell most.  Their mean over the target is
    Σ_k π_k μ_k, where μ_k is their mean over objects of class k: adjusted counts (Bella et al. 2010,
    doi:10.1109/ICDM.2010.75).  Labelled rows of the class that the fits have not seen say what μ_k is, and the model
    says it as far as it is worth some rows.  The shares by EM are where the scores are evaluated first.
    """
    scaling = labelled.scaling
    before = np.maximum(labelled.shares, _smallest(labelled.class_weight.sum()))
    odds = scaling(target.probability) / before
    at = _inside(em_shares(odds, target.weight, before), target)
    first = draws_on_simplex(_adjusted(odds, before, at, labelled, target), at, steps=_FIRST_STEPS)
    # EM's shares may lie at a corner, where scores hardly differ between classes: the expected shares do not.
    at = _inside(first.mean(axis=0), target)
    return ShareDraws(draws_on_simplex(_adjusted(odds, before, at, labelled, target), at), scaling)


def _inside(shares: Vector, target: TargetRows) -> Vector:
    inside = np.maximum(shares, _smallest(target.n_objects))
    return np.asarray(inside / inside.sum())


def _adjusted(
    odds: Matrix, before: Vector, at: Vector, labelled: LabelledRows, target: TargetRows
) -> Callable[[Matrix], Vector]:
    """Return the log density of shares (S, K), given the scores at the shares `at` (K,)."""
    mean, V, rows = _class_moments(_moved(labelled.calibrated / before, at), labelled)
    of_target = _moved(odds, at)
    m = target.mean(of_target)
    thinned = _thinned(of_target, target)
    # K scores sum to one, so K - 1 of them are enough.
    V, mean, m, thinned = V[:, :-1, :-1], mean[:-1], m[:-1], thinned[:-1, :-1]
    floor = thinned + _RIDGE * np.eye(len(m))

    def log_density(shares: Matrix) -> Vector:
        spread = shares / target.n_objects + shares**2 / rows
        covariance = np.einsum("sk,kij->sij", spread, V) + floor
        return _log_normal(m - shares @ mean.T, covariance) + _log_prior(shares, labelled)

    return log_density


def shares_if_same(labelled: LabelledRows, target: TargetRows) -> ShareDraws:
    """Return the shares under the assumption that the labelled rows are a random sample of the target.

    The mean calibrated probability of the target, plus the mean of class less probability of the labelled rows: the
    difference estimator (Cochran 1977, section 7.2).
    """
    scaling, expected, bias, labels = _summed(labelled, target, np.ones(len(labelled.y)))
    return ShareDraws(_normal_draws(expected + bias, labels, labelled, target, scaling), scaling)


def shares_if_features(labelled: LabelledRows, target: TargetRows, ratio: Vector) -> ShareDraws:
    """Return the shares under the assumption that at equal features the classes have equal probabilities.

    `ratio` (n,) is how much more frequent objects like a labelled row are in the target.  The mean calibrated
    probability of the target; labelled rows weighted by that ratio say how far it may be wrong.
    """
    scaling, expected, bias, labels = _summed(labelled, target, ratio)
    return ShareDraws(
        _normal_draws(expected, labels + np.outer(bias, bias), labelled, target, scaling), scaling
    )


def _summed(
    labelled: LabelledRows, target: TargetRows, ratio: Vector
) -> tuple[Scaling, Vector, Vector, Matrix]:
    """Return the calibration, the mean probability (K,), and what labelled rows say of its error.

    That is the mean of class less probability (K,) with `ratio` (n,) as weight, and its covariance (K, K).
    """
    scaling = labelled.scaling
    residual = np.eye(labelled.n_classes)[labelled.y] - labelled.calibrated
    weight = labelled.weight * ratio
    total, n = weight.sum(), len(weight)
    bias = weight @ residual / total
    expected = target.mean(scaling(target.probability))
    centred = (weight / total)[:, None] * (residual - bias)
    # One more row with the spread of an object drawn at random: residuals of few rows may all be small.
    effective = total**2 / (weight**2).sum()
    guess = np.diag(expected) - np.outer(expected, expected)
    return scaling, expected, bias, centred.T @ centred * n / max(n - 1, 1) + guess / effective**2


def _normal_draws(
    estimate: Vector, labels: Matrix, labelled: LabelledRows, target: TargetRows, scaling: Scaling
) -> Matrix:
    """Return draws of shares about an estimate (K,) with the covariance (K, K) that the labelled rows leave it."""
    p = scaling(target.probability)
    expected = target.mean(p)
    realised = np.diag(expected) - (p * target.weight[:, None]).T @ p / target.weight.sum()
    covariance = labels + realised / target.n_objects + _thinned(p, target)
    covariance = covariance[:-1, :-1] + _RIDGE * np.eye(len(expected) - 1)

    def log_density(shares: Matrix) -> Vector:
        spread = np.broadcast_to(covariance, (len(shares), *covariance.shape))
        return _log_normal((estimate - shares)[:, :-1], spread) + _log_prior(shares, labelled)

    start = np.maximum(estimate, _smallest(target.n_objects))
    return draws_on_simplex(log_density, start / start.sum())


def _smallest(n: float) -> float:
    """Return the share of half an object, so that no class has the share 0."""
    return 0.5 / n


def _moved(odds: Matrix, shares: Vector) -> Matrix:
    joint = odds * shares
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


def _class_moments(scores: Matrix, labelled: LabelledRows) -> tuple[Matrix, Matrix, Vector]:
    """Return means (K, K) by column, covariances (K, K, K) and how many rows the means of each class (K,) are worth."""
    K = labelled.n_classes
    mean, V, worth = np.empty((K, K)), np.empty((K, K, K)), np.empty(K)
    for k in range(K):
        weight, worth[k] = labelled.class_weights(k, MODEL_ROWS)
        mean[:, k] = weight @ scores
        centred = scores - mean[:, k]
        V[k] = (centred * weight[:, None]).T @ centred
    return mean, V, np.maximum(worth - 1, 0.5)  # The mean uses one degree of freedom.


def _thinned(values: Matrix, target: TargetRows) -> Matrix:
    """Return the covariance (K, K) of the mean of values (N, K), for the target's rows are a sample of its objects."""
    centred = values - target.mean(values)
    covariance = (centred * target.weight[:, None]).T @ centred / target.weight.sum()
    return np.asarray(covariance * max(0.0, 1 / target.n_effective - 1 / target.n_objects))


def _log_normal(residual: Matrix, covariance: Matrix) -> Vector:
    """Return the log density (S,), up to a constant, of residuals (S, D) under covariances (S, D, D)."""
    L = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(L, residual[..., None])[..., 0]
    return -0.5 * (whitened**2).sum(axis=1) - np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)


def _log_prior(shares: Matrix, labelled: LabelledRows) -> Vector:
    """Return the log density of the prior with respect to log ratios of shares."""
    before = np.maximum(labelled.shares, _smallest(labelled.class_weight.sum()))
    factor = np.log(np.maximum(shares, 1e-300) / before)
    factor = factor - factor.mean(axis=1, keepdims=True)
    size = (factor**2).sum(axis=1) / (PRIOR_DEGREES * PRIOR_SPREAD**2)
    return -0.5 * (PRIOR_DEGREES + shares.shape[1] - 1) * np.log1p(size)


# Draws of shares from a density on the simplex: affine-invariant moves of an ensemble of walkers, Goodman and Weare
# (2010), doi:10.2140/camcos.2010.5.65.


_WIDEST = 2.0
"""Largest factor by which a move stretches."""
_FIRST_SPREAD = 0.3
_FARTHEST, _GRID, _QUANTILES = 16.0, 4001, 2000
"""Of two classes: the largest log ratio of their shares, steps of it, and draws."""
_SEED = 20_100_000


def draws_on_simplex(
    log_density: Callable[[Matrix], Vector], start: Vector, *, walkers: int = 64, steps: int = 180
) -> Matrix:
    """Return draws (S, K) of shares; the first third of the walk is left out.

    `log_density` takes shares (s, K) and returns their log density with respect to the logarithms of their ratios.
    `start` (K,) are positive shares to begin at.
    """
    D = len(start) - 1
    if D == 1:
        return _by_quantiles(log_density)
    rng = np.random.default_rng(_SEED)
    half = max(walkers // 2, D + 1)
    at = np.log(start[:-1] / start[-1]) + _FIRST_SPREAD * rng.standard_normal((2 * half, D))
    value = log_density(_shares(at))
    kept = []
    halves = (slice(0, half), slice(half, None))
    for step in range(steps):
        for moved, others in (halves, halves[::-1]):
            z = (rng.random(half) * (_WIDEST**0.5 - _WIDEST**-0.5) + _WIDEST**-0.5) ** 2
            partner = at[others][rng.integers(half, size=half)]
            proposed = partner + z[:, None] * (at[moved] - partner)
            density = log_density(_shares(proposed))
            accepted = np.log(rng.random(half)) < (D - 1) * np.log(z) + density - value[moved]
            at[moved] = np.where(accepted[:, None], proposed, at[moved])
            value[moved] = np.where(accepted, density, value[moved])
        if step >= steps // 3:
            kept.append(_shares(at))
    return np.concatenate(kept)


def _by_quantiles(log_density: Callable[[Matrix], Vector]) -> Matrix:
    """Return draws (S, 2) of two shares, at equal steps of probability, in a random order."""
    grid = np.linspace(-_FARTHEST, _FARTHEST, _GRID)
    value = log_density(_shares(grid[:, None]))
    below = np.cumsum(np.exp(value - value.max()))
    at = np.interp((np.arange(_QUANTILES) + 0.5) / _QUANTILES, below / below[-1], grid)
    return _shares(np.random.default_rng(_SEED).permutation(at)[:, None])


def _shares(log_ratio: Matrix) -> Matrix:
    logits = np.column_stack([log_ratio, np.zeros(len(log_ratio))])
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
