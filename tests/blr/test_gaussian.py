"""Gaussians by their precision, against explicit inverses and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from blr.gaussian import Gaussian, cholesky_of_precision
from tests.blr.conftest import Twin


@pytest.fixture
def gaussian(dense: Twin) -> Gaussian:
    rng = np.random.default_rng(0)
    return Gaussian(rng.standard_normal(5), np.linalg.inv(dense.covariance(rng, 5)))


def test_the_factor_is_cholesky_and_lower(gaussian: Gaussian) -> None:
    L = gaussian.cholesky
    assert np.array_equal(L, np.tril(L))
    assert L @ L.T == pytest.approx(gaussian.precision, rel=1e-13)  # noqa: SIM300
    assert gaussian.jitter == 0


def test_moments_and_density_are_scipys(gaussian: Gaussian) -> None:
    theirs = multivariate_normal(gaussian.mean, np.linalg.inv(gaussian.precision))
    w = gaussian.mean + 0.3
    assert gaussian.covariance == pytest.approx(theirs.cov, rel=1e-12)
    assert gaussian.log_density(w) == pytest.approx(theirs.logpdf(w), rel=1e-12)
    assert gaussian.log_det_precision == pytest.approx(np.linalg.slogdet(gaussian.precision)[1], rel=1e-12)


def test_solve_is_the_product_with_the_inverse(gaussian: Gaussian) -> None:
    b = np.random.default_rng(3).standard_normal(5)
    assert gaussian.solve(b) == pytest.approx(np.linalg.solve(gaussian.precision, b), rel=1e-11)


@pytest.mark.parametrize("known", [(), ("cholesky",), ("cholesky", "inverse_cholesky", "covariance")])
def test_about_another_mean_it_is_the_gaussian_made_anew(gaussian: Gaussian, known: tuple[str, ...]) -> None:
    computed = {name: getattr(gaussian, name) for name in known}
    mean = gaussian.mean + 1.5
    moved, anew = gaussian.about(mean), Gaussian(mean, gaussian.precision)
    for name, value in computed.items():
        assert getattr(moved, name) is value  # not computed again
    for name in ("mean", "precision", "cholesky", "inverse_cholesky", "covariance"):
        assert np.array_equal(getattr(moved, name), getattr(anew, name))
    assert moved.log_density(mean) == anew.log_density(mean)


def test_samples_have_its_moments(gaussian: Gaussian) -> None:
    draws = gaussian.sample(200_000, np.random.default_rng(2))
    sd = np.sqrt(np.diag(gaussian.covariance))
    assert np.abs(draws.mean(axis=0) - gaussian.mean).max() < 5 * sd.max() / np.sqrt(200_000)
    assert np.cov(draws.T) == pytest.approx(gaussian.covariance, abs=0.02)


def test_scales_from_1e_minus_12_to_1e12_side_by_side(dense: Twin) -> None:
    A = np.linalg.inv(dense.covariance(np.random.default_rng(0), 5))
    scale = np.array([1e-12, 1e-6, 1.0, 1e6, 1e12])
    L, jitter = cholesky_of_precision(A * np.outer(scale, scale))
    assert jitter == 0
    assert pytest.approx(cholesky_of_precision(A)[0], rel=1e-10) == L / scale[:, None]


def test_collinear_weights_take_a_jitter_that_is_told() -> None:
    x = np.array([1.0, 2.0, 3.0])
    A = np.outer(x, x)
    L, jitter = cholesky_of_precision(A)
    assert 0 < jitter < 1e-12
    assert pytest.approx(A, rel=1e-12) == L @ L.T


def test_refuses_what_is_no_precision() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="precision is not positive definite"):
        cholesky_of_precision(np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(np.linalg.LinAlgError, match="every entry must be positive and finite"):
        cholesky_of_precision(np.diag([1.0, -1.0]))


def test_a_flat_weight_takes_a_jitter() -> None:
    L, jitter = cholesky_of_precision(np.diag([4.0, 0.0]))
    assert 0 < jitter < 1e-12
    assert L[0, 0] == pytest.approx(2.0)
    assert L[1, 1] > 0
