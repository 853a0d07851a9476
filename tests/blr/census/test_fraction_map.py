"""Fractions from k of n: the design, the counts, the sums by their slow twins, and intervals that hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from blr.census.fraction_map import (
    REGION_SCALES,
    FractionDesign,
    FractionSums,
    counted,
    drawn_fractions,
    mixed_draws,
)
from blr.gaussian import GaussianPrior
from blr.posterior.laplace import fit


def test_the_design_row_by_row() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(2, 3, size=(40, 2))
    X[3, 1] = np.nan
    p, region = rng.uniform(0.01, 0.99, 40), rng.integers(-1, 4, 40)
    design = FractionDesign.learn(X, 4)
    Phi = design.matrix(p, X, region)
    for i in range(40):
        z = np.clip((X[i] - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0), -3, 3)
        z[np.isnan(z)] = 0
        np.testing.assert_allclose(Phi[i], [1, logit(p[i]), *z, *z**2, *(region[i] == np.arange(4))])
    W = rng.normal(size=(5, design.n_functions))
    np.testing.assert_allclose(drawn_fractions(design, W, p, X, region), expit(Phi @ W.T))


def test_without_labels_the_fraction_is_about_the_classifiers_own() -> None:
    design = FractionDesign.learn(np.empty((0, 1)), 12)
    mean, _ = design.prior(0.3)
    p = np.array([0.0, 0.1, 0.9, 1.0])
    found = drawn_fractions(design, mean[None], p, np.zeros((4, 1)), np.arange(4))[:, 0]
    np.testing.assert_allclose(found, p, atol=1e-3)


def test_k_of_n_says_what_single_objects_say() -> None:
    rng = np.random.default_rng(2)
    X, p, region = rng.integers(0, 2, (300, 1)).astype(float), np.full(300, 0.3), rng.integers(0, 3, 300)
    success = rng.random(300) < 0.4
    design = FractionDesign.learn(X, 3)
    Phi = design.matrix(p, X, region)
    rows, k, of, weight = counted(Phi, success, np.full(300, 5.0))
    assert len(of) == 6
    assert (k.sum(), of.sum()) == (success.sum(), 300)
    np.testing.assert_allclose(weight, 1)
    mean, variance = design.prior(0.6)
    prior = GaussianPrior(mean, variance)
    together = fit(rows, k, prior, trials=of, sample_weight=weight)
    apart = fit(Phi, success.astype(float), prior)
    np.testing.assert_allclose(together.mean, apart.mean, atol=1e-6)
    np.testing.assert_allclose(together.precision, apart.precision, rtol=1e-6)


def test_uneven_weights_count_as_fewer_objects() -> None:
    weight = np.where(np.arange(100) < 50, 1.0, 9.0)
    _, _, of, each = counted(np.ones((100, 1)), np.arange(100) % 2 == 0, weight)
    assert (each * of).sum() == pytest.approx(weight.sum() ** 2 / (weight**2).sum())


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
    found = sums.fractions()
    for c in range(C - 1):
        mine = use & (cell == c)
        assert found.whole[c] == pytest.approx(whole[mine].sum())
        assert found.expected[c] == pytest.approx(part[mine].sum() / whole[mine].sum())
        share = part_draws[mine].sum(axis=0) / whole_draws[mine].sum(axis=0)
        assert found.fraction[c] == pytest.approx(share.mean())
        a = logit(share)
        assert found.low[c] == pytest.approx(expit(a.mean() - 1.959964 * a.std(ddof=1)))
        assert found.high[c] == pytest.approx(expit(a.mean() + 1.959964 * a.std(ddof=1)))
    assert found.whole[-1] == 0
    assert np.isnan([found.expected[-1], found.fraction[-1], found.low[-1]]).all()


def test_without_draws_there_is_no_interval() -> None:
    sums = FractionSums(1, 0)
    nothing = np.empty((2, 0))
    sums.add(np.zeros(2, int), (np.array([0.2, 0.4]), np.ones(2)), (nothing, nothing), np.ones(2, bool))
    found = sums.fractions()
    assert found.expected[0] == pytest.approx(0.3)
    assert np.isnan([found.fraction[0], found.low[0], found.high[0]]).all()


def test_draws_are_of_the_likelier_posterior() -> None:
    rng = np.random.default_rng(4)
    draws = [np.zeros((500, 1)), np.ones((500, 1))]
    mixed = mixed_draws([0.0, np.log(3)], draws, 500, rng)
    assert mixed.mean() == pytest.approx(0.75, abs=0.06)


def region_coverage(seed: int, *, labelled: int, scatter: float) -> tuple[float, int]:
    """Return the share of 48 regions whose interval holds their fraction, and how many have k = 0 or k = n."""
    rng, R, n = np.random.default_rng(seed), 48, 10_000
    region, X, effect = rng.integers(0, R, n), rng.normal(size=(n, 1)), rng.normal(0, scatter, R)
    score = rng.normal(-2, 1.2, n)
    truth, expected = expit(score + 0.7 + 0.4 * X[:, 0] + effect[region]), expit(score)
    seen = rng.choice(n, labelled, replace=False)
    success = rng.random(labelled) < truth[seen]
    design = FractionDesign.learn(X[seen], R)
    Phi, k, of, weight = counted(
        design.matrix(expected[seen], X[seen], region[seen]), success, np.ones(labelled)
    )
    evidence, draws = [], []
    for scale in REGION_SCALES:
        mean, variance = design.prior(scale)
        q = fit(Phi, k, GaussianPrior(mean, variance), trials=of, sample_weight=weight)
        evidence.append(q.log_evidence)
        draws.append(q.sample(100, rng))
    pi = drawn_fractions(design, mixed_draws(evidence, draws, 100, rng), expected, X, region)
    sums = FractionSums(R, 100)
    sums.add(region, (expected, np.ones(n)), (pi, np.ones_like(pi)), np.ones(n, bool))
    found = sums.fractions()
    share = np.bincount(region, truth, R) / np.bincount(region, minlength=R)
    k, of = np.bincount(region[seen], success, R), np.bincount(region[seen], minlength=R)
    return float(np.mean((found.low <= share) & (share <= found.high))), int(np.sum((k == 0) | (k == of)))


def test_intervals_of_regions_hold() -> None:
    """Regions whose fractions scatter by 0.5 in the logit, most with few labelled objects, many with k = 0."""
    found = [region_coverage(seed, labelled=200, scatter=0.5) for seed in range(6)]
    assert 0.89 <= np.mean([share for share, _ in found]) <= 0.99
    assert min(extreme for _, extreme in found) > 5
