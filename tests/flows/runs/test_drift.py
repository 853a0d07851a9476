"""Features against the training set: exact sums, and an index near zero where nothing has changed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from flows.runs.drift import (
    drift,
    feature_counts,
    feature_distribution,
)
from flows.runs.results import DRIFTED, drifted

NAMES = ("a", "b")


def rows(rng: Any, n: int, *, shift: float = 0.0, missing: float = 0.1) -> Any:
    X = rng.normal([shift, 100.0], [1.0, 5.0], (n, 2))
    absent = rng.random((n, 2)) < missing
    return np.where(absent, 0, X), absent


def distribution(X: Any, missing: Any, features: str = NAMES) -> Any:
    """Return the training's distributions."""
    return feature_distribution(X, missing, features)


def found(rng: Any, n: int, reference: Any, **changed: float) -> Any:
    X, missing = rows(rng, n, **changed)
    return drift(feature_counts(X, missing, reference, NAMES), reference, NAMES)


@pytest.fixture
def reference() -> Any:
    return distribution(*rows(np.random.default_rng(0), 5000))


def test_the_index_of_the_same_distribution_is_what_chance_makes() -> None:
    rng = np.random.default_rng(1)
    for n in (100, 1000, 10_000):
        told = [found(rng, n, distribution(*rows(rng, 5000)))["a"] for _ in range(40)]
        mean = np.mean([f.index for f in told])
        assert mean == pytest.approx(told[0].expected_index, rel=0.35)
        assert not any(f.has_drifted for f in told)


def test_values_are_counted_in_the_bins_that_a_search_finds(reference: dict[str, Any]) -> None:
    edges = np.asarray(reference["a"].edges)
    X = np.column_stack([np.concatenate([edges, edges - 1e-9, np.linspace(-4, 4, 99)])] * 2)
    counted = feature_counts(X, np.zeros(X.shape, dtype=bool), reference, NAMES).bins[0]
    assert list(counted) == np.bincount(np.searchsorted(edges, X[:, 0], side="right")).tolist()


def test_the_index_of_a_shift_is_the_divergence(reference: dict[str, Any]) -> None:
    """A quadrature of the tenths: ten bins of N(0, 1) seen from N(1, 1)."""
    edges = np.concatenate([[-np.inf], norm.ppf(np.arange(1, 10) / 10), [np.inf]])
    q, p = np.diff(norm.cdf(edges - 1)), np.diff(norm.cdf(edges))
    told = found(np.random.default_rng(2), 200_000, reference, shift=1.0)
    assert told["a"].index == pytest.approx(np.sum((q - p) * np.log(q / p)), rel=0.1)
    assert told["a"].mean_shift == pytest.approx(1, abs=0.05)
    assert told["a"].sd_ratio == pytest.approx(1, abs=0.03)
    assert drifted(told) == ["a"]
    assert told["b"].index < DRIFTED / 10


def test_more_missing_is_drift(reference: dict[str, Any]) -> None:
    told = found(np.random.default_rng(3), 2000, reference, missing=0.4)
    assert drifted(told) == ["a", "b"]
    assert told["a"].missing_change == pytest.approx(0.3, abs=0.05)


def test_a_rare_mark_that_vanishes_or_spreads_is_drift() -> None:
    """Three galaxies in a hundred have the mark: in tenths of the rows it was in one bin with all others."""
    rng = np.random.default_rng(7)
    known = np.zeros((20_000, 1), dtype=bool)

    def marked(share: float) -> np.ndarray:
        return (rng.random((20_000, 1)) < share).astype(float)

    reference = distribution(marked(0.03), known, ("a",))
    assert reference["a"].edges == (0.5,)
    same = drift(feature_counts(marked(0.03), known, reference, ("a",)), reference, ("a",))
    assert drifted(same) == []
    more = drift(feature_counts(marked(0.3), known, reference, ("a",)), reference, ("a",))
    assert drifted(more) == ["a"]
    q, p = np.array([0.7, 0.3]), np.array([0.97, 0.03])
    assert more["a"].index == pytest.approx(np.sum((q - p) * np.log(q / p)), rel=0.2)


@pytest.mark.parametrize(
    "values",
    [
        np.repeat([0.0, 1.0, 2.0], [5, 900, 95]),
        np.concatenate([np.linspace(-2, -1, 300), np.zeros(500), np.linspace(1, 2, 200)]),
        np.concatenate([np.zeros(950), np.linspace(1, 2, 50)]),
        np.repeat(np.arange(30.0), 40),
        np.repeat([1.0, np.nextafter(1.0, 2)], [50, 50]),
        np.array([-1e308, 1e308, 0.0]),
    ],
)
def test_values_that_many_rows_have_are_bins_of_their_own(values: np.ndarray) -> None:
    """By the slow way: which values share a bin."""
    reference = distribution(values[:, None], np.zeros((len(values), 1), bool), ("a",))["a"]
    assert list(reference.edges) == sorted(set(reference.edges))
    assert sum(reference.counts) == len(values)
    assert all(n > 0 for n in reference.counts)
    place = {v: sum(v >= edge for edge in reference.edges) for v in set(values.tolist())}
    for v, b in place.items():
        n = np.sum(values == v)
        if n >= len(values) / 10 or len(place) <= 10:
            assert [w for w in place if place[w] == b] == [v]
            assert reference.counts[b] == n
        elif list(place.values()).count(b) > 1:
            assert reference.counts[b] <= len(values) / 10 + 40  # about a tenth


def test_no_rows_and_none_measured(reference: dict[str, Any]) -> None:
    empty = feature_counts(np.empty((0, 2)), np.empty((0, 2), bool), reference, NAMES)
    told = drift(empty, reference, NAMES)
    assert told["a"].index == 0
    X, missing = np.zeros((10, 2)), np.ones((10, 2), bool)
    told = drift(feature_counts(X, missing, reference, NAMES), reference, NAMES)
    assert drifted(told) == ["a", "b"]


def test_wild_values_stay_finite(reference: dict[str, Any]) -> None:
    X = np.array([[1e308, -1e308], [1.0, 1e200]])
    told = drift(feature_counts(X, np.zeros((2, 2), bool), reference, NAMES), reference, NAMES)
    assert all(math.isfinite(v) for f in told.values() for v in vars(f).values())
