"""Covariances of activations in single precision against those in double, and against their bound."""

from __future__ import annotations

import numpy as np
import pytest

import blr
from blr.arrays import Vector
from blr.covariances import OutputMoments
from blr.gaussian import Gaussian
from blr.predictive.binary import binary_exact
from tests.blr.conftest import Twin

M, C = 30, 4


def moments(condition: float) -> OutputMoments:
    """Return the moments of weights whose precision has eigenvalues from 1 to `condition`."""
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.standard_normal((C * M, C * M)))
    A = (Q * np.geomspace(1, condition, C * M)) @ Q.T
    return OutputMoments(Gaussian(rng.standard_normal(C * M), (A + A.T) / 2), C)


def contrast_sd(V: np.ndarray) -> Vector:
    """Return the sd of the first two activations' difference, (N,)."""
    return np.sqrt(np.maximum(V[:, 0, 0] + V[:, 1, 1] - 2 * V[:, 0, 1], 0.0))


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e8])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_single_precision_is_near_double(condition: float, scale: float) -> None:
    outputs = moments(condition)
    Phi = scale * np.random.default_rng(1).standard_normal((9000, M))  # three blocks
    mean, V = outputs(Phi, single=True)
    slow_mean, slow = outputs(Phi)
    assert np.array_equal(mean, slow_mean)
    np.testing.assert_allclose(contrast_sd(V), contrast_sd(slow), rtol=1e-4, atol=1e-5)
    assert not np.array_equal(V, slow)


def test_rows_of_which_less_is_known_are_done_in_double_precision() -> None:
    outputs = moments(10.0)
    Phi = np.random.default_rng(2).standard_normal((50, M))
    Phi[[3, 17]] *= 1e60
    V, slow = outputs(Phi, single=True)[1], outputs(Phi)[1]
    np.testing.assert_allclose(V[[3, 17]], slow[[3, 17]], rtol=1e-12)
    near = np.delete(np.arange(50), [3, 17])
    np.testing.assert_allclose(V[near], slow[near], atol=1e-4)


def test_a_precision_that_is_all_but_singular_is_left_to_double_precision() -> None:
    outputs = moments(1.0)
    A = np.eye(C * M) * 1e-12  # weights of which nothing is known
    wide = OutputMoments(Gaussian(outputs.gaussian.mean, A), C)
    Phi = np.random.default_rng(3).standard_normal((20, M))
    np.testing.assert_allclose(wide(Phi, single=True)[1], wide(Phi)[1], rtol=1e-12)


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("spread", [1e-4, 0.01, 0.3, 10.0])
def test_one_output_is_in_single_precision_where_no_probability_shows_it(
    condition: float, spread: float
) -> None:
    rng = np.random.default_rng(4)
    Q, _ = np.linalg.qr(rng.standard_normal((M, M)))
    A = (Q * np.geomspace(1, condition, M)) @ Q.T / spread**2
    outputs = OutputMoments(Gaussian(rng.standard_normal(M), (A + A.T) / 2), 1)
    Phi = rng.standard_normal((9000, M))
    mean, V = outputs(Phi, single=True)
    slow_mean, slow = outputs(Phi)
    assert np.array_equal(mean, slow_mean)
    # Where a probability depends on the variance the most.
    steep = np.full(len(Phi), -1.3)
    moved = binary_exact(steep, V[:, 0, 0]) - binary_exact(steep, slow[:, 0, 0])
    assert np.abs(moved).max() < 5e-8
    if spread == 1e-4:  # the fast path is taken at all
        assert np.mean(slow == V) < 0.5
    if spread == 10.0:  # and left where its bound says so
        np.testing.assert_allclose(V, slow, rtol=1e-12)


def test_probabilities_of_several_classes_do_not_show_it(dense: Twin) -> None:
    Phi, t = dense.softmax(0, N=400, M=6, K=4)
    q = blr.fit_evidence(Phi, t, "softmax", classes=range(4))
    found, slow = q.prediction(Phi, single=True), q.prediction(Phi)
    np.testing.assert_allclose(found.probability, slow.probability, atol=1e-6)
    np.testing.assert_allclose(found.expected_entropy, slow.expected_entropy, atol=1e-6)
    np.testing.assert_allclose(found.mutual_information, slow.mutual_information, rtol=1e-4, atol=1e-9)
    assert np.array_equal(slow.covariance, q.logit_moments(Phi)[1])


def test_no_rows() -> None:
    for single in (False, True):
        mean, V = moments(1.0)(np.empty((0, M)), single=single)
        assert (mean.shape, V.shape) == ((0, C), (0, C, C))
