"""A training set unlike the target: weights by the ratio of densities, and when they are needed.

Two shifts, two cures, never both for the same one.  Where the features are distributed otherwise but
p(class | features) holds (bright objects are labelled, faint ones wanted), rows are weighted by the ratio of densities.
Where the classes' shares differ but p(features | class) holds, activations move by ln of the shares' ratio:
`blr.class_shares`.

Shapes: N rows, M basis functions; n and m values of two sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from blr.arrays import Matrix, Vector, as_matrix, as_vector
from blr.gaussian import Gaussian
from blr.posterior.kinds import Posterior, SandwichPosterior
from blr.selection.evidence import fit_evidence
from blr.sums import Terms
from blr.threads import single_threaded_blas

_FOLDS = 2
"""Folds of the comparison of two sets: row i of both together is in fold i mod 2."""
_CLIP = 0.99
_LEVEL = 0.9


@dataclass(frozen=True, eq=False)
class DensityRatio:
    """Weights of the training rows, and how different the two sets are.

    `weight` (N,) sums to `n_effective` = (Σw)²/Σw²: with weights of mean one, posteriors would be too narrow.  `ratio`
    (N,) is that of the densities, clipped, up to a factor.  `auc` is the probability that a target row looks more like
    the target than a training row does, out of fold: 0.5 where the sets cannot be told apart, 1 where they do not
    overlap and no weight can help; `auc_low` to `auc_high` is its 90 % interval.  `theta` (M,) are the mean weights of
    the fits, and `highest` is the logit beyond which ratios are clipped.
    """

    weight: Vector
    n_effective: float
    ratio: Vector
    auc: float
    auc_low: float
    auc_high: float
    theta: Vector
    highest: float

    @property
    def advice(self) -> str:
        """What the diagnostic means, in words."""
        if self.auc < 0.55 or self.auc_low <= 0.5:
            return "training and target sets can hardly be distinguished: no weights are needed"
        if self.auc < 0.9:
            return "the training set differs from the target: weights help, although they leave fewer effective rows"
        return (
            "training and target sets hardly overlap: only a few rows would have weight; label objects of "
            "the target instead"
        )

    def of(self, Phi: Matrix) -> Vector:
        """Return the ratio (n,) of other rows Phi (n, M) of the training's kind, up to the same factor."""
        return _clipped(Phi @ self.theta, self.highest)


def density_ratio(
    train: ArrayLike,
    target: ArrayLike,
    *,
    train_weight: ArrayLike | None = None,
    threads: int | None = None,
) -> DensityRatio:
    """Return weights p(x | target) / p(x | train) of the training rows, by a logistic model of which set a row is in.

    `train` (N, M) and `target` (N', M) are design matrices in the same basis, column 0 constant.  Rows that carry a
    `train_weight` (N,) already count by it, and in the result it is a factor.  Ratios are clipped at their 99th
    percentile.  Sugiyama et al. (2012), doi:10.1017/CBO9781139035613, chapter 4.

    Raises
    ------
    ValueError
        If the matrices differ in width, hold NaN or infinity, or have too few rows; if the weights do not fit.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> t = rng.random(200) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> ratio = blr.density_ratio(X[:100], X[100:] + [1, 0])
    >>> ratio.weight.shape, bool(ratio.auc > 0.6)
    ((100,), True)
    """
    Phi, other = as_matrix(train, "train"), as_matrix(target, "target")
    if Phi.shape[1] != other.shape[1]:
        raise ValueError(
            f"train has {Phi.shape[1]} columns but target {other.shape[1]}; build both with one basis"
        )
    if min(len(Phi), len(other)) < 2 * _FOLDS:
        raise ValueError(
            f"got {len(Phi)} training rows and {len(other)} target rows, expected {2 * _FOLDS} or more of "
            "each, since fewer rows do not show a density; give more rows"
        )
    train_weight = np.ones(len(Phi)) if train_weight is None else as_vector(train_weight, "train_weight")
    if len(train_weight) != len(Phi) or train_weight.min() < 0 or train_weight.max() <= 0:
        raise ValueError(
            f"train_weight must be ({len(Phi)},), not negative and not all zero; got shape {train_weight.shape}, "
            f"smallest {train_weight.min()}"
        )
    both = np.concatenate([Phi, other])
    is_target = np.concatenate([np.zeros(len(Phi)), np.ones(len(other))])
    counts = np.concatenate([train_weight / train_weight.mean(), np.ones(len(other))])
    score, theta = _out_of_fold(both, is_target, counts, threads)
    own, theirs = score[: len(Phi)], score[len(Phi) :]
    highest = float(
        np.quantile(own, _CLIP)
    )  # of logarithms: one row far out would leave all others a ratio of 0
    ratio = _clipped(own, highest)
    weight = rescaled(ratio, train_weight)
    area, deviation = auc(own, theirs)
    reach = -float(ndtri((1 - _LEVEL) / 2)) * deviation
    low, high = max(0.0, area - reach), min(1.0, area + reach)
    return DensityRatio(weight, float(weight.sum()), ratio, area, low, high, theta, highest)


