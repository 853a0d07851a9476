"""Explanations of an object: contributions of its features, its nearest labelled rows, and novelty."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.distance import mahalanobis

import blr
from blr import explanation
from blr.arrays import Matrix, Vector
from blr.classifier import Classifier
from blr.explanation import contributions, distances_from, nearest_rows, relative, sampled_probability
from blr.missing.moments import FeatureMoments
from tests.blr.test_classifier import build


@pytest.fixture(scope="module", params=[2, 3])
def classifier(request: pytest.FixtureRequest) -> Classifier:
    """Two members of two or three classes, on three features."""
    return build(("linear", "rbf"), request.param)[0]


def mean_logit(classifier: Classifier, z: np.ndarray, of: int, against: int) -> float:
    """Return the posterior mean of the logit at a point, member by member, as written in a textbook."""
    total = 0.0
    for member in classifier.members:
        phi = member.design(z[None])[0]
        weights = member.posterior.mean.reshape(-1, len(phi))
        outputs = np.array([0.0, *(weights @ phi)]) if len(weights) == 1 else weights @ phi
        total += member.weight * (outputs[of] - outputs[against])
    return total


def by_all_orders(classifier: Classifier, x: np.ndarray, of: int, against: int) -> np.ndarray:
    """Return the slow and obvious twin: the mean gain over all orders in which features take the row's value."""
    gains, orders = np.zeros(len(x)), list(permutations(range(len(x))))
    for order in orders:
        z = classifier.moments.mean.copy()
        before = mean_logit(classifier, z, of, against)
        for j in order:
            z[j] = x[j]
            after = mean_logit(classifier, z, of, against)
            gains[j] += (after - before) / len(orders)
            before = after
    return gains


def row(classifier: Classifier) -> tuple[np.ndarray, np.ndarray]:
    """Return a complete row, within what is usual."""
    x = classifier.moments.mean + np.sqrt(np.diag(classifier.moments.covariance)) * 0.7
    return x, np.zeros(len(x), dtype=bool)


def test_they_are_the_mean_gains_over_all_orders(classifier: Classifier) -> None:
    x, missing = row(classifier)
    found = contributions(classifier, x, missing, of=1, against=0)
    np.testing.assert_allclose(found.value, by_all_orders(classifier, x, 1, 0), atol=1e-10)
    assert found.reference == pytest.approx(mean_logit(classifier, classifier.moments.mean, 1, 0))
    assert found.reference + found.value.sum() == pytest.approx(found.logit)


def test_drawn_orders_add_up_and_come_near_the_exact_ones(
    classifier: Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, missing = row(classifier)
    exact = contributions(classifier, x, missing, of=1, against=0)
    monkeypatch.setattr(explanation, "_MOST_EXACT", 0)
    drawn = contributions(classifier, x, missing, of=1, against=0)
    np.testing.assert_allclose(drawn.value, exact.value, atol=0.05 * np.abs(exact.value).max())
    assert drawn.reference + drawn.value.sum() == pytest.approx(drawn.logit)


def test_many_features_take_little_memory() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, 200))
    trained = blr.fit_default(X, X[:, 0] + rng.normal(size=80) > 0, candidates=["linear"])
    tracemalloc.start()
    found = trained.explain(X[0])
    assert tracemalloc.get_traced_memory()[1] < 150e6
    tracemalloc.stop()
    assert found.reference + found.value.sum() == pytest.approx(found.logit)


def test_the_spread_of_the_logit_is_the_posteriors(classifier: Classifier) -> None:
    """Of one member: against the closed form of its activation's variance."""
    alone = replace(classifier, members=(replace(classifier.members[0], weight=1.0),))
    x, missing = row(alone)
    found = contributions(alone, x, missing, of=1, against=0, n_draws=20_000)
    _, variance = alone.members[0].posterior.logit_moments(alone.members[0].design(x[None]))
    sign = np.array([-1.0, 1.0, 0.0])
    expected = variance[0] if np.ndim(variance) == 1 else sign @ variance[0] @ sign
    assert found.logit_std == pytest.approx(np.sqrt(expected), rel=0.03)


