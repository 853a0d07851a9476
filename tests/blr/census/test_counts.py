"""Counts that span two assumptions, where a test contradicts "shares": half of the draws from each, and they hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from blr.census import counts
from blr.census.bins import BinnedRows, bin_selection, bin_shares, joined_selection
from blr.census.counts import Counted, Propensity, count_classes
from blr.census.purity import Selection, n_selected, selection, threshold_for
from blr.census.shares import LabelledRows, TargetRows, shares_if_features, shares_if_shares

SLOPE = np.array([1.0, 1.0, 0.0])


def sets(
    seed: int, *, tilt: float, n: int = 1000, N: int = 2000
) -> tuple[LabelledRows, TargetRows, np.ndarray]:
    """Return labelled rows, target and its classes; the chance of a label falls with the first feature by `tilt`.

    At equal features the classes are equally probable, and the model knows it.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N + 5 * n, 3))
    y = (rng.random(len(X)) < expit(2 * X @ SLOPE)).astype(np.intp)
    p = expit(2 * X @ SLOPE)
    P = np.column_stack([1 - p, p])
    chance = np.exp(-tilt * X[N:, 0])
    chosen = N + rng.choice(5 * n, n, replace=False, p=chance / chance.sum())
    labelled = LabelledRows(P[chosen], y[chosen], np.ones(n), X[chosen])
    return labelled, TargetRows(P[:N], np.ones(N), X[:N], N), y[:N]


def selected(counted: Counted, labelled: LabelledRows, target: TargetRows, threshold: float) -> Selection:
    first, *others = counted.parts(labelled)
    return selection(
        first.labelled,
        labelled.probability[:, 1] >= threshold,
        1,
        first.shares.draws,
        n_selected=n_selected(target, 1, threshold),
        n_objects=target.n_objects,
        n_seen=target.n_effective,
        others=others,
    )


@pytest.mark.parametrize(("tilt", "offered"), [(0.9, True), (2.0, False)])
def test_a_remedy_that_would_be_refused_is_not_offered(tilt: float, *, offered: bool) -> None:
    labelled, target, _ = sets(1, tilt=tilt)
    refused = count_classes(labelled, target)
    assert refused.shares is None
    assert "blr audit draw" in refused.reason
    assert ('or state [shift] assumes = "features"' in refused.reason) is offered
    assert (count_classes(labelled, target, assumes="features").shares is not None) is offered


def test_where_nothing_is_rejected_all_is_as_under_shares_alone() -> None:
    labelled, target, _ = sets(1, tilt=0.0)
    counted = count_classes(labelled, target)
    assert (counted.assumes, counted.contradicted, counted.alternatives) == ("shares", False, ())
    assert counted.shares is not None
    np.testing.assert_array_equal(counted.shares.draws, shares_if_shares(labelled, target).draws)
    (part,) = counted.parts(labelled)
    assert part.labelled is labelled
    alone = selection(
        labelled, labelled.probability[:, 1] >= 0.5, 1, part.shares.draws, n_selected=9, n_objects=99
    )
    again = selection(
        labelled,
        labelled.probability[:, 1] >= 0.5,
        1,
        part.shares.draws,
        n_selected=9,
        n_objects=99,
        others=(),
    )
    np.testing.assert_array_equal(alone.purity, again.purity)


def test_a_mild_bias_is_answered_by_both_assumptions_half_each() -> None:
    labelled, target, _ = sets(2, tilt=0.5)
    counted = count_classes(labelled, target)
    assert counted.assumes == "shares or features"
    assert counted.contradicted
    assert "p < 0.0001, expected 0.005 or more" in counted.reason
    assert 'state [shift] assumes = "features"' in counted.reason
    first, second = counted.alternatives
    assert (first.assumes, second.assumes) == ("shares", "features")
    ratio = second.labelled.weight
    np.testing.assert_array_equal(first.shares.draws, shares_if_shares(labelled, target).draws)
    np.testing.assert_array_equal(second.shares.draws, shares_if_features(labelled, target, ratio).draws)
    assert counted.shares is not None
    half = len(counted.shares.draws) // 2
    np.testing.assert_array_equal(counted.shares.draws[:half], first.shares.draws)
    np.testing.assert_array_equal(counted.shares.draws[half:], second.shares.draws)
    # Under "features" labelled rows have the target's features.
    weighted = ratio @ labelled.X / ratio.sum()
    assert abs(weighted[0] - target.X[:, 0].mean()) < 0.5 * abs(labelled.X.mean(axis=0)[0])


