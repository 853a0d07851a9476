"""Candidates: which are tried by default, the choice among them, their left-out rows, and the run from arrays."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

import blr
from blr.basis.kinds import fit_basis
from blr.calibration import log_loss
from blr.candidates import training
from blr.candidates._verdict import colour_of
from blr.candidates.candidate import Candidate, Selection, default_candidates
from blr.candidates.choice import LeftOut, choose, integrated_share, mixed
from blr.candidates.fits import FEW_OF_CLASS, FOLD_STEPS, FOLDS, FittedCandidate, Problem, fit_candidate
from blr.candidates.rows import LabelledRows, TrainingSet
from blr.candidates.training import TrainedClassifier
from blr.classifier import Classifier
from blr.member import Member
from blr.missing.moments import Domain, excess_spread
from blr.selection.compare import leave_one_out_probability
from tests.flows.candidates import CANDIDATE

GAUSSIAN = {"second_order": 0.01, "evidence_left": 0.0, "effective_draws": 0.9, "jitter": 0.0}


def row(evidence: Any, *, prior: float = 1.0, shift: float = 0.1, k_hat: float = 0.2, **given: Any) -> Any:
    given = {"verdict": "green", "second_order": 0.0, "bic": 0.0} | given
    numbers = GAUSSIAN | {"shift": shift, "k_hat": k_hat}
    return replace(CANDIDATE, log_evidence=evidence, numbers=numbers, prior_probability=prior, **given)


NOTHING_LEARNT = LeftOut(np.full((4, 2), 0.5), np.eye(2)[[0, 1, 0, 1]])


def chosen(candidates: Any, left_out: Any, *, by: str) -> SimpleNamespace:
    """Return the candidates' weights and shares by the choice among them, and which has most."""
    table = choose(candidates, left_out, by=by)
    weights, shares = ([getattr(one, key) for one in table] for key in ("weight", "share"))
    return SimpleNamespace(weights=weights, shares=shares, selected=int(np.argmax(shares)))


def rank(candidates: Any, *, by: str) -> SimpleNamespace:
    """Return the choice among candidates whose left-out rows tell nothing."""
    return chosen(candidates, [NOTHING_LEARNT] * len(candidates), by=by)


def test_the_second_order_term_counts_for_all_candidates_or_for_none() -> None:
    rows = [row(-10.0, second_order=0.1), row(-9.95)]
    assert rank(rows, by="evidence").selected == 0
    assert rank([*rows, row(-50.0, shift=1.2)], by="evidence").selected == 1
    assert rank([*rows, row(-50.0, k_hat=0.9, second_order=None)], by="evidence").selected == 1


@pytest.mark.parametrize("by", ["evidence", "bic", "average"])
def test_trees_are_no_choice_by_evidence_but_by_left_out_rows(by: str) -> None:
    trees = replace(row(50.0, bic=50.0), basis="forest, trees 64", loo=-1.0)
    others = [row(-10.0, bic=-10.0), row(-11.0, bic=-11.0)]
    assert rank([trees, *others], by=by).shares[0] == 0
    assert rank([trees, *others], by=by).weights[0] == 0
    assert rank([trees, *(replace(one, loo=-2.0) for one in others)], by="loo").selected == 0
    assert rank([trees], by=by).shares == [1.0]


def test_an_average_leaves_out_candidates_of_small_weight() -> None:
    found = rank([row(-10.0), row(-9.0), row(-40.0)], by="average")
    assert found.shares[2] == 0 < found.shares[0] < found.shares[1]
    assert sum(found.shares) == pytest.approx(1)
    assert rank([row(-10.0), row(-9.0)], by="evidence").shares == [0.0, 1.0]


def test_a_stack_has_the_shares_that_predict_left_out_rows_best() -> None:
    truth = np.eye(2)[np.arange(60) % 2]
    good, bad = 0.1 + 0.8 * truth, 0.9 - 0.8 * truth
    left_out = [LeftOut(p, truth) for p in (bad, good, good)]
    rows = [row(-1.0), row(-9.0), row(-10.0, verdict="red")]
    found = chosen(rows, left_out, by="stack")
    assert found.shares[0] < 0.05
    assert found.shares[2] == pytest.approx(found.shares[1])  # a red verdict bars no candidate
    assert found.selected in (1, 2)
    assert found.weights[0] > 0.999  # the evidence has another opinion
    of_prior = chosen([row(-1.0, prior=3.0), row(-1.0)], [left_out[1]] * 2, by="stack")
    assert of_prior.shares == pytest.approx([0.75, 0.25])


