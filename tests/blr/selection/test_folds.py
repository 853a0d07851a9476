"""Left-out predictions by folds against fits done by hand, and the dealing out of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blr
from blr.selection.folds import assign_folds, fold_probabilities, fold_probability


def problem(K: int = 2, n: int = 60, seed: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    Phi = np.hstack([np.ones((n, 1)), rng.normal(size=(n, 2))])
    t = np.argmax(Phi @ rng.normal(size=(3, K)) * 2 + rng.gumbel(size=(n, K)), axis=1)
    prior = blr.GaussianPrior.isotropic(3, precision=0.3, intercept=0)
    return (
        blr.fit(Phi, t, prior, likelihood="logistic" if K == 2 else "softmax", classes=range(K)),
        Phi,
        t,
        prior,
    )


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("refined", [True, False])
def test_each_row_is_predicted_by_a_fit_without_its_fold(K: int, *, refined: bool) -> None:
    q, Phi, t, prior = problem(K)
    fold = assign_folds(t)
    p = fold_probability(q, fold, refined=refined)
    for number in range(5):
        left = fold == number
        twin = blr.fit(Phi[~left], t[~left], prior, likelihood=q.likelihood, classes=range(K))
        twin = blr.refine(twin) if refined else twin
        expected = twin.predict_proba(Phi[left])
        expected = np.stack([1 - expected, expected], axis=1) if K == 2 else expected
        np.testing.assert_allclose(p[left], expected, atol=0.02 if refined else 1e-6)


def test_a_row_has_no_part_in_its_own_prediction() -> None:
    q, Phi, t, prior = problem()
    fold = assign_folds(t)
    changed = t.copy()
    changed[fold == 2] = 1 - changed[fold == 2]
    other = blr.fit(Phi, changed, prior, classes=range(2))
    before, after = fold_probability(q, fold), fold_probability(other, fold)
    np.testing.assert_allclose(before[fold == 2], after[fold == 2], atol=1e-3)


@pytest.mark.parametrize("K", [2, 3])
def test_fits_of_other_priors_begin_where_the_one_before_ended(K: int) -> None:
    q, Phi, t, _ = problem(K)
    wide = blr.GaussianPrior.isotropic(3, precision=0.01, intercept=0)
    other = blr.fit(Phi, t, wide, likelihood=q.likelihood, classes=range(K))
    fold = assign_folds(t)
    together = list(fold_probabilities([q, other], fold))
    alone = [fold_probability(fit, fold) for fit in (q, other)]
    np.testing.assert_array_equal(together[0], alone[0])
    np.testing.assert_allclose(together[1], alone[1], atol=0.02)
    assert np.abs(together[1] - together[0]).max() > 0.05


def test_a_row_has_no_part_in_its_own_prediction_by_a_second_fit() -> None:
    _, Phi, t, prior = problem()
    fold = assign_folds(t)
    changed = t.copy()
    changed[fold == 2] = 1 - changed[fold == 2]
    wide = blr.GaussianPrior.isotropic(3, precision=0.01, intercept=0)
    before, after = (
        list(fold_probabilities([blr.fit(Phi, labels, p, classes=range(2)) for p in (prior, wide)], fold))[1]
        for labels in (t, changed)
    )
    np.testing.assert_allclose(before[fold == 2], after[fold == 2], atol=1e-3)


def test_classes_are_spread_evenly() -> None:
    t = np.array([0] * 83 + [1] * 12 + [2] * 5)
    fold = assign_folds(t)
    for k, n in enumerate((83, 12, 5)):
        per_fold = np.bincount(fold[t == k], minlength=5)
        assert per_fold.sum() == n
        assert per_fold.max() - per_fold.min() <= 1


def test_groups_stay_together_and_order_does_not_matter() -> None:
    rng = np.random.default_rng(4)
    t, group = rng.integers(3, size=200), rng.integers(40, size=200).astype(np.uint64)
    fold = assign_folds(t, group)
    for g in np.unique(group):
        assert len(set(fold[group == g].tolist())) == 1
    assert set(fold.tolist()) == set(range(5))
    order = rng.permutation(200)
    np.testing.assert_array_equal(assign_folds(t[order], group[order]), fold[order])


def test_one_group_is_refused() -> None:
    with pytest.raises(ValueError, match="got 1 group"):
        assign_folds(np.arange(6) % 2, np.zeros(6, dtype=np.uint64))


def test_a_stream_is_refused() -> None:
    Phi, t = np.hstack([np.ones((9, 1)), np.arange(9.0)[:, None]]), np.arange(9) % 2
    q = blr.fit([(Phi, t, None)], None, blr.GaussianPrior.isotropic(2), classes=[0, 1])
    with pytest.raises(TypeError, match="expected one fitted to rows in memory"):
        fold_probability(q, assign_folds(t))
