"""Rows unlike the training set are found, whatever they miss."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2, norm

from blr.arrays import Matrix
from blr.missing.moments import Domain, FeatureMoments, wilson_hilferty

COVARIANCE = np.array([[1, 0.9, 0, 0.2], [0.9, 1, 0, 0.1], [0, 0, 1e-6, 0], [0.2, 0.1, 0, 100]])
MEAN = np.array([1.0, 2.0, 3.0, -400.0])
PATTERNS = [np.array(p) for p in product([False, True], repeat=4)]

some_present = pytest.mark.parametrize(
    "pattern", PATTERNS[:-1], ids=lambda p: "".join("?x"[int(not m)] for m in p)
)


def galaxies(n: int = 5000, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).multivariate_normal(MEAN, COVARIANCE, size=n, method="cholesky")


def holes(n: int = 5000, seed: int = 1, fraction: float = 0.2) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 4)) < fraction


def none(X: Matrix) -> np.ndarray:
    return np.zeros(X.shape, dtype=bool)


def trained(X: Matrix | None = None, missing: np.ndarray | None = None) -> Domain:
    X = galaxies() if X is None else X
    missing = holes(len(X)) if missing is None else missing
    return Domain.estimate(X, missing, FeatureMoments.estimate(X, missing))


@pytest.mark.parametrize("k", [1, 2, 6, 30])
def test_cube_root_of_chi_squared_is_normal(k: int) -> None:
    """Within 0.15 up to the limit that matters, one in a thousand; within 0.3 up to one in a million."""
    for level, tolerance in ((0.5, 0.15), (0.9, 0.15), (0.999, 0.15), (1 - 1e-6, 0.3)):
        assert abs(wilson_hilferty(chi2.ppf(level, k), k) - norm.ppf(level)) < tolerance


def test_distance_is_its_definition_row_by_row() -> None:
    domain, X, missing = trained(), galaxies(60, seed=5), holes(60, fraction=0.4)
    z = domain.distance(np.where(missing, np.nan, X), missing)
    for x, m, found in zip(X, missing, z, strict=True):
        d, C = (x - domain.moments.mean)[~m], domain.moments.covariance[np.ix_(~m, ~m)]
        k = len(d)
        expected = wilson_hilferty(d @ np.linalg.inv(C) @ d, k) if k else 0.0
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@some_present
def test_distances_are_comparable_between_patterns(pattern: np.ndarray) -> None:
    """Normal features have normal distances whichever are present."""
    X = galaxies(20_000, seed=7)
    z = trained().distance(X, np.tile(pattern, (len(X), 1)))
    level = np.array([0.1, 0.5, 0.9, 0.99])
    np.testing.assert_allclose(np.quantile(z, level), norm.ppf(level), atol=0.2)


@some_present
def test_finds_what_is_30_sd_away(pattern: np.ndarray) -> None:
    """Along each of the features present, up and down; and leaves ordinary rows inside."""
    domain = trained()
    sd = np.sqrt(np.diag(COVARIANCE))
    present = np.flatnonzero(~pattern)
    X = np.vstack([galaxies(20, seed=3) + s * 30 * sd[f] * np.eye(4)[f] for f in present for s in (-1, 1)])
    X[:, pattern] = np.nan
    assert np.all(domain.outside(X, np.isnan(X)))
    ordinary = galaxies(2000, seed=4)
    assert domain.outside(ordinary, np.tile(pattern, (2000, 1))).mean() < 0.006


@some_present
def test_what_is_missing_hides_nothing_and_betrays_nothing(pattern: np.ndarray) -> None:
    """A strange value behind the mask counts for nothing."""
    if pattern.any():
        X = galaxies(500, seed=4)
        X[:, pattern] += 1e6
        assert trained().outside(X, np.tile(pattern, (500, 1))).mean() < 0.02


def test_finds_what_breaks_a_correlation() -> None:
    """Two sd up in one feature and two down in its twin: ordinary each, unheard of together."""
    domain = trained()
    x = MEAN + np.array([2.0, -2.0, 0, 0])
    missing = np.array([[False] * 4, [True, False, False, False], [False, True, False, False]])
    assert domain.outside(np.tile(x, (3, 1)), missing).tolist() == [True, False, False]


def test_a_feature_that_follows_from_others_does_not_count() -> None:
    """Two colours and their sum are as far out as the two colours, and a wrong sum is far."""
    two = galaxies()[:, :2]
    X = np.column_stack([two, two.sum(axis=1)])
    domain = trained(X, none(X))
    z = domain.distance(X, none(X))
    np.testing.assert_allclose(z, trained(two, none(two)).distance(two, none(two)), atol=1e-3)
    assert np.all(domain.outside(X + np.array([0, 0, 0.1]), none(X)))


def test_one_training_row_in_a_thousand_is_outside() -> None:
    X, missing = galaxies(), holes()
    X = np.exp(X / np.sqrt(np.diag(COVARIANCE)) - MEAN / np.sqrt(np.diag(COVARIANCE)))  # far from normal
    domain = trained(X, missing)
    assert domain.outside(X, missing).sum() == 5
    assert domain.limit > 5


def test_rows_of_which_nothing_is_known_are_not_outside() -> None:
    domain = trained()
    missing = np.ones((3, 4), dtype=bool)
    assert domain.distance(np.full((3, 4), np.nan), missing).tolist() == [0, 0, 0]
    assert not domain.outside(np.full((3, 4), np.nan), missing).any()
    assert domain.distance(np.empty((0, 4)), np.empty((0, 4), dtype=bool)).shape == (0,)


def test_units_do_not_matter() -> None:
    scale = np.array([1e-12, 1e12, 1e3, 1])
    X, missing, new = galaxies(500), holes(500), galaxies(50, seed=8)
    here, there = trained(X, missing), trained(X * scale, missing)
    np.testing.assert_allclose(there.limit, here.limit, rtol=1e-7)
    np.testing.assert_allclose(
        there.distance(new * scale, none(new)), here.distance(new, none(new)), rtol=1e-7, atol=1e-7
    )


def test_absurd_values_are_far_and_not_nan() -> None:
    X = np.array([[1e300, -1e300, 1.7e308, 0], [0, 0, 0, -1.7e308]])
    z = trained().distance(X, none(X))
    assert np.all(np.isfinite(z))
    assert np.all(trained().outside(X, none(X)))


@pytest.mark.parametrize(
    "X",
    [
        galaxies(1),
        np.tile(galaxies(1), (20, 1)),
        galaxies(3),
        galaxies(100)[:, [0, 0, 1, 1]],
        np.eye(4)[[0, 1] * 9],
    ],
    ids=["one row", "one place", "fewer rows than features", "twice the same", "two places"],
)
def test_degenerate_training_sets_hold_their_own_rows(X: Matrix) -> None:
    domain = trained(X, none(X))
    assert domain.outside(X, none(X)).sum() <= 1
    far = X + 30 * np.maximum(X.std(axis=0), 1) + 1e6
    assert np.all(domain.outside(far, none(X)))


def test_row_of_the_same_value_with_less_known_stays_inside() -> None:
    X = galaxies(1)
    domain = trained(X, none(X))
    for pattern in PATTERNS:
        assert not domain.outside(X, pattern[None])[0]


def test_dict_round_trip_is_exact() -> None:
    domain, X, missing = trained(), galaxies(40, seed=6), holes(40)
    again = Domain.from_dict(domain.to_dict())
    assert again.limit == domain.limit
    np.testing.assert_array_equal(again.distance(X, missing), domain.distance(X, missing))


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(N, 4\), got \(5, 3\)"):
        trained().distance(np.zeros((5, 3)), np.zeros((5, 3), dtype=bool))
