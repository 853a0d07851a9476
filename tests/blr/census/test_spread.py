"""Spread samples: inclusion probabilities that hold, neighbours that exclude each other, and the obvious twin."""

from __future__ import annotations

import numpy as np
import pytest

from blr.arrays import Matrix, Vector
from blr.census.spread import inclusion_probabilities, local_pivotal, spread_sample


def brute_local_pivotal(probability: Vector, points: Matrix, rng: np.random.Generator) -> np.ndarray:
    """Draw by the same method, each neighbour looked for among all; the list loses rows as the fast one's does."""
    p, left = probability.copy(), [i for i, x in enumerate(probability) if 1e-9 < x < 1 - 1e-9]
    while len(left) > 1:
        i = left[int(rng.integers(len(left)))]
        others = [j for j in left if j != i]
        j = min(others, key=lambda j: np.sum((points[j] - points[i]) ** 2))
        total, u = p[i] + p[j], rng.random()
        if total < 1:
            p[i], p[j] = (0.0, total) if u < p[j] / total else (total, 0.0)
        else:
            p[i], p[j] = (1.0, total - 1) if u < (1 - p[j]) / (2 - total) else (total - 1, 1.0)
        for row in (i, j):
            if not 1e-9 < p[row] < 1 - 1e-9:
                place = left.index(row)
                left[place] = left[-1]
                left.pop()
    for row in left:
        p[row] = float(rng.random() < p[row])
    return np.flatnonzero(p > 0.5)


def test_probabilities_sum_to_the_number_and_keep_their_proportions() -> None:
    size = np.array([100.0, 5.0, 3.0, 1.0, 1.0])
    p = inclusion_probabilities(size, 3)
    assert p.sum() == pytest.approx(3)
    assert p == pytest.approx([1, 1, 0.6, 0.2, 0.2])
    assert inclusion_probabilities(np.ones(3), 5).tolist() == [1, 1, 1]
    assert inclusion_probabilities(np.array([1.0, 1.0, 1e-30]), 2) == pytest.approx([1, 1, 0])


@pytest.mark.parametrize("seed", range(5))
def test_the_tree_finds_the_neighbours_that_a_search_of_all_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(200, 3))
    p = inclusion_probabilities(rng.exponential(size=200), 30)
    fast = local_pivotal(p, points, np.random.default_rng(seed))
    assert fast.tolist() == brute_local_pivotal(p, points, np.random.default_rng(seed)).tolist()
    assert len(fast) == 30


def test_a_sample_is_spread_more_than_one_at_random() -> None:
    """Of a line of 100 points of equal probability each tenth has one, as of a systematic sample, within one."""
    points = np.arange(100.0)[:, None]
    for seed in range(20):
        drawn = local_pivotal(np.full(100, 0.1), points, np.random.default_rng(seed))
        assert np.diff(np.sort(drawn)).min() >= 2
        assert np.abs(np.searchsorted(drawn, np.arange(10, 100, 10)) - np.arange(1, 10)).max() <= 1


def test_weights_estimate_totals_without_bias_and_near_duplicates_exclude_each_other() -> None:
    """Names twice, near-duplicates and a size that one draw in three takes for certain: means over 800 samples."""
    rng = np.random.default_rng(1)
    n = 60
    points, size = rng.normal(size=(n, 2)), rng.exponential(size=n)
    size[0] = 30.0
    points[10:20] = points[:10] + 0.003
    groups = np.arange(n)
    groups[50:] = groups[40:50]
    first = np.where(np.arange(n) < 30, 1.0, 0.5)
    y, strata = 1 + points[:, 0], np.arange(n) % 3 // 2
    totals, inclusion = [], np.zeros(n)
    for seed in range(800):
        draw = np.random.default_rng(seed)
        came = np.flatnonzero(draw.random(n) < first)
        arrays = (a[came] for a in (size, first, points, groups, strata))
        drawn, probability, radius = spread_sample(*arrays, np.array([5, 7]), radius=0.02, rng=draw)
        row = came[drawn]
        assert len(row) == 12
        assert np.bincount(strata[row]).tolist() == [5, 7]
        assert len(set(groups[row])) == 12
        gaps = np.linalg.norm(points[row][:, None] - points[row], axis=2)[np.triu_indices(12, 1)]
        assert gaps.min() >= radius == 0.02
        totals.append(np.sum(y[row] / probability))
        inclusion[row] += 1 / probability
    error = np.std(totals) / np.sqrt(len(totals))
    assert np.mean(totals) == pytest.approx(y.sum(), abs=4 * error)
    assert error < 0.02 * y.sum()
    assert inclusion / 800 == pytest.approx(np.ones(n), abs=0.6)


def test_a_radius_that_would_leave_too_few_is_halved() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(300, 2))
    ones, names, one = np.ones(300), np.arange(300), np.zeros(300, dtype=int)
    row, _, radius = spread_sample(ones, ones, points, names, one, np.array([100]), radius=5.0, rng=rng)
    assert len(row) == 100
    assert 0 < radius < 0.2
    row, _, radius = spread_sample(ones, ones, 0 * points, names, one, np.array([100]), radius=1.0, rng=rng)
    assert len(row) == 100
    assert radius == 0
    _, probability, _ = spread_sample(
        *(a[:3] for a in (ones, ones, points, names, one)), np.array([9]), radius=0.0, rng=rng
    )
    assert probability.tolist() == [1, 1, 1]
    row, _, _ = spread_sample(
        *(a[:0] for a in (ones, ones, points, names, one)), np.array([9]), radius=1.0, rng=rng
    )
    assert len(row) == 0
