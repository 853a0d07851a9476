"""Intervals of probabilities hold the share of draws that they are said to hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr, softmax

from blr.predictive._cubature import normal_nodes
from blr.predictive.mixture import credible_interval


def test_two_classes_exactly() -> None:
    low, high = credible_interval(np.array([0.4, -8.0]), np.array([0.25, 0.0]), 0.9, link="probit")
    z = 1.6448536269514722
    np.testing.assert_allclose(low[0], [ndtr(-0.4 - 0.5 * z), ndtr(0.4 - 0.5 * z)], rtol=1e-12)
    np.testing.assert_allclose(high[0], [ndtr(-0.4 + 0.5 * z), ndtr(0.4 + 0.5 * z)], rtol=1e-12)
    np.testing.assert_allclose(low[1], high[1], rtol=1e-12)  # nothing is left open


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_many_classes_against_draws(scale: float) -> None:
    rng = np.random.default_rng(3)
    K, n = 4, 6
    root = scale * rng.standard_normal((n, K, K))
    centred = np.eye(K) - 1 / K
    covariance = centred @ (root @ root.transpose(0, 2, 1) / K) @ centred
    mean = rng.standard_normal((n, K)) @ centred
    low, high = credible_interval(mean, covariance)
    for i in range(n):
        p = softmax(rng.multivariate_normal(mean[i], covariance[i], 40_000, method="eigh"), axis=1)
        inside = ((p >= low[i]) & (p <= high[i])).mean(axis=0)
        np.testing.assert_allclose(inside, 0.95, atol=0.02)
        np.testing.assert_allclose([low[i], high[i]], np.quantile(p, (0.025, 0.975), axis=0), atol=0.04)


@pytest.mark.parametrize("spread", [0.0, 0.3, 2.0, 300.0])
@pytest.mark.parametrize("far", [1.0, 1e5])
def test_many_classes_against_quantiles_in_double_precision(spread: float, far: float) -> None:
    rng = np.random.default_rng(4)
    K, n = 5, 700  # more than a block
    root = spread * rng.standard_normal((n, K, K))
    covariance = root @ root.transpose(0, 2, 1)
    mean = rng.standard_normal((n, K)) + far * (rng.random((n, K)) < 0.5)
    found = credible_interval(mean, covariance, 0.9)
    values, axes = np.linalg.eigh(covariance)
    root = axes * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    p = softmax(mean[:, None] + np.einsum("sk,njk->nsj", normal_nodes(512, K), root), axis=2)
    slow = np.quantile(p, (0.05, 0.95), axis=1)
    np.testing.assert_allclose(found, slow, atol=1e-6 if spread < 300 else 1e-4)


def test_no_rows_and_no_share() -> None:
    low, high = credible_interval(np.empty((0, 3)), np.empty((0, 3, 3)))
    assert low.shape == high.shape == (0, 3)
    with pytest.raises(ValueError, match=r"got 1\.0 as the share"):
        credible_interval(np.zeros(1), np.zeros(1), 1.0)
