"""Gaussians of the weights: N(w | m, A⁻¹) by its precision, the prior, and the contrasts of several classes (PRML 3.3).

Quadratic forms, determinants and samples come from the Cholesky factor of the precision A = L Lᵀ; the covariance is
formed only when asked for.  Shapes: D weights; M weights a class, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from blr.arrays import Matrix, Vector, require_finite


def cholesky_of_precision(A: Matrix) -> tuple[Matrix, float]:
    """Return the lower factor L of a positive definite A (D, D), and the jitter that it took.

    A is scaled to unit diagonal first, so features of scale 1e-12 and 1e12 may stand side by side.  Collinear
    ones leave A singular to rounding: the diagonal is then raised by the least power of ten of the machine
    precision that lets the factorisation pass, and that relative amount is returned (0 where none was needed).
    LinAlgError if A is not positive definite within 1e-6 of its diagonal.
    """
    diagonal = np.diag(A)
    if not np.all(np.isfinite(diagonal)) or np.any(diagonal < 0):
        raise np.linalg.LinAlgError(
            f"precision has diagonal {diagonal}; every entry must be positive and finite: give a positive "
            "definite matrix"
        )
    # A column of zeros without a prior does not determine its weight: the jitter takes the place of a scale.
    scale = np.where(diagonal > 0, np.sqrt(diagonal), 1.0)
    inverse_scale, jitter = 1.0 / scale, 0.0
    while jitter < 1e-6:
        C = A * inverse_scale[:, None]
        C *= inverse_scale
        C.flat[:: len(C) + 1] += jitter
        # In place: the transpose of a symmetric matrix has the order of columns that LAPACK asks for.
        L, status = scipy.linalg.lapack.dpotrf(C.T, lower=1, clean=1, overwrite_a=1)
        if status == 0:
            L *= scale[:, None]
            return L, jitter
        jitter = max(10 * jitter, len(C) * np.finfo(float).eps)
    raise np.linalg.LinAlgError(
        "precision is not positive definite, expected a matrix whose eigenvalues are all positive; add a "
        "larger prior precision"
    )


@dataclass(frozen=True, eq=False)
class Gaussian:
    """A Gaussian of mean (D,) and precision (D, D); zero for no prior at all."""

    mean: Vector
    precision: Matrix

    @cached_property
    def _factor(self) -> tuple[Matrix, float]:
        return cholesky_of_precision(self.precision)

    @property
    def proper(self) -> bool:
        """Whether A is positive definite, which it need not be where a likelihood is not log-concave."""
        try:
            return bool(self._factor)
        except np.linalg.LinAlgError:
            return False

    @property
    def cholesky(self) -> Matrix:
        """Lower L with L Lᵀ = A, (D, D)."""
        return self._factor[0]

    @property
    def jitter(self) -> float:
        """What was added to A's unit-scaled diagonal to factorise it: 0 unless weights are collinear."""
        return self._factor[1]

    @cached_property
    def inverse_cholesky(self) -> Matrix:
        """L⁻¹, lower, (D, D): kept because a product is several times faster than a triangular solve."""
        inverse: Matrix
        inverse, status = scipy.linalg.lapack.dtrtri(self.cholesky, lower=1)
        assert status == 0  # noqa: S101  a Cholesky factor has no zero on its diagonal
        return np.ascontiguousarray(inverse)  # else the loops in C copy it for each block of rows

    @cached_property
    def covariance(self) -> Matrix:
        """A⁻¹, (D, D)."""
        U = self.inverse_cholesky
        return U.T @ U

    def about(self, mean: Vector) -> Gaussian:
        """Return the Gaussian of this precision about another mean (D,), with what was computed of the precision."""
        other = Gaussian(mean, self.precision)
        kept = {"_factor", "inverse_cholesky", "covariance"}
        vars(other).update({name: value for name, value in vars(self).items() if name in kept})
        return other

    def solve(self, b: Vector) -> Vector:
        """Return A⁻¹ b for b (D,)."""
        z = scipy.linalg.solve_triangular(self.cholesky, b, lower=True, check_finite=False)
        x: Vector = scipy.linalg.solve_triangular(self.cholesky, z, lower=True, trans=1, check_finite=False)
        return x

    @property
    def log_det_precision(self) -> float:
        """Return ln det A."""
        return 2.0 * float(np.log(np.diag(self.cholesky)).sum())

    def sample(self, n: int, rng: np.random.Generator) -> Matrix:
        """Return n draws, (n, D)."""
        return self.mean + rng.standard_normal((n, len(self.mean))) @ self.inverse_cholesky

    def energy(self, w: Vector) -> float:
        """Return (w - m)ᵀ A (w - m) / 2."""
        d = w - self.mean
        return 0.5 * float(d @ (self.precision @ d))

    @cached_property
    def _diagonal(self) -> Vector | None:
        """The diagonal of A (D,); None where there is more."""
        p = np.diag(self.precision).copy()
        return p if np.count_nonzero(self.precision) == np.count_nonzero(p) else None

    def pull(self, away: Matrix) -> Matrix:
        """Return A d for each row d of `away` (S, D)."""
        p = self._diagonal
        return away @ self.precision if p is None else away * p

    def trace(self, inverse_cholesky: Matrix) -> float:
        """Return tr(A B⁻¹), given L⁻¹ (D, D) of B = L Lᵀ."""
        U, p = inverse_cholesky, self._diagonal
        if p is None:
            return float(np.einsum("ij,ij->", U @ self.precision, U))
        return float(np.einsum("ij,ij->j", U, U) @ p)


