"""Missing features are integrated over the spread that training rows without them have not accounted for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from blr.missing.moments import FeatureMoments, excess_spread

N, F = 4000, 3
COVARIANCE = np.array([[1.0, 0.6, 0.2], [0.6, 1.0, -0.3], [0.2, -0.3, 1.0]])


def rows(seed: int, *, lacking: float) -> tuple[np.ndarray, np.ndarray]:
    """Return normal features (N, F), of which the second is missing in a share of the rows."""
    rng = np.random.default_rng(seed)
    missing = np.zeros((N, F), dtype=bool)
    missing[:, 1] = rng.random(N) < lacking
    return rng.multivariate_normal(np.zeros(F), COVARIANCE, N), missing


def estimated(X: np.ndarray, missing: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    return excess_spread(FeatureMoments.estimate(X, missing, weight=weight), X, missing, weight)


@pytest.mark.parametrize("lacking", [0.0, 0.3, 0.9])
def test_of_normal_features_it_is_the_share_of_rows_that_have_them(lacking: float) -> None:
    X, missing = rows(1, lacking=lacking)
    np.testing.assert_allclose(estimated(X, missing) ** 2, [1.0, 1 - missing[:, 1].mean(), 1.0], rtol=0.08)


def test_weights_are_copies_of_rows() -> None:
    X, missing = rows(2, lacking=0.5)
    X, missing = X[:300], missing[:300]
    count = np.random.default_rng(3).integers(1, 4, 300)
    copied = estimated(np.repeat(X, count, axis=0), np.repeat(missing, count, axis=0))
    np.testing.assert_allclose(estimated(X, missing, count.astype(float)), copied, rtol=1e-6)


def test_values_far_out_do_not_widen_it() -> None:
    """A twentieth of the rows has ten times the spread: their variance is six times that of the rest."""
    X, missing = rows(4, lacking=0.0)
    wide = np.random.default_rng(5).random(N) < 0.05
    X[wide, 2] *= 10
    moments = FeatureMoments.estimate(X, missing)
    _, L = moments.conditional(np.array([False, False, True]))
    rest = np.std(X[~wide, 2] - X[~wide, :2] @ np.linalg.lstsq(X[~wide, :2], X[~wide, 2], rcond=None)[0])
    assert L[0, 0] > 2 * rest
    assert rest < estimated(X, missing)[2] * L[0, 0] < 1.7 * rest


def test_nodes_have_the_excess_and_the_same_mean() -> None:
    moments = FeatureMoments(np.zeros(F), COVARIANCE)
    pattern = np.array([False, True, True])
    narrow = replace(moments, spread=np.array([1.0, 0.5, 0.25]))
    X = np.array([[1.0, 0.0, 0.0]])
    whole, weight = moments.nodes(X, pattern, 64)
    some, same = narrow.nodes(X, pattern, 64)
    assert (weight == same).all()
    mean = np.einsum("s,snf->nf", weight, whole)
    np.testing.assert_allclose(np.einsum("s,snf->nf", weight, some), mean, atol=1e-12)
    np.testing.assert_allclose(some - mean, (whole - mean) * [1.0, 0.5, 0.25], atol=1e-12)


def test_moments_are_stored_with_their_spread() -> None:
    moments = FeatureMoments(np.zeros(F), COVARIANCE)
    assert FeatureMoments.from_dict(moments.to_dict()).spread is None
    narrow = replace(moments, spread=np.full(F, 0.5))
    assert np.array_equal(FeatureMoments.from_dict(narrow.to_dict()).spread, np.full(F, 0.5))