def simulated(truth: float, n: int = 4000) -> LeftOut:
    """Return left-out probabilities of rows whose classes are drawn with so large a share integrated out."""
    rng = np.random.default_rng(3)
    p, flat = rng.uniform(0.02, 0.98, n), rng.uniform(0.3, 0.9, n)
    filled = np.column_stack([p, 1 - p])
    integrated = 0.5 + (filled - 0.5) * flat[:, None]
    drawn = ((1 - truth) * filled + truth * integrated)[:, 0] > rng.random(n)
    return LeftOut(filled, np.column_stack([drawn, ~drawn]).astype(float), integrated)


@pytest.mark.parametrize("truth", [0.0, 0.5, 1.0])
def test_left_out_rows_say_how_much_is_integrated(truth: float) -> None:
    assert integrated_share(simulated(truth)) == pytest.approx(truth, abs=0.12)


def test_a_mixture_has_complete_members_too() -> None:
    """A candidate may use features that no row lacks."""
    some, whole = simulated(0.5, n=9), LeftOut(np.full((9, 2), 0.5), simulated(0.5, n=9).share)
    mixture = mixed([some, whole], [0.25, 0.75])
    assert mixture.at(1.0) == pytest.approx(0.25 * some.at(1.0) + 0.375)
    assert mixture.filled == pytest.approx(0.25 * some.filled + 0.375)


@pytest.mark.parametrize("alike", [True, False])
def test_a_stack_has_four_candidates_unless_left_out_rows_ask_for_more(*, alike: bool) -> None:
    """Six candidates that say the same; or each is right about another sixth of the rows."""
    rng = np.random.default_rng(0)
    truth = np.eye(2)[rng.integers(2, size=600)]
    sure = np.where(np.arange(600)[None] % 6 == np.arange(6)[:, None], 0.99, 0.4)
    p = np.full(sure.shape, 0.7) if alike else sure
    left_out = [LeftOut(np.where(truth > 0, one[:, None], 1 - one[:, None]), truth) for one in p]
    found = chosen([row(-1.0)] * 6, left_out, by="stack")
    assert np.count_nonzero(found.shares) == (4 if alike else 6)
    assert sum(found.shares) == pytest.approx(1)


def of(kind: str, n: int, F: int, K: int) -> Any:
    return next((c.options for c in default_candidates(n, F, K) if c.kind == kind), None)


def test_six_candidates_whose_weights_are_at_most_a_thousand() -> None:
    found = default_candidates(1000, 4, 2)
    assert [c.kind for c in found] == ["linear", "polynomial", "nystroem", "sigmoid", "forest", "forest"]
    assert [c.soften for c in found] == [False, True, True, False, False, False]
    assert of("nystroem", 1000, 4, 80) is None
    assert of("sigmoid", 1000, 10, 10) is None
    assert [of("forest", 5000, 4, K) is None for K in (44, 45)] == [False, True]
    assert of("forest", 200_001, 4, 2) is None  # rows on the disk


@pytest.mark.parametrize("shape", [(100, 12, 2), (1000, 40, 3), (1000, 10, 25)])
def test_too_many_products_leave_the_features_themselves(shape: tuple[int, int, int]) -> None:
    assert ("linear", True) in [(c.kind, c.soften) for c in default_candidates(*shape)]
    assert of("polynomial", *shape) is None


@pytest.mark.parametrize(
    ("n", "F", "K", "centres"),
    [(30, 4, 2, 30), (1000, 4, 2, 100), (10_000, 4, 2, 320), (10_000, 4, 5, 125), (1000, 4, 21, 49)],
)
def test_centres_of_the_gaussian_process(n: int, F: int, K: int, centres: int) -> None:
    assert of("nystroem", n, F, K) == {"centres": centres, "width": round(0.7 * F, 2)}


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
    assert log_loss(trained.predict_proba(X[300:]), y[300:]) < 0.02
    assert trained.trust.answer("computed").colour == "green", trained.trust.answers


def test_of_many_features_new_rows_are_beyond_the_range_and_have_the_power() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=1100)
    X = rng.normal(0, 0.15, (2, 300))[y] + rng.normal(size=(1100, 300))
    trained = blr.fit_default(X[:100], y[:100], candidates=["linear"])
    assert log_loss(trained.predict_proba(X[100:]), y[100:]) < 0.23  # 0.40 without it


