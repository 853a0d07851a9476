"""A width for each feature, found by evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from blr.basis.kinds import fit_basis
from blr.likelihood.prior import GaussianPrior
from blr.posterior.laplace import fit
from blr.selection.relevance import with_relevant_widths


def one_that_tells(rows: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """Return three features, of which the first alone decides on the class, twice along its range."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(rows, 3))
    return X, (np.sin(3 * X[:, 0]) > 0).astype(float)


def common(X: np.ndarray):
    """Return radial functions of one width."""
    return fit_basis("rbf", X, rng=np.random.default_rng(0), centres=40, width=0.7 * np.sqrt(3))


def test_features_that_tell_nothing_get_large_widths():
    X, t = one_that_tells()
    steps: list[None] = []
    basis = with_relevant_widths(common(X), X, t, on_step=lambda: steps.append(None))
    assert basis.width[0] < 1.0
    assert min(basis.width[1:]) > 1.3
    assert len(steps) <= 5 + 3 * 2 * 3
    np.testing.assert_array_equal(basis.centres, common(X).centres)


def test_the_evidence_is_higher_and_so_are_the_probabilities_of_new_rows():
    X, t = one_that_tells()
    new, truth = one_that_tells(1500)
    prior = GaussianPrior.isotropic(41, 3.9**-2, intercept=0)
    start = common(X)
    found = with_relevant_widths(start, X, t)
    before, after = (fit(basis(X), t, prior) for basis in (start, found))
    assert after.log_evidence > before.log_evidence + 5
    losses = [
        -np.log(np.abs(q.predict_proba(basis(new)) - (1 - truth))).mean()
        for basis, q in ((start, before), (found, after))
    ]
    assert losses[1] < losses[0]


def test_few_rows_move_widths_little():
    """Labels that tell nothing leave each width within the prior's reach of the common one."""
    X = np.random.default_rng(0).normal(size=(30, 3))
    t = np.random.default_rng(1).integers(0, 2, 30).astype(float)
    ratio = with_relevant_widths(common(X), X, t).width / common(X).width
    assert np.all(np.abs(np.log(ratio)) < 3)


def test_units_of_weights_and_rows_twice_agree():
    X, t = one_that_tells(60)
    basis = common(X)
    twice = with_relevant_widths(basis, np.vstack([X, X]), np.r_[t, t])
    weighted = with_relevant_widths(basis, X, t, sample_weight=np.full(60, 2.0))
    np.testing.assert_allclose(twice.width, weighted.width, rtol=1e-6)


def test_softened_and_several_classes():
    X, t = one_that_tells(80)
    basis = fit_basis("rbf", X, rng=np.random.default_rng(0), centres=20, width=1.0, linear=True, soften=True)
    found = with_relevant_widths(basis, X, t.astype(int) + (X[:, 1] > 1), "softmax")
    assert found.standardisation.softening is basis.standardisation.softening
    assert found.width.shape == (3,)
    assert isinstance(replace(found, width=1.0).width, float)


def test_targets_of_another_length_are_refused():
    X, t = one_that_tells(60)
    with pytest.raises(ValueError, match="60"):
        with_relevant_widths(common(X), X, t[:50])
