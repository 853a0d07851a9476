"""Counts, purity and completeness, with labels in the target and without: closed forms and simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import beta, binom

from blr.census import counts
from blr.census.bins import bin_selection, bin_shares, joined_selection
from blr.census.counts import Counted, count_classes, count_with_labels
from blr.census.purity import (
    _SEED,
    LEFT_OUT_ERROR,
    MODEL_ROWS,
    Selection,
    _taken,
    learnt_threshold,
    n_selected,
    selection,
    threshold_for,
)
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
    return selection(
        counted.parts,
        labelled.probability[:, 1] >= threshold,
        1,
        n_selected=n_selected(target, 1, threshold),
        n_objects=target.n_objects,
        n_seen=target.n_effective,
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
    np.testing.assert_array_equal(counted.shares, shares_if_shares(labelled, target))
    ((rows, draws),) = counted.parts
    assert rows is labelled
    assert draws is counted.shares


def test_a_mild_bias_is_answered_by_both_assumptions_half_each() -> None:
    labelled, target, _ = sets(2, tilt=0.5)
    counted = count_classes(labelled, target)
    assert counted.assumes == "shares or features"
    assert counted.contradicted
    assert ", expected 0.005 or more" in counted.reason
    assert 'state [shift] assumes = "features"' in counted.reason
    first, second = counted.alternatives
    assert (first.assumes, second.assumes) == ("shares", "features")
    ratio = second.labelled.weight
    np.testing.assert_array_equal(first.shares, shares_if_shares(labelled, target))
    np.testing.assert_array_equal(second.shares, shares_if_features(labelled, target, ratio))
    assert counted.shares is not None
    half = len(counted.shares) // 2
    np.testing.assert_array_equal(counted.shares[:half], first.shares)
    np.testing.assert_array_equal(counted.shares[half:], second.shares)
    # Under "features" labelled rows have the target's features.
    weighted = ratio @ labelled.X / ratio.sum()
    assert abs(weighted[0] - target.X[:, 0].mean()) < 0.5 * abs(labelled.X.mean(axis=0)[0])


def test_purity_thresholds_and_bins_pool_the_draws() -> None:
    labelled, target, _ = sets(2, tilt=0.5)
    counted = count_classes(labelled, target)
    parts = counted.alternatives
    both = selected(counted, labelled, target, 0.5)
    alone = [selected(one, one.labelled, target, 0.5) for one in parts]
    np.testing.assert_array_equal(both.purity, np.concatenate([one.purity for one in alone]))
    np.testing.assert_array_equal(both.completeness, np.concatenate([one.completeness for one in alone]))
    assert len(alone[0].purity) == len(alone[1].purity)
    assert both.n_selected == alone[0].n_selected
    found = threshold_for(counted.parts, target, 1, ("purity", 0.9))
    assert found is not None
    assert found[1].purity.mean() == pytest.approx(0.9, abs=0.01)
    np.testing.assert_array_equal(found[1].purity, selected(counted, labelled, target, found[0]).purity)
    places = *((rows.X[:, 1] > 0).astype(np.intp) for rows in (labelled, target)), 2
    bins = bin_shares(target, counted, *places)
    each = [bin_shares(target, one, *places) for one in parts]
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
    np.testing.assert_allclose(bin_shares(target, stated, *places).draws, each[1].draws, atol=1e-10)


@pytest.mark.parametrize("assumes", ["shares", "same"])
def test_a_stated_assumption_stays_and_its_reason_says_what_contradicts_it(assumes: str) -> None:
    labelled, target, _ = sets(2, tilt=0.5)
    counted = count_classes(labelled, target, assumes=assumes)  # type: ignore[arg-type]
    assert counted.assumes == assumes
    assert counted.shares is not None
    assert counted.contradicted
    assert "stated, but a test contradicts it" in counted.reason


@pytest.mark.parametrize(("auc", "spans"), [(0.549, False), (0.553, True)])
def test_the_area_is_the_second_test(monkeypatch: pytest.MonkeyPatch, auc: float, *, spans: bool) -> None:
    monkeypatch.setattr(counts, "propensity", lambda *_: (auc, 0.02, np.ones(1000)))
    monkeypatch.setattr(counts, "means_test", lambda *_: (1.0, 3, 0.006))
    labelled, target, _ = sets(3, tilt=0.0)
    counted = count_classes(labelled, target)
    assert (counted.assumes == "shares or features") == spans
    assert f"the labelled one in {100 * auc:.1f} ± 2.0 of 100 tries, by chance in 50" in counted.reason


def test_where_features_carries_no_count_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    labelled, target, _ = sets(3, tilt=0.0)
    areas = iter([(0.5, 0.02, np.ones(1000)), (0.8, 0.02, np.ones(1000))])
    monkeypatch.setattr(counts, "propensity", lambda *_: next(areas))
    monkeypatch.setattr(counts, "means_test", lambda *_: (9.0, 3, 0.0012))
    counted = count_classes(labelled, target)
    assert (counted.shares, counted.assumes, counted.parts) == (None, None, ())
    assert counted.contradicted
    assert "p = 0.001," in counted.reason
    assert "picks the labelled one in 80.0 ± 2.0 of 100 tries" in counted.reason


def test_missing_features_and_rows_without_a_test_leave_shares() -> None:
    labelled, target, _ = sets(4, tilt=0.0, n=200)
    for rows in (labelled, target):
        rows.X[::3, 2] = np.nan
    assert count_classes(labelled, target).assumes == "shares"
    few = LabelledRows(labelled.probability[:20], labelled.y[:20], np.ones(20), np.zeros((20, 3)))
    assert count_classes(few, replace(target, X=np.zeros((2000, 3)))).assumes == "shares"


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


def field(
    seed: int, *, n: int = 300, N: int = 1500, share: float = 0.25
) -> tuple[LabelledRows, TargetRows, np.ndarray, np.ndarray]:
    """Return labelled rows, a target of which they are a part, the known classes of its rows, and all classes.

    Objects of a class look alike everywhere; half of the labelled ones are of the first class, of the others `share`.
    """
    rng = np.random.default_rng(seed)
    y = (rng.random(N) > share).astype(np.intp)
    y[:n] = rng.random(n) > 0.5
    x = rng.normal(size=N) + 1.5 * y
    p = expit(1.5 * x - 0.5 * 1.5**2)  # at equal shares
    P, X = np.column_stack([1 - p, p]), x[:, None]
    labelled = LabelledRows(P[:n], y[:n], np.ones(n), X[:n])
    known = np.full(N, -1)
    known[:n] = y[:n]
    return labelled, TargetRows(P, np.ones(N), X, N), known, y


def test_counts_are_those_of_labels_and_of_the_others_object_by_object() -> None:
    """The slow way: the others are counted alone, and each labelled object is added to each draw."""
    labelled, target, known, _ = field(1)
    found = count_with_labels(labelled, target, known)
    rest = np.flatnonzero(known < 0)
    alone = count_classes(
        labelled, TargetRows(target.probability[rest], target.weight[rest], target.X[rest], len(rest))
    )
    assert alone.shares is not None
    assert found.shares is not None
    slow = []
    for draw in alone.shares[:50]:
        counts = [float(share) * len(rest) for share in draw]
        for k in known.tolist():
            if k >= 0:
                counts[k] += 1
        slow.append([count / target.n_objects for count in counts])
    np.testing.assert_allclose(found.shares[:50], slow, rtol=1e-12)
    assert found.counted.tolist() == np.bincount(known[known >= 0]).tolist()
    assert found.assumes == alone.assumes == "shares"
    assert (
        found.reason == f"300 objects have a label and are counted by it; of the 1,200 others: {alone.reason}"
    )


def test_a_sampled_target_stands_for_its_objects() -> None:
    """Every third row of either kind, with weight 3: the labels are counted in full."""
    labelled, target, known, _ = field(2)
    third = np.arange(0, 1500, 3)
    sampled = TargetRows(target.probability[third], np.full(500, 3.0), target.X[third], 1500)
    found = count_with_labels(labelled, sampled, known[third])
    assert found.counted.tolist() == (3 * np.bincount(known[third][known[third] >= 0])).tolist()
    assert (found.shares * 1500 >= found.counted - 1e-9).all()


@pytest.mark.parametrize(("left", "K"), [(0, 2), (7, 2), (7, 60)])
def test_where_nearly_all_have_labels_the_others_may_be_of_any_class(left: int, K: int) -> None:
    y, N = np.arange(600) % K, 300 + left
    p = np.eye(K)[y] * 0.9 + 0.1 / K
    labelled = LabelledRows(p, y, np.ones(600), np.random.default_rng(0).normal(size=(600, 2)))
    target = TargetRows(p[:N], np.ones(N), labelled.X[:N], N)
    found = count_with_labels(labelled, target, np.where(np.arange(N) < 300, y[:N], -1))
    low, high = (end * N for end in found.interval)
    np.testing.assert_allclose(low, np.bincount(y[:300], minlength=K))
    np.testing.assert_allclose(high, low + left)
    np.testing.assert_allclose(found.shares.mean(axis=0).sum(), 1)
    assert found.of_labels
    assert found.assumes is None
    assert "300 objects have a label" in found.reason


def test_without_labels_the_counts_are_the_models() -> None:
    labelled, target, known, _ = field(4)
    found = count_with_labels(labelled, target, np.full_like(known, -1))
    np.testing.assert_array_equal(found.shares, count_classes(labelled, target).shares)
    assert found.counted is None


def test_what_cannot_be_said_of_the_others_is_said_of_all_only_where_they_are_few() -> None:
    def with_far_others(known: np.ndarray) -> Counted:
        X = target.X + np.where(known < 0, 40, 0)[:, None]
        return count_with_labels(labelled, replace(target, X=X), known)

    labelled, target, known, y = field(8)
    found = with_far_others(known)
    assert found.shares is None
    assert found.contradicted
    assert found.reason.startswith(
        "300 objects have a label and are counted by it; of the 1,200 others: the labelled objects do not"
    )
    found = with_far_others(np.where(np.arange(1500) < 1400, y, -1))
    assert found.shares is not None
    low, high = (end * 1500 for end in found.interval)
    np.testing.assert_allclose(low, np.bincount(y[:1400]))
    np.testing.assert_allclose(high, low + 100)
    assert found.of_labels
    assert found.contradicted
    assert "may be of any class, which the intervals hold. No more can be said of them" in found.reason


def labelled_of(right: int, wrong: int, n: int) -> tuple[LabelledRows, np.ndarray]:
    """Return n rows of each of two classes: `right` of class 1 are chosen, `wrong` of class 0."""
    y = np.repeat(np.array([0, 1], dtype=np.intp), n)
    chosen = np.concatenate([np.arange(n) < wrong, np.arange(n) < right])
    return LabelledRows(np.full((2 * n, 2), 0.5), y, np.ones(2 * n), np.zeros((2 * n, 1))), chosen


def test_fractions_are_a_mixture_of_what_rows_say_with_and_without_the_model() -> None:
    """The slow twin: a grid of fractions, the binomial of the class's rows times each of the two priors."""
    rng = np.random.default_rng(5)
    n, y = 60, np.repeat(np.array([0, 1], dtype=np.intp), 30)
    p = expit(rng.normal(1.5 * (2 * y - 1), 1.0))
    labelled = LabelledRows(np.column_stack([1 - p, p]), y, np.ones(n), np.zeros((n, 1)))
    chosen = p >= 0.6
    drawn = _taken(labelled, chosen, 1, np.random.default_rng(6), 200_000)
    grid = (np.arange(20_000) + 0.5) / 20_000
    for k in (0, 1):
        soft = labelled.calibrated[:, k]
        expected, hits, rows = soft @ chosen / soft.sum(), chosen[y == k].sum(), 30
        weight = (y == k) / (30 + MODEL_ROWS) + soft / soft.sum() * MODEL_ROWS / (30 + MODEL_ROWS)
        worth = 1 / (weight @ weight + MODEL_ROWS / (30 + MODEL_ROWS) ** 2)
        both = worth * (weight @ chosen)
        evidence = [
            np.mean(beta.pdf(grid, *prior) * binom.pmf(hits, rows, grid))
            for prior in (
                (0.5, 0.5),
                (0.5 + MODEL_ROWS * expected, 0.5 + MODEL_ROWS * (1 - expected)),
            )
        ]
        trust = evidence[1] / sum(evidence)
        means = [(0.5 + hits) / (1 + rows), (0.5 + both) / (1 + worth)]
        assert drawn[:, k].mean() == pytest.approx((1 - trust) * means[0] + trust * means[1], abs=1e-3)