# The Gaussian prior N(w | m0, S0), of any form (PRML 4.140).
#
# Shapes: M weights a class, K classes.  A prior of M weights given to a softmax stands for the same independent
# prior of each class, I_K ⊗ S0; one of K M weights, in order k M + m, may couple them in any way.

_LARGEST = 1e100  # variance: squares of its inverse are finite


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """A Gaussian prior of the weights.

    Parameters
    ----------
    mean
        Scalar or (M,); for a softmax also (K M,).
    covariance
        Scalar (the same variance for all weights), (M,) (variances) or (M, M); for a softmax also of K M.

    Raises
    ------
    ValueError
        If a shape does not fit, a value is not finite, or the covariance is not positive definite.

    Examples
    --------
    >>> prior = blr.GaussianPrior.isotropic(3, precision=4.0)
    >>> np.diag(prior.precision(3)).tolist()
    [0.0001, 4.0, 4.0]
    """

    mean: Any
    covariance: Any

    def __post_init__(self) -> None:
        mean, covariance = _numbers(self.mean, "mean"), _numbers(self.covariance, "covariance")
        if mean.ndim > 1:
            raise ValueError(
                f"prior mean must be a scalar or a vector, got shape {mean.shape}; give one number, or one "
                "for each weight"
            )
        if covariance.ndim > 2 or (covariance.ndim == 2 and covariance.shape[0] != covariance.shape[1]):
            raise ValueError(
                f"prior covariance must be a scalar, (M,) or (M, M), got shape {covariance.shape}"
            )
        if mean.ndim and covariance.ndim and len(mean) != len(covariance):
            raise ValueError(
                f"prior mean has {len(mean)} weights but its covariance has {len(covariance)}; give both for "
                "the same weights"
            )
        require_finite(np.atleast_1d(mean), "prior mean")
        require_finite(np.atleast_1d(covariance), "prior covariance")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)
        _require_positive_definite(covariance)

    @classmethod
    def isotropic(
        cls,
        n_functions: int,
        precision: float = 1.0,
        intercept: int | None = 0,
        intercept_variance: float = 1e4,
    ) -> Self:
        """Return N(0, I / precision) over M = `n_functions` weights, the intercept's variance set apart.

        The intercept's prior is broad and fixed across compared models: its width is a factor common to all.
        """
        if not 0 < precision < np.inf:
            raise ValueError(f"prior precision must be positive and finite, got {precision}; start with 1")
        if intercept is not None and not is_column(intercept, n_functions):
            raise ValueError(
                f"intercept is column {intercept} of a prior of {n_functions} weights; give a "
                "column from 0, or None for no intercept"
            )
        variance = np.full(n_functions, 1.0 / precision)
        if intercept is not None:
            variance[intercept] = intercept_variance
        return cls(np.zeros(n_functions), variance)

    @property
    def size(self) -> int | None:
        """How many weights the prior is of; None where mean and covariance are scalars."""
        for part in (self.covariance, self.mean):
            if part.ndim:
                return len(part)
        return None

    def resized(self, n: int) -> tuple[Vector, Vector | Matrix]:
        """Return the mean (n,) and the covariance, (n,) or (n, n), for n weights."""
        if self.size not in (None, n):
            raise ValueError(
                f"prior has {self.size} weights but the model has {n}; give the prior one weight for each "
                "column of the design matrix (for softmax, K times as many are allowed too)"
            )
        covariance = self.covariance if self.covariance.ndim else np.full(n, float(self.covariance))
        return np.broadcast_to(self.mean, n).copy(), covariance

    def precision(self, n: int) -> Matrix:
        """Return S0⁻¹, (n, n)."""
        _, covariance = self.resized(n)
        if covariance.ndim == 1:
            return np.diag(1.0 / covariance)
        # The covariance plays the precision's part: its inverse is this Gaussian's "covariance".
        return self._inverse.covariance

    @cached_property
    def _inverse(self) -> Gaussian:
        return Gaussian(np.zeros(len(self.covariance)), self.covariance)

    def to_dict(self) -> dict[str, ArrayLike]:
        """Return mean and covariance as arrays."""
        return {"mean": self.mean, "covariance": self.covariance}


def is_column(index: Any, n: int) -> bool:
    """Whether `index` is that of one of n columns, from either end; a boolean is not an index."""
    whole = isinstance(index, (int, np.integer)) and not isinstance(index, bool)
    return whole and bool(-n <= index < n)


