"""Gaussian priors of every form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blr.gaussian import (
    GaussianPrior,
    class_cholesky,
    class_mean,
    class_precision,
    exchangeable,
    helmert,
)
from tests.blr.conftest import Twin


@pytest.mark.parametrize("covariance", [2.0, np.full(3, 2.0), 2.0 * np.eye(3)])
def test_forms_of_the_same_prior(covariance: float | np.ndarray) -> None:
    prior = GaussianPrior(0.5, covariance)
    mean, _ = prior.resized(3)
    assert mean.tolist() == [0.5, 0.5, 0.5]
    assert prior.precision(3) == pytest.approx(np.eye(3) / 2, rel=1e-14)


def test_isotropic_sets_the_intercept_apart() -> None:
    prior = GaussianPrior.isotropic(3, precision=4.0)
    assert prior.covariance.tolist() == [1e4, 0.25, 0.25]
    assert GaussianPrior.isotropic(3, 4.0, None).covariance.tolist() == [0.25] * 3
    assert GaussianPrior.isotropic(3, 4.0, 2, 9.0).covariance.tolist() == [0.25, 0.25, 9.0]


def test_full_precision_is_the_inverse_whatever_the_scales(dense: Twin) -> None:
    S = dense.covariance(np.random.default_rng(0), 3)
    scale = np.array([1e-9, 1.0, 1e9])
    P = GaussianPrior(0.0, S * np.outer(scale, scale)).precision(3)
    assert pytest.approx(np.linalg.inv(S), rel=1e-10) == P * np.outer(scale, scale)


def test_survives_its_dictionary() -> None:
    prior = GaussianPrior([1.0, 2.0], np.array([[2.0, 0.5], [0.5, 1.0]]))
    again = GaussianPrior(**prior.to_dict())
    assert np.array_equal(again.mean, prior.mean)
    assert np.array_equal(again.covariance, prior.covariance)


def test_does_not_follow_changes_of_its_arguments() -> None:
    covariance = np.ones(2)
    prior = GaussianPrior(0.0, covariance)
    covariance[0] = 5.0
    assert prior.covariance.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        (np.zeros((2, 2)), 1.0, r"mean must be a scalar or a vector, got shape \(2, 2\)"),
        (0.0, np.ones((2, 3)), r"scalar, \(M,\) or \(M, M\), got shape \(2, 3\)"),
        (np.zeros(2), np.ones(3), r"mean has 2 weights but its covariance has 3"),
        ([0.0, np.nan], 1.0, r"prior mean holds 1 value\(s\)"),
        (0.0, [1.0, np.nan], r"prior covariance holds 1 value\(s\)"),
        (0.0, [1.0, np.inf], r"infinite somewhere, expected finite variances.*such as 1e6 times the square"),
        (0.0, [1.0, 1e-300], r"variances must lie between 1e-100 and 1e\+100, got 1e-300; .*another unit"),
        (0.0, [], r"prior covariance is empty; give a scalar, or one number for each weight"),
        ("broad", 1.0, r"prior mean must be numbers, got 'broad'"),
        (0.0, 0.0, r"variances must be positive, got 0.0; to fix a weight, leave its column out"),
        (0.0, [1.0, -1.0], r"variances must be positive, got -1.0"),
        (0.0, [[1.0, 0.5], [0.4, 1.0]], r"not symmetric; if it should be symmetric, give \(S \+ S.T\) / 2"),
        (0.0, [[1.0, 2.0], [2.0, 1.0]], r"not positive definite \(smallest eigenvalue -1\)"),
        (0.0, [[0.0, 0.0], [0.0, 1.0]], r"not positive definite"),
    ],
)
def test_refuses_what_is_no_prior(
    mean: Any, covariance: float | list[Any] | np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianPrior(mean, covariance)


def test_isotropic_refuses_a_precision_that_is_not_positive() -> None:
    with pytest.raises(ValueError, match=r"precision must be positive and finite, got 0"):
        GaussianPrior.isotropic(3, 0)
    with pytest.raises(ValueError, match=r"intercept is column 7 of a prior of 3 weights; give None"):
        GaussianPrior.isotropic(3, intercept=7)


def test_of_the_wrong_size_says_so() -> None:
    with pytest.raises(
        ValueError, match=r"prior has 2 weights but the model has 3; give the prior one weight for each"
    ):
        GaussianPrior(0.0, np.ones(2)).resized(3)


def test_knows_a_prior_that_treats_classes_alike(dense: Twin) -> None:
    S = dense.covariance(np.random.default_rng(0), 2)
    assert exchangeable(GaussianPrior(0.0, S), 3, 2) is not None
    assert exchangeable(GaussianPrior(0.0, np.kron(np.eye(3), S)), 3, 2) is not None
    assert exchangeable(GaussianPrior(np.arange(6.0), np.kron(np.eye(3), S)), 3, 2) is not None
    assert exchangeable(GaussianPrior(0.0, np.arange(1.0, 7.0)), 3, 2) is None
    assert exchangeable(GaussianPrior(0.0, dense.covariance(np.random.default_rng(1), 6)), 3, 2) is None


def test_contrasts_and_sum_make_up_the_class_weights(dense: Twin) -> None:
    rng = np.random.default_rng(0)
    T, w = helmert(3), rng.standard_normal((3, 2))
    theta = (T.T @ w).ravel()
    assert class_mean(theta, T, w.ravel()) == pytest.approx(w.ravel(), rel=1e-13)
    P = np.linalg.inv(dense.covariance(rng, 2))
    A = np.kron(np.eye(2), P)
    assert class_precision(A, T, P) == pytest.approx(np.kron(np.eye(3), P), abs=1e-13)
    assert np.linalg.matrix_rank(class_precision(A, T, None)) == 4


@pytest.mark.parametrize("broad", [1.0, 1e10])
def test_factor_of_the_class_precision(dense: Twin, broad: float) -> None:
    """Its determinant is that of contrasts and prior, however broad the latter beside the former."""
    rng = np.random.default_rng(0)
    A, S = (
        100 * dense.covariance(rng, 6),
        dense.covariance(rng, 2) * np.outer([1, broad**0.5], [1, broad**0.5]),
    )
    T, prior = helmert(4), GaussianPrior(0.0, S)
    L = class_cholesky(np.linalg.cholesky(A), T, np.linalg.cholesky(prior.precision(2)))
    assert np.all(np.diag(L) > 0)
    assert np.array_equal(L, np.tril(L))
    full = class_precision(A, T, prior.precision(2))
    np.testing.assert_allclose(L @ L.T, full, rtol=1e-9, atol=1e-9 * np.abs(full).max())
    log_det = np.linalg.slogdet(A)[1] - np.linalg.slogdet(S)[1]
    assert 2 * np.log(np.diag(L)).sum() == pytest.approx(log_det, abs=1e-7)
