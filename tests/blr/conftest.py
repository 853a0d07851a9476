"""Twins and problems that the tests of the numerics share.

The twin is plain and dense: all rows at once, all K M weights of a softmax, explicit Kronecker products, its own
formulae.  Nothing in the twin comes from `blr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from blr.arrays import Matrix, Vector
from blr.gaussian import GaussianPrior
from blr.posterior.kinds import LaplacePosterior
from blr.posterior.laplace import fit

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


def dense_fit(
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


def make_binary(seed: int, N: int = 200, M: int = 4, scale: float = 1.0) -> tuple[Matrix, Vector]:
    """Return Phi (N, M), with a column of ones, and labels 0 and 1 drawn from a logistic model."""
    rng = np.random.default_rng(seed)
    Phi = np.column_stack([np.ones(N), rng.standard_normal((N, M - 1))])
    w = scale * rng.standard_normal(M)
    t = (rng.random(N) < 1 / (1 + np.exp(-Phi @ w))).astype(float)
    return Phi, t


def make_softmax(seed: int, N: int = 200, M: int = 4, K: int = 3, scale: float = 1.0) -> tuple[Matrix, ...]:
    """Return Phi (N, M) and one-hot labels (N, K) drawn from a softmax model."""
    rng = np.random.default_rng(seed)
    Phi = np.column_stack([np.ones(N), rng.standard_normal((N, M - 1))])
    a = Phi @ (scale * rng.standard_normal((M, K)))
    k = np.argmax(a + rng.gumbel(size=(N, K)), axis=1)
    k[:K] = np.arange(K)  # no class is absent
    return Phi, np.eye(K)[k]


def random_covariance(rng: np.random.Generator, D: int) -> Matrix:
    """Return a well conditioned covariance that is neither diagonal nor of unit scale, (D, D)."""
    B = rng.standard_normal((D, D))
    return B @ B.T / D + 0.3 * np.eye(D)


def hard_inputs() -> dict[str, tuple[Matrix, Vector]]:
    """Return design matrices and labels of which a fit has to make something all the same, by what is hard."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 3))
    one = np.ones((80, 1))
    t = (x[:, 0] + rng.standard_normal(80) > 0).astype(float)
    rare = np.zeros(80)
    rare[0] = 1
    return {
        "separable": (np.hstack([one, x]), (x[:, 0] > 0).astype(float)),
        "collinear": (np.hstack([one, x, x[:, :1] + x[:, 1:2]]), t),
        "constant columns": (np.hstack([one, x, 5 * one, 0 * one]), t),
        "more columns than rows": (rng.standard_normal((20, 60)), (np.arange(20) < 7).astype(float)),
        "scales": (np.hstack([one, x * [1e-12, 1.0, 1e12]]), t),
        "one row of a class": (np.hstack([one, x]), rare),
        "one class only": (np.hstack([one, x]), np.ones(80)),
        "one row": (np.ones((1, 2)), np.ones(1)),
        "huge values": (1e6 * np.hstack([one, x]), t),
    }


@dataclass(frozen=True)
class Twin:
    """What the tests call; a fixture, because test folders are no packages."""

    fit = staticmethod(dense_fit)
    log_likelihood = staticmethod(log_likelihood)
    binary = staticmethod(make_binary)
    softmax = staticmethod(make_softmax)
    covariance = staticmethod(random_covariance)


@pytest.fixture(scope="session")
def dense() -> Twin:
    """Return the dense twin and the makers of problems."""
    return Twin()


def fitted(reference: Mapping[str, Any]) -> LaplacePosterior:
    """Return the Laplace fit of a problem of `tests/reference/posteriors.json`."""
    softmax = reference["likelihood"] == "softmax"
    return fit(
        np.array(reference["Phi"]),
        np.array(reference["t"]),
        GaussianPrior(reference["prior_mean"], np.array(reference["prior_covariance"])),
        reference["likelihood"],
        sample_weight=reference["weight"],
        classes=range(len(reference["t"][0]) if softmax else 2),
    )


def scaled_covariance(A: np.ndarray, spread: float) -> np.ndarray:
    """Return the covariances A Aᵀ (n, K, K), scaled to the given largest sd of a contrast."""
    V = A @ A.transpose(0, 2, 1)
    d = np.einsum("nkk->nk", V)
    largest = (d[:, :, None] + d[:, None, :] - 2 * V).reshape(len(V), -1).max(axis=1)
    return V * (spread**2 / largest)[:, None, None]