def test_held_out_groups_judge_and_are_fitted_afterwards() -> None:
    X, y = rows(400)
    trained = fitted(X, y, group=np.arange(400) // 4, held_out=0.3)
    assert trained.judged_by == "held-out"
    assert trained.seen.reshape(100, 4).all(axis=1).sum() == trained.seen.sum() / 4  # whole groups
    assert trained.skill.n_groups == trained.seen.sum() / 4
    assert trained.judged is not None


def test_many_rows_all_train_beside_logistic_regression_and_more_hold_a_fifth_out() -> None:
    """Every fifth row of a fit is of no one fold."""
    assert fitted(*rows(100_000)).seen.mean() == pytest.approx(0.2, abs=0.01)
    trained = fitted(*rows(41_000))
    assert trained.seen.all()
    assert trained.log_loss_logistic == pytest.approx(trained.log_loss, abs=0.01)


def test_few_rows_that_count_as_many_are_left_out_by_refits() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=1100)
    X = y[:, None] * [1, 0, 0, 0] + rng.normal(size=(1100, 4))
    trained = fitted(X[:100], y[:100], candidates=["linear", "nystroem"], sample_weight=np.full(100, 1e3))
    loss = log_loss(trained.predict_proba(X[100:]), y[100:])
    assert trained.log_loss == pytest.approx(loss, abs=0.1)  # one step said 0.0 where it was 3.1
    assert loss < 0.7


def test_refits_of_many_classes_tell_the_loss_of_new_rows() -> None:
    rng, y = np.random.default_rng(3), np.arange(2080) % 20
    X = 2 * rng.normal(size=(20, 8))[y] + rng.normal(size=(2080, 8))
    trained = blr.fit_default(X[:80], y[:80])
    assert trained.table()["log_loss"].max() < 2  # six steps of refits said up to 34
    assert trained.log_loss == pytest.approx(log_loss(trained.predict_proba(X[80:]), y[80:]), rel=0.5)


