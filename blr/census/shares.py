"""Class shares of a target, with draws that say how well they are known, under each of three assumptions.

"shares": objects of a class look alike in both sets, and class shares may differ.  "same": labelled rows are a random
sample of the target.  "features": at equal features the classes have equal probabilities, and labels may be biased.
Every function returns draws of the shares among the target's objects themselves, not of a population behind them.

Probabilities are first made to agree with the classes of labelled rows that the model has not seen.  The logits of all
classes are multiplied by one slope and moved by one offset a class (vector scaling: Guo et al. 2017, arXiv:1706.04599,
with one temperature).  Weak Gaussian priors limit the effect of a few rows.  They are of the logits less those of the
class shares: a slope of zero then says that every row has the shares, as it should where the features tell nothing.
With priors of the offsets themselves a small slope would make all classes equally probable.
Shapes: n labelled rows, N target rows, K classes, F features, S draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from blr.arrays import Floats, Matrix, Vector, as_vector

LEVEL = 0.95
MODEL_ROWS = 20.0
"""Rows of each class that the calibrated model's expectation of the scores counts as: the mean of a few labelled rows
alone would say little, of two rows nothing."""
PRIOR_SPREAD = 1.0
PRIOR_DEGREES = 4.0
"""The prior of the shares is Student's t distribution of their logarithms, centred on those of the labelled shares:
shares that differ by a factor e from them are common, by a factor 20 seldom, and no factor is excluded."""
_FIRST_STEPS = 90  # steps of the walk that says where the scores are evaluated
_RIDGE = 1e-8
_WIDEST = 2.0  # largest factor by which a move stretches
_FIRST_SPREAD = 0.3
_MOST_WALKED = 15  # log ratios from which walkers begin about the mode, which they would not reach
_DIFFERENCE = 1e-4
_FARTHEST, _GRID, _QUANTILES = 16.0, 4001, 2000
"""Of two classes: the largest log ratio of their shares, steps of it, and draws."""
_SEED = 20_100_000
SLOPE_SPREAD = 0.5
OFFSET_SPREAD = 1.0
"""Standard deviations of the priors: of the slope about 1, of the offsets of logits less the shares' about 0."""
SMALLEST = 1e-6  # smallest probability that is used: no labelled set contains rarer events
_MOST_STEPS = 50
_EM_STEPS, _EM_TOLERANCE = 1000, 1e-10


# Shares by EM, for activations that move.


def em_shares(odds: Matrix, weight: Vector, start: Vector, tolerance: float = 1e-7) -> Vector:
    """Return the shares (K,) that are most probable, by EM from `start`.

    `odds` (N, K) are the probabilities over the shares that they hold for.  Saerens, Latinne and Decaestecker (2002),
    doi:10.1162/089976602753284446.
    """
    shares, total = start.copy(), weight.sum()
    for _ in range(_EM_STEPS):
        new = shares * (odds.T @ (weight / (odds @ shares))) / total
        change = np.abs(new - shares).max()
        shares = new
        if change < tolerance:
            break
    return shares


def log_prior_shift(prior: ArrayLike, training_prior: ArrayLike) -> Vector:
    """Return ln of new over old class shares (K,), each first brought to sum to one: what activations move by."""
    new, old = as_vector(prior, "prior"), as_vector(training_prior, "training_prior")
    if len(new) != len(old) or min(new.min(), old.min()) <= 0:
        raise ValueError(f"expected a positive share of each of {len(old)} classes, got {new} and {old}")
    return np.asarray(np.log(new / new.sum()) - np.log(old / old.sum()))


def class_priors(probability: ArrayLike, training_prior: ArrayLike) -> Vector:
    """Return the class shares (K,) of a target from its objects' probabilities under a model of the training shares.

    EM of Saerens, Latinne and Decaestecker (2002), doi:10.1162/089976602753284446.  `probability` is (N, K), rows with
    NaN left out; `training_prior` (K,).  No share is less than half an object's: no class is excluded for ever.

    Raises
    ------
    ValueError
        If `p` is not (N, K), or the training shares are not K positive numbers.

    Examples
    --------
    >>> p = [[0.9, 0.1]] * 70 + [[0.1, 0.9]] * 30
    >>> blr.class_priors(p, training_prior=[0.5, 0.5]).round(2).tolist()
    [0.75, 0.25]
    """
    p, old = np.asarray(probability, dtype=np.float64), as_vector(training_prior, "training_prior")
    p = p[~np.isnan(p).any(axis=1)] if p.ndim == 2 else p
    if p.ndim != 2 or p.shape[1] != len(old) or len(p) == 0 or old.min() <= 0:
        raise ValueError(
            f"expected probabilities (N, {len(old)}) of some rows and a positive share of each class, got "
            f"{len(p)} usable rows of shape {np.shape(probability)} and shares {old}"
        )
    old = old / old.sum()
    shares = np.maximum(em_shares(p / old, np.ones(len(p)), old, _EM_TOLERANCE), 0.5 / len(p))
    return np.asarray(shares / shares.sum())


