"""Symmetric softmax weights, solved in K - 1 contrasts.

The softmax does not change when all activations are shifted by the same amount, so the K weight vectors have M
directions that only the prior determines.  In Helmert contrasts W = V Tᵀ, T (K, K-1) with orthonormal columns that sum
to zero, those directions are gone, class order cannot matter, and under a prior I_K ⊗ S0 the sum direction keeps its
prior: it cancels from the evidence exactly.  Weights are flat, in order k M + m.
"""

from __future__ import annotations

import numpy as np

from blr.arrays import Matrix, Vector
from blr.likelihood.prior import GaussianPrior

__all__ = ["class_cholesky", "class_mean", "class_precision", "exchangeable", "helmert"]


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
