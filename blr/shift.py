"""A training set unlike the target: density-ratio weights, class-prior correction, and when they are needed.

Two shifts, two cures, never both for the same one.  Where the features are distributed otherwise but
p(class | features) holds (bright objects are labelled, faint ones wanted), rows are weighted by the ratio of densities.
Where the classes' shares differ but p(features | class) holds, activations move by ln of the shares' ratio.
Shapes: N rows, M basis functions, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from blr.arrays import Matrix, Vector, as_matrix, as_vector
from blr.evidence import fit_evidence
from blr.gaussian import Gaussian
from blr.posterior import Posterior
from blr.sums import Terms
from blr.threads import single_threaded_blas

__all__ = ["ClassPriors", "DensityRatio", "class_priors", "density_ratio", "sandwich"]

_CLIP = 0.99
_FOLDS = 2
_MAX_ITER = 1000


@dataclass(frozen=True, eq=False)
class DensityRatio:
    """Weights of the training rows, and how different the two sets are.

    `weight` (N,) sums to `n_effective` = (Σw)²/Σw²: with weights of mean one, posteriors would be too narrow.
    `auc` is the probability that a target row looks more like the target than a training row does, out of fold:
    0.5 where the sets cannot be told apart, 1 where they do not overlap and no weight can help.
    """

    weight: Vector
    n_effective: float
    auc: float

    @property
    def advice(self) -> str:
        """What the diagnostic means, in words."""
        if self.auc < 0.55:
            return "training and target sets can hardly be told apart: no weights are needed"
        if self.auc < 0.9:
            return "the training set differs from the target: weights are worth their loss of effective rows"
        return "training and target sets hardly overlap: weights rest on few rows; label objects of the target instead"


def density_ratio(train: ArrayLike, target: ArrayLike, *, threads: int | None = None) -> DensityRatio:
    """Return weights p(x | target) / p(x | train) of the training rows, by a logistic model of which set a row is in.

    `train` (N, M) and `target` (N', M) are design matrices in the same basis, column 0 constant.  Weights are
    clipped at their 99th percentile.  Sugiyama et al. (2012), doi:10.1017/CBO9781139035613, chapter 4.
    """
    Phi, other = as_matrix(train, "train"), as_matrix(target, "target")
    if Phi.shape[1] != other.shape[1]:
        raise ValueError(
            f"train has {Phi.shape[1]} columns but target {other.shape[1]}; build both with one basis"
        )
    both = np.concatenate([Phi, other])
    is_target = np.concatenate([np.zeros(len(Phi)), np.ones(len(other))])
    score = _out_of_fold(both, is_target, threads)
    log_ratio = score[: len(Phi)] + np.log(len(Phi) / len(other))
    ratio = np.exp(log_ratio - log_ratio.max())
    ratio = np.minimum(ratio, np.quantile(ratio, _CLIP))
    n_effective = float(ratio.sum() ** 2 / (ratio**2).sum())
    return DensityRatio(ratio * n_effective / ratio.sum(), n_effective, _auc(score, is_target > 0))


def _out_of_fold(Phi: Matrix, t: Vector, threads: int | None) -> Vector:
    """Return the mean logit (N,) of each row under a fit to the other fold: a row must not vouch for itself."""
    fold = np.arange(len(Phi)) % _FOLDS
    score = np.empty(len(Phi))
    for k in range(_FOLDS):
        q = fit_evidence(Phi[fold != k], t[fold != k], threads=threads)
        score[fold == k] = q.logit_moments(Phi[fold == k])[0]
    return score


def _auc(score: Vector, positive: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve by ranks, ties shared."""
    rank = rankdata(score)
    n, m = int(positive.sum()), int((~positive).sum())
    return float((rank[positive].sum() - n * (n + 1) / 2) / (n * m))


@dataclass(frozen=True, eq=False)
class ClassPriors:
    """Class shares of a target (K,), and ln of them over the training shares: the shift of the activations."""

    prior: Vector
    log_shift: Vector
    n_iter: int
    converged: bool


def class_priors(
    probability: ArrayLike, training_prior: ArrayLike, *, tolerance: float = 1e-10
) -> ClassPriors:
    """Return the class shares of a target from its objects' probabilities under a model of the training shares.

    EM of Saerens, Latinne and Decaestecker (2002), doi:10.1162/089976602753284446.  `probability` is (N, K), rows with
    NaN left out; `training_prior` (K,).
    """
    p = np.asarray(probability, dtype=np.float64)
    p = p[~np.isnan(p).any(axis=1)]
    old = as_vector(training_prior, "training_prior")
    if p.ndim != 2 or p.shape[1] != len(old) or len(p) == 0 or old.min() <= 0:
        raise ValueError(
            f"expected probabilities (N, {len(old)}) of some rows and a positive share of each class, got "
            f"{p.shape[0]} usable rows of shape {np.shape(probability)} and shares {old}"
        )
    old = old / old.sum()
    prior = old.copy()
    converged, n_iter = False, 0
    while not converged and n_iter < _MAX_ITER:
        joint = p * (prior / old)
        new = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
        converged = bool(np.abs(new - prior).max() < tolerance)
        prior, n_iter = new, n_iter + 1
    floor = 0.5 / len(p)  # a share of half an object: no class is excluded for ever
    return ClassPriors(prior, np.log(np.maximum(prior, floor)) - np.log(old), n_iter, converged)


def sandwich(q: Posterior) -> Posterior:
    """Return the posterior with the sandwich covariance A⁻¹ B A⁻¹, B = S0⁻¹ + Σ g gᵀ over weighted rows.

    For weighted rows and models that do not hold exactly: White (1982), doi:10.2307/1912526.
    """
    theta, C = q.mode, q.problem.likelihood.n_outputs

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
    return replace(q, gaussian=Gaussian(q.gaussian.mean, precision), kind="sandwich")