# Draws of the shares under each assumption.


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of known class with probabilities (n, K) of fits that have not seen them.

    `y` (n,) is the place of the class, `weight` (n,) how much a row counts, `X` (n, F) the features, NaN where one is
    missing.
    """

    probability: Matrix
    y: NDArray[np.intp]
    weight: Vector
    X: Matrix

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return self.probability.shape[1]

    @property
    def class_weight(self) -> Vector:
        """The weight of the rows of each class (K,)."""
        return np.asarray(np.bincount(self.y, self.weight, minlength=self.n_classes), dtype=np.float64)

    @property
    def class_rows(self) -> Vector:
        """How many rows of equal weight the rows of each class (K,) are worth: (Σw)²/Σw²; 0 without any."""
        squares = np.bincount(self.y, self.weight**2, minlength=self.n_classes)
        return self.class_weight**2 / np.maximum(squares, np.finfo(float).tiny)

    @property
    def shares(self) -> Vector:
        """The share of each class (K,) among the labelled rows."""
        return self.class_weight / self.class_weight.sum()

    @property
    def shares_before(self) -> Vector:
        """These shares (K,), of half an object at least: no class has the share 0."""
        return np.maximum(self.shares, 0.5 / self.class_weight.sum())

    @cached_property
    def scaling(self) -> Vector:
        """The parameters (1 + K,) of the calibration that these rows ask for."""
        return learned_scaling(self.probability, self.y, self.weight)

    @cached_property
    def calibrated(self) -> Matrix:
        """The calibrated probabilities (n, K)."""
        return scaled(self.probability, self.scaling)

    def class_weights(self, k: int, model_rows: float) -> tuple[Vector, float]:
        """Return weights (n,) of a mean over class `k`, and how many rows that mean is worth.

        The mean is that of the class's n rows and of m = `model_rows` more, which are all labelled rows by their
        calibrated probability of it: its best estimate if the model's expectation errs with variance V / m, V that of
        one row (Efron and Morris 1975, doi:10.1080/01621459.1975.10479864).  With weights u of all rows its variance is
        V (Σ u² + (m / (n + m))² / m): the model adds little where classes are well separated, for it then knows no rows
        but the class's own.
        """
        rows = float(self.class_rows[k])
        own = np.where(self.y == k, self.weight, 0.0)
        soft = self.weight * self.calibrated[:, k]
        weight = own * (rows / max(own.sum(), 1e-300)) + soft * (model_rows / max(soft.sum(), 1e-300))
        weight = weight / weight.sum()
        model = model_rows / (rows + model_rows)
        return weight, float(1 / (weight @ weight + model**2 / model_rows))


@dataclass(frozen=True, eq=False)
class TargetRows:
    """A sample of a target's `n_objects` classified objects: probabilities (N, K) at the training's class shares.

    `weight` (N,) is how many objects a row stands for, `X` (N, F) its features, NaN where one is missing.
    """

    probability: Matrix
    weight: Vector
    X: Matrix
    n_objects: int

    @property
    def n_effective(self) -> float:
        """How many rows of equal weight the sample is worth."""
        return float(self.weight.sum() ** 2 / (self.weight**2).sum())

    def mean(self, values: Matrix) -> Vector:
        """Return the mean over objects of values (N, M)."""
        return np.asarray(self.weight @ values / self.weight.sum())


def learned_scaling(probability: Matrix, y: np.ndarray, weight: Vector) -> Vector:
    """Return slope and offsets (1 + K,) under which labelled rows (N, K) of classes y (N,) are most probable."""
    Z = _logits(probability)
    N, K = Z.shape
    prior_mean = np.concatenate([[1.0], np.zeros(K)])
    class_weight = np.bincount(y, weight, minlength=K).astype(np.float64)
    # Logits less those of the shares, z - ln s, become b (z - ln s) + d: the priors are of the slope b and of the
    # offsets d = c + (b - 1) ln s, where logits z become b z + c.
    log_share = np.log(np.maximum(class_weight, 0.5) / class_weight.sum())
    of_offsets = np.eye(K + 1)
    of_offsets[1:, 0] = log_share - log_share.mean()
    precision = np.concatenate([[SLOPE_SPREAD**-2], np.full(K, OFFSET_SPREAD**-2)])
    prior_precision = of_offsets.T @ (precision[:, None] * of_offsets)
    theta = prior_mean.copy()
    onehot = np.eye(K)[y]

    def objective(at: Vector) -> float:
        p = scaled(probability, at)
        log_p = np.log(np.maximum(p[np.arange(N), y], 1e-300))
        return float(weight @ log_p - 0.5 * (at - prior_mean) @ prior_precision @ (at - prior_mean))

    value = objective(theta)
    for _ in range(_MOST_STEPS):
        p = scaled(probability, theta)
        residual = onehot - p
        scores = np.column_stack([(Z * residual).sum(axis=1), residual])
        gradient = weight @ scores - prior_precision @ (theta - prior_mean)
        H = _information(Z, p, weight) + prior_precision
        step = np.linalg.solve(H, gradient)
        size = 1.0
        while (new := objective(theta + size * step)) < value and size > 1e-6:
            size /= 2
        theta, gain, value = theta + size * step, new - value, new
        if abs(gain) < 1e-9 * (1 + abs(value)):
            break
    return theta


def _information(Z: Matrix, p: Matrix, weight: Vector) -> Matrix:
    """Return the sum over rows of J' (diag p - p p') J, J = (z, identity)."""
    wp = weight[:, None] * p
    mean = (p * Z).sum(axis=1)
    slope = float((wp * Z**2).sum() - weight @ mean**2)
    cross = (wp * (Z - mean[:, None])).sum(axis=0)
    block = np.diag(wp.sum(axis=0)) - p.T @ wp
    return np.block([[np.array([[slope]]), cross[None, :]], [cross[:, None], block]])


def scaled(probability: Matrix, parameters: Vector) -> Matrix:
    """Return probabilities (N, K) with logits times parameters[0] plus parameters[1:]."""
    return np.asarray(softmax(parameters[0] * _logits(probability) + parameters[1:], axis=1))


def _logits(probability: Matrix) -> Matrix:
    return np.log(np.maximum(probability, SMALLEST))


def central_interval(draws: Floats, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Return the lower and the upper ends (...) of the central intervals of draws (S, ...)."""
    tail = (1 - level) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
    return low, high