def test_what_is_missing_contributes_nothing(classifier: Classifier) -> None:
    x, missing = row(classifier)
    missing[1] = True
    found = contributions(classifier, np.where(missing, np.nan, x), missing, of=1, against=0)
    assert np.isnan(found.value[1])
    assert np.isnan(found.std[1])
    filled = classifier.moments.impute(x[None], missing[None])[0]
    assert found.logit == pytest.approx(mean_logit(classifier, filled, 1, 0))
    assert found.reference + np.nansum(found.value) == pytest.approx(found.logit)


def test_other_class_shares_are_a_term_of_their_own(classifier: Classifier) -> None:
    x, missing = row(classifier)
    plain = contributions(classifier, x, missing, of=1, against=0)
    K = len(classifier.classes)
    shifted = replace(classifier, log_prior_shift=np.log(np.arange(1.0, K + 1)))
    found = contributions(shifted, x, missing, of=1, against=0)
    np.testing.assert_allclose(found.value, plain.value)
    assert found.shift == pytest.approx(np.log(2))
    assert found.logit == pytest.approx(plain.logit + np.log(2))


def test_beyond_the_range_it_is_the_mixture_of_both_continuations(classifier: Classifier) -> None:
    x, missing = row(classifier)
    mean = classifier.moments.mean
    limited = replace(
        classifier, support=np.stack([mean - 10.0, np.where(np.arange(len(x)) == 0, mean, x + 1)])
    )
    inside = np.clip(x, *limited.support)
    found = contributions(limited, x, missing, of=1, against=0)
    expected = 0.1 * mean_logit(classifier, x, 1, 0) + 0.9 * mean_logit(classifier, inside, 1, 0)
    assert found.logit == pytest.approx(expected)


@pytest.mark.parametrize(("gone", "integrated"), [([], 1.0), ([1], 1.0), ([1], 0.1)])
def test_the_sampled_probability_is_the_moderated_one(
    classifier: Classifier, gone: list[Any], integrated: float
) -> None:
    x, missing = row(classifier)
    missing[gone] = True
    classifier = replace(classifier, integrated=np.full(len(x), integrated))
    found, error = sampled_probability(classifier, x, missing, n_draws=20_000)
    exact = classifier.score(x[None], missing[None]).probability[0]
    assert found.sum() == pytest.approx(1)
    # The integral over a missing feature errs by up to 4e-4 itself.
    assert np.abs(found - exact).max() < 4 * error.max() + 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": [1.0]}, "expected x and missing of"),
        ({"missing": [True, True]}, "every feature is missing"),
        ({"of": 0, "against": 0}, "expected two different numbers"),
        ({"of": 7}, "expected two different numbers"),
    ],
)
def test_wrong_rows_and_classes_are_refused(
    classifier: Classifier, change: dict[str, Any], message: str
) -> None:
    F = len(classifier.features)
    asked = {"x": np.zeros(F), "missing": np.zeros(F, dtype=bool), "of": 1, "against": 0, **change}
    if change.get("missing"):
        asked["missing"] = np.ones(F, dtype=bool)
    with pytest.raises(ValueError, match=message):
        contributions(classifier, asked.pop("x"), asked.pop("missing"), **asked)


def test_distances_are_those_of_a_loop_over_all() -> None:
    rng = np.random.default_rng(0)
    labelled, points = rng.normal(size=(50, 3)), rng.normal(size=(20, 3))
    distance, row = distances_from(labelled)(points)
    gaps = np.linalg.norm(points[:, None] - labelled, axis=2)
    assert distance == pytest.approx(np.sort(gaps, axis=1)[:, 2])
    assert row.tolist() == gaps.argmin(axis=1).tolist()
    near = np.sort(np.linalg.norm(points[:, None] - points, axis=2), axis=1)[:, 2]
    assert relative(distance, points, cKDTree(points)) == pytest.approx(distance / (near + 1e-3))


