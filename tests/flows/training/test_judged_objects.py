"""What the report shows of the rows that judge: curves, bins and surprising labels, each against its definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flows.training._rows import TrainingRows, rows_at
from flows.training.steps import (
    THRESHOLDS,
    judged_pictures,
    notable_objects,
    threshold_curves,
)

N, K = 900, 3
RNG = np.random.default_rng(0)
TRUTH = RNG.integers(K, size=N)
P = RNG.dirichlet(np.ones(K), size=N) + 2 * np.eye(K)[TRUTH] * RNG.random((N, 1))
P /= P.sum(axis=1, keepdims=True)
NAMELESS = TrainingRows(np.zeros((N, 1)), np.zeros((N, 1), bool), TRUTH, np.ones(N, dtype=bool))
OBJECTS = replace(
    NAMELESS,
    identifier=np.array([f"obj {i // 2}".encode() for i in range(N)], dtype="S64"),
    position=np.column_stack(
        [RNG.uniform(0, 360, N), np.where(np.arange(N) % 10, RNG.uniform(-90, 90, N), np.nan)]
    ),
    magnitude=np.where(np.arange(N) % 3, RNG.normal(18, 1, N), np.nan),
    magnitude_name=np.array("r"),
)


def test_curves_are_the_shares_above_each_threshold() -> None:
    completeness, purity = threshold_curves(P, TRUTH)
    for k in range(K):
        for i in (0, 30, 77, 100):
            taken, own = P[:, k] >= THRESHOLDS[i], k == TRUTH
            assert completeness[k, i] == np.mean(taken[own])
            if taken.sum() >= 10:
                assert purity[k, i] == np.mean(own[taken])
            else:
                assert np.isnan(purity[k, i])


def test_bins_hold_every_object_that_has_the_quantity_once() -> None:
    pictures = judged_pictures(P, OBJECTS)
    assert pictures["magnitude_counts"] is not None
    assert pictures["latitude_counts"] is not None
    known = np.isfinite(OBJECTS.magnitude)
    assigned = P.argmax(axis=1)
    of_class, given, both = pictures["magnitude_counts"].sum(axis=1)
    np.testing.assert_array_equal(of_class, np.bincount(TRUTH[known], minlength=K))
    np.testing.assert_array_equal(given, np.bincount(assigned[known], minlength=K))
    np.testing.assert_array_equal(both, np.bincount(TRUTH[known & (assigned == TRUTH)], minlength=K))
    assert pictures["latitude_counts"][0].sum() == np.isfinite(OBJECTS.position[:, 1]).sum()
    assert np.ptp(pictures["magnitude_counts"][0].sum(axis=1)) <= 2
    assert np.all(np.diff(pictures["magnitude_centres"]) > 0)


def test_few_objects_or_missing_columns_give_no_bins() -> None:
    few = judged_pictures(P[:50], rows_at(OBJECTS, np.arange(N) < 50))
    assert few["magnitude_counts"] is None
    assert judged_pictures(P, NAMELESS)["latitude_counts"] is None


def test_the_objects_are_those_whose_labels_surprise_most_each_once() -> None:
    objects = notable_objects(P, OBJECTS, ("a", "b", "c"))
    assert len(objects) == 20
    assert len({o["name"] for o in objects}) == 20
    wrong = P.argmax(axis=1) != TRUTH
    own = np.where(wrong, P[np.arange(N), TRUTH], np.inf)
    first = int(np.argmin(own))
    assert objects[0]["name"] == f"obj {first // 2}"
    assert objects[0]["why"].startswith(f"labelled {'abc'[TRUTH[first]]}")
    assert all((o["dec"] is None) or -90 <= o["dec"] <= 90 for o in objects)
    assert notable_objects(P, NAMELESS, ("a", "b", "c")) == ()
