"""Whether two sets look alike: against scikit-learn and by simulation."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from blr.census.counts import PRECISION, _area, _logistic, propensity
from blr.census.shares import LabelledRows, TargetRows


def of(X: np.ndarray, Z: np.ndarray) -> tuple[LabelledRows, TargetRows]:
    half = np.full((len(X), 2), 0.5)
    y = (np.arange(len(X)) % 2).astype(np.intp)
    other = np.full((len(Z), 2), 0.5)
    return LabelledRows(half, y, np.ones(len(X)), X), TargetRows(other, np.ones(len(Z)), Z, len(Z))


def test_area_is_scikit_learns_with_ties_and_weights() -> None:
    rng = np.random.default_rng(1)
    score, weight = rng.integers(0, 6, 200).astype(float), rng.uniform(0.1, 3, 200)
    positive = rng.random(200) < 0.4
    assert abs(_area(score, positive, weight) - roc_auc_score(positive, score, sample_weight=weight)) < 1e-12
    assert _area(np.zeros(200), positive, weight) == 0.5


def test_the_logistic_model_is_scikit_learns() -> None:
    rng = np.random.default_rng(2)
    Z, weight = rng.normal(size=(300, 4)), rng.uniform(0.2, 2, 300)
    t = (rng.random(300) < 1 / (1 + np.exp(-Z[:, 0]))).astype(float)
    fitted = LogisticRegression(C=1 / PRECISION, tol=1e-10, max_iter=5000).fit(Z, t, sample_weight=weight)
    w = _logistic(np.column_stack([np.ones(300), Z]), t, weight)
    np.testing.assert_allclose(w, [*fitted.intercept_, *fitted.coef_[0]], atol=1e-4)


def test_equal_sets_are_not_distinguished_and_moved_ones_are() -> None:
    rng = np.random.default_rng(3)
    X, Z = rng.normal(size=(250, 5)), rng.normal(size=(900, 5))
    labelled, target = of(X, Z)
    alike = propensity(labelled, target, labelled.weight)
    assert abs(alike.auc - 0.5) < 3 * alike.error
    labelled, target = of(X, Z + np.array([1, 0, 0, 0, 0]))
    assert propensity(labelled, target, labelled.weight).auc > 0.7
    labelled, target = of(X, Z * [2, 1, 1, 1, 1])  # the same means: squares say it
    assert propensity(labelled, target, labelled.weight).auc > 0.6


def test_ratios_are_larger_where_the_target_is() -> None:
    rng = np.random.default_rng(4)
    labelled, target = of(rng.normal(size=(400, 1)), rng.normal(size=(800, 1)) + 1)
    ratio = propensity(labelled, target, labelled.weight).ratio
    assert abs(ratio.mean() - 1) < 1e-9
    assert np.corrcoef(ratio, labelled.X[:, 0])[0, 1] > 0.8


def test_missing_features_are_a_difference_of_their_own() -> None:
    rng = np.random.default_rng(5)
    X, Z = rng.normal(size=(300, 2)), rng.normal(size=(600, 2))
    Z[rng.random(600) < 0.6, 0] = np.nan
    labelled, target = of(X, Z)
    assert propensity(labelled, target, labelled.weight).auc > 0.65