def test_the_number_selected_tells_of_the_fractions() -> None:
    """The slow twin: draws weighted by the normal density of the observed share, without drawing again."""
    labelled, chosen = labelled_of(15, 2, 20)
    shares = np.tile([0.5, 0.5], (20_000, 1))
    found = selection([(labelled, shares)], chosen, 1, n_selected=480, n_objects=1000, n_seen=1000)
    taken = _taken(labelled, chosen, 1, np.random.default_rng(_SEED), 20_000)
    variance = (0.48 * 0.52 + 1e-3) / 1000 + (LEFT_OUT_ERROR * 0.48) ** 2
    weight = np.exp(-0.5 * (taken.mean(axis=1) - 0.48) ** 2 / variance)
    purity = np.average(taken[:, 1] / taken.sum(axis=1), weights=weight)
    assert found.purity.mean() == pytest.approx(purity, abs=0.005)
    assert found.completeness.mean() == pytest.approx(np.average(taken[:, 1], weights=weight), abs=0.005)
    unseen = selection([(labelled, shares)], chosen, 1, n_selected=480, n_objects=1000)
    assert found.completeness.std() < 0.97 * unseen.completeness.std()


def test_a_number_that_no_draw_expects_leaves_enough_draws() -> None:
    labelled, chosen = labelled_of(50, 0, 50)
    shares = np.tile([0.999, 0.001], (1000, 1))
    found = selection([(labelled, shares)], chosen, 1, n_selected=900, n_objects=1000, n_seen=1000)
    assert len(np.unique(found.purity)) > 20