def test_purity_thresholds_and_bins_pool_the_draws() -> None:
    labelled, target, _ = sets(2, tilt=0.5)
    counted = count_classes(labelled, target)
    parts = counted.parts(labelled)
    both = selected(counted, labelled, target, 0.5)
    alone = [selected(Counted(one.shares, one.assumes, ""), one.labelled, target, 0.5) for one in parts]
    np.testing.assert_array_equal(both.purity, np.concatenate([one.purity for one in alone]))
    np.testing.assert_array_equal(both.completeness, np.concatenate([one.completeness for one in alone]))
    assert len(alone[0].purity) == len(alone[1].purity)
    assert both.n_selected == alone[0].n_selected
    first, *others = parts
    found = threshold_for(first.labelled, target, 1, first.shares.draws, purity=0.9, others=others)
    assert found is not None
    assert found[1].purity.mean() == pytest.approx(0.9, abs=0.01)
    np.testing.assert_array_equal(found[1].purity, selected(counted, labelled, target, found[0]).purity)
    places = BinnedRows(*((rows.X[:, 1] > 0).astype(np.intp) for rows in (labelled, target)), 2)
    bins = bin_shares(labelled, target, counted, places)
    each = [bin_shares(one.labelled, target, Counted(one.shares, one.assumes, ""), places) for one in parts]
    np.testing.assert_array_equal(bins.draws, np.concatenate([one.draws for one in each]))
    taken = {b: bin_selection(bins, b, 1, 0.5) for b in (0, 1)}
    np.testing.assert_array_equal(
        taken[1].purity, np.concatenate([bin_selection(one, 1, 1, 0.5).purity for one in each])
    )
    joined = joined_selection(bins, 1, taken)
    assert joined.n_selected == both.n_selected
    assert joined.purity.mean() == pytest.approx(both.purity.mean(), abs=0.03)
    # Under "features" the weights stand for the target, so its bins are those of that assumption.
    stated = count_classes(labelled, target, assumes="features")
    np.testing.assert_allclose(bin_shares(labelled, target, stated, places).draws, each[1].draws, atol=1e-10)


@pytest.mark.parametrize("assumes", ["shares", "same"])
def test_a_stated_assumption_stays_and_its_reason_says_what_contradicts_it(assumes: str) -> None:
    labelled, target, _ = sets(2, tilt=0.5)
    counted = count_classes(labelled, target, assumes=assumes)  # type: ignore[arg-type]
    assert counted.assumes == assumes
    assert counted.shares is not None
    assert counted.contradicted
    assert "stated, but a test contradicts it" in counted.reason
    assert "p < 0.0001" in counted.reason


@pytest.mark.parametrize(("auc", "spans"), [(0.549, False), (0.553, True)])
def test_the_area_is_the_second_test(monkeypatch: pytest.MonkeyPatch, auc: float, *, spans: bool) -> None:
    monkeypatch.setattr(counts, "propensity", lambda *_: Propensity(auc, 0.02, np.ones(1000)))
    monkeypatch.setattr(counts, "means_test", lambda *_: (1.0, 3, 0.006))
    labelled, target, _ = sets(3, tilt=0.0)
    counted = count_classes(labelled, target)
    assert (counted.assumes == "shares or features") == spans
    assert f"the labelled one in {100 * auc:.1f} ± 2.0 of 100 tries, by chance in 50" in counted.reason


def test_where_features_carries_no_count_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    labelled, target, _ = sets(3, tilt=0.0)
    areas = iter([Propensity(0.5, 0.02, np.ones(1000)), Propensity(0.8, 0.02, np.ones(1000))])
    monkeypatch.setattr(counts, "propensity", lambda *_: next(areas))
    monkeypatch.setattr(counts, "means_test", lambda *_: (9.0, 3, 0.0012))
    counted = count_classes(labelled, target)
    assert (counted.shares, counted.assumes, counted.parts(labelled)) == (None, None, ())
    assert counted.contradicted
    assert "p = 0.0012" in counted.reason
    assert "picks the labelled one in 80.0 ± 2.0 of 100 tries" in counted.reason


def test_an_answer_cannot_be_stated() -> None:
    labelled, target, _ = sets(3, tilt=0.0, n=50, N=100)
    with pytest.raises(ValueError, match='got the assumption "shares or features", expected "same"'):
        count_classes(labelled, target, assumes="shares or features")  # type: ignore[arg-type]


def test_missing_features_and_rows_without_a_test_leave_shares() -> None:
    labelled, target, _ = sets(4, tilt=0.0, n=200)
    for rows in (labelled, target):
        rows.X[::3, 2] = np.nan
    assert count_classes(labelled, target).assumes == "shares"
    few = LabelledRows(*(a[:20] for a in (labelled.probability, labelled.y, labelled.weight, labelled.X)))
    constant = [replace(rows, X=np.zeros_like(rows.X)) for rows in (few, target)]
    assert count_classes(constant[0], constant[1]).assumes == "shares"  # type: ignore[arg-type]


def of_three_classes(seed: int, *, labelled_classes: int, n: int = 150) -> tuple[LabelledRows, TargetRows]:
    """Return labelled rows of the first classes of three, which lie apart in four features, and a target of all."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 2000)
    X = rng.normal(size=(2000, 4)) + 4.0 * np.eye(3, 4)[y]
    distance = ((X[:, None] - 4.0 * np.eye(3, 4)[None, :labelled_classes]) ** 2).sum(axis=2)
    P = np.exp(-0.5 * (distance - distance.min(axis=1, keepdims=True)))
    P = np.clip(P / P.sum(axis=1, keepdims=True), 1e-6, 1.0)
    P /= P.sum(axis=1, keepdims=True)
    chosen = np.flatnonzero(y < labelled_classes)[:n]
    others = np.setdiff1d(np.arange(2000), chosen)
    labelled = LabelledRows(P[chosen], y[chosen].astype(np.intp), np.ones(n), X[chosen])
    return labelled, TargetRows(P[others], np.ones(len(others)), X[others], len(others))


@pytest.mark.parametrize("seed", range(3))
def test_a_class_without_labels_is_noticed(seed: int) -> None:
    counted = count_classes(*of_three_classes(seed, labelled_classes=2))
    assert counted.shares is None
    assert "label some of them" in counted.reason or "do not look like these" in counted.reason
    assert count_classes(*of_three_classes(seed, labelled_classes=3)).shares is not None