def _numbers(x: Any, name: str) -> Matrix:
    try:
        array = np.array(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"prior {name} must be numbers, got {x!r:.80}; give floats") from error
    if array.size == 0:
        raise ValueError(f"prior {name} is empty; give a scalar, or one number for each weight")
    return array


def _require_positive_definite(covariance: Matrix) -> None:
    variances = np.diag(covariance) if covariance.ndim > 1 else np.atleast_1d(covariance)
    smallest, largest = float(variances.min()), float(variances.max())
    if smallest <= 0:
        raise ValueError(
            f"prior covariance is not positive definite: variances must be positive, got {smallest}; to fix "
            "a weight, leave its column out"
        )
    if smallest < 1 / _LARGEST or largest > _LARGEST:
        extreme = smallest if smallest < 1 / _LARGEST else largest
        raise ValueError(
            f"prior variances must lie between {1 / _LARGEST:.0e} and {_LARGEST:.0e}, got {extreme:.3g}; "
            "give the column in another unit"
        )
    if covariance.ndim < 2:
        return
    if not np.allclose(covariance, covariance.T, rtol=1e-8, atol=0):
        raise ValueError("prior covariance is not symmetric; if it should be symmetric, give (S + S.T) / 2")
    sd = np.sqrt(variances)
    if np.linalg.eigvalsh(covariance / sd[:, None] / sd)[0] <= 0:
        raise ValueError(
            "prior covariance is not positive definite (smallest eigenvalue "
            f"{np.linalg.eigvalsh(covariance)[0]:.3g}); add variance along the flat direction or drop that weight"
        )


# Symmetric softmax weights, solved in K - 1 contrasts.
#
# The softmax does not change when all activations are shifted by the same amount, so the K weight vectors have M
# directions that only the prior determines.  In Helmert contrasts W = V Tᵀ, T (K, K-1) with orthonormal columns that
# sum to zero, those directions are gone, class order cannot matter, and under a prior I_K ⊗ S0 the sum direction keeps
# its prior: it cancels from the evidence exactly.  Weights are flat, in order k M + m.


def helmert(n_classes: int) -> Matrix:
    """Return T (K, K-1): TᵀT = I, 1ᵀT = 0."""
    K = n_classes
    T = np.zeros((K, K - 1))
    for c in range(K - 1):
        T[: c + 1, c] = 1.0
        T[c + 1, c] = -(c + 1.0)
        T[:, c] /= np.sqrt((c + 1.0) * (c + 2.0))
    return T


def exchangeable(prior: GaussianPrior, n_classes: int, n_functions: int) -> GaussianPrior | None:
    """Return the prior of M weights that all classes share; None where they are coupled or unlike.

    The mean may differ from class to class: contrasts of it are means of contrasts.
    """
    K, M = n_classes, n_functions
    if prior.size in (None, M):
        mean, covariance = prior.resized(M)
        return GaussianPrior(mean, covariance)
    _, covariance = prior.resized(K * M)
    if covariance.ndim == 1:
        blocks = covariance.reshape(K, M)
        return GaussianPrior(0.0, blocks[0]) if np.all(blocks == blocks[0]) else None
    first = covariance[:M, :M]
    return GaussianPrior(0.0, first) if np.array_equal(covariance, np.kron(np.eye(K), first)) else None


def class_mean(theta: Vector, T: Matrix, prior_mean: Vector) -> Vector:
    """Return the K M weights of (K-1) M contrasts `theta`; their sum direction stays at the prior mean (K M,).

    Of many contrasts (..., (K-1) M) as many weights (..., K M).
    """
    K, C = T.shape
    shape = theta.shape[:-1]
    common = prior_mean.reshape(K, -1).mean(axis=0)
    return (T @ theta.reshape(*shape, C, -1) + common).reshape(*shape, -1)


def class_precision(A: Matrix, T: Matrix, prior_precision: Matrix | None) -> Matrix:
    """Return the (K M, K M) precision of the weights from that of the contrasts, A ((K-1) M, (K-1) M).

    `prior_precision` (M, M) fills the sum direction; None (maximum likelihood) leaves it flat.
    """
    K, C = T.shape
    M = len(A) // C
    full = np.einsum("kc,cmdn,ld->kmln", T, A.reshape(C, M, C, M), T, optimize=True).reshape(K * M, K * M)
    if prior_precision is not None:
        full += np.kron(np.full((K, K), 1.0 / K), prior_precision)
    return full


def class_cholesky(L: Matrix, T: Matrix, prior_cholesky: Matrix) -> Matrix:
    """Return the lower factor of `class_precision`, (K M, K M), from those of the contrasts and of the prior.

    By an orthogonal factorisation: in the sum direction the precision is that of the prior, which may be twelve orders
    below the contrasts', and forming the product first would leave of it what rounding leaves.
    """
    K, M = len(T), len(prior_cholesky)
    root = np.concatenate(
        [L.T @ np.kron(T.T, np.eye(M)), np.kron(np.full((1, K), K**-0.5), prior_cholesky.T)]
    )
    _, R = np.linalg.qr(root)
    return np.asarray((R * np.where(np.diag(R) < 0, -1.0, 1.0)[:, None]).T)