def shares_if_shares(labelled: LabelledRows, target: TargetRows) -> Matrix:
    """Return draws (S, K) of the shares under the assumption that objects of a class look alike in both sets.

    The calibrated probabilities at the expected shares are the scores, which tell most.  Their mean over the target is
    Σ_k π_k μ_k, where μ_k is their mean over objects of class k: adjusted counts (Bella et al. 2010,
    doi:10.1109/ICDM.2010.75).  Labelled rows of the class that the fits have not seen say what μ_k is, and the model
    says it as far as it is worth some rows.  The shares by EM are where the scores are evaluated first.
    """
    before = labelled.shares_before
    odds = scaled(target.probability, labelled.scaling) / before
    at = _inside(em_shares(odds, target.weight, before), target)
    first = draws_on_simplex(_adjusted(odds, before, at, labelled, target), at, steps=_FIRST_STEPS)
    # EM's shares may lie at a corner, where scores hardly differ between classes: the expected shares do not.
    at = _inside(first.mean(axis=0), target)
    return draws_on_simplex(_adjusted(odds, before, at, labelled, target), at)


def _inside(shares: Vector, target: TargetRows) -> Vector:
    inside = np.maximum(shares, 0.5 / target.n_objects)
    return np.asarray(inside / inside.sum())


def _adjusted(
    odds: Matrix, before: Vector, at: Vector, labelled: LabelledRows, target: TargetRows
) -> Callable[[Matrix], Vector]:
    """Return the log density of shares (S, K), given the scores at the shares `at` (K,)."""
    mean, V, rows = _class_moments(moved(labelled.calibrated / before, at), labelled)
    of_target = moved(odds, at)
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


def shares_if_same(labelled: LabelledRows, target: TargetRows) -> Matrix:
    """Return draws (S, K) of the shares under the assumption that the labelled rows are a random sample of the target.

    The mean calibrated probability of the target, plus the mean of class less probability of the labelled rows: the
    difference estimator (Cochran 1977, section 7.2).
    """
    expected, bias, labels = _summed(labelled, target, np.ones(len(labelled.y)))
    return _normal_draws(expected + bias, labels, labelled, target)


def shares_if_features(labelled: LabelledRows, target: TargetRows, ratio: Vector) -> Matrix:
    """Return draws (S, K) of the shares if at equal features the classes have equal probabilities.

    `ratio` (n,) is how much more frequent objects like a labelled row are in the target.  The mean calibrated
    probability of the target; labelled rows weighted by that ratio say how far it may be wrong.
    """
    expected, bias, labels = _summed(labelled, target, ratio)
    return _normal_draws(expected, labels + np.outer(bias, bias), labelled, target)


