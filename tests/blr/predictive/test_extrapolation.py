"""Beyond the labels' range: mixtures of two continuations, done by hand."""

from __future__ import annotations

import numpy as np
import pytest

import blr
from blr.classifier import Classifier, Member
from blr.decisions import Flag
from blr.predictive.mixture import CONSTANT, feature_range, rows_beyond


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
def test_rows_within_the_range_are_predicted_as_before(K: int) -> None:
    plain, X = trained(K, averaged=False)
    mixed, _ = trained(K, averaged=True)
    whole = np.zeros(X.shape, dtype=bool)
    np.testing.assert_array_equal(plain.score(X, whole).probability, mixed.score(X, whole).probability)


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
    X, missing = (
        np.array([[1.0, 99.0], [3.0, 5.0], [2.0, 7.0]]),
        np.array([[False, True]] + [[False, False]] * 2),
    )
    np.testing.assert_array_equal(feature_range(X, missing), [[1.0, 5.0], [3.0, 7.0]])
    rows, inside = rows_beyond(feature_range(X, missing), np.array([[2.0, 6.0], [0.0, 9.0]]))
    np.testing.assert_array_equal(rows, [1])
    np.testing.assert_array_equal(inside, [[1.0, 7.0]])


def test_a_stored_classifier_keeps_its_range_and_an_old_one_has_none() -> None:
    mixed, _ = trained(2, averaged=True)
    np.testing.assert_array_equal(Classifier.from_dict(mixed.to_dict()).support, mixed.support)
