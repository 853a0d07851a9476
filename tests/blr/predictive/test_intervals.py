"""Intervals of probabilities, temperatures, and what lies beyond the range of the labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr, softmax

import blr
from blr.arrays import Matrix
from blr.calibration import log_loss
from blr.classifier import Classifier
from blr.decisions import Flag
from blr.member import Member
from blr.predictive._cubature import normal_nodes
from blr.predictive.mixture import (
    CONSTANT,
    Temperature,
    credible_interval,
    estimate_temperature,
    feature_range,
    predicted,
    rows_beyond,
)


def test_two_classes_exactly() -> None:
    low, high = credible_interval(np.array([0.4, -8.0]), np.array([0.25, 0.0]), 0.9, link="probit")
    z = 1.6448536269514722
    np.testing.assert_allclose(low[0], [ndtr(-0.4 - 0.5 * z), ndtr(0.4 - 0.5 * z)], rtol=1e-12)
    np.testing.assert_allclose(high[0], [ndtr(-0.4 + 0.5 * z), ndtr(0.4 + 0.5 * z)], rtol=1e-12)
    np.testing.assert_allclose(low[1], high[1], rtol=1e-12)  # nothing is left open


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


SHARP = Temperature(np.array([2.0]), np.array([1.0]))


def labels(p: Matrix, rng: np.random.Generator) -> tuple[np.ndarray, Matrix]:
    """Draw a class of each row (N, K), one-hot."""
    t = np.array([rng.choice(p.shape[1], p=row) for row in p])
    return t, np.eye(p.shape[1])[t]


def activations(n: int, k: int, rng: np.random.Generator, scale: float) -> Matrix:
    return scale * rng.normal(size=(n, k))


@pytest.mark.parametrize("power", [0.6, 1.8])
@pytest.mark.parametrize("k", [2, 5])
def test_a_power_that_the_rows_ask_for_is_found(power: float, k: int) -> None:
    rng = np.random.default_rng(3)
    p = softmax(activations(600, k, rng, 1.5), axis=1)
    true = softmax(power * np.log(p), axis=1)
    temperature = estimate_temperature(p, labels(true, rng)[1])
    assert temperature is not None
    assert temperature.mean_power == pytest.approx(power, rel=0.2)
    new = softmax(activations(4000, k, rng, 1.5), axis=1)
    t_new, _ = labels(softmax(power * np.log(new), axis=1), rng)
    best = log_loss(softmax(power * np.log(new), axis=1), t_new)
    assert log_loss(temperature.scaled(new), t_new) < best + 0.01 < log_loss(new, t_new)


def test_calibrated_probabilities_stay_as_they_are() -> None:
    """In nearly all of many draws, of few rows and many."""
    rng = np.random.default_rng(4)
    changed = 0
    for n in (50, 100, 1000):
        for _ in range(40):
            p = softmax(activations(n, 3, rng, 2.0), axis=1)
            changed += estimate_temperature(p, labels(p, rng)[1]) is not None
    assert changed <= 6


def test_few_rows_that_are_all_right_do_not_ask_for_certainty() -> None:
    """The power of highest likelihood is infinite there."""
    p = np.tile([0.9, 0.1], (60, 1))
    temperature = estimate_temperature(p, np.tile([1.0, 0.0], (60, 1)))
    assert temperature is None or temperature.scaled(p)[0, 0] < 0.99


def test_scaling_is_the_power_of_each_row() -> None:
    rng = np.random.default_rng(5)
    p = softmax(activations(20, 4, rng, 1.0), axis=1)
    two = Temperature(np.array([0.5, 2.0]), np.array([0.3, 0.7]))
    slow = np.array([sum(s * row**b / np.sum(row**b) for b, s in ((0.5, 0.3), (2.0, 0.7))) for row in p])
    np.testing.assert_allclose(two.scaled(p), slow, rtol=1e-12)
    assert np.array_equal(two.scaled(p).argmax(axis=1), p.argmax(axis=1))


@pytest.mark.parametrize("K", [2, 3])
def test_other_class_priors_are_not_taken_to_the_power(K: int) -> None:
    """Scaled first and shifted then is the same, for the logits and the ends of intervals too."""
    a, shift = activations(10, K, np.random.default_rng(6), 1.0), np.log([2.0, 0.2, 1.0])[:K]
    wanted = softmax(2 * a + shift, axis=1)
    np.testing.assert_allclose(SHARP.scaled(softmax(a + shift, axis=1), shift), wanted, rtol=1e-12)
    mean, covariance = (a, np.zeros((10, 3, 3))) if K == 3 else (a[:, 1] - a[:, 0], np.zeros(10))
    found = SHARP.prediction(predicted(mean, covariance, shift=shift), shift)
    np.testing.assert_allclose(credible_interval(found.mean, found.covariance), [wanted, wanted], rtol=1e-5)


@pytest.mark.parametrize("binary", [True, False])
def test_entropies_keep_their_ratio(*, binary: bool) -> None:
    rng = np.random.default_rng(7)
    mean = rng.normal(size=30) if binary else activations(30, 3, rng, 1.0)
    if not binary:
        mean -= mean.mean(axis=1, keepdims=True)
    one = np.eye(3) - 1 / 3
    base = predicted(mean, np.full(30, 0.8) if binary else np.tile(0.8 * one, (30, 1, 1)))
    sharp = SHARP.prediction(base)
    before, after = base.mutual_information, sharp.mutual_information
    assert np.all(after >= 0)
    np.testing.assert_allclose(
        after / (after + sharp.expected_entropy), before / (before + base.expected_entropy), rtol=1e-10
    )
    np.testing.assert_allclose(sharp.logit_std, 2 * base.logit_std)


def trained(K: int, *, averaged: bool) -> tuple[Classifier, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2))
    t = np.argmax(X @ rng.normal(size=(2, K)) * 2 + rng.gumbel(size=(300, K)), axis=1)
    basis = blr.fit_basis("polynomial", X)
    q = blr.fit_evidence(basis(X), t, "logistic" if K == 2 else "softmax", classes=range(K))
    names = tuple("abc"[:K])
    whole = np.zeros(X.shape, dtype=bool)
    members = [Member(basis, q, (0, 1))]
    built = Classifier.build(members, X, whole, features="xy", classes=names, averaged_beyond=averaged)
    return built, X


@pytest.mark.parametrize("K", [2, 3])
def test_rows_beyond_it_are_mixed(K: int) -> None:
    plain, X = trained(K, averaged=False)
    mixed, _ = trained(K, averaged=True)
    far = np.array([[9.0, 0.0], [0.3, -7.0], [-6.0, 8.0], [0.1, 0.2]])
    whole = np.zeros(far.shape, dtype=bool)
    nearest = np.clip(far, X.min(axis=0), X.max(axis=0))
    own, constant = (plain.score(x, whole) for x in (far, nearest))
    found = mixed.score(far, whole)
    np.testing.assert_allclose(
        found.probability, (1 - CONSTANT) * own.probability + CONSTANT * constant.probability, atol=1e-6
    )
    np.testing.assert_allclose(
        found.plugin, (1 - CONSTANT) * own.plugin + CONSTANT * constant.plugin, atol=1e-6
    )


def test_rows_beyond_the_range_are_flagged_whatever_is_missing() -> None:
    plain, X = trained(2, averaged=False)
    mixed, _ = trained(2, averaged=True)
    rows = np.array([[9.0, 0.0], [0.1, 0.2], [9.0, 9.0], [9.0, 0.2]])
    missing = np.array([[False, False], [False, False], [False, True], [True, False]])
    expected = np.array([True, False, True, False])
    np.testing.assert_array_equal(mixed.score(rows, missing).flags & int(Flag.BEYOND_LABELS) > 0, expected)
    assert not np.any(plain.score(rows, missing).flags & int(Flag.BEYOND_LABELS))
    assert not np.any(mixed.score(X, np.zeros(X.shape, dtype=bool)).flags & int(Flag.BEYOND_LABELS))


def test_missing_features_are_integrated_over_the_mixture() -> None:
    mixed, _ = trained(2, averaged=True)
    X, missing = np.array([[8.0, 0.0]]), np.array([[False, True]])
    nodes, weight = mixed.moments.nodes(X, missing[0], 32, limits=mixed.support)
    each = [mixed.score(x, np.zeros((1, 2), dtype=bool)).probability[0] for x in nodes]
    np.testing.assert_allclose(mixed.score(X, missing).probability[0], weight @ np.array(each), atol=1e-3)


def test_the_range_is_of_what_is_present() -> None:
    X = np.array([[1.0, 99.0], [3.0, 5.0], [2.0, 7.0]])
    missing = X == 99
    np.testing.assert_array_equal(feature_range(X, missing), [[1.0, 5.0], [3.0, 7.0]])
    rows, inside = rows_beyond(feature_range(X, missing), np.array([[2.0, 6.0], [0.0, 9.0]]))
    np.testing.assert_array_equal(rows, [1])
    np.testing.assert_array_equal(inside, [[1.0, 7.0]])
    X, support = np.random.default_rng(0).normal(size=(300, 4)), np.array([[-1.0] * 4, [1.5] * 4])
    outside = (support[0] > X).any(axis=1) | (support[1] < X).any(axis=1)
    np.testing.assert_array_equal(rows_beyond(support, X)[0], np.flatnonzero(outside))
