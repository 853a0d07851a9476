"""Nearest labelled rows against a loop over all of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import mahalanobis

from blr.arrays import Matrix, Vector
from blr.classifier import Classifier
from blr.explanation import nearest_rows
from tests.blr.test_classifier import build


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    """Return a classifier of three features."""
    return build(("linear",), 2)[0]


def rows(classifier: Classifier, n: int = 60, seed: int = 3) -> Matrix:
    """Return rows (n, F), one value in five missing."""
    rng = np.random.default_rng(seed)
    X = rng.multivariate_normal(classifier.moments.mean, classifier.moments.covariance, n)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def one_by_one(classifier: Classifier, x: Vector, X: Matrix) -> Vector:
    """Return each row's distance, by SciPy, over the features that both have."""
    found = []
    for row in X:
        both = np.isfinite(row) & np.isfinite(x)
        if not both.any():
            found.append(np.inf)
            continue
        inverse = np.linalg.inv(classifier.moments.covariance[np.ix_(both, both)])
        found.append(mahalanobis(row[both], x[both], inverse) / np.sqrt(2 * both.sum()))
    return np.array(found)


def test_they_are_those_that_a_loop_finds(classifier: Classifier) -> None:
    X = rows(classifier)
    x = classifier.moments.mean + 0.3
    found = nearest_rows(classifier, x, X, n=7)
    expected = one_by_one(classifier, x, X)
    enough = np.isfinite(X).sum(axis=1) * 2 >= len(x)
    order = np.argsort(np.where(enough, expected, np.inf))[:7]
    np.testing.assert_array_equal(found[0], order)
    np.testing.assert_allclose(found[1], expected[order])
    np.testing.assert_array_equal(found[2], np.isfinite(X[order]).sum(axis=1))


def test_a_row_is_nearest_to_itself_whatever_it_misses(classifier: Classifier) -> None:
    X = rows(classifier)
    i = int(np.flatnonzero(np.isnan(X).sum(axis=1) == 1)[0])
    found = nearest_rows(classifier, X[i], X, n=1)
    assert (found[0][0], found[1][0]) == (i, 0.0)


def test_rows_that_share_nothing_are_left_out(classifier: Classifier) -> None:
    F = len(classifier.features)
    X = np.full((2, F), np.nan)
    X[1] = classifier.moments.mean
    assert nearest_rows(classifier, classifier.moments.mean, X)[0].tolist() == [1]
    assert nearest_rows(classifier, classifier.moments.mean, X[:0])[0].tolist() == []


def test_a_typical_difference_is_one(classifier: Classifier) -> None:
    rng = np.random.default_rng(1)
    X = rng.multivariate_normal(classifier.moments.mean, classifier.moments.covariance, 4000)
    pairs = [nearest_rows(classifier, a, b[None], n=1)[1][0] for a, b in zip(X[::2], X[1::2], strict=True)]
    assert np.sqrt(np.mean(np.square(pairs))) == pytest.approx(1, rel=0.05)


def test_other_features_are_refused(classifier: Classifier) -> None:
    with pytest.raises(ValueError, match="expected x and X of"):
        nearest_rows(classifier, [0.0], np.zeros((3, 1)))