def test_a_stated_purity_or_completeness_has_a_threshold() -> None:
    """Two normal classes, equally frequent: purity and completeness at a threshold are known."""
    rng = np.random.default_rng(2)
    n, N = 4000, 20_000
    y, truth = (rng.random(n) < 0.5).astype(np.intp), rng.random(N) < 0.5
    x, z = rng.normal(size=n) + 2 * y, rng.normal(size=N) + 2 * truth
    p, q = expit(2 * x - 2), expit(2 * z - 2)
    labelled = LabelledRows(np.column_stack([1 - p, p]), y, np.ones(n), x[:, None])
    target = TargetRows(np.column_stack([1 - q, q]), np.ones(N), z[:, None], N)
    shares = np.tile([0.5, 0.5], (200, 1))
    threshold, pure = threshold_for([(labelled, shares)], target, 1, ("purity", 0.95))
    assert abs(truth[q >= threshold].mean() - 0.95) < 0.015
    assert pure.n_selected == n_selected(target, 1, threshold) == (q >= threshold).sum()
    threshold, _ = threshold_for([(labelled, shares)], target, 1, ("completeness", 0.9))
    assert abs((q >= threshold)[truth].mean() - 0.9) < 0.03
    assert threshold_for([(labelled, np.tile([1.0, 1e-9], (1000, 1)))], target, 1, ("purity", 0.9)) is None


