"""Audits: intervals by enumeration and simulation, samples spread over the rows, and their strata."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import beta, hypergeom

from blr.arrays import Matrix, Vector
from blr.census.audit import (
    FEWEST,
    allocated,
    audited_share,
    cut_levels,
    joined_strata,
    level_edges,
    uncertainty,
)
from blr.census.spread import inclusion_probabilities, local_pivotal, spread_sample

MANY = 10**9


@pytest.mark.parametrize("n", [2, 5, 10])
def test_few_objects_of_one_stratum_have_the_limits_of_clopper_and_pearson(n: int) -> None:
    """But for three moments in the place of the whole beta distribution."""
    strata = (np.array([MANY]), np.array([n]))
    x = np.arange(n + 1)
    share, low, high = audited_share(x[:, None], (n - x)[:, None], strata)
    least = np.append(0.0, beta.ppf(0.025, x[1:], n - x[1:] + 1))
    most = np.append(beta.ppf(0.975, x[:-1] + 1, n - x[:-1]), 1.0)
    assert share == pytest.approx(x / n)
    assert np.abs(low - least).max() < 0.04
    assert np.abs(high - most).max() < 0.04
    assert high[0] == pytest.approx(most[0], abs=0.03)


@pytest.mark.parametrize(("rows", "seen"), [((40, 300), (10, 20)), ((30, 30, 2000), (4, 8, 30))])
def test_intervals_hold_over_all_samples_of_all_populations(
    rows: tuple[int, ...], seen: tuple[int, ...]
) -> None:
    """The exact coverage: each outcome by its hypergeometric probability."""
    N, n = np.array(rows), np.array(seen)
    outcomes = np.array(list(product(*(range(s + 1) for s in seen))))
    _, low, high = audited_share(outcomes, n - outcomes, (N, n))
    worst = 1.0
    fractions = (0.0, 0.01, 0.1, 0.5, 0.97)
    for shares in product(fractions, repeat=len(rows)):
        of_class = np.round(np.array(shares) * N).astype(int)
        truth = of_class.sum() / N.sum()
        chance = np.prod(
            [hypergeom.pmf(outcomes[:, h], N[h], of_class[h], n[h]) for h in range(len(N))], axis=0
        )
        held = (low <= truth + 1e-9) & (truth <= high + 1e-9)
        worst = min(worst, float(chance[held].sum()))
    assert worst > 0.93


def test_purity_and_completeness_hold_by_simulation() -> None:
    """A class of 1 %, most of it among the objects that were not selected."""
    rng = np.random.default_rng(3)
    # By stratum: selected and of the class, selected and not, missed, neither.
    kinds = np.array([[30, 50, 0, 0], [0, 0, 20, 380], [0, 0, 60, 7460]])
    strata, R = (kinds.sum(axis=1), np.array([12, 28, 160])), 2000
    drawn = np.stack(
        [rng.multivariate_hypergeometric(k, n, size=R) for k, n in zip(kinds, strata[1], strict=True)],
        axis=1,
    )
    first = np.array([True, False, False])
    for hits, misses, possible, truth in (
        (drawn[..., 0], drawn[..., 1], (first, first, ~first), 30 / 80),
        (drawn[..., 0], drawn[..., 2], (first, ~first, np.ones(3, dtype=bool)), 30 / 110),
    ):
        _, low, high = audited_share(hits, misses, strata, possible=possible)
        assert np.mean((low <= truth) & (truth <= high)) > 0.94


def test_what_is_looked_at_in_whole_is_known_and_what_was_not_seen_may_be_anything() -> None:
    strata = (np.array([7, 9]), np.array([7, 9]))
    assert audited_share(np.array([3, 9]), np.array([4, 0]), strata) == pytest.approx([0.75] * 3, abs=1e-8)
    none, every = np.array([0]), np.array([True])
    strata = (np.array([100]), np.array([10]))
    share, low, high = audited_share(none, none, strata, possible=(every, every, every))
    assert np.isnan(share)
    assert (low, high) == (0, 1)


def test_hits_and_misses_may_be_exchanged_and_levels_are_nested() -> None:
    strata = (np.array([100, 5000, 40]), np.array([20, 60, 20]))
    hits, misses = np.array([13, 2, 20]), np.array([7, 58, 0])
    a, b = audited_share(hits, misses, strata), audited_share(misses, hits, strata)
    assert (a[1], a[2]) == pytest.approx((1 - b[2], 1 - b[1]), abs=1e-7)
    wider = audited_share(hits, misses, strata, level=0.99)
    assert wider[1] < a[1] < a[0] < a[2] < wider[2]
    # At least what was seen, at most what was not seen not to be.
    assert a[1] >= 35 / 5140
    assert a[2] <= 1 - 65 / 5140


def test_strata_of_few_answers_are_joined_with_a_neighbour_of_their_kind() -> None:
    rows, kind = np.array([50, 50, 50, 50, 1]), np.array([0, 0, 1, 1, 2])
    assert joined_strata(rows, np.array([5, 5, 5, 5, 1]), kind).tolist() == [0, 1, 2, 3, 4]
    assert joined_strata(rows, np.array([5, 5, 0, 5, 1]), kind).tolist() == [0, 1, 2, 2, 3]
    assert joined_strata(rows, np.array([5, 1, 5, 5, 1]), kind).tolist() == [0, 0, 1, 2, 3]
    assert joined_strata(rows, np.array([3, 0, 0, 0, 0]), kind).tolist() == [0, 0, 0, 0, 0]


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

    def sample(points: Matrix, n: int, quota: int, radius: float) -> tuple[int, list[float], float]:
        rows = (a[:n] for a in (ones, ones, points, names, one))
        row, probability, radius = spread_sample(*rows, np.array([quota]), radius=radius, rng=rng)
        return len(row), probability.tolist(), radius

    n, _, radius = sample(points, 300, 100, 5.0)
    assert n == 100
    assert 0 < radius < 0.2
    assert sample(0 * points, 300, 100, 1.0)[::2] == (100, 0)
    assert sample(points, 3, 9, 0.0)[1] == [1, 1, 1]
    assert sample(points, 0, 9, 1.0)[0] == 0


def test_half_is_in_proportion_and_half_by_neymans_rule() -> None:
    N, deviation = np.array([6000, 3000, 1000]), np.array([0.1, 0.5, 1.0])
    sizes = allocated(N, deviation, 400)
    neyman = N * deviation / (N * deviation).sum()
    assert sizes.sum() == 400
    assert sizes == pytest.approx(200 * (N / N.sum() + neyman), abs=1)


def test_small_strata_have_a_floor_and_none_gives_more_than_it_has() -> None:
    N = np.array([100_000, 3, 50, 20])
    sizes = allocated(N, np.array([1.0, 1e-6, 1e-6, 1e4]), 100)
    assert sizes.sum() == 100
    assert sizes.tolist() == [73, 3, FEWEST, 20]
    assert allocated(np.array([5, 6]), np.ones(2), 50).tolist() == [5, 6]
    with pytest.raises(ValueError, match="at least two for each stratum"):
        allocated(np.full(30, 100), np.ones(30), 50)


def test_levels_become_strata_of_about_equal_weight() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 50, size=(3, 40))
    counts[2] = 0
    deviation = np.ones((3, 40))
    piece = cut_levels(counts, deviation, 8)
    assert (piece[counts == 0] == -1).all()
    assert sum(len(np.unique(p[n > 0])) for p, n in zip(piece, counts, strict=True)) == 8
    for k in (0, 1):
        filled = piece[k][counts[k] > 0]
        assert (np.diff(filled) >= 0).all()
        mass = np.bincount(filled, weights=counts[k][counts[k] > 0])
        assert mass.max() < 1.5 * mass.min()


def test_a_stratum_begins_at_a_threshold() -> None:
    edges = level_edges([0.9])
    assert 0.9 in edges
    begins = np.zeros((1, len(edges) + 1), dtype=bool)
    begins[0, np.searchsorted(edges, 0.9, side="right")] = True
    counts = np.full((1, len(edges) + 1), 20)
    piece = cut_levels(counts, np.ones(counts.shape), 3, begins)[0]
    below, above = (piece[np.searchsorted(edges, p, side="right")] for p in (0.899999, 0.9))
    assert below + 1 == above


def test_an_uncertain_object_of_a_rare_class_is_worth_more() -> None:
    share = np.array([0.003, 0.997])
    sure, likely_rare, unsure = uncertainty(np.array([[0.0, 1.0], [0.6, 0.4], [0.01, 0.99]]), share)
    assert 0 < sure < unsure < likely_rare
