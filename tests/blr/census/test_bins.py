"""Bins, thresholds learnt by bin, prediction sets and maps of fractions: invariants, and by repeated simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

from blr.census.bins import bin_selection, bin_shares, joined_selection, learnt_thresholds
from blr.census.counts import count_classes, covariate_scales
from blr.census.fraction_map import (
    FractionSums,
    design_matrix,
    drawn_fractions,
    fraction_prior,
    mixed_draws,
)
from blr.census.prediction_sets import NO_SET, learn_sets, set_bits
from blr.census.shares import LabelledRows, TargetRows

BINS = 3


def survey(n: int, share: float, seed: int, *, blind: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return probabilities, classes, and features (n, 2): the bin's and one that tells the classes apart.

    Class 1 is more frequent where the first feature is large, which a `blind` model does not know.
    """
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(np.intp)
    place = rng.beta(1 + y, 2 - y)
    x = rng.normal(size=n) + 2.0 * (y - 0.5)
    known = 2.0 * x + (0 if blind else np.log(place / (1 - place)))
    p = expit(known)
    return np.column_stack([1 - p, p]), y, np.column_stack([place, x])


def case(seed: int, *, blind: bool, share: float, n: int = 300, N: int = 1500) -> tuple[Any, ...]:
    p, y, X = survey(n, 0.5, seed, blind=blind)
    q, truth, Z = survey(N, share, seed + 10_000, blind=blind)
    labelled, target = LabelledRows(p, y, np.ones(n), X), TargetRows(q, np.ones(N), Z, N)
    places = *((values[:, 0] * BINS).astype(np.intp) for values in (X, Z)), BINS
    return labelled, target, count_classes(labelled, target, assumes="shares"), places, truth


def test_bins_hold_the_truth_on_average_also_where_the_model_is_blind_to_them() -> None:
    for blind in (False, True):
        held, seen = [], []
        for seed in range(8):
            _, target, counted, places, truth = case(seed, blind=blind, share=0.25)
            shares = bin_shares(target, counted, *places)
            low, high = shares.interval
            real = np.array([truth[places[1] == b].mean() for b in range(BINS)])
            held.append((low[:, 1] <= real) & (real <= high[:, 1]))
            seen.append(shares.draws.mean(axis=0)[:, 1] - real)
        assert np.mean(held) > 0.85
        assert np.abs(np.mean(seen, axis=0)).max() < 0.06


def test_bins_add_up_to_the_whole() -> None:
    _, target, counted, places, _ = case(1, blind=False, share=0.4)
    shares = bin_shares(target, counted, *places)
    assert shares.n_objects.sum() == pytest.approx(target.n_objects)
    np.testing.assert_allclose(shares.draws.sum(axis=2), 1)
    whole = np.einsum("b,sbk->sk", shares.n_objects / target.n_objects, shares.draws)
    assert whole[:, 1].mean() == pytest.approx(counted.shares.mean(axis=0)[1], abs=0.005)
    assert whole[:, 1].std() == pytest.approx(counted.shares[:, 1].std(), rel=0.15)


def test_a_bin_without_labels_is_what_the_model_expects_and_wider() -> None:
    _, target, counted, places, _ = case(2, blind=False, share=0.5)
    moved = np.minimum(places[0], 1), *places[1:]
    shares, other = (bin_shares(target, counted, *p) for p in (moved, places))
    assert shares.n_labelled[2] == 0
    expected = shares.probability[places[1] == 2].mean(axis=0)
    np.testing.assert_allclose(shares.draws[:, 2].mean(axis=0), expected, atol=0.05)
    assert shares.draws[:, 2, 1].std() > other.draws[:, 2, 1].std()


def test_selections_of_all_bins_are_joined() -> None:
    """One threshold in all bins is the selection of the whole; a bin left out loses its objects."""
    _, target, counted, places, truth = case(5, blind=False, share=0.4, n=2000, N=4000)
    shares = bin_shares(target, counted, *places)
    chosen = {b: bin_selection(shares, b, 1, 0.6) for b in range(BINS)}
    whole = joined_selection(shares, 1, chosen)
    taken = target.probability[:, 1] >= 0.6
    assert whole.n_selected == taken.sum()
    for draws, real in ((whole.purity, truth[taken].mean()), (whole.completeness, taken[truth == 1].mean())):
        assert draws.mean() == pytest.approx(real, abs=4 * draws.std())
    del chosen[2]
    less = joined_selection(shares, 1, chosen)
    assert less.completeness.mean() < 0.6 * whole.completeness.mean()
    assert joined_selection(shares, 1, {}).completeness.max() == 0


