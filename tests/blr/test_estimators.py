"""The scikit-learn estimator keeps scikit-learn's contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from astropy.table import MaskedColumn, Table
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import blr
from blr.estimators import DefaultClassifier, LaplaceClassifier, UntrustedPosteriorWarning

red_is_expected = pytest.mark.filterwarnings("ignore::blr.estimators.UntrustedPosteriorWarning")
"""For data whose classes lie apart: no Gaussian at the mode serves there."""


@red_is_expected
@parametrize_with_checks([LaplaceClassifier()])
def test_scikit_learns_own_checks(estimator: LaplaceClassifier, check: Callable[..., Any]) -> None:
    check(estimator)


@pytest.mark.long
@pytest.mark.usefixtures("few_draws")
@parametrize_with_checks(
    [DefaultClassifier(candidates=["linear"])],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "a row is left out with all its weight, a repeated one alone",
    },
)
def test_scikit_learns_own_checks_of_a_linear_choice(
    estimator: DefaultClassifier, check: Callable[..., Any]
) -> None:
    check(estimator)


@red_is_expected
def test_it_is_the_fit_underneath() -> None:
    X, y = load_iris(return_X_y=True)
    c = LaplaceClassifier(posterior="laplace").fit(X, y)
    q = blr.fit_evidence(c.basis_(X), y, "softmax")
    np.testing.assert_allclose(c.predict_proba(X), q.predict_proba(c.basis_(X)), atol=1e-9)
    assert c.log_evidence_ == pytest.approx(q.log_evidence, abs=1e-8)
    assert c.bic_ == pytest.approx(q.bic)


@red_is_expected
@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("posterior", ["laplace", "refined", "sampled"])
@pytest.mark.parametrize("load", [load_wine, pytest.param(load_breast_cancer, marks=pytest.mark.long)])
def test_it_predicts(load: Callable[..., Any], posterior: str) -> None:
    X, y = load(return_X_y=True)
    c = LaplaceClassifier(posterior=posterior).fit(X[::2], y[::2])
    assert c.score(X[1::2], y[1::2]) > 0.93
    np.testing.assert_allclose(c.predict_proba(X).sum(axis=1), 1, atol=1e-6)
    assert (c.predict_logit_std(X) > 0).all()
    np.testing.assert_allclose(c.predict_log_proba(X), np.log(c.predict_proba(X)), rtol=1e-12)
    assert (c.predict_mutual_information(X) >= 0).all()


@red_is_expected
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
        ({"missing": "impute"}, "missing must be one of integrate, error, got 'impute'"),
        ({"n_jobs": 0}, "n_jobs must be a number of threads, -1 for all, or None, got 0"),
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


def two_colours(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Return two correlated colours (n, 2) and the class, which both tell of."""
    rng = np.random.default_rng(3)
    X = rng.multivariate_normal([1.0, 2.0], [[1.0, 0.7], [0.7, 1.0]], size=n)
    return X, np.where(X.sum(axis=1) + rng.normal(size=n) > 3, "late", "early")


def with_gaps(X: np.ndarray) -> np.ndarray:
    """Return a copy with a fifth of the values missing, and a row without any."""
    gone = np.random.default_rng(4).random(X.shape) < 0.2
    gone[7] = True
    return np.where(gone, np.nan, X)


def test_what_is_missing_is_integrated_out() -> None:
    """By the slow way: the mean of predictions at a hundred thousand draws of what is missing, of their spread."""
    X, y = two_colours()
    gaps = with_gaps(X)
    model = LaplaceClassifier(basis="polynomial", basis_options={"degree": 2}).fit(gaps, y)
    p = model.predict_proba(gaps)
    row = int(np.flatnonzero(np.isnan(gaps[:, 1]) & ~np.isnan(gaps[:, 0]))[0])
    mean, covariance, spread = model.moments_.mean, model.moments_.covariance, model.moments_.spread
    slope = covariance[0, 1] / covariance[0, 0]
    sd = spread[1] * np.sqrt(covariance[1, 1] - slope * covariance[0, 1])
    rng = np.random.default_rng(0)
    drawn = mean[1] + slope * (gaps[row, 0] - mean[0]) + sd * rng.standard_normal(100_000)
    dense = model.predict_proba(np.column_stack([np.full(100_000, gaps[row, 0]), drawn])).mean(axis=0)
    np.testing.assert_allclose(p[row], dense, atol=3e-3)
    drawn = rng.multivariate_normal(mean, covariance * np.outer(spread, spread), size=100_000)
    everything = model.predict_proba(drawn).mean(axis=0)
    np.testing.assert_allclose(p[7], everything, atol=1e-2)
    assert model.score(gaps, y) > 0.7
    assert np.isfinite(model.predict_logit_std(gaps)).all()
    assert np.isfinite(model.decision_function(gaps)).all()


