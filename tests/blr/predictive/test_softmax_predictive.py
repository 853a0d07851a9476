"""Softmax predictive integrals and the moments that they take, against product rules, stored brute force and bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import blr
from blr.arrays import Matrix, Vector
from blr.covariances import OutputMoments
from blr.decisions import entropy
from blr.gaussian import Gaussian
from blr.predictive.binary import binary_exact, binary_expected_entropy, binary_probit
from blr.predictive.softmax import (
    softmax_exact,
    softmax_fast,
    softmax_pairwise,
    softmax_plugin,
)
from tests.blr import dense
from tests.blr.conftest import scaled_covariance

REFERENCE = Path(__file__).parent.parent.parent / "reference" / "softmax_integrals.npz"


def examples(K: int, spread: float, n: int, seed: int = 0) -> tuple[Matrix, np.ndarray]:
    """Return means and covariances: isotropic, a few wide directions, and classes of unequal spread."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, K, K))
    A[n // 3 :] *= np.exp(rng.normal(0, 1, (n - n // 3, 1, K)))
    A[2 * n // 3 :] *= np.exp(rng.normal(0, 1, (n - 2 * n // 3, K, 1)))
    mean = rng.standard_normal((n, K)) * max(1.0, spread) * rng.choice([0.1, 0.5, 1.0], (n, 1))
    return mean, scaled_covariance(A, spread)


def by_trapezoid(mean: Matrix, V: np.ndarray) -> tuple[Matrix, Vector]:
    """Return E[p] (n, K) and E[H] (n,) by a trapezoid rule over the eigenvectors of the centred covariance."""
    n, K = mean.shape
    P = np.eye(K) - 1 / K
    values, U = np.linalg.eigh(P @ V @ P)
    B = (U * np.sqrt(np.maximum(values, 0))[:, None, :])[:, :, 1:]
    p, h = np.empty((n, K)), np.empty(n)
    for i in range(n):
        steps = [min(1.0, 1.3 / np.ptp(b)) if np.ptp(b) > 0 else 1.0 for b in B[i].T]
        axes = [s * np.arange(-int(6.5 / s), int(6.5 / s) + 1) for s in steps]
        Z = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
        w = np.exp(-0.5 * (Z**2).sum(axis=1))
        w /= w.sum()
        y = softmax(mean[i] + Z @ B[i].T, axis=1)
        p[i], h[i] = w @ y, w @ entropy(y)
    return p, h


@pytest.mark.parametrize("K", [3, 4])
@pytest.mark.parametrize("spread", [0.05, 0.3, 0.4, 0.7, 1.2, 2.0, 3.0, 4.0, 7.0, 12.0])
def test_few_classes_against_a_fine_product_rule(K: int, spread: float) -> None:
    n = 60 if K == 3 else max(6, int(40 / spread))
    mean, V = examples(K, spread, n, seed=int(10 * spread))
    p, h = softmax_exact(mean, V)
    truth, truth_h = by_trapezoid(mean, V)
    tolerance = 1e-4 if spread <= 4 else 5e-4
    assert np.abs(p - truth).max() < tolerance
    assert np.abs(h - truth_h).max() < 2 * tolerance


@pytest.mark.parametrize("K", [5, 10, 20])
@pytest.mark.parametrize("spread", [1.0, 4.0, 12.0])
def test_many_classes_against_stored_brute_force(K: int, spread: float) -> None:
    with np.load(REFERENCE, allow_pickle=False) as stored:
        name = f"{K}_{spread:g}"
        mean, B = stored[f"{name}_mean"], stored[f"{name}_factor"]
        truth, error = stored[f"{name}_probability"], stored[f"{name}_error"]
    tolerance = 1e-3 if spread <= 4 else 5e-3
    assert error.max() < tolerance / 10
    p, _ = softmax_exact(mean, B @ B.transpose(0, 2, 1))
    assert np.abs(p - truth).max() < tolerance


def test_wide_classes_that_hardly_count_take_no_axes() -> None:
    """Thirty classes, most of them rare and hardly known, as of a catalogue with types of five rows."""
    rng = np.random.default_rng(3)
    rare = np.arange(30) >= 6
    sd = np.where(rare, 3.0, 0.8)
    B = rng.standard_normal((8, 30, 30)) / np.sqrt(30) * sd[:, None]
    mean = rng.standard_normal((8, 30)) - np.where(rare, 14.0, 0.0)
    half = rng.standard_normal((50_000, 30))
    z = np.concatenate([half, -half])
    draws = [softmax(m + z @ b.T, axis=1) for m, b in zip(mean, B, strict=True)]
    for most_nodes, tolerance in ((None, 2e-3), (512, 5e-3)):  # of the draws 1e-3
        p, h = softmax_exact(mean, B @ B.transpose(0, 2, 1), most_nodes=most_nodes)
        assert np.abs(p - [d.mean(axis=0) for d in draws]).max() < tolerance
        assert np.abs(h - [entropy(d).mean() for d in draws]).max() < 4 * tolerance


@pytest.mark.parametrize("K", [3, 4, 5, 20])
def test_no_variance_is_the_softmax_to_rounding(K: int) -> None:
    mean = np.random.default_rng(0).normal(0, 10, (30, K))
    for V in (np.zeros((30, K, K)), np.ones((30, K, K)) * 4.0):
        p, h = softmax_exact(mean, V)
        np.testing.assert_allclose(p, softmax(mean, axis=1), rtol=1e-12)
        np.testing.assert_allclose(h, entropy(p), atol=1e-12)
        np.testing.assert_allclose(softmax_pairwise(mean, V), p, rtol=1e-12)
    small, _ = softmax_exact(mean, np.eye(K) * np.full((30, 1, 1), 1e-10))
    np.testing.assert_allclose(small, softmax(mean, axis=1), atol=1e-10)
    np.testing.assert_array_equal(softmax_plugin(mean), softmax(mean, axis=1))


def test_two_classes_are_the_binary_integral() -> None:
    mean, V = examples(2, 3.0, 200)
    logit = mean[:, 1] - mean[:, 0]
    variance = V[:, 0, 0] + V[:, 1, 1] - 2 * V[:, 0, 1]
    p, h = softmax_exact(mean, V)
    np.testing.assert_allclose(p[:, 1], binary_exact(logit, variance), rtol=1e-12)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(h, binary_expected_entropy(logit, variance), rtol=1e-12)
    np.testing.assert_allclose(softmax_fast(mean, V)[:, 1], binary_probit(logit, variance), rtol=1e-12)


@pytest.mark.parametrize("K", [3, 4, 5, 12])
@pytest.mark.parametrize("spread", [0.1, 0.5, 2.0, 8.0, 40.0, 1e4])
def test_probabilities_are_probabilities(K: int, spread: float) -> None:
    mean, V = examples(K, spread, 20)
    mean[0], mean[1] = 0.0, 1e3 * np.arange(K)
    p, h = softmax_exact(mean, V)
    assert p.min() >= 0
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-14)  # scikit-learn warns from 3e-8 on
    assert np.all(h >= -1e-5)
    assert np.all(h <= entropy(p) + 2e-5)


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_arguments_are_left_alone(K: int, spread: float) -> None:
    mean, V = examples(K, spread, 50)
    # Rows innermost, as einsum may return them.
    mean = np.asfortranarray(mean)
    V = np.moveaxis(np.array(np.moveaxis(V, 0, -1), order="C"), -1, 0)
    kept = mean.copy(), V.copy()
    softmax_exact(mean, V)
    softmax_pairwise(mean, V)
    binary_exact(mean[:, 0], V[:, 0, 0])
    binary_expected_entropy(mean[:, 0], V[:, 0, 0])
    np.testing.assert_array_equal(mean, kept[0])
    np.testing.assert_array_equal(V, kept[1])


@pytest.mark.parametrize("K", [3, 4, 5, 8, pytest.param(20, marks=pytest.mark.long)])
def test_fast_is_within_its_bound_at_any_spread(K: int) -> None:
    """Where the pairwise formula alone errs by more than 0.1."""
    parts = [examples(K, spread, 30) for spread in (0.3, 0.69, 1.0, 4.0, 12.0)]
    mean, V = (np.concatenate(x) for x in zip(*parts, strict=True))
    truth, fast = softmax_exact(mean, V)[0], softmax_fast(mean, V)
    assert np.abs(fast - truth).max() < 0.035
    assert np.abs(softmax_pairwise(mean, V) - truth).max() > 0.1
    np.testing.assert_allclose(fast.sum(axis=1), 1, rtol=1e-14)
    narrow = slice(0, 60)
    assert np.array_equal(fast[narrow], softmax_pairwise(mean[narrow], V[narrow]))


def test_empty_batches() -> None:
    p, h = softmax_exact(np.zeros((0, 3)), np.zeros((0, 3, 3)))
    assert p.shape == (0, 3)
    assert h.shape == (0,)


def test_a_covariance_that_is_infinite_is_told() -> None:
    with pytest.raises(ValueError, match="covariance holds 1 value"):
        softmax_exact(np.zeros((1, 2)), np.array([[[1, np.inf], [0, 1]]]))


M, C = 30, 4


def moments(condition: float) -> OutputMoments:
    """Return the moments of weights whose precision has eigenvalues from 1 to `condition`."""
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.standard_normal((C * M, C * M)))
    A = (Q * np.geomspace(1, condition, C * M)) @ Q.T
    return OutputMoments(Gaussian(rng.standard_normal(C * M), (A + A.T) / 2), C)


def test_rows_of_which_less_is_known_are_done_in_double_precision() -> None:
    outputs = moments(10.0)
    Phi = np.random.default_rng(2).standard_normal((50, M))
    Phi[[3, 17]] *= 1e60
    V, slow = outputs(Phi, single=True)[1], outputs(Phi)[1]
    np.testing.assert_allclose(V[[3, 17]], slow[[3, 17]], rtol=1e-12)
    near = np.delete(np.arange(50), [3, 17])
    np.testing.assert_allclose(V[near], slow[near], atol=1e-4)


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


def test_probabilities_of_several_classes_do_not_show_it() -> None:
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
