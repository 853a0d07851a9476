"""Cubature over normal distributions: exact moments, and integrals against dense twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, ndtri
from scipy.stats.qmc import Sobol

from blr.arrays import Matrix, Vector
from blr.missing.moments import FeatureMoments
from blr.missing.patterns import normal_nodes


def moments(nodes: np.ndarray, weight: Vector) -> tuple[Any, ...]:
    """Mean and covariance over the first axis."""
    mean = np.einsum("s,s...->...", weight, nodes)
    centred = nodes - mean
    return mean, np.einsum("s,s...f,s...g->...fg", weight, centred, centred)


@pytest.mark.parametrize("n", [1, 5, 16, 33, 128])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 9, 20])
def test_nodes_have_zero_mean_and_unit_covariance(d: int, n: int) -> None:
    Z, weight = normal_nodes(d, n)
    assert Z.shape == (len(weight), d)
    assert max(n - 1, 8) <= len(weight) <= max(n, 8, 4 * d)
    assert weight.min() > 0
    np.testing.assert_allclose(weight.sum(), 1, rtol=1e-14)
    mean, covariance = moments(Z, weight)
    np.testing.assert_allclose(mean, 0, atol=1e-14)
    np.testing.assert_allclose(covariance, np.eye(d), atol=1e-13)


def test_nothing_to_integrate_is_one_node() -> None:
    Z, weight = normal_nodes(0, 32)
    assert Z.shape == (1, 0)
    assert weight.tolist() == [1]


def test_no_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one node, got n=0"):
        normal_nodes(2, 0)


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_nodes_are_symmetric(d: int) -> None:
    """So that odd functions integrate to 0 exactly: a probability about 1/2 stays there."""
    Z, weight = normal_nodes(d, 32)
    assert abs(weight @ np.tanh(Z @ np.arange(1, d + 1))) < 1e-14


@pytest.mark.parametrize("mean", [0.0, 1.0, -3.0])
@pytest.mark.parametrize(("sd", "tolerance"), [(1, 1e-6), (3, 1e-4), (6, 3e-3)])
def test_one_dimension_beats_gauss_hermite(mean: float, sd: int, tolerance: float) -> None:
    z = np.linspace(-10, 10, 100_001)
    truth = np.average(expit(mean + sd * z), weights=np.exp(-(z**2) / 2))
    Z, weight = normal_nodes(1, 32)
    error = abs(weight @ expit(mean + sd * Z[:, 0]) - truth)
    assert error < tolerance
    x, w = np.polynomial.hermite_e.hermegauss(32)
    assert error <= abs(w @ expit(mean + sd * x) / w.sum() - truth) + 1e-6


@pytest.mark.parametrize(
    ("d", "n", "root_mean_square"),
    [(1, 32, 0.0005), (2, 32, 0.013), (3, 32, 0.02), (5, 32, 0.03), (2, 128, 0.003), (3, 128, 0.007)],
)
def test_error_through_curved_logits_is_as_documented(d: int, n: int, root_mean_square: float) -> None:
    """Random quadratics with a logit of standard deviation 3, against 65 536 scrambled Sobol points."""
    rng = np.random.default_rng(d)
    draws = ndtri(Sobol(d, rng=rng).random_base2(16))
    Z, weight = normal_nodes(d, n)
    errors = []
    for _ in range(40):
        b, A, shift = rng.normal(size=d), rng.normal(size=(d, d)) / 2, rng.normal()

        def logit(z: Matrix, b: Vector = b, A: Matrix = A) -> Vector:
            return z @ b + np.einsum("nf,fg,ng->n", z, A, z)

        truth = logit(draws)
        scale, centre = 3 / truth.std(), truth.mean()
        truth = expit(scale * (truth - centre) + shift).mean()
        errors.append(weight @ expit(scale * (logit(Z) - centre) + shift) - truth)
    assert np.sqrt(np.mean(np.square(errors))) < root_mean_square


def error_nodes(X: Matrix, errors: Matrix, n: int) -> tuple[Matrix, Vector]:
    """Return the nodes of complete rows with errors."""
    F = X.shape[1]
    return FeatureMoments(np.zeros(F), np.eye(F)).nodes(X, np.zeros(F, dtype=bool), n, errors=errors)


def test_errors_have_exact_moments_row_by_row() -> None:
    rng = np.random.default_rng(0)
    X, sd = rng.normal(size=(6, 4)), rng.uniform(0.5, 2, size=(6, 4)) * [1e-6, 1, 0, 1e6]
    C = np.einsum("nf,fg->nfg", sd**2, np.eye(4))
    nodes, weight = error_nodes(X, sd, 24)
    assert nodes.shape == (24, 6, 4)
    mean, covariance = moments(nodes, weight)
    size = np.where(sd > 0, sd, 1.0)
    np.testing.assert_allclose((mean - X) / size, 0, atol=1e-8)
    np.testing.assert_allclose((covariance - C) / (size[:, :, None] * size[:, None, :]), 0, atol=1e-8)
    np.testing.assert_array_equal(nodes[:, :, 2], np.broadcast_to(X[:, 2], (24, 6)))


def test_rows_without_error_do_not_move() -> None:
    X = np.arange(6.0).reshape(2, 3)
    nodes, weight = error_nodes(X, np.zeros((2, 3)), 16)
    np.testing.assert_array_equal(nodes, X[None])
    assert weight.tolist() == [1]
    nodes, _ = error_nodes(X, np.array([[0.0, 0, 0], [0, 1, 0]]), 16)
    np.testing.assert_array_equal(nodes[:, 0], np.broadcast_to(X[0], (16, 3)))


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        (np.ones((2, 2)), r"standard deviations of shape \(2, 3\), got shape \(2, 2\)"),
        (np.full((2, 3), -1.0), "must not be negative, got -1.0"),
        (np.full((2, 3), np.nan), "errors holds 6 value"),
    ],
)
def test_bad_errors_are_refused(errors: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        error_nodes(np.zeros((2, 3)), errors, 8)