def drawn(rng: np.random.Generator, counts: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities (N, K) and classes (N,) of Gaussian classes, by a model that is not calibrated."""
    target = np.repeat(np.arange(len(counts)), counts)
    centres = 1.5 * np.eye(len(counts))
    x = centres[target] + rng.normal(size=(len(target), len(counts)))
    a = np.exp(2.5 * x)
    return a / a.sum(axis=1, keepdims=True), target


def slow_threshold(p: list[float], level: float) -> float:
    """Return the threshold by sorting: between the two rows about rank (1 - level)(n + 1), by one over the rank."""
    rank = (1 - level) * (len(p) + 1)
    if rank < 1 - 1e-9:
        return 0.0
    lower = int(rank + 1e-9)
    a = sorted(logit(p))
    upper = min(lower, len(a) - 1)
    part = (1 / lower - 1 / rank) / (1 / lower - 1 / (lower + 1))
    return float(expit(a[lower - 1] + part * (a[upper] - a[lower - 1])))


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
def test_thresholds_are_those_of_the_slow_twin(level: float) -> None:
    p, target = drawn(np.random.default_rng(1), (60, 25, 9))
    rule = learn_sets(p, target, level=level)
    slow = [slow_threshold(p[target == k, k].tolist(), level) for k in range(3)]
    np.testing.assert_allclose(rule.least, slow, rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(rule.rows, [60, 25, 9])
    np.testing.assert_allclose(rule.effective, [60, 25, 9])


def test_rows_that_are_alike_are_kept_together() -> None:
    """Features of few values give equal probabilities: the threshold on them keeps all."""
    p = np.repeat([0.1, 0.3, 0.7], [40, 30, 30])
    rule = learn_sets(np.stack([p, 1 - p], axis=1), np.zeros(100, int), level=0.9)
    assert rule.contains(np.array([[0.1, 0.9]]))[0, 0]
    assert not rule.contains(np.array([[0.0999, 0.9001]]))[0, 0]


def test_few_rows_put_a_class_into_every_set() -> None:
    p, target = drawn(np.random.default_rng(4), (50, 8, 0))
    rule = learn_sets(p, target, level=0.9)
    assert rule.least[0] > 0
    np.testing.assert_array_equal(rule.least[1:], 0)
    np.testing.assert_array_equal(rule.spread[1:], 0)
    assert rule.contains(p)[:, 1:].all()
    nine = learn_sets(p, np.where(np.arange(58) < 49, 0, 1), level=0.9)
    assert nine.least[1] > 0


def test_weights_count_rows() -> None:
    """Equal weights of any size are none, rows of weight zero are not there, and uneven ones count as fewer rows."""
    rng = np.random.default_rng(5)
    p, target = drawn(rng, (100, 100))
    plain = learn_sets(p, target, level=0.9)
    np.testing.assert_allclose(
        learn_sets(p, target, level=0.9, weight=np.full(200, 7.0)).least, plain.least, rtol=1e-12
    )
    half = np.arange(200) % 2
    np.testing.assert_allclose(
        learn_sets(p, target, level=0.9, weight=half.astype(float)).least,
        learn_sets(p[half == 1], target[half == 1], level=0.9).least,
        rtol=1e-12,
    )
    uneven = learn_sets(p, target, level=0.9, weight=1.0 + 9 * half)
    np.testing.assert_allclose(uneven.effective, (50 * 11) ** 2 / (50 * 101))


def test_rows_without_probabilities_are_left_out_and_have_no_set() -> None:
    p, target = drawn(np.random.default_rng(7), (40, 40))
    holes = np.vstack([p, np.full((5, 2), np.nan)])
    rule = learn_sets(holes, np.concatenate([target, np.zeros(5, dtype=int)]), level=0.9)
    np.testing.assert_array_equal(rule.least, learn_sets(p, target, level=0.9).least)
    bits = set_bits(rule.contains(holes), holes)
    np.testing.assert_array_equal(bits[-5:], NO_SET)
    np.testing.assert_array_equal((bits[:-5] & 2) > 0, p[:, 1] >= rule.least[1])
    assert bits.dtype == np.int32


def test_bits_of_as_many_classes_as_there_are() -> None:
    K = 31
    p = np.full((3, K), 1 / K)
    contained = np.stack([np.zeros(K, bool), np.ones(K, bool), np.arange(K) == K - 1])
    np.testing.assert_array_equal(set_bits(contained, p), [0, 2**31 - 1, 2**30])


def test_the_design_row_by_row() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(2, 3, size=(40, 2))
    X[3, 1] = np.nan
    p, region = rng.uniform(0.01, 0.99, 40), rng.integers(-1, 4, 40)
    scales = covariate_scales(X)
    Phi = design_matrix(scales, p, X, region, 4)
    for i in range(40):
        z = np.clip((X[i] - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0), -3, 3)
        z[np.isnan(z)] = 0
        np.testing.assert_allclose(Phi[i], [1, logit(p[i]), *z, *z**2, *(region[i] == np.arange(4))])
    mean, variance = fraction_prior(2, 4, 0.3)
    np.testing.assert_array_equal(mean, [0, 1, *[0] * 8])
    np.testing.assert_allclose(variance, np.square([1.5, 0.5, 1, 1, 0.5, 0.5, *[0.3] * 4]))
    W = rng.normal(size=(5, 10))
    np.testing.assert_allclose(drawn_fractions(scales, W, p, X, region), expit(Phi @ W.T))


def test_sums_are_those_of_a_loop_whatever_the_batches() -> None:
    rng = np.random.default_rng(3)
    n, S, C = 200, 6, 5
    cell = rng.integers(0, C - 1, n)  # the last one stays empty
    part, whole = rng.random(n), rng.random(n) + 1
    part_draws, whole_draws = rng.random((n, S)), rng.random((n, S)) + 1
    use = rng.random(n) < 0.8
    sums = FractionSums(C, S)
    for rows in np.array_split(rng.permutation(n), 7):
        sums.add(cell[rows], (part[rows], whole[rows]), (part_draws[rows], whole_draws[rows]), use[rows])
    fraction, low, high = sums.corrected
    for c in range(C - 1):
        mine = use & (cell == c)
        assert sums.whole[c] == pytest.approx(whole[mine].sum())
        assert sums.expected[c] == pytest.approx(part[mine].sum() / whole[mine].sum())
        share = part_draws[mine].sum(axis=0) / whole_draws[mine].sum(axis=0)
        assert fraction[c] == pytest.approx(share.mean())
        a = logit(share)
        assert low[c] == pytest.approx(expit(a.mean() - 1.959964 * a.std(ddof=1)))
        assert high[c] == pytest.approx(expit(a.mean() + 1.959964 * a.std(ddof=1)))
    assert sums.whole[-1] == 0
    assert np.isnan([sums.expected[-1], fraction[-1], low[-1]]).all()


def test_without_draws_there_is_no_interval() -> None:
    sums = FractionSums(1, 0)
    nothing = np.empty((2, 0))
    sums.add(np.zeros(2, int), (np.array([0.2, 0.4]), np.ones(2)), (nothing, nothing), np.ones(2, bool))
    assert sums.expected[0] == pytest.approx(0.3)
    assert np.isnan(sums.corrected).all()


def test_draws_are_of_the_likelier_posterior() -> None:
    rng = np.random.default_rng(4)
    draws = [np.zeros((500, 1)), np.ones((500, 1))]
    mixed = mixed_draws([0.0, np.log(3)], draws, 500, rng)
    assert mixed.mean() == pytest.approx(0.75, abs=0.06)


def rows(n: int, seed: int) -> tuple[LabelledRows, np.ndarray]:
    p, y, X = survey(n, 0.5, seed, blind=False)
    return LabelledRows(p, y, np.ones(n), X), (X[:, 0] * BINS).astype(np.intp)


@pytest.mark.parametrize("shares", [np.array([0.5, 0.5]), np.array([0.8, 0.2])])
@pytest.mark.parametrize("asked", [("purity", 0.8), ("completeness", 0.85)])
def test_each_bin_has_what_is_stated(shares: np.ndarray, asked: tuple[str, float]) -> None:
    """By the slow way: counted in each bin of many other objects, each class at its share."""
    learnt, place = rows(8000, 1)
    found = learnt_thresholds(learnt, place, BINS, 1, shares, asked)
    assert found is not None
    other, elsewhere = rows(40_000, 2)
    weight = (shares / other.shares)[other.y]
    for b, threshold in found[0].items():
        inside = elsewhere == b
        taken = inside & (other.probability[:, 1] >= threshold)
        of_class = inside & (other.y == 1)
        among = taken if "purity" in asked else of_class
        reached = weight[among & taken & of_class].sum() / weight[among].sum()
        ours = (place == b) & (learnt.probability[:, 1] >= threshold if "purity" in asked else learnt.y == 1)
        counts = (shares / learnt.shares)[learnt.y[ours]]
        error = 4 * np.sqrt(0.25 * (counts**2).sum()) / counts.sum()
        assert reached == pytest.approx(asked[1], abs=error)
        assert np.float32(threshold) == threshold
    if "purity" in asked:  # the class is most frequent in the last bin, so it is selected by less there
        assert min(found[0], key=found[0].__getitem__) == BINS - 1


def test_a_bin_without_labelled_rows_and_one_out_of_reach_are_left_out() -> None:
    learnt, place = rows(1000, 4)
    shares = np.array([0.5, 0.5])
    found = learnt_thresholds(learnt, place, BINS + 1, 1, shares, ("completeness", 0.5))
    assert found is not None
    assert set(found[0]) == set(range(BINS))
    assert learnt_thresholds(learnt, place, BINS, 1, shares, ("purity", 0.999999)) is None
