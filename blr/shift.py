"""A training set unlike the target: weights of its rows by the ratio of densities.

Two shifts, two cures, never both for the same one.  Where the features are distributed otherwise but
p(class | features) holds (bright objects are labelled, faint ones wanted), rows are weighted by the ratio of densities.
Where the classes' shares differ but p(features | class) holds, activations move by ln of the shares' ratio, as
`blr.census.shares` finds it.

Quantiles and areas under ROC curves are of values that come in parts.  Parts are read several times and never held
together; results are those of all values at once.
Shapes: N rows, M basis functions; n values of a part, m positive values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

FOLDS = 2
"""Folds of the comparison of two sets: row i of both together is in fold i mod 2."""
_CLIP = 0.99
_LEVEL = 0.9
Parts = Callable[[], Iterable[Vector]]
"""Gives the parts (n,), the same ones each time; all values are finite."""
Area = tuple[float, float, float]
"""The area under the ROC curve of two sets, and its 90 % interval."""
_BITS = 16
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, eq=False)
class DensityRatio:
    """Weights of the training rows, and how different the two sets are.

    `weight` (N,) sums to `n_effective` = (Σw)²/Σw²: with weights of mean one, posteriors would be too narrow.  `ratio`
    (N,) is that of the densities, clipped, up to a factor.  `auc` is the probability that a target row looks more like
    the target than a training row does, out of fold: 0.5 where the sets cannot be told apart, 1 where they do not
    overlap and no weight can help; `auc_low` to `auc_high` is its 90 % interval.
    """

    weight: Vector
    n_effective: float
    ratio: Vector
    auc: float
    auc_low: float
    auc_high: float

    @property
    def advice(self) -> str:
        """What the diagnostic means, in words."""
        return advice(self.auc, self.auc_low)


def advice(auc: float, auc_low: float) -> str:
    """Return what the area under the ROC curve and the lower end of its interval mean, in words."""
    if auc < 0.55 or auc_low <= 0.5:
        return "training and target sets can hardly be distinguished: no weights are needed"
    if auc < 0.9:
        return "the training set differs from the target: weights help, but leave fewer effective rows"
    return "training and target sets hardly overlap: few rows would have weight; label objects of the target"


def density_ratio(
    train: ArrayLike, target: ArrayLike, *, train_weight: ArrayLike | None = None, threads: int | None = None
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
            f"train has {Phi.shape[1]} columns, target {other.shape[1]}; build both with one basis"
        )
    require_enough_rows(len(Phi), len(other))
    train_weight = np.ones(len(Phi)) if train_weight is None else as_vector(train_weight, "train_weight")
    if len(train_weight) != len(Phi) or train_weight.min() < 0 or train_weight.max() <= 0:
        raise ValueError(
            f"train_weight must be ({len(Phi)},), not negative and not all zero; got shape {train_weight.shape}, "
            f"smallest {train_weight.min()}"
        )
    both = np.concatenate([Phi, other])
    is_target = np.concatenate([np.zeros(len(Phi)), np.ones(len(other))])
    counts = np.concatenate([train_weight / train_weight.mean(), np.ones(len(other))])
    fold, score = np.arange(len(both)) % FOLDS, np.empty(len(both))
    for k in range(FOLDS):  # a row must not vouch for itself
        fit, out = fold != k, fold == k
        q = fit_evidence(both[fit], is_target[fit], sample_weight=counts[fit], threads=threads)
        score[out] = q.logit_moments(both[out])[0]
    own, theirs = score[: len(Phi)], score[len(Phi) :]
    area, highest = compare_scores(lambda: [own], theirs)
    ratio = clipped_ratio(own, highest)
    weight = rescaled(ratio, train_weight)
    return DensityRatio(weight, float(weight.sum()), ratio, *area)


def require_enough_rows(n_train: int, n_target: int) -> None:
    """Raise ValueError where there are too few rows of one of the sets."""
    if min(n_train, n_target) < 2 * FOLDS:
        raise ValueError(
            f"got {n_train} training rows, {n_target} target rows; give {2 * FOLDS} or more of each"
        )


def clipped_ratio(score: Vector, highest: float) -> Vector:
    """Return the ratios of densities (n,) of rows with these scores, up to a factor; alike beyond the `highest`."""
    return np.asarray(np.exp(np.minimum(score - highest, 0.0)))


def compare_scores(train: Parts, target: Vector) -> tuple[Area, float]:
    """Return how far the scores of the training rows, which come in parts, and of the target's rows are apart.

    A score is the logit that a row is one of the target, out of fold.  The second number is the score beyond which
    ratios of densities are clipped.
    """
    highest = quantile(train, _CLIP)  # of logarithms: one row far out would leave all others a ratio of 0
    area, deviation = auc(train, target)
    reach = -float(ndtri((1 - _LEVEL) / 2)) * deviation
    return (area, max(0.0, area - reach), min(1.0, area + reach)), highest


def rescaled(ratio: ArrayLike, train_weight: ArrayLike | None = None) -> Vector:
    """Return weights (N,) in proportion to `ratio`, times `train_weight`, that sum to the effective number of rows.

    That is (Σ g r)²/Σ g r², which for rows that all count once is (Σr)²/Σr².
    """
    r = as_vector(ratio, "ratio")
    g = np.ones(len(r)) if train_weight is None else as_vector(train_weight, "train_weight")
    return g * r * float((g * r).sum() / (g * r**2).sum())


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


def quantile(parts: Parts, q: float) -> float:
    """Return the q-quantile of all values, of which there are some, as `numpy.quantile` does."""
    n = sum(len(part) for part in parts())
    k = int((n - 1) * q)
    low, high, share = _ranked(parts, k), _ranked(parts, min(k + 1, n - 1)), (n - 1) * q - k
    # As NumPy does, so that the result has the same bits.
    return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)


def _ranked(parts: Parts, k: int) -> float:
    """Return the value that k others precede, digit by digit of its bits: 65,536 counters a pass."""
    found = np.uint64(0)
    for shift in range(64 - _BITS, -1, -_BITS):
        counts = np.zeros(1 << _BITS, dtype=np.int64)
        for part in parts():
            digits = _ordered(part) >> np.uint64(shift)
            mine = digits >> np.uint64(_BITS) == found
            counts += np.bincount((digits[mine] & np.uint64(0xFFFF)).astype(np.intp), minlength=1 << _BITS)
        digit = int(np.searchsorted(np.cumsum(counts), k, side="right"))
        k -= int(counts[:digit].sum())
        found = (found << np.uint64(_BITS)) | np.uint64(digit)
    bits = found ^ _SIGN if found & _SIGN else ~found
    return float(np.array([bits]).view(np.float64)[0])


def _ordered(values: Vector) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return whole numbers (n,) in the order of the values: the bits of negative ones, turned round, come first."""
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def auc(negative: Parts, positive: Vector) -> tuple[float, float]:
    """Return the area under the ROC curve, ties shared, and its standard deviation.

    DeLong, DeLong and Clarke-Pearson (1988), doi:10.2307/2531595, by the placement of each value among those of the
    other set.  The m positive values are held in memory.  There are two passes over the `negative` ones.
    """
    own = np.sort(np.asarray(positive, dtype=np.float64))
    n, m = 0, len(own)
    below = np.zeros(m)
    for part in negative():
        ordered = np.sort(part)
        n += len(part)
        below += np.searchsorted(ordered, own, side="left") + np.searchsorted(ordered, own, side="right")
    above = below / (2 * n)
    area = float(above.mean())
    squares = 0.0
    for part in negative():
        beaten = m - (np.searchsorted(own, part, side="left") + np.searchsorted(own, part, side="right")) / 2
        squares += float(np.sum((beaten / m - area) ** 2))
    return area, float(np.sqrt(above.var(ddof=1) / m + squares / (n - 1) / n))