def test_rows_of_weight_zero_move_neither_ranges_nor_knots() -> None:
    X, y = rows()
    far = {"sample_weight": np.append(np.ones(len(X)), 0), "errors": np.full((len(X) + 1, X.shape[1]), 0.1)}
    options = {"candidates": ["sigmoid"], "group": np.arange(len(X) + 1) // 2}
    weighted = fitted(np.vstack([X, 1e3 + X[:1]]), np.append(y, 1), **options, **far)
    without = fitted(
        X, y, **{name: x if name == "candidates" else x[:-1] for name, x in (options | far).items()}
    )
    np.testing.assert_array_equal(weighted.predict_proba(4 * X), without.predict_proba(4 * X))
    assert len(weighted.seen) == len(X)


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


def test_one_vote_a_row_is_a_label() -> None:
    """One vote cannot scatter: where the model that tells the scatter is wrong, it is not taken for scatter."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(80, 2))
    y = (np.sin(4 * X[:, 0]) + 0.3 * rng.normal(size=80) > 0).astype(int)
    np.testing.assert_array_equal(fitted(X, np.eye(2)[y]).predict_proba(X), fitted(X, y).predict_proba(X))


def test_errors_beyond_those_of_the_labels_flatten() -> None:
    X, y = rows()
    errors = np.where(np.arange(X.size).reshape(X.shape) % 5, 0.3, np.nan)  # some unknown
    trained = fitted(X, y, errors=errors, features=["a", "b"])
    assert trained.noise == pytest.approx({"a": 0.3, "b": 0.3})
    alike, worse = (trained.predict_proba([[3.0, 0.0]], [[sigma, 0.3]])[0, 1] for sigma in (0.3, 2.0))
    assert alike == pytest.approx(trained.predict_proba([[3.0, 0.0]])[0, 1])
    assert worse < alike - 0.02
    with pytest.raises(ValueError, match=r"errors hold -2\.0 at row 0, column 1"):
        trained.predict_proba([[3.0, 0.0]], [[0.3, -2.0]])


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": np.zeros(200)}, "got one class"),
        ({"y": np.zeros(199)}, "X has 200 rows, but y has 199"),
        ({"X": np.full((200, 2), np.inf)}, "NaN or infinite"),
        ({"X": np.full((200, 2), np.nan)}, "x0 is missing in every training row"),
        ({"X": np.full((200, 2), 7.0)}, r"each feature \(x0, x1\) has one value in all training rows"),
        ({"X": np.outer(np.arange(200), [1e160, 1])}, r"feature 0 has values of the size 9.95e\+161"),
        ({"X": np.outer(np.arange(200), [1, 1e-200])}, "feature 1 has values of the size 9.95e-199"),
        ({"sample_weight": -np.ones(200)}, "negative or missing"),
        ({"errors": -np.ones((200, 2))}, r"errors hold -1\.0 at row 0"),
        ({"held_out": 1.0}, "share from 0 to below 1"),
        ({"classes": [0]}, "label '1', expected one of 0"),
        ({"y": np.array(["nan", None] * 100)}, r"no label in 100 of 200 rows, such as row 1 \(None\)"),
        ({"y": np.array([0.0, np.nan] * 100)}, r"no label in 100 of 200 rows, such as row 1 \(nan\)"),
        ({"class_prior": "em"}, "'em' with rows of the target"),
        ({"class_prior": {"a": 0.5, "b": 0.5}}, "one share for each class: 0, 1"),
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
def test_a_verdict_is_red_where_the_error_is_surely_large(mean: float, error: float, colour: str) -> None:
    assert colour_of(mean, error) == colour


@pytest.mark.parametrize("n_groups", [1, 2, 30])
@pytest.mark.parametrize("n", [2, 30])
def test_few_rows_and_groups_are_enough_for_all_candidates(n: int, n_groups: int) -> None:
    """Fewer groups than folds are left out by steps."""
    X = np.random.default_rng(0).normal(size=(n, 3))
    trained = blr.fit_default(X, np.arange(n) % min(n, 3), group=np.arange(n) % n_groups, threads=1)
    np.testing.assert_allclose(trained.predict_proba(X).sum(axis=1), 1, rtol=1e-14)


def test_few_rows_judge_shares_that_others_have_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twenty features that tell nothing some fit the rows at hand; the model keeps the shares of all rows."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 20)), rng.permutation(np.arange(60) % 2)
    candidates = [Candidate(features=(f"x{j}",)) for j in range(20)]

    def trained(few: int) -> blr.TrainedClassifier:
        monkeypatch.setattr(training, "FEW_ROWS", few)
        return blr.fit_default(X, y, candidates=candidates, group=np.arange(60) // 2, threads=1)

    by_others, by_all = trained(61), trained(60)
    assert by_others.log_loss > by_all.log_loss + 0.01
    assert [row.share for row in by_others.candidates] == [row.share for row in by_all.candidates]


LAPLACE = Selection(by="loo", posterior="laplace", scale="maximised")


def incomplete(n: int, K: int = 2, *, of_group: int = 1) -> TrainingSet:
    """Return rows of K classes whose second feature tells most, and is missing in half of them."""
    rng = np.random.default_rng(1)
    y = rng.integers(K, size=n)
    X = np.column_stack([y + rng.normal(size=n), 3.0 * y + rng.normal(size=n)])
    missing = np.column_stack([np.zeros(n, dtype=bool), rng.random(n) < 0.5])
    missing[0] = True  # a row without any feature has no probabilities of its own
    group = np.arange(n) // of_group
    rows = LabelledRows(np.where(missing, 0.0, X), missing, y, np.zeros(n, dtype=bool), group=group)
    return TrainingSet.of(rows, ("u", "v"), tuple("abcde"[:K]))


def without_each(data: TrainingSet) -> LeftOut:
    """Return the slow twin: a fit without each group, of which a classifier scores one row after the other."""
    rows, K = data.rows, len(data.classes)
    moments = replace(data.moments, spread=excess_spread(data.moments, rows.X, rows.missing))
    basis = fit_basis("linear", data.filled)
    Phi, filled, integrated = basis(data.filled), [], []
    likelihood = "logistic" if K == 2 else "softmax"
    prior = blr.fit_evidence(Phi, rows.target, likelihood, classes=range(K)).prior
    for i in range(len(Phi)):
        seen = rows.group != rows.group[i]
        q = blr.fit(Phi[seen], rows.target[seen], prior, likelihood, classes=range(K))
        member = Member(basis, q, (0, 1))
        classifier = Classifier(data.features, data.classes, (member,), moments, Domain(moments, np.inf))
        filled.append(q.prediction(Phi[[i]]).probability[0])
        none = rows.missing[i].all()  # such a row has no probabilities of its own
        score = classifier.score(rows.X[[i]], rows.missing[[i]]).probability
        integrated.append(filled[-1] if none else score[0])
    return LeftOut(np.array(filled), np.eye(K)[rows.target], np.array(integrated))


@pytest.mark.parametrize(("K", "of_group"), [(2, 1), pytest.param(3, 3, marks=pytest.mark.long)])
def test_one_step_is_near_fits_without_the_rows(K: int, of_group: int) -> None:
    data = incomplete(150, K, of_group=of_group)
    found, twin = fit_candidate(Problem(Candidate(), data), LAPLACE).left_out, without_each(data)
    assert np.abs(found.filled - twin.filled).mean() < 1e-3
    assert np.abs(found.filled - twin.filled).max() < 0.03
    assert np.abs(found.at(1.0) - twin.at(1.0)).mean() < 3e-3
    assert found.at(1.0).sum(axis=1) == pytest.approx(np.ones(150))
    assert found.at(0.3) == pytest.approx(0.7 * found.filled + 0.3 * found.at(1.0))


@pytest.mark.parametrize(("K", "posterior", "of_group"), [(2, "laplace", 1), (3, "refined", 4)])
def test_few_rows_of_a_stack_are_left_out_by_refits_without_their_fold(
    K: int, posterior: str, of_group: int
) -> None:
    n = 48
    data = incomplete(n, K, of_group=of_group)
    data = TrainingSet.of(replace(data.rows, missing=np.zeros((n, 2), bool)), ("u", "v"), data.classes)
    candidate, y = Candidate("polynomial"), data.rows.target
    fitted = fit_candidate(Problem(candidate, data), Selection(posterior=posterior))
    found = fitted.left_out.filled
    np.testing.assert_allclose(found, without_folds(candidate, data, fitted, posterior), rtol=1e-6)
    assert fitted.row.log_loss == pytest.approx(-np.log(found[np.arange(n), y]).mean())


def without_folds(
    candidate: Candidate, data: TrainingSet, fitted: FittedCandidate, posterior: str
) -> np.ndarray:
    """Return the slow twin: basis and weights are fitted anew to the rows of the other folds."""
    fold, y = Problem(candidate, data).fold, data.rows.target
    expected = np.zeros((len(y), len(data.classes)))
    for k in range(FOLDS):
        seen = fold != k
        if data.rows.group is not None:
            assert len(np.intersect1d(data.rows.group[seen], data.rows.group[~seen])) == 0
        basis = fit_basis(candidate.kind, data.filled[seen])
        for part in fitted.row.parts:
            prior = blr.GaussianPrior.isotropic(basis.n_functions, precision=part.scale**-2, intercept=0)
            likelihood = "softmax" if len(data.classes) > 2 else "logistic"
            q = blr.fit(basis(data.filled[seen]), y[seen], prior, likelihood)
            q = q if posterior == "laplace" else blr.refine(q, draft=True, most_steps=FOLD_STEPS)
            p = q.prediction(basis(data.filled[~seen])).probability
            expected[~seen] += part.weight * p
    return expected


def test_rows_with_much_weight_in_the_fit_are_left_out_by_refits() -> None:
    """Of classes that squares nearly separate, one step says three quarters of the loss of new rows."""
    said, true = [], []
    for seed in range(6):
        X = np.random.default_rng(seed).standard_normal((3080, 4))
        y = (X[:, 0] * X[:, 1] + X[:, 2] ** 2 > 1).astype(int)
        trained = blr.fit_default(X[:80], y[:80], candidates=["polynomial"])
        said.append(trained.log_loss)
        true.append(log_loss(trained.predict_proba(X[80:]), y[80:]))
        base = log_loss(np.tile(trained.class_share, (3000, 1)), y[80:])
        assert trained.skill.low < base - true[-1] < trained.skill.high
    assert np.mean(said) == pytest.approx(np.mean(true), rel=0.1)


def test_folds_have_as_many_rows_of_each_class() -> None:
    data = incomplete(103, 3)
    fold = Problem(Candidate(), data).fold
    counts = np.array([np.bincount(fold[data.rows.target == k], minlength=FOLDS) for k in range(3)])
    assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()
    assert np.ptp(counts.sum(axis=0)) <= 1


@pytest.mark.parametrize(("n", "by"), [(40, "loo"), (2 * FEW_OF_CLASS, "stack")])
def test_many_rows_and_other_choices_take_one_step(n: int, by: Literal["loo", "stack"]) -> None:
    data = incomplete(n)
    fitted = fit_candidate(Problem(Candidate(), data), Selection(by=by, scale="maximised"))
    expected = leave_one_out_probability(fitted.parts[0].served, group=data.rows.group)[0]
    np.testing.assert_allclose(fitted.left_out.filled, expected)
