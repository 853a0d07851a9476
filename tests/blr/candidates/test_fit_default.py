"""The default run from arrays: what it takes, what it returns, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blr
from blr.candidates._verdict import colour_of
from blr.candidates.training import TrainedClassifier


def rows(n: int = 200, K: int = 2, seed: int = 0) -> tuple[Any, Any]:
    """Return two features, with missing values, and classes that the first tells of."""
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n)
    X = np.column_stack([y + rng.normal(size=n), rng.normal(size=n)])
    X[::10, 1] = np.nan
    return X, y


def fitted(X: Any, y: Any, **options: Any) -> TrainedClassifier:
    return blr.fit_default(X, y, **{"candidates": ["linear"], "threads": 1} | options)


def test_a_table_names_the_features_and_the_classes_keep_their_type() -> None:
    X, y = rows(K=3)
    trained = fitted({"u_r": X[:, 0], "mag": X[:, 1]}, y + 7)
    assert trained.classifier.features == ("u_r", "mag")
    assert set(trained.predict({"mag": X[:, 1], "u_r": X[:, 0]})) <= {7, 8, 9}
    assert trained.probability.shape == (200, 3)
    assert trained.predict_proba([[np.nan, np.nan]])[0] == pytest.approx(trained.class_share)
    assert "linear" in trained._repr_html_()
    assert trained.table()["share"].tolist() == [1.0]


def test_well_separated_classes_are_green() -> None:
    rng = np.random.default_rng(0)
    centres, y = 8 * rng.normal(size=(6, 6)), rng.integers(0, 6, 600)
    X = centres[y] + rng.normal(size=(600, 6))
    trained = fitted(X[:300], y[:300])
    p = trained.predict_proba(X[300:])
    computed = next(one for one in trained.trust.answers if one.name == "computed")
    assert -np.log(p[np.arange(300), y[300:]]).mean() < 0.02
    assert computed.colour == "green", computed.says


def test_held_out_groups_judge_and_are_fitted_afterwards() -> None:
    X, y = rows(400)
    trained = fitted(X, y, group=np.arange(400) // 4, held_out=0.3)
    assert trained.judged_by == "held-out"
    assert trained.seen.reshape(100, 4).all(axis=1).sum() == trained.seen.sum() / 4  # whole groups
    assert trained.skill.n_groups == trained.seen.sum() / 4
    assert trained.judged is not None
    mask = np.arange(400) < 40
    assert (fitted(X, y, held_out=mask).seen == mask).all()
    assert fitted(X, y, held_out=mask, refit=False).judged is None


def test_many_rows_hold_a_fifth_out() -> None:
    assert fitted(*rows(100_000)).seen.mean() == pytest.approx(0.2, abs=0.01)


def test_logistic_regression_beside_many_rows_that_all_train() -> None:
    """Every fifth row of a fit is of no one fold."""
    trained = fitted(*rows(41_000))
    assert trained.seen.all()
    assert trained.log_loss_logistic == pytest.approx(trained.log_loss, abs=0.01)


def test_votes_are_shares_and_scatter() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 1))
    p = 1 / (1 + np.exp(-2 * X[:, 0]))
    k = rng.binomial(20, rng.beta(10 * p, 10 * (1 - p)))
    trained = fitted(X, np.stack([20 - k, k], axis=1), classes=["smooth", "disc"])
    assert trained.predict_proba([[2.0]])[0, 1] == pytest.approx(1 / (1 + np.exp(-4)), abs=0.05)
    alone = fitted(X, np.stack([20 - k, k], axis=1) / 2.8)  # as many votes as these are worth
    logit_std = [one.score([[2.0]]).logit_std[0] for one in (trained, alone)]
    assert logit_std[0] == pytest.approx(logit_std[1], rel=0.2)


def test_errors_beyond_those_of_the_labels_flatten() -> None:
    X, y = rows()
    trained = fitted(X, y, errors=np.full(X.shape, 0.3), features=["a", "b"])
    assert trained.noise == pytest.approx({"a": 0.3, "b": 0.3})
    alike, worse = (trained.predict_proba([[3.0, 0.0]], [[sigma, 0.3]])[0, 1] for sigma in (0.3, 2.0))
    assert alike == pytest.approx(trained.predict_proba([[3.0, 0.0]])[0, 1])
    assert worse < alike - 0.02


def test_a_target_is_compared_and_its_class_shares_are_found() -> None:
    X, y = rows(600)
    chosen = rows(3000, seed=5)
    target = chosen[0][(chosen[1] == 1) | (np.arange(3000) % 4 == 0)]  # four fifths are of class 1
    plain = fitted(X, y, target=target)
    assert plain.comparison is not None
    assert plain.comparison.auc_low > 0.55
    moved = fitted(X, y, target=target, class_prior="em")
    assert moved.predict_proba(target)[:, 1].mean() == pytest.approx(0.8, abs=0.05)
    stated = fitted(X, y, class_prior={"0": 0.2, "1": 0.8})
    assert stated.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.1
    weighted = fitted(X, y, target=target, weigh_as_target=True)
    assert weighted.class_share[1] > 0.56


def test_wrong_labels_are_found() -> None:
    X, y = rows(1500)
    X[:, 0] += 2 * y  # the logit of class 1 is 3 x - 4.5
    wrong = np.where((y == 1) & (np.random.default_rng(2).random(1500) < 0.25), 0, y)
    right = 1 / (1 + np.exp(-1.5))
    believed, found = (
        fitted(X, wrong, noise=noise).predict_proba([[2.0, 0.0]])[0, 1] for noise in (None, "estimated")
    )
    assert believed < right - 0.05
    assert found == pytest.approx(right, abs=0.06)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": np.zeros(200)}, "got one class"),
        ({"y": np.zeros(199)}, "X has 200 rows, but y has 199"),
        ({"X": np.full((200, 2), np.inf)}, "NaN or infinite"),
        ({"X": np.full((200, 2), np.nan)}, "x0 is missing in every training row"),
        ({"sample_weight": -np.ones(200)}, "negative or missing"),
        ({"held_out": 1.0}, "share from 0 to below 1"),
        ({"held_out": [True]}, r"a mask \(200,\), got shape \(1,\)"),
        ({"classes": [0]}, "label '1', expected one of 0"),
        ({"class_prior": "em"}, "'em' with rows of the target"),
        ({"class_prior": {"a": 0.5, "b": 0.5}}, "one share for each class: 0, 1"),
        ({"noise": "some"}, "must be 'estimated', a share or a matrix"),
        ({"candidates": ["lineal"]}, "did you mean 'linear'"),
        ({"features": ["a"]}, r"X must be \(N, 1\), got shape \(200, 2\)"),
    ],
)
def test_what_is_no_training_is_said(options: dict[str, Any], message: str) -> None:
    X, y = rows()
    given = {"X": X, "y": y} | options
    with pytest.raises(ValueError, match=message):
        fitted(given.pop("X"), given.pop("y"), **given)


@pytest.mark.parametrize(
    ("mean", "error", "colour"),
    [(0.009, 0.005, "green"), (0.02, 0.001, "amber"), (0.036, 0.012, "amber"), (0.036, 0.001, "red")],
)
def test_a_verdict_is_red_only_where_the_error_is_surely_large(
    mean: float, error: float, colour: str
) -> None:
    assert colour_of(mean, error) == colour


@pytest.mark.parametrize("n_groups", [1, 2, 30])
@pytest.mark.parametrize("n", [2, 30])
def test_few_rows_and_groups_are_enough_for_all_candidates(n: int, n_groups: int) -> None:
    """Fewer groups than folds are left out by steps."""
    X = np.random.default_rng(0).normal(size=(n, 3))
    trained = blr.fit_default(X, np.arange(n) % min(n, 3), group=np.arange(n) % n_groups, threads=1)
    assert trained.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(n))
