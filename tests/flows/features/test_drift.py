"""Features against the training set: exact sums, an index that is near nought where nothing has changed."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import norm

from flows.documents import from_document, to_document
from flows.features.drift import (
    drift,
    feature_counts,
    feature_distribution,
    total_counts,
)
from flows.runs.counts import FeatureCounts
from flows.runs.summary import DRIFTED, drifted

NAMES = ("a", "b")


def rows(rng, n: int, *, shift: float = 0.0, missing: float = 0.1):
    X = rng.normal([shift, 100.0], [1.0, 5.0], (n, 2))
    absent = rng.random((n, 2)) < missing
    return np.where(absent, 0, X), absent


def distribution(X, missing, features=NAMES):
    """Return the training's distributions."""
    return feature_distribution(X, missing, features)


def found(rng, n: int, reference, **changed: float):
    X, missing = rows(rng, n, **changed)
    return drift(feature_counts(X, missing, reference, NAMES), reference, NAMES)


@pytest.fixture
def reference():
    return distribution(*rows(np.random.default_rng(0), 5000))


def test_the_index_of_the_same_distribution_is_what_chance_makes():
    rng = np.random.default_rng(1)
    for n in (100, 1000, 10_000):
        told = [found(rng, n, distribution(*rows(rng, 5000)))["a"] for _ in range(40)]
        mean = np.mean([f.index for f in told])
        assert mean == pytest.approx(told[0].expected_index, rel=0.35)
        assert not any(f.has_drifted for f in told)


def test_the_index_of_a_shift_is_the_divergence(reference):
    """A quadrature of the tenths: ten bins of N(0, 1) seen from N(1, 1)."""
    edges = np.concatenate([[-np.inf], norm.ppf(np.arange(1, 10) / 10), [np.inf]])
    q, p = np.diff(norm.cdf(edges - 1)), np.diff(norm.cdf(edges))
    told = found(np.random.default_rng(2), 200_000, reference, shift=1.0)
    assert told["a"].index == pytest.approx(np.sum((q - p) * np.log(q / p)), rel=0.1)
    assert told["a"].mean_shift == pytest.approx(1, abs=0.05)
    assert told["a"].sd_ratio == pytest.approx(1, abs=0.03)
    assert drifted(told) == ["a"]
    assert told["b"].index < DRIFTED / 10


def test_more_missing_is_drift(reference):
    told = found(np.random.default_rng(3), 2000, reference, missing=0.4)
    assert drifted(told) == ["a", "b"]
    assert told["a"].missing_change == pytest.approx(0.3, abs=0.05)


def test_batches_add_up_in_any_order(reference):
    rng = np.random.default_rng(4)
    X, missing = rows(rng, 3000)
    parts = [
        feature_counts(X[i : i + 700], missing[i : i + 700], reference, NAMES) for i in range(0, 3000, 700)
    ]
    one, other = total_counts(parts), total_counts(parts[::-1])
    assert one == other
    whole = feature_counts(X, missing, reference, NAMES)
    assert (one.known, one.bins) == (whole.known, whole.bins)
    np.testing.assert_allclose(one.total, whole.total, rtol=1e-12)


def test_through_json(reference):
    counts = feature_counts(*rows(np.random.default_rng(5), 50), reference, NAMES)
    text = json.dumps(to_document(counts), allow_nan=False)
    assert from_document(FeatureCounts, json.loads(text), source="a record") == counts


def test_ties_share_a_bin():
    X = np.repeat([[1.0], [2.0]], [900, 100], axis=0)
    reference = distribution(X, np.zeros_like(X, dtype=bool), ("a",))
    told = drift(feature_counts(X, np.zeros_like(X, dtype=bool), reference, ("a",)), reference, ("a",))
    assert told["a"].index == 0
    turned = drift(feature_counts(3 - X, np.zeros_like(X, dtype=bool), reference, ("a",)), reference, ("a",))
    assert drifted(turned) == ["a"]


def test_nothing_known_of_the_training():
    counts = feature_counts(*rows(np.random.default_rng(6), 50), {}, NAMES)
    assert drift(counts, {}, NAMES) == {}


def test_no_rows_and_none_measured(reference):
    empty = feature_counts(np.empty((0, 2)), np.empty((0, 2), bool), reference, NAMES)
    told = drift(empty, reference, NAMES)
    assert told["a"].index == 0
    X, missing = np.zeros((10, 2)), np.ones((10, 2), bool)
    told = drift(feature_counts(X, missing, reference, NAMES), reference, NAMES)
    assert drifted(told) == ["a", "b"]


def test_wild_values_stay_finite(reference):
    X = np.array([[1e308, -1e308], [1.0, 1e200]])
    told = drift(feature_counts(X, np.zeros((2, 2), bool), reference, NAMES), reference, NAMES)
    assert all(math.isfinite(v) for f in told.values() for v in vars(f).values())