def _summed(labelled: LabelledRows, target: TargetRows, ratio: Vector) -> tuple[Vector, Vector, Matrix]:
    """Return the mean calibrated probability (K,), and what labelled rows say of its error.

    That is the mean of class less probability (K,) with `ratio` (n,) as weight, and its covariance (K, K).
    """
    residual = np.eye(labelled.n_classes)[labelled.y] - labelled.calibrated
    weight = labelled.weight * ratio
    total, n = weight.sum(), len(weight)
    bias = weight @ residual / total
    expected = target.mean(scaled(target.probability, labelled.scaling))
    centred = (weight / total)[:, None] * (residual - bias)
    # One more row with the spread of an object drawn at random: residuals of few rows may all be small.
    effective = total**2 / (weight**2).sum()
    guess = np.diag(expected) - np.outer(expected, expected)
    return expected, bias, centred.T @ centred * n / max(n - 1, 1) + guess / effective**2


def _normal_draws(estimate: Vector, labels: Matrix, labelled: LabelledRows, target: TargetRows) -> Matrix:
    """Return draws (S, K) of shares about an estimate (K,) with the covariance (K, K) that labelled rows leave it."""
    p = scaled(target.probability, labelled.scaling)
    expected = target.mean(p)
    realised = np.diag(expected) - (p * target.weight[:, None]).T @ p / target.weight.sum()
    covariance = labels + realised / target.n_objects + _thinned(p, target)
    covariance = covariance[:-1, :-1] + _RIDGE * np.eye(len(expected) - 1)

    def log_density(shares: Matrix) -> Vector:
        spread = np.broadcast_to(covariance, (len(shares), *covariance.shape))
        return _log_normal((estimate - shares)[:, :-1], spread) + _log_prior(shares, labelled)

    return draws_on_simplex(log_density, _inside(estimate, target))


def moved(odds: Matrix, shares: Vector) -> Matrix:
    """Return the probabilities (N, K) at class shares (K,) of odds (N, K): probabilities over the shares before."""
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
    factor = np.log(np.maximum(shares, 1e-300) / labelled.shares_before)
    factor = factor - factor.mean(axis=1, keepdims=True)
    size = (factor**2).sum(axis=1) / (PRIOR_DEGREES * PRIOR_SPREAD**2)
    return -0.5 * (PRIOR_DEGREES + shares.shape[1] - 1) * np.log1p(size)


def draws_on_simplex(
    log_density: Callable[[Matrix], Vector], start: Vector, *, walkers: int = 64, steps: int = 180
) -> Matrix:
    """Return draws (S, K) of shares; the first third of the walk is left out.

    Affine-invariant moves of an ensemble of walkers: Goodman and Weare (2010), doi:10.2140/camcos.2010.5.65.
    `log_density` takes shares (s, K) and returns their log density with respect to the logarithms of their ratios.
    `start` (K,) are positive shares to begin at.
    """
    D, rng = len(start) - 1, np.random.default_rng(_SEED)
    if D == 1:  # two shares: at equal steps of probability, in a random order
        grid = np.linspace(-_FARTHEST, _FARTHEST, _GRID)
        value = log_density(_shares(grid[:, None]))
        below = np.cumsum(np.exp(value - value.max()))
        at = np.interp((np.arange(_QUANTILES) + 0.5) / _QUANTILES, below / below[-1], grid)
        return _shares(rng.permutation(at)[:, None])
    half = max(walkers // 2, D + 1)
    first, spread = np.log(start[:-1] / start[-1]), _FIRST_SPREAD * np.eye(D)
    if D > _MOST_WALKED:
        first, spread = _about_mode(log_density, first)
        half, steps = 3 * half, steps // 3  # the walk is short from there, and moves slowly
    at = first + rng.standard_normal((2 * half, D)) @ spread.T
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


def _about_mode(log_density: Callable[[Matrix], Vector], first: Vector) -> tuple[Vector, Matrix]:
    """Return the most probable log ratios (D,), found from `first`, and a root (D, D) of the covariance about them."""

    def falling(at: Vector) -> tuple[float, Vector]:
        steps = _DIFFERENCE * np.concatenate([np.eye(len(at)), -np.eye(len(at))])
        value = log_density(_shares(np.vstack([at, at + steps])))
        ahead, behind = value[1:].reshape(2, -1)
        return -value[0], (behind - ahead) / (2 * _DIFFERENCE)

    found = scipy.optimize.minimize(falling, first, jac=True, method="BFGS")
    return found.x, np.linalg.cholesky(np.asarray(found.hess_inv))


def _shares(log_ratio: Matrix) -> Matrix:
    return np.asarray(softmax(np.column_stack([log_ratio, np.zeros(len(log_ratio))]), axis=1))