def test_complete_rows_are_predicted_as_without_gaps_elsewhere() -> None:
    X, y = two_colours()
    gaps = with_gaps(X)
    model = LaplaceClassifier().fit(gaps, y)
    whole = ~np.isnan(gaps).any(axis=1)
    np.testing.assert_allclose(model.predict_proba(gaps)[whole], model.predict_proba(gaps[whole]), rtol=1e-12)
    without = LaplaceClassifier().fit(np.delete(gaps, 7, axis=0), np.delete(y, 7))
    np.testing.assert_allclose(without.posterior_.mean, model.posterior_.mean)


def test_missing_values_may_be_refused() -> None:
    X, y = two_colours()
    gaps, strict = with_gaps(X), LaplaceClassifier(missing="error")
    with pytest.raises(ValueError, match="Input X contains NaN"):
        strict.fit(gaps, y)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        strict.fit(X, y).predict(gaps)
    with pytest.raises(ValueError, match="feature 1 is missing in every row"):
        LaplaceClassifier().fit(np.where([False, True], np.nan, X), y)
    with pytest.raises(ValueError, match="infinity"):
        LaplaceClassifier().fit(np.where(np.isnan(gaps), np.inf, X), y)


@pytest.mark.parametrize("kind", ["pandas", "nullable", "astropy", "masked", "arrow"])
def test_tables_of_all_libraries_are_the_array_with_names(kind: str) -> None:
    X, y = two_colours()
    gaps = with_gaps(X)
    frame = pd.DataFrame(gaps, columns=["u_r", "r_i"])
    table = {
        "pandas": lambda: frame,
        "nullable": frame.convert_dtypes,
        "astropy": lambda: Table(dict(frame)),
        "masked": lambda: Table({n: MaskedColumn(frame[n].fillna(-99), mask=frame[n].isna()) for n in frame}),
        "arrow": lambda: pa.Table.from_pandas(frame, preserve_index=False),
    }[kind]()
    model, plain = LaplaceClassifier().fit(table, pd.Series(y)), LaplaceClassifier().fit(gaps, y)
    assert list(model.feature_names_in_) == ["u_r", "r_i"]
    assert list(model.posterior_.summary()["function"]) == ["1", "u_r", "r_i"]
    np.testing.assert_array_equal(model.predict_proba(table), plain.predict_proba(gaps))
    if kind in {"astropy", "masked"}:
        reordered = table["r_i", "u_r"]
        reordered["id"] = 1
        np.testing.assert_array_equal(model.predict_proba(reordered), plain.predict_proba(gaps))
        with pytest.raises(ValueError, match="X has no column 'u_r'"):
            model.predict(table["r_i",])


def test_a_red_verdict_is_warned_of_and_a_better_posterior_mends_it() -> None:
    X = np.linspace(-1, 1, 40)[:, None]
    y = X[:, 0] > 0  # separable
    with pytest.warns(
        UntrustedPosteriorWarning, match=r"do not trust the posterior: .*; posterior='refined' mends most"
    ) as told:
        red = LaplaceClassifier().fit(X, y)
    assert told[0].filename == __file__
    assert red.trust_.verdict == "red"
    for posterior in ("refined", "sampled"):
        mended = LaplaceClassifier(posterior=posterior).fit(X, y)
        assert mended.trust_.verdict != "red"
        assert mended.log_evidence_ == pytest.approx(red.log_evidence_)


def test_weights_are_routed() -> None:
    X, y = two_colours()
    weight = np.where(np.arange(len(y)) % 2, 1.0, 0.0)
    with config_context(enable_metadata_routing=True):
        model = LaplaceClassifier().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"prior_precision": [1.0]}, cv=2).fit(X, y, sample_weight=weight)
    expected = LaplaceClassifier(prior_precision=1.0).fit(X[1::2], y[1::2])
    np.testing.assert_allclose(search.best_estimator_.posterior_.mean, expected.posterior_.mean, atol=1e-9)


def test_threads_do_not_change_the_result() -> None:
    X, y = two_colours()
    one, many = (LaplaceClassifier(n_jobs=n).fit(X, y).posterior_.mean for n in (1, -1))
    np.testing.assert_array_equal(one, many)