def test_a_threshold_before_any_target_is_that_of_the_target_it_stands_for() -> None:
    """The slow twin: labelled rows drawn again at the stated shares, and counted."""
    rng = np.random.default_rng(4)
    y = rng.choice(2, 4000, p=[0.6, 0.4])
    score = expit(rng.normal(2.0 * (2 * y - 1), 1.5))
    labelled = LabelledRows(np.column_stack([1 - score, score]), y, np.ones(4000), np.zeros((4000, 1)))
    shares = np.array([0.8, 0.2])
    for what, value in (("purity", 0.9), ("completeness", 0.7)):
        threshold, found = learnt_threshold(labelled, 1, shares, (what, value))
        assert threshold == float(np.float32(threshold))
        recall = [np.mean(score[y == k] >= threshold) for k in (0, 1)]
        purity = 0.2 * recall[1] / (0.2 * recall[1] + 0.8 * recall[0])
        assert found.purity.mean() == pytest.approx(purity, abs=0.01)
        assert found.completeness.mean() == pytest.approx(recall[1], abs=0.01)
        reached = {"purity": purity, "completeness": recall[1]}
        assert value - 0.003 < reached[what] < value + 0.015
    other = learnt_threshold(labelled, 1, np.array([0.5, 0.5]), ("completeness", 0.7))
    assert other[0] == pytest.approx(threshold, rel=1e-9)  # whatever the shares
    assert learnt_threshold(labelled, 1, shares, ("purity", 0.99999)) is None
