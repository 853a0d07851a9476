"""Left-out rows that lack features are predicted as the model serves them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import blr
from blr.basis.kinds import fit_basis
from blr.candidates.candidate import Candidate, LeftOut, Selection
from blr.candidates.fits import FOLDED_OF_CLASS, FOLDS, Problem, fit_candidate
from blr.candidates.rows import LabelledRows, TrainingSet
from blr.classifier import Classifier, Member
from blr.missing.moments import Domain, excess_spread
from blr.selection.compare import leave_one_out_probability

Floats = NDArray[np.float64]


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
    found, twin = fit_candidate(Candidate(), data, LAPLACE).left_out, without_each(data)
    assert np.abs(found.filled - twin.filled).mean() < 1e-3
    assert np.abs(found.filled - twin.filled).max() < 0.03
    assert np.abs(found.at(1.0) - twin.at(1.0)).mean() < 3e-3
    assert found.at(1.0).sum(axis=1) == pytest.approx(np.ones(150))
    assert found.at(0.3) == pytest.approx(0.7 * found.filled + 0.3 * found.at(1.0))


def test_complete_rows_have_one_prediction() -> None:
    """So has a candidate without the feature that some rows lack."""
    data = incomplete(60)
    known = np.zeros((60, 2), dtype=bool)
    whole = TrainingSet.of(replace(data.rows, missing=known), data.features, data.classes)
    for own, candidate in ((whole, Candidate()), (data, Candidate(features=("u",)))):
        found = fit_candidate(candidate, own, LAPLACE).left_out
        assert found.at(1.0) is found.filled


@pytest.mark.parametrize(("K", "posterior", "of_group"), [(2, "laplace", 1), (3, "refined", 4)])
def test_few_rows_of_a_stack_are_left_out_by_refits_without_their_fold(
    K: int, posterior: str, of_group: int
) -> None:
    """The slow twin fits basis and weights anew to the rows of the other folds."""
    n = 48
    data = incomplete(n, K, of_group=of_group)
    data = TrainingSet.of(replace(data.rows, missing=np.zeros((n, 2), bool)), ("u", "v"), data.classes)
    candidate, y = Candidate("polynomial"), data.rows.target
    fitted = fit_candidate(candidate, data, Selection(posterior=posterior))
    fold = Problem(candidate, data, 0, None).fold
    expected = np.zeros((n, K))
    for k in range(FOLDS):
        seen = fold != k
        assert len(np.intersect1d(data.rows.group[seen], data.rows.group[~seen])) == 0
        basis = fit_basis("polynomial", data.filled[seen])
        for part in fitted.row.parts:
            prior = blr.GaussianPrior.isotropic(basis.n_functions, precision=part.scale**-2, intercept=0)
            q = blr.fit(basis(data.filled[seen]), y[seen], prior, "softmax" if K > 2 else "logistic")
            q = q if posterior == "laplace" else blr.refine(q, draft=True)
            p = q.prediction(basis(data.filled[~seen])).probability
            expected[~seen] += part.weight * p
    found = fitted.left_out.filled
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert fitted.row.log_loss == pytest.approx(-np.log(found[np.arange(n), y]).mean())


def test_folds_have_as_many_rows_of_each_class() -> None:
    data = incomplete(103, 3)
    fold = Problem(Candidate(), data, 0, None).fold
    counts = np.array([np.bincount(fold[data.rows.target == k], minlength=FOLDS) for k in range(3)])
    assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()
    assert np.ptp(counts.sum(axis=0)) <= 1


@pytest.mark.parametrize(("n", "by"), [(40, "loo"), (2 * FOLDED_OF_CLASS, "stack")])
def test_many_rows_and_other_choices_take_one_step(n: int, by: Literal["loo", "stack"]) -> None:
    data = incomplete(n)
    fitted = fit_candidate(Candidate(), data, Selection(by=by, scale="maximised"))
    expected = leave_one_out_probability(fitted.parts[0].served, group=data.rows.group)[0]
    np.testing.assert_allclose(fitted.left_out.filled, expected)
