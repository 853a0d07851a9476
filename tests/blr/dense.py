"""The twin of the numerics, plain and dense, and the problems that it is tried on.

All rows at once, all K M weights of a softmax, explicit Kronecker products, its own formulae: nothing here comes from
`blr`, but for the names of array types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import logsumexp

from blr.arrays import Matrix, Vector

CDF = {
    "logistic": (stats.logistic.logcdf, stats.logistic.logsf),
    "probit": (stats.norm.logcdf, stats.norm.logsf),
    "cauchit": (stats.cauchy.logcdf, stats.cauchy.logsf),
    "cloglog": (stats.gumbel_l.logcdf, stats.gumbel_l.logsf),
}


def log_likelihood(
    Phi: Matrix, t: Vector, W: Vector, likelihood: str = "logistic", weight: None = None
) -> float:
    """Return ln p(D|w); W (M,) or (K, M), t (N,) or (N, K) fractions."""
    weight = np.ones(len(Phi)) if weight is None else weight
    if likelihood == "softmax":
        a = Phi @ W.T
        return float(weight @ (np.sum(t * a, axis=1) - logsumexp(a, axis=1)))
    up, down = CDF[likelihood]
    a = Phi @ W
    terms = np.where(t > 0, t * up(a), 0.0) + np.where(t < 1, (1 - t) * down(a), 0.0)
    return float(weight @ terms)


def _logistic_parts(Phi: Matrix, t: Vector, w: Vector, weight: Vector) -> tuple[Vector, Matrix]:
    y = 1 / (1 + np.exp(-Phi @ w))
    return Phi.T @ (weight * (t - y)), (Phi.T * (weight * y * (1 - y))) @ Phi


def _softmax_parts(Phi: Matrix, t: Matrix, w: Vector, weight: Vector) -> tuple[Vector, Matrix]:
    K, M = t.shape[1], Phi.shape[1]
    a = Phi @ w.reshape(K, M).T
    y = np.exp(a - logsumexp(a, axis=1, keepdims=True))
    gradient = ((t - y) * weight[:, None]).T @ Phi
    H = np.zeros((K * M, K * M))
    for n in range(len(Phi)):
        R = np.diag(y[n]) - np.outer(y[n], y[n])
        H += weight[n] * np.kron(R, np.outer(Phi[n], Phi[n]))
    return gradient.ravel(), H


@dataclass(frozen=True)
class DenseFit:
    """Mode (D,), precision (D, D), ln p(D|w) and Laplace's ln p(D)."""

    mean: Any
    precision: Any
    log_likelihood: float
    log_evidence: float


def fit(
    Phi: Matrix,
    t: np.ndarray,
    prior_mean: Vector,
    prior_covariance: Matrix,
    likelihood: str = "logistic",
    weight: Vector | None = None,
) -> DenseFit:
    """Return the Laplace fit by plain Newton in all weights; the prior is given in full, (D,) and (D, D)."""
    weight = np.ones(len(Phi)) if weight is None else weight
    parts = _softmax_parts if likelihood == "softmax" else _logistic_parts
    D = len(prior_mean)
    P = np.linalg.inv(prior_covariance)
    w = np.array(prior_mean, dtype=float)
    shape = (t.shape[1], -1) if likelihood == "softmax" else (D,)

    def objective(v: Vector) -> float:
        return log_likelihood(Phi, t, v.reshape(shape), likelihood, weight) - 0.5 * (v - prior_mean) @ P @ (
            v - prior_mean
        )

    for _ in range(200):
        g, H = parts(Phi, t, w, weight)
        step = np.linalg.solve(H + P, g - P @ (w - prior_mean))
        length = 1.0
        while objective(w + length * step) < objective(w) - 1e-9 and length > 1e-8:
            length /= 2
        w = w + length * step
        if np.sqrt(step @ (H + P) @ step) < 1e-13:
            break
    _, H = parts(Phi, t, w, weight)
    A = H + P
    value = log_likelihood(Phi, t, w.reshape(shape), likelihood, weight)
    evidence = objective(w) - 0.5 * np.linalg.slogdet(prior_covariance)[1] - 0.5 * np.linalg.slogdet(A)[1]
    return DenseFit(w, A, value, evidence)


def binary(seed: int, N: int = 200, M: int = 4, scale: float = 1.0) -> tuple[Matrix, Vector]:
    """Return Phi (N, M), with a column of ones, and labels 0 and 1 drawn from a logistic model."""
    rng = np.random.default_rng(seed)
    Phi = np.column_stack([np.ones(N), rng.standard_normal((N, M - 1))])
    w = scale * rng.standard_normal(M)
    t = (rng.random(N) < 1 / (1 + np.exp(-Phi @ w))).astype(float)
    return Phi, t


def softmax(seed: int, N: int = 200, M: int = 4, K: int = 3, scale: float = 1.0) -> tuple[Matrix, ...]:
    """Return Phi (N, M) and one-hot labels (N, K) drawn from a softmax model."""
    rng = np.random.default_rng(seed)
    Phi = np.column_stack([np.ones(N), rng.standard_normal((N, M - 1))])
    a = Phi @ (scale * rng.standard_normal((M, K)))
    k = np.argmax(a + rng.gumbel(size=(N, K)), axis=1)
    k[:K] = np.arange(K)  # no class is absent
    return Phi, np.eye(K)[k]


def drawn(
    likelihood: str, seed: int = 0, N: int = 150, M: int = 4, K: int = 3, scale: float = 1.0
) -> tuple[Matrix, ...]:
    """Return Phi and labels of K classes for "softmax", of two for any other likelihood."""
    return softmax(seed, N, M, K, scale) if likelihood == "softmax" else binary(seed, N, M, scale)


def covariance(rng: np.random.Generator, D: int) -> Matrix:
    """Return a well conditioned covariance that is neither diagonal nor of unit scale, (D, D)."""
    B = rng.standard_normal((D, D))
    return B @ B.T / D + 0.3 * np.eye(D)
