"""The scikit-learn estimator keeps scikit-learn's contract."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import blr
from blr.estimators import LaplaceClassifier


@parametrize_with_checks([LaplaceClassifier()])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_it_is_the_fit_underneath() -> None:
    X, y = load_iris(return_X_y=True)
    c = LaplaceClassifier(posterior="laplace").fit(X, y)
    q = blr.fit_evidence(c.basis_(X), y, "softmax")
    np.testing.assert_allclose(c.predict_proba(X), q.predict_proba(c.basis_(X)), atol=1e-9)
    assert c.log_evidence_ == pytest.approx(q.log_evidence, abs=1e-8)
    assert c.bic_ == pytest.approx(q.bic)


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("posterior", ["laplace", "refined", "sampled"])
@pytest.mark.parametrize("load", [load_wine, pytest.param(load_breast_cancer, marks=pytest.mark.long)])
def test_it_predicts(load, posterior: str) -> None:
    X, y = load(return_X_y=True)
    c = LaplaceClassifier(posterior=posterior).fit(X[::2], y[::2])
    assert c.score(X[1::2], y[1::2]) > 0.93
    np.testing.assert_allclose(c.predict_proba(X).sum(axis=1), 1, atol=1e-6)
    assert (c.predict_logit_std(X) > 0).all()
    assert (c.predict_std(X) == c.predict_logit_std(X)).all()
    assert (c.predict_mutual_information(X) >= 0).all()


def test_it_works_with_the_tools() -> None:
    frame, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), LaplaceClassifier())
    assert cross_val_score(pipeline, frame, names, cv=3).mean() > 0.93
    grid = {"basis": ["linear", "polynomial"], "prior_precision": ["evidence", 1.0]}
    search = GridSearchCV(LaplaceClassifier(posterior="laplace"), grid, scoring="neg_log_loss", cv=3).fit(
        frame, names
    )
    assert set(search.predict(frame)) == set(names)
    calibrated = CalibratedClassifierCV(LaplaceClassifier(posterior="laplace"), cv=3).fit(frame, names)
    assert calibrated.score(frame, names) > 0.93
    fitted = LaplaceClassifier(basis="polynomial", basis_options={"degree": 2}).fit(frame, names)
    assert list(fitted.feature_names_in_) == list(frame.columns)
    assert isinstance(pd.Series(fitted.predict(frame)).iloc[0], str)
    assert clone(fitted).get_params() == fitted.get_params()


def test_a_weight_of_two_is_a_row_twice() -> None:
    X, y = load_iris(return_X_y=True)
    weight = np.random.default_rng(0).integers(0, 4, len(X)).astype(float)
    noisy = np.where(np.random.default_rng(1).random(len(y)) < 0.1, (y + 1) % 3, y)  # not separable
    once = LaplaceClassifier(posterior="refined").fit(X, noisy, sample_weight=weight)
    repeat = np.repeat(np.arange(len(X)), weight.astype(int))
    twice = LaplaceClassifier(posterior="refined").fit(X[repeat], noisy[repeat])
    np.testing.assert_allclose(once.predict_proba(X), twice.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"posterior": "exact"}, "posterior must be one of laplace, refined, sampled"),
        ({"prior_precision": "cross-validated"}, "prior_precision must be 'evidence' or a positive number"),
        ({"prior_precision": None}, "prior_precision must be 'evidence' or a positive number, got None"),
        ({"basis": "polynomal"}, "did you mean 'polynomial'"),
        ({"likelihood": "probit"}, "a binary likelihood has two classes, got 3"),
    ],
)
def test_wrong_options_are_named(options: dict, message: str) -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        LaplaceClassifier(**options).fit(X, y)


def test_negative_weights_are_refused_not_left_out() -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        LaplaceClassifier().fit(X, y, sample_weight=np.where(np.arange(len(y)) < 5, -1.0, 1.0))