def test_novelty_below_the_least_that_is_asked_for_may_be_left_out() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(500, 12))
    distance, tree = rng.uniform(1, 5, 500), cKDTree(rng.normal(size=(3000, 12)))
    every = relative(distance, points, tree)
    least = float(np.quantile(every, 0.9))
    some = relative(distance, points, tree, least=least)
    assert some[every >= least] == pytest.approx(every[every >= least])
    assert np.mean(some == 0) > 0.5


def test_one_labelled_row_serves() -> None:
    distance, _ = distances_from(np.zeros((1, 2)))(np.ones((2, 2)))
    assert distance == pytest.approx([2**0.5] * 2)
    assert relative(distance, np.ones((2, 2)), cKDTree(np.ones((2, 2)))) == pytest.approx(2**0.5 / 1e-3)


def test_the_mean_square_distance_in_the_whitened_space_is_one() -> None:
    """Also where a feature is the difference of two others; what is missing is at its conditional mean."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 2)) @ [[3.0, 1.0], [0.0, 0.2]] + [10, -4]
    X = np.column_stack([X, X[:, 0] - X[:, 1]])
    nothing = np.zeros(X.shape, dtype=bool)
    space = FeatureMoments.estimate(X, nothing)
    points = space.whitened(X, nothing)
    assert points.shape == (400, 2)
    square = np.sum((points[:, None] - points) ** 2, axis=2).sum() / (400 * 399)
    assert square == pytest.approx(1, rel=0.01)
    gone = nothing.copy()
    gone[:, 2] = True
    assert space.whitened(X, gone) == pytest.approx(points, abs=1e-3)
    gone[:] = True
    assert space.whitened(X, gone) == pytest.approx(np.zeros((400, 2)))


@pytest.fixture(scope="module")
def linear() -> Classifier:
    """Return a classifier of three features."""
    return build(("linear",), 2)[0]


def rows(linear: Classifier, n: int = 60, seed: int = 3) -> Matrix:
    """Return rows (n, F), one value in five missing."""
    rng = np.random.default_rng(seed)
    X = rng.multivariate_normal(linear.moments.mean, linear.moments.covariance, n)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def one_by_one(linear: Classifier, x: Vector, X: Matrix) -> Vector:
    """Return each row's distance, by SciPy, over the features that both have."""
    found = []
    for row in X:
        both = np.isfinite(row) & np.isfinite(x)
        if not both.any():
            found.append(np.inf)
            continue
        inverse = np.linalg.inv(linear.moments.covariance[np.ix_(both, both)])
        found.append(mahalanobis(row[both], x[both], inverse) / np.sqrt(2 * both.sum()))
    return np.array(found)


def test_they_are_those_that_a_loop_finds(linear: Classifier) -> None:
    X = rows(linear)
    x = linear.moments.mean + 0.3
    found = nearest_rows(linear, x, X, n=7)
    expected = one_by_one(linear, x, X)
    enough = np.isfinite(X).sum(axis=1) * 2 >= len(x)
    order = np.argsort(np.where(enough, expected, np.inf))[:7]
    np.testing.assert_array_equal(found[0], order)
    np.testing.assert_allclose(found[1], expected[order])
    np.testing.assert_array_equal(found[2], np.isfinite(X[order]).sum(axis=1))


def test_rows_that_share_nothing_are_left_out(linear: Classifier) -> None:
    F = len(linear.features)
    X = np.full((2, F), np.nan)
    X[1] = linear.moments.mean
    assert nearest_rows(linear, linear.moments.mean, X)[0].tolist() == [1]
    assert nearest_rows(linear, linear.moments.mean, X[:0])[0].tolist() == []
