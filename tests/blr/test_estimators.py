"""The estimator keeps scikit-learn's contract; tables of any library go in, names come out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import astropy.units as u
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from astropy.table import MaskedColumn, QTable, Table
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import blr
from blr.arrays import NamedMatrix
from blr.basis.kinds import BASES, basis_from_dict
from blr.estimators import DefaultClassifier, LaplaceClassifier, UntrustedPosteriorWarning
from blr.member import Member
from blr.posterior.kinds import LaplacePosterior

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
    np.testing.assert_allclose(c.predict_proba(X).sum(axis=1), 1, rtol=1e-14)
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
    plain = LaplaceClassifier(posterior="laplace")
    search = GridSearchCV(plain, grid, scoring="neg_log_loss", cv=3).fit(frame, names)
    assert set(search.predict(frame)) == set(names)
    calibrated = CalibratedClassifierCV(plain, cv=3).fit(frame, names)
    assert calibrated.score(frame, names) > 0.93
    fitted = LaplaceClassifier(basis="polynomial", basis_options={"degree": 2}).fit(frame, names)
    assert list(fitted.feature_names_in_) == list(frame.columns)
    assert isinstance(pd.Series(fitted.predict(frame)).iloc[0], str)
    assert clone(fitted).get_params() == fitted.get_params()


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
    said = r"do not trust the posterior: .*; try posterior='refined'"
    with pytest.warns(UntrustedPosteriorWarning, match=said) as told:
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


rng = np.random.default_rng(0)
X = rng.normal(size=(120, 2))
T = rng.random(120) < 1 / (1 + np.exp(-2 * X[:, 0]))
WORDS = np.where(T, "late", "early")
FRAME = pd.DataFrame({"u_r": X[:, 0], "r_i": X[:, 1]})

TABLES = {
    "pandas": FRAME,
    "pandas nullable": FRAME.convert_dtypes(),
    "astropy": Table(dict(FRAME)),
    "astropy masked": Table({"u_r": MaskedColumn(X[:, 0]), "r_i": X[:, 1]}),
    "astropy quantities": QTable({"u_r": X[:, 0] * u.mag, "r_i": X[:, 1]}),
    "arrow": pa.table(FRAME),
    "arrow batch": pa.record_batch(FRAME),
    "structured": FRAME.to_records(index=False),
    "mapping": {"u_r": X[:, 0].tolist(), "r_i": X[:, 1]},
}


@pytest.fixture(scope="module")
def q3() -> LaplacePosterior:
    """Return a softmax fit with named features."""
    basis = blr.fit_basis("linear", FRAME)
    names = np.array(["E", "S0", "S"])[np.digitize(X[:, 0] + rng.normal(size=120), [-0.5, 0.5])]
    return blr.fit(basis(FRAME), names, blr.GaussianPrior.isotropic(3), "softmax")


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_its_array_with_names(kind: str) -> None:
    table = TABLES[kind]
    basis, plain = blr.fit_basis("polynomial", table, degree=2), blr.fit_basis("polynomial", X, degree=2)
    np.testing.assert_array_equal(basis(table), plain(X))
    assert basis(table).names == plain.names(["u_r", "r_i"])
    q = blr.fit_evidence(basis(table), pd.Series(WORDS))
    assert q.log_evidence == blr.fit_evidence(plain(X), WORDS).log_evidence
    assert list(q.summary()["function"]) == ["1", "u_r", "r_i", "u_r^2", "u_r r_i", "r_i^2"]


def test_polars_frames_are_taken() -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.DataFrame({"u_r": X[:, 0], "r_i": X[:, 1]})
    np.testing.assert_array_equal(blr.fit_basis("linear", frame)(frame), blr.fit_basis("linear", X)(X))


@pytest.mark.parametrize("kind", sorted({*BASES} - {"forest"}))  # which needs labels too
def test_columns_are_taken_by_name_and_names_are_stored(kind: str) -> None:
    basis = blr.fit_basis(kind, FRAME, rng=np.random.default_rng(1))
    shuffled = FRAME.assign(id=range(120))[["id", "r_i", "u_r"]]
    np.testing.assert_array_equal(basis(shuffled), basis(X))
    stored = basis_from_dict(basis.to_dict())
    assert stored.features == ("u_r", "r_i")
    np.testing.assert_array_equal(stored(shuffled), basis(X))
    assert "features" not in blr.fit_basis(kind, X, rng=np.random.default_rng(1)).to_dict()


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(WORDS),
        pd.Series(WORDS, dtype="category"),
        pd.Series(WORDS, dtype="string"),
        Table({"t": WORDS})["t"],
        pa.array(WORDS),
        pa.chunked_array([WORDS[:50], WORDS[50:]]),
        WORDS.tolist(),
    ],
    ids=lambda labels: type(labels).__name__,
)
def test_columns_of_labels(labels: Any) -> None:
    q = blr.fit_evidence(X, labels)
    assert q.classes == ("early", "late")
    assert q.log_evidence == blr.fit_evidence(X, WORDS).log_evidence


def test_a_table_of_votes_names_the_classes() -> None:
    votes = pd.DataFrame({"smooth": rng.integers(1, 9, 120), "featured": rng.integers(1, 9, 120)})
    q, plain = (blr.fit(X, v, blr.GaussianPrior.isotropic(2), "softmax") for v in (votes, votes.to_numpy()))
    assert q.classes == ("smooth", "featured")
    assert q.mean == pytest.approx(plain.mean)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda b, _: b(FRAME[["u_r"]]), "X has no column 'r_i', expected u_r, r_i; got u_r"),
        (lambda b, _: b(X[:, :1]), r"X has 1 column\(s\) but the basis was fitted to 2"),
        (
            lambda _, q: q.predict_proba(pd.DataFrame(np.ones((2, 3)), columns=list("abc"))),
            "has the columns a, b, c, expected 1, u_r, r_i; give the columns that",
        ),
        (lambda *_: blr.fit_basis("linear", FRAME.assign(name="G1")), "column 'name' of X must be numeric"),
        (
            lambda *_: blr.fit_basis("linear", Table({"v": X})),
            "column 'v' of X must hold one number in each row",
        ),
        (lambda *_: blr.fit_basis("linear", Table()), "X is a table without columns"),
        (
            lambda *_: blr.fit_basis("linear", Table({"a": MaskedColumn([1.0, 2], mask=[0, 1])})),
            r"NaN or infinite, in 1 row\(s\), the first .* row 1",
        ),
        (
            lambda *_: blr.fit_basis("linear", pd.concat([FRAME, FRAME], axis=1)),
            "u_r, r_i, u_r, r_i, expected each name once",
        ),
        (lambda _, q: q.summary(95), "level is 95, expected a probability between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_named(use: Callable[..., Any], message: str) -> None:
    basis = blr.fit_basis("linear", FRAME)
    with pytest.raises(ValueError, match=message):
        use(basis, blr.fit_evidence(basis(FRAME), T))


def test_names_stay_with_rows_and_with_nothing_else() -> None:
    Phi = blr.fit_basis("linear", FRAME)(FRAME)
    assert Phi[:5].names == Phi[T].names == Phi.copy().names == ("1", "u_r", "r_i")
    assert Phi[:, 1:].names is None
    for computed in (Phi @ np.ones(3), Phi * 2, Phi.T @ Phi, np.exp(Phi), Phi.sum(axis=0)):
        assert type(computed) is np.ndarray
    assert type(Phi) is NamedMatrix
    assert isinstance(Phi.sum(), float)


def test_a_summary_is_what_the_precision_says(q3: LaplacePosterior) -> None:
    """Less the mean over classes; by the dense way, which inverts the precision of all K M weights."""
    summary = q3.summary(0.9)
    P = np.kron(np.eye(3) - 1 / 3, np.eye(3))
    np.testing.assert_allclose(summary["mean"], P @ q3.mean, atol=1e-12)
    np.testing.assert_allclose(summary["sd"] ** 2, np.diag(P @ np.linalg.inv(q3.precision) @ P.T), rtol=1e-9)
    np.testing.assert_allclose(summary["high"] - summary["low"], 2 * 1.6448536 * summary["sd"], rtol=1e-6)
    assert list(zip(summary["class"], summary["function"], strict=True))[2:4] == [("E", "r_i"), ("S", "1")]
    q = blr.fit_evidence(X, T)
    np.testing.assert_allclose(q.summary()["sd"] ** 2, np.diag(np.linalg.inv(q.precision)), rtol=1e-9)
    assert list(q.summary()["function"]) == ["w0", "w1"]


@pytest.mark.usefixtures("few_draws")
def test_a_summary_of_draws_is_of_the_draws(q3: LaplacePosterior) -> None:
    s = blr.sample_posterior(q3, rng=np.random.default_rng(0))
    summary, gaussian = s.summary(), q3.summary()
    np.testing.assert_allclose(summary["mean"], gaussian["mean"], atol=0.5 * gaussian["sd"].max())
    np.testing.assert_allclose(summary["sd"], gaussian["sd"], rtol=0.5)
    assert (summary["low"] < summary["mean"]).all()
    assert (summary["mean"] < summary["high"]).all()


def test_a_summary_is_a_table_for_every_library_and_its_names_are_stored(
    q3: LaplacePosterior,
) -> None:
    summary = q3.summary()
    frame = pd.DataFrame(summary)
    assert list(frame.columns) == ["function", "class", "mean", "sd", "low", "high"]
    assert len(Table(summary)) == pa.table(summary).num_rows == len(frame) == 9
    lines = repr(summary).splitlines()
    assert len(lines) == 10
    assert len({len(line) for line in lines}) == 1
    stored = blr.Posterior.from_dict(q3.to_dict())
    assert list(stored.summary()["function"]) == ["1", "u_r", "r_i"] * 3
    assert "functions" not in blr.fit_evidence(X, T).to_dict()


def test_everything_says_what_it_is_in_a_line(q3: LaplacePosterior) -> None:
    q = blr.fit_evidence(blr.fit_basis("linear", FRAME)(FRAME), WORDS)
    said = "<LaplacePosterior: logistic, classes early, late, 3 functions, 120 rows, log evidence -"
    assert repr(q).startswith(said)
    assert repr(q).endswith("trust not computed>")
    assert q.trust.verdict == "green"
    assert repr(q).endswith("trust green>")
    free = blr.fit(X, T, None)
    assert "no prior" in repr(free)
    comparison = blr.compare(
        {"linear": q, "no features": blr.fit_evidence(np.ones((120, 1)), WORDS, intercept=None)}
    )
    assert (
        repr(comparison)
        == "<Comparison of 2 candidates: best linear by evidence, linear by bic, linear by loo>"
    )
    assert comparison.names == ("linear", "no features")
    assert list(comparison.table()["name"]) == ["linear", "no features"]
    assert blr.compare([q]).names == ("candidate 0",)
    for shown in (q, q3, free, comparison, q.summary(), blr.refine(q)):
        assert "\n" not in repr(shown) or isinstance(shown, dict)
        html = shown._repr_html_()
        assert html.count("<table>") == html.count("</table>") == 1
    assert "u_r" in q._repr_html_()


def test_html_is_escaped() -> None:
    q = blr.fit_evidence(pd.DataFrame({"<b>": X[:, 0], "i": 1.0}), np.where(T, "<script>", "b"))
    html = q._repr_html_()
    assert "<script>" not in html
    assert "&lt;b&gt;" in html


def test_scores_and_a_classifier_say_what_they_are() -> None:
    basis = blr.fit_basis("linear", X)
    q, missing = blr.fit_evidence(basis(X), WORDS), np.zeros(X.shape, dtype=bool)
    missing[0] = True
    model = blr.Classifier.build(
        [Member(basis, q, (0, 1))], X, missing, features=["u_r", "r_i"], classes=["early", "late"]
    )
    assert repr(model) == "<Classifier: classes early, late; features u_r, r_i; 1 model(s)>"
    scores = model.score(X, missing)
    assert re.match(r"<Scores: 120 rows, 2 classes; \d+ LOW_CONFIDENCE, .*1 UNCLASSIFIABLE.*>$", repr(scores))
    html = scores._repr_html_()
    assert html.count("<tr>") == 11
    assert "MISSING_INPUT|UNCLASSIFIABLE" in html
    assert "linear" in model._repr_html_()
