"""The series, its bound, and its invariants against Gauss-Hermite rules."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from blr.arrays import Matrix, Vector
from blr.predictive._cubature import normal_nodes
from blr.predictive.softmax import error_by_class, expanded_derivatives, softmax_series
from tests.blr.conftest import scaled_covariance


def examples(K: int, spread: float, n: int, seed: int = 0) -> tuple[Matrix, np.ndarray]:
    """Return means, from confident to tied, and covariances of mixed shapes."""
    rng = np.random.default_rng(seed)
    mean = -rng.exponential(rng.choice([0.3, 2.0, 6.0], (n, 1)), (n, K))
    mean[:, 0] = rng.exponential(2.0, n)
    return mean, scaled_covariance(
        rng.standard_normal((n, K, K)) * np.exp(rng.normal(0, 1, (n, 1, K))), spread
    )


def by_gauss_hermite(mean: Matrix, V: np.ndarray, n: int = 25) -> tuple[Matrix, Vector]:
    """Return E[p] (n, K) and E[H] (n,) by a tensor rule along the eigenvectors of V, all K of them."""
    z, w = np.polynomial.hermite_e.hermegauss(n)
    w = w / w.sum()
    values, U = np.linalg.eigh(V)
    K = mean.shape[1]
    used = K - 1  # of a centred covariance the first eigenvalue is zero
    B = (U * np.sqrt(np.maximum(values, 0))[:, None, :])[:, :, K - used :]
    Z = np.array(list(itertools.product(z, repeat=used)))
    W = np.prod(list(itertools.product(w, repeat=used)), axis=1)
    p, h = np.empty(mean.shape), np.empty(len(mean))
    for i, (m, b) in enumerate(zip(mean, B, strict=True)):
        a = m + Z @ b.T
        y = softmax(a, axis=1)
        p[i] = W @ y
        h[i] = W @ (logsumexp(a, axis=1) - (y * a).sum(axis=1))
    return p, h


def centred(V: np.ndarray) -> np.ndarray:
    P = np.eye(V.shape[1]) - 1 / V.shape[1]
    return P @ V @ P


@pytest.mark.parametrize(("K", "rows", "nodes"), [(2, 400, 31), (3, 400, 31), (4, 120, 17), (5, 40, 11)])
@pytest.mark.parametrize("spread", [0.1, 0.6, 1.0, 2.0])
def test_the_error_stays_below_its_bound(K: int, rows: int, nodes: int, spread: float) -> None:
    mean, V = examples(K, spread, rows)
    series = softmax_series(mean, V)
    p, h = by_gauss_hermite(mean, centred(V), nodes)
    error = np.abs(series[0] - p).max(axis=1)
    assert np.all(error <= series[2] + 1e-13)
    entropy_error = np.abs(series[1] - h)
    assert np.all(entropy_error <= 4 * series[2] + 1e-12)


def test_small_mutual_information_keeps_its_relative_accuracy() -> None:
    mean, V = examples(3, 0.05, 200)
    series = softmax_series(mean, V)
    p, h = by_gauss_hermite(mean, centred(V))
    truth = -(p * np.log(p)).sum(axis=1) - h
    found = -(series[0] * np.log(series[0])).sum(axis=1) - series[1]
    large = truth > 1e-8
    np.testing.assert_allclose(found[large], truth[large], rtol=1e-4)


def test_wide_rows_are_promised_nothing_and_stay_finite() -> None:
    mean, V = examples(3, 300.0, 50)
    series = softmax_series(mean, V)
    assert np.all(np.isinf(series[2]))
    assert np.isfinite(series[0]).all()
    np.testing.assert_allclose(series[3], 300.0)


@pytest.mark.parametrize("spread", [0.8, 1.9, 12.0])
def test_many_classes_err_by_less_than_their_bound(spread: float) -> None:
    """Few of ten classes count in most rows; against 2^14 antithetic nodes."""
    K, rng = 10, np.random.default_rng(int(10 * spread))
    mean, V = examples(K, spread, 100, seed=int(10 * spread))
    mean[50:] = -rng.uniform(3, 12, (50, K))
    mean[50:, :2] = rng.uniform(-3, 0, (50, 2))
    z = normal_nodes(2**13, K)
    z = np.concatenate([z, -z])
    values, axes = np.linalg.eigh(V)
    loads = axes * np.sqrt(np.maximum(values, 0))[:, None, :]
    log_sum, p, R, error = expanded_derivatives(mean, V)
    series, bound = softmax_series(mean, V), error_by_class(mean, V)
    assert bound == pytest.approx(error, rel=1e-6)
    for n in np.flatnonzero(error < 1e-3):
        a = mean[n] + z @ loads[n].T
        y = softmax(a, axis=1)
        exact = y.mean(axis=0)
        noise = 1e-5
        assert np.abs(p[n] - exact).max() < 1.2 * error[n] + noise
        assert np.abs(series[0][n] - exact).max() < 1.2 * error[n] + noise
        assert abs(log_sum[n] - logsumexp(a, axis=1).mean()) < error[n] + noise
        assert np.abs(R[n] - np.diag(exact) + y.T @ y / len(z)).max() < 5 * error[n] + 1e-3
