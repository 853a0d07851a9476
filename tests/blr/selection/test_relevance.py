"""A width for each feature, or a height of its steps, found by evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from blr.basis.kinds import fit_basis
from blr.basis.rbf import RBF
from blr.basis.sigmoid import Sigmoid
from blr.likelihood.prior import GaussianPrior
from blr.posterior.laplace import fit
from blr.selection.prior_scale import with_relevant_heights, with_relevant_widths


def one_that_tells(rows: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """Return three features, of which the first alone decides on the class, twice along its range."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(rows, 3))
    return X, (np.sin(3 * X[:, 0]) > 0).astype(float)


def common(X: np.ndarray) -> RBF:
    """Return radial functions of one width."""
    return fit_basis("rbf", X, rng=np.random.default_rng(0), centres=40, width=0.7 * np.sqrt(3))


def test_features_that_tell_nothing_get_large_widths() -> None:
    X, t = one_that_tells()
    steps: list[None] = []
    basis = with_relevant_widths(common(X), X, t, on_step=lambda: steps.append(None))
    assert basis.width[0] < 1.0
    assert min(basis.width[1:]) > 1.3
    assert len(steps) <= 5 + 3 * 2 * 3
    np.testing.assert_array_equal(basis.centres, common(X).centres)


def test_the_evidence_is_higher_and_so_are_the_probabilities_of_new_rows() -> None:
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


def test_few_rows_move_widths_little() -> None:
    """Labels that tell nothing leave each width within the prior's reach of the common one."""
    X = np.random.default_rng(0).normal(size=(30, 3))
    t = np.random.default_rng(1).integers(0, 2, 30).astype(float)
    ratio = with_relevant_widths(common(X), X, t).width / common(X).width
    assert np.all(np.abs(np.log(ratio)) < 3)


def test_units_of_weights_and_rows_twice_agree() -> None:
    X, t = one_that_tells(60)
    basis = common(X)
    twice = with_relevant_widths(basis, np.vstack([X, X]), np.r_[t, t])
    weighted = with_relevant_widths(basis, X, t, sample_weight=np.full(60, 2.0))
    np.testing.assert_allclose(twice.width, weighted.width, rtol=1e-6)


def test_softened_and_several_classes() -> None:
    X, t = one_that_tells(80)
    basis = fit_basis("rbf", X, rng=np.random.default_rng(0), centres=20, width=1.0, linear=True, soften=True)
    found = with_relevant_widths(basis, X, t.astype(int) + (X[:, 1] > 1), "softmax")
    assert found.standardisation.softening is basis.standardisation.softening
    assert found.width.shape == (3,)
    assert isinstance(replace(found, width=1.0).width, float)


def test_targets_of_another_length_are_refused() -> None:
    X, t = one_that_tells(60)
    with pytest.raises(ValueError, match="60"):
        with_relevant_widths(common(X), X, t[:50])


def steps(X: np.ndarray) -> Sigmoid:
    """Return eight steps along each feature, all of height 1."""
    return fit_basis("sigmoid", X, centres=8)


def test_features_that_tell_nothing_get_low_steps() -> None:
    X, t = one_that_tells()
    new, truth = one_that_tells(1500)
    start = steps(X)
    found = with_relevant_heights(start, X, t)
    assert found.height[0] > 3 * max(found.height[1:])
    assert np.prod(found.height) == pytest.approx(1)
    np.testing.assert_array_equal(found.location, start.location)
    prior = GaussianPrior.isotropic(25, 3.0**-2, intercept=0)
    before, after = (fit(basis(X), t, prior) for basis in (start, found))
    assert after.log_evidence > before.log_evidence + 3
    losses = [
        -np.log(np.abs(q.predict_proba(basis(new)) - (1 - truth))).mean()
        for basis, q in ((start, before), (found, after))
    ]
    assert losses[1] < losses[0]


def test_heights_are_where_a_search_feature_by_feature_ends() -> None:
    """The slow twin: evidence times prior of fits from scratch, along one feature's scale after another."""
    X, t = one_that_tells(80)
    basis = steps(X)

    def objective(log_scale: np.ndarray) -> float:
        variance = np.r_[1e4, np.exp(2 * log_scale)[basis.feature]]
        q = fit(basis(X), t, GaussianPrior(np.zeros(25), variance))
        return q.log_evidence - 0.5 * float(np.sum(np.square(log_scale - np.log(3.0))))

    log_scale = np.full(3, np.log(3.0))
    for step in (1.0, 0.5, 0.3, 0.1, 0.05):
        for f in range(3):
            tried = [log_scale + step * k * np.eye(3)[f] for k in (-2, -1, 0, 1, 2)]
            log_scale = max(tried, key=objective)
    twin = np.exp(log_scale - log_scale.mean())
    np.testing.assert_allclose(with_relevant_heights(basis, X, t).height, twin, rtol=0.15)


def test_labels_that_tell_nothing_leave_all_steps_alike() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    t = np.random.default_rng(1).integers(0, 2, 40).astype(float)
    np.testing.assert_array_equal(with_relevant_heights(steps(X), X, t).height, np.ones(3))


def test_heights_of_weighted_and_softened_rows_of_several_classes() -> None:
    X, t = one_that_tells(60)
    k = t.astype(int) + (X[:, 1] > 1)
    basis = fit_basis("sigmoid", X, centres=4, soften=True)
    twice = with_relevant_heights(basis, np.vstack([X, X]), np.r_[k, k], "softmax")
    weighted = with_relevant_heights(basis, X, k, "softmax", sample_weight=np.full(60, 2.0))
    np.testing.assert_allclose(twice.height, weighted.height, rtol=1e-6)
    assert twice.standardisation.softening is basis.standardisation.softening


def test_one_feature_with_steps_keeps_the_height() -> None:
    X, t = one_that_tells(60)
    X[:, 1:] = 1.0
    np.testing.assert_array_equal(with_relevant_heights(steps(X), X, t).height, np.ones(3))