def _clipped(score: Vector, highest: float) -> Vector:
    """Return the ratios of densities (n,) of rows with these logits, up to a factor."""
    return np.asarray(np.exp(np.minimum(score - highest, 0.0)))


def rescaled(ratio: ArrayLike, train_weight: ArrayLike | None = None) -> Vector:
    """Return weights (N,) in proportion to `ratio`, times `train_weight`, that sum to the effective number of rows.

    That is (Σ g r)²/Σ g r², which for rows that all count once is (Σr)²/Σr².
    """
    r = as_vector(ratio, "ratio")
    g = np.ones(len(r)) if train_weight is None else as_vector(train_weight, "train_weight")
    return g * r * float((g * r).sum() / (g * r**2).sum())


def _out_of_fold(Phi: Matrix, t: Vector, weight: Vector, threads: int | None) -> tuple[Vector, Vector]:
    """Return the mean logit (N,) of each row under a fit to the other fold, and the mean weights (M,) of the fits.

    A row must not vouch for itself.
    """
    fold = np.arange(len(Phi)) % _FOLDS
    score, theta = np.empty(len(Phi)), np.zeros(Phi.shape[1])
    for k in range(_FOLDS):
        q = fit_evidence(Phi[fold != k], t[fold != k], sample_weight=weight[fold != k], threads=threads)
        score[fold == k] = q.logit_moments(Phi[fold == k])[0]
        theta += q.mean / _FOLDS
    return score, theta


def sandwich(q: Posterior) -> SandwichPosterior:
    """Return the posterior with the sandwich covariance A⁻¹ B A⁻¹, B = S0⁻¹ + Σ g gᵀ over weighted rows.

    For weighted rows and models that do not hold exactly: White (1982), doi:10.2307/1912526.  Evidence, BIC and trust
    stay those of the Laplace fit.
    """
    laplace = q.laplace
    theta, C = laplace.mode, q.problem.likelihood.n_outputs

    def term(Phi: Matrix, t: Matrix, weight: Vector | None) -> Terms:
        _, g, _ = q.problem.likelihood.derivatives(Phi @ theta.reshape(C, -1).T, t)
        if weight is not None:
            g = weight[:, None] * g
        rows = (g[:, :, None] * Phi[:, None, :]).reshape(len(Phi), -1)
        return (rows.T @ rows,)

    with single_threaded_blas():
        (outer,) = q.problem.require_data().accumulate(term)
    covariance = q.gaussian.covariance @ (outer + q.problem.solver_prior.precision) @ q.gaussian.covariance
    precision = Gaussian(theta, 0.5 * (covariance + covariance.T)).covariance
    return SandwichPosterior.of(laplace, Gaussian(q.gaussian.mean, precision))


def auc(negative: Vector, positive: Vector) -> tuple[float, float]:
    """Return the area under the ROC curve of values (n,) and (m,), ties shared, and its standard deviation.

    DeLong, DeLong and Clarke-Pearson (1988), doi:10.2307/2531595, by the placement of each value among those of the
    other set.
    """
    own, others = np.sort(positive), np.sort(negative)
    m, n = len(own), len(others)
    above = (np.searchsorted(others, own, side="left") + np.searchsorted(others, own, side="right")) / (2 * n)
    beaten = 1 - (np.searchsorted(own, others, side="left") + np.searchsorted(own, others, side="right")) / (
        2 * m
    )
    return float(above.mean()), float(np.sqrt(above.var(ddof=1) / m + beaten.var(ddof=1) / n))
