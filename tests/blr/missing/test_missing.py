"""Moments by EM, imputation and cubature over missing features, against closed forms, slow twins and exact moments."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtri
from scipy.stats import multivariate_normal
from scipy.stats.qmc import Sobol

from blr.arrays import Matrix, Vector
from blr.missing import moments as of_moments
from blr.missing import patterns as kept
from blr.missing.moments import FeatureMoments, uninformed
from blr.missing.patterns import missing_patterns, normal_nodes

COVARIANCE = np.array([[1, 0.6, -0.3, 0], [0.6, 2, 0.2, 0.5], [-0.3, 0.2, 0.7, 0], [0, 0.5, 0, 1.5]])
MEAN = np.array([0.0, 3.0, -1.0, 10.0])
PATTERNS = [np.array(p) for p in product([False, True], repeat=4)]

every_pattern = pytest.mark.parametrize(
    "pattern", PATTERNS, ids=lambda p: "".join("?x"[int(not m)] for m in p)
)


def galaxies(n: int = 400, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).multivariate_normal(MEAN, COVARIANCE, size=n, method="cholesky")


def holes(n: int = 400, seed: int = 1, fraction: float = 0.25) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 4)) < fraction


def log_likelihood(X: Matrix, missing: np.ndarray, mean: Vector, covariance: Matrix) -> float:
    """Sum over rows, one at a time, of the normal density of what is present."""
    total = 0.0
    for x, m in zip(X, missing, strict=True):
        if not m.all():
            total += multivariate_normal.logpdf(x[~m], mean[~m], covariance[np.ix_(~m, ~m)])
    return total


def test_pseudo_rows_without_correlations_are_as_many_as_twice_what_a_row_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Complete rows have none; few rows with many holes have smaller correlations, whose signs stay."""
    X, missing = galaxies(40), holes(40)
    some = FeatureMoments.estimate(X, missing).covariance
    whole = FeatureMoments.estimate(X, np.zeros_like(missing)).covariance
    np.testing.assert_allclose(whole, np.cov(X.T, bias=True), rtol=1e-6, atol=1e-6)
    monkeypatch.setattr(of_moments, "_PSEUDO_ROWS", 0.0)
    likeliest = FeatureMoments.estimate(X, missing).covariance
    np.testing.assert_array_equal(np.sign(some), np.sign(likeliest))
    correlation, most = (C / np.sqrt(np.outer(np.diag(C), np.diag(C))) for C in (some, likeliest))
    assert (np.abs(correlation) < np.abs(most))[~np.eye(4, dtype=bool)].all()


def test_no_change_of_the_moments_is_likelier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pseudo-rows the gradient of the likelihood of what is present, by central differences, is 0."""
    monkeypatch.setattr(of_moments, "_PSEUDO_ROWS", 0.0)
    X, missing = galaxies(120), holes(120)
    moments = FeatureMoments.estimate(X, missing)
    assert moments.converged
    mean, covariance = moments.mean, moments.covariance
    h = 1e-4

    def slope(dm: Vector | int, dC: Matrix | int) -> float:
        up = log_likelihood(X, missing, mean + h * dm, covariance + h * dC)
        return (up - log_likelihood(X, missing, mean - h * dm, covariance - h * dC)) / (2 * h)

    for f in range(4):
        assert abs(slope(np.eye(4)[f], 0)) < 1e-4
        for g in range(f + 1):
            unit = np.zeros((4, 4))
            unit[f, g] = unit[g, f] = 1
            assert abs(slope(0, unit)) < 1e-4


def test_weights_are_copies() -> None:
    X, missing = galaxies(80), holes(80)
    count = np.random.default_rng(3).integers(0, 4, size=80)
    weighted = FeatureMoments.estimate(X, missing, weight=count)
    copied = FeatureMoments.estimate(np.repeat(X, count, axis=0), np.repeat(missing, count, axis=0))
    np.testing.assert_allclose(weighted.mean, copied.mean, rtol=1e-7)
    np.testing.assert_allclose(weighted.covariance, copied.covariance, rtol=1e-7, atol=1e-8)


def test_each_row_of_a_wide_table_may_have_a_pattern_of_its_own() -> None:
    rng = np.random.default_rng(3)
    X, missing = rng.normal(size=(1500, 60)), rng.random((1500, 60)) < 0.03
    tracemalloc.start()
    moments = FeatureMoments.estimate(X, missing)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert moments.converged
    assert peak < 20 * X.nbytes


def test_units_do_not_matter() -> None:
    X, missing = galaxies(100), holes(100)
    scale, shift = np.array([1e-12, 1e12, 1, 1e4]), np.array([0, 0, 1e3, 0])
    here = FeatureMoments.estimate(X, missing)
    there = FeatureMoments.estimate(X * scale + shift, missing)
    np.testing.assert_allclose((there.mean - shift) / scale, here.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        there.covariance / np.outer(scale, scale), here.covariance, rtol=1e-8, atol=1e-9
    )
    filled, twin = there.impute(X * scale + shift, missing), here.impute(X, missing)
    np.testing.assert_allclose((filled - shift) / scale, twin, rtol=1e-9, atol=1e-9)


def test_feature_missing_in_every_row_is_named() -> None:
    missing = holes()
    missing[:, [1, 3]] = True
    with pytest.raises(ValueError, match=r"feature\(s\) \[1, 3\] are missing in every row.*leave them out"):
        FeatureMoments.estimate(galaxies(), missing)
    weight = np.where(missing[:, 0], 1.0, 0.0)
    with pytest.raises(ValueError, match=r"\[0, 1, 3\]"):
        FeatureMoments.estimate(galaxies(), missing, weight=weight)


@pytest.mark.parametrize(
    "X",
    [
        np.array([[1.0, 2.0, 0.0, -1e9]]),
        np.full((30, 4), 7.5),
        galaxies(3),
        galaxies(50)[:, [0, 0, 1, 1]],
        galaxies(50) * [1, 1, 0, 1],
        galaxies(50) @ np.array([[1, 1, 0, 2.0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]),
        np.add(np.float32(galaxies(50)[:, [0, 0, 1, 1]]), np.array([0, 1e-7, 0, 0])),
    ],
    ids=["one row", "constant", "fewer rows than features", "twice the same", "zero", "rank two", "float32"],
)
@pytest.mark.parametrize("fraction", [0.0, 0.3])
def test_degenerate_sets_get_the_least_ridge_that_serves(X: Matrix, fraction: float) -> None:
    missing = holes(len(X), fraction=fraction)
    missing[np.argmax(~missing.all(axis=1))] = False
    moments = FeatureMoments.estimate(X, missing)
    correlation = moments.covariance / np.sqrt(np.outer(*[np.diag(moments.covariance)] * 2))
    assert np.linalg.eigvalsh(correlation)[0] > 0.4e-8
    for pattern in PATTERNS:
        B, L = moments.conditional(pattern)
        assert np.all(np.isfinite(B))
        assert np.all(np.diag(L) > 0)
    assert np.all(np.isfinite(moments.impute(X, missing)))


def test_a_good_covariance_is_left_alone() -> None:
    X = galaxies()
    X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    moments = FeatureMoments.estimate(X, np.zeros(X.shape, dtype=bool))
    assert moments.converged
    np.testing.assert_allclose(moments.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.covariance, np.cov(X.T, bias=True), rtol=1e-9, atol=1e-12)


@every_pattern
def test_conditional_is_the_textbook_formula(pattern: np.ndarray) -> None:
    """PRML 2.81-82, with an inverse."""
    B, L = FeatureMoments(MEAN, COVARIANCE).conditional(pattern)
    m, o = pattern, ~pattern
    inverse = np.linalg.inv(COVARIANCE[np.ix_(o, o)]) if o.any() else np.zeros((0, 0))
    cross = COVARIANCE[np.ix_(m, o)]
    np.testing.assert_allclose(B, cross @ inverse, atol=1e-14)
    np.testing.assert_allclose(L @ L.T, COVARIANCE[np.ix_(m, m)] - cross @ inverse @ cross.T, atol=1e-14)
    np.testing.assert_array_equal(L, np.tril(L))


def test_imputation_is_the_conditional_mean_row_by_row() -> None:
    moments, X, missing = FeatureMoments(MEAN, COVARIANCE), galaxies(150), holes(150, fraction=0.4)
    assert missing.all(axis=1).any()
    filled = moments.impute(np.where(missing, np.nan, X), missing)
    for x, m, found in zip(X, missing, filled, strict=True):
        B, _ = moments.conditional(m)
        expected = x.copy()
        expected[m] = MEAN[m] + B @ (x[~m] - MEAN[~m])
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        np.testing.assert_array_equal(found[~m], x[~m])


@every_pattern
@pytest.mark.parametrize("n", [16, 65])
def test_nodes_have_the_conditional_moments(pattern: np.ndarray, n: int) -> None:
    moments, X = FeatureMoments(MEAN, COVARIANCE), galaxies(7, seed=5)
    nodes, weight = moments.nodes(np.where(pattern, np.nan, X), pattern, n)
    assert nodes.shape == (len(weight), 7, 4)
    assert len(weight) <= max(n, 16) + 1
    mean = np.einsum("s,snf->nf", weight, nodes)
    covariance = np.einsum("s,snf,sng->nfg", weight, nodes - mean, nodes - mean)
    _, L = moments.conditional(pattern)
    expected = np.zeros((4, 4))
    expected[np.ix_(pattern, pattern)] = L @ L.T
    np.testing.assert_allclose(mean, moments.impute(X, np.tile(pattern, (7, 1))), atol=1e-12)
    np.testing.assert_allclose(covariance, np.tile(expected, (7, 1, 1)), atol=1e-12)
    np.testing.assert_array_equal(nodes[:, :, ~pattern], np.tile(X[:, ~pattern], (len(weight), 1, 1)))


@every_pattern
def test_errors_of_what_is_present_move_what_is_missing(pattern: np.ndarray) -> None:
    """Law of total covariance: C, B C, and B C Bᵀ + L Lᵀ."""
    moments, X = FeatureMoments(MEAN, COVARIANCE), galaxies(3, seed=5)
    sd = np.array([[0.3, 0, 0.2, 1.0], [0.1, 0, 0, 2.0], [0, 0, 0, 0]])
    C = np.einsum("nf,fg->nfg", sd**2, np.eye(4))
    nodes, weight = moments.nodes(X, pattern, 40, errors=sd)
    mean = np.einsum("s,snf->nf", weight, nodes)
    covariance = np.einsum("s,snf,sng->nfg", weight, nodes - mean, nodes - mean)
    B, L = moments.conditional(pattern)
    G = np.zeros((4, (~pattern).sum()))
    G[~pattern], G[pattern] = np.eye(G.shape[1]), B
    expected = G @ C[:, ~pattern][:, :, ~pattern] @ G.T
    expected[:, *np.ix_(pattern, pattern)] += L @ L.T
    np.testing.assert_allclose(mean, moments.impute(X, np.tile(pattern, (3, 1))), atol=1e-12)
    np.testing.assert_allclose(covariance, expected, atol=1e-12)


@settings(max_examples=60)
@given(rows=st.integers(0, 40), columns=st.integers(1, 150), share=st.floats(0, 1), seed=st.integers(0, 999))
def test_patterns_partition_the_rows(rows: int, columns: int, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    missing = (rng.random((rows, columns)) < share)[rng.integers(0, max(rows, 1), size=rows)]
    found = list(missing_patterns(missing))
    assert sorted(np.concatenate([r for _, r in found]).tolist() if found else []) == list(range(rows))
    assert len({p.tobytes() for p, _ in found}) == len(found)
    for pattern, index in found:
        assert np.all(missing[index] == pattern)


def test_what_is_kept_of_a_pattern_is_what_it_gives_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST", 3)  # fewer than there are patterns: it starts anew in between
    moments = FeatureMoments(MEAN, COVARIANCE)
    for pattern in [*PATTERNS, *PATTERNS[::-1]]:
        for found, anew in zip(
            moments.conditional(pattern), FeatureMoments(MEAN, COVARIANCE).conditional(pattern), strict=True
        ):
            assert np.array_equal(found, anew)
            assert not found.flags.writeable
    assert len(moments._conditionals) <= 3
    assert len(PATTERNS) > 3


def test_dict_round_trip_is_exact() -> None:
    moments = FeatureMoments.estimate(galaxies(60), holes(60))
    again = FeatureMoments.from_dict(moments.to_dict())
    assert again.spread is None
    narrow = FeatureMoments.from_dict(replace(moments, spread=np.full(4, 0.5)).to_dict())
    assert np.array_equal(narrow.spread, np.full(4, 0.5))
    np.testing.assert_array_equal(again.mean, moments.mean)
    np.testing.assert_array_equal(again.covariance, moments.covariance)
    assert again.converged is moments.converged is True


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (np.eye(3), r"symmetric covariance \(4, 4\), got \(3, 3\)"),
        (np.triu(np.ones((4, 4))), "symmetric"),
        (np.ones((4, 4)), "not positive definite; take it from"),
        (np.full((4, 4), np.nan), "symmetric|NaN"),
    ],
)
def test_bad_moments_are_refused(covariance: Matrix, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FeatureMoments(MEAN, covariance)


def test_bad_arguments_are_refused() -> None:
    moments = FeatureMoments(MEAN, COVARIANCE)
    X, missing = galaxies(5), np.zeros((5, 4), dtype=bool)
    with pytest.raises(ValueError, match=r"shape \(N, 4\), got \(5, 3\) and \(5, 3\)"):
        moments.impute(X[:, :3], missing[:, :3])
    with pytest.raises(ValueError, match=r"got \(5, 4\) and \(4, 4\)"):
        FeatureMoments.estimate(X, missing[:4])
    with pytest.raises(ValueError, match="NaN or infinite"):
        moments.impute(np.where(np.eye(5, 4) > 0, np.nan, X), missing)
    with pytest.raises(ValueError, match=r"weight must be 5 number"):
        FeatureMoments.estimate(X, missing, weight=-np.ones(5))


def test_beyond_the_limits_a_value_says_what_the_nearest_within_them_does() -> None:
    """So the regression of what is missing on what is present goes on as a constant, not along its slope.

    What is missing stays within the limits too.
    """
    moments = FeatureMoments(np.array([0.0, 1.0]), np.array([[1.0, 0.9], [0.9, 1.0]]), converged=True)
    limits = np.array([[-2.0, -2.0], [2.0, 3.0]])
    X, pattern = np.array([[7.0, np.nan], [0.5, np.nan]]), np.array([False, True])
    missing = np.tile(pattern, (2, 1))
    np.testing.assert_allclose(moments.impute(X, missing), [[7.0, 7.3], [0.5, 1.45]])
    np.testing.assert_allclose(moments.impute(X, missing, limits=limits), [[7.0, 2.8], [0.5, 1.45]])
    narrow = np.array([[-2.0, 2.0], [2.0, 2.5]])
    np.testing.assert_allclose(moments.impute(X, missing, limits=narrow), [[7.0, 2.5], [0.5, 2.0]])
    nodes, _ = moments.nodes(X, pattern, 32, limits=limits)
    plain, _ = moments.nodes(X, pattern, 32)
    assert (plain[:, 1, 1] > 3.0).any()
    np.testing.assert_allclose(nodes[:, 1, 1], np.clip(plain[:, 1, 1], -2.0, 3.0))
    np.testing.assert_allclose(nodes[:, 0, 1], np.clip(plain[:, 0, 1] + 2.8 - 7.3, -2.0, 3.0))


def test_moments_of_rows_in_parts_are_those_of_all() -> None:
    rng = np.random.default_rng(11)
    X = rng.normal(size=(900, 4)) @ rng.normal(size=(4, 4)) + [0, 1e3, 5, -2]
    missing, weight = rng.random((900, 4)) < 0.2, rng.uniform(0.5, 2, 900)
    missing[:300, 2] = False  # a pattern that the first part lacks
    parts = [(X[i : i + 300], missing[i : i + 300], weight[i : i + 300]) for i in (0, 300, 600)]
    whole = FeatureMoments.estimate(X, missing, weight)
    found = FeatureMoments.estimate_of_parts(iter(parts), (X[::7], missing[::7], weight[::7]))
    np.testing.assert_allclose(found.mean, whole.mean, rtol=1e-7)
    np.testing.assert_allclose(found.covariance, whole.covariance, rtol=1e-6, atol=1e-6)


def test_a_feature_that_says_whether_another_is_there_does_not_move_what_fills_it() -> None:
    """How the two vary together is never seen: EM came to no rest, and filled values in that nothing speaks for."""
    X, rng = galaxies(500, seed=11), np.random.default_rng(12)
    missing = np.zeros(X.shape, dtype=bool)
    missing[:, 1] = rng.random(500) < 1 / (1 + np.exp(-(X[:, 0] - X[:, 0].mean()) / X[:, 0].std()))
    alone = FeatureMoments.estimate(X, missing)
    there = np.column_stack([X, ~missing[:, 1]])
    beside = np.column_stack([missing, np.zeros(500, dtype=bool)])
    both = FeatureMoments.estimate(there, beside)
    assert both.converged
    np.testing.assert_allclose(both.mean[:-1], alone.mean, rtol=1e-6)
    np.testing.assert_allclose(both.covariance[:-1, :-1], alone.covariance, rtol=1e-6)
    assert not both.covariance[-1, :-1].any()
    np.testing.assert_allclose(both.impute(there, beside)[:, :-1], alone.impute(X, missing), rtol=1e-6)
    sample = there, beside, np.ones(500)
    parts = [(there[i : i + 100], beside[i : i + 100], np.ones(100)) for i in range(0, 500, 100)]
    np.testing.assert_allclose(
        FeatureMoments.estimate_of_parts(parts, sample).covariance, both.covariance, rtol=1e-6
    )


def test_features_that_vary_where_others_are_there_are_not_kept_apart() -> None:
    X, missing = galaxies(300, seed=13), holes(300, fraction=0.4)
    assert not uninformed(X, missing, np.ones(300)).any()


def moments(nodes: np.ndarray, weight: Vector) -> tuple[Any, ...]:
    """Mean and covariance over the first axis."""
    mean = np.einsum("s,s...->...", weight, nodes)
    centred = nodes - mean
    return mean, np.einsum("s,s...f,s...g->...fg", weight, centred, centred)


@pytest.mark.parametrize("n", [1, 5, 16, 33, 128])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 9, 20])
def test_nodes_have_zero_mean_and_unit_covariance(d: int, n: int) -> None:
    Z, weight = normal_nodes(d, n)
    assert Z.shape == (len(weight), d)
    fewest = 7 if d == 1 else 9
    assert max(n - 1, fewest) <= len(weight) <= max(n + 1, fewest, 4 * d + 1)
    middle = len(Z) // 2
    assert np.delete(weight, middle).min() > 0
    np.testing.assert_allclose(Z, -Z[::-1], atol=1e-14)
    if d > 1:
        assert weight[middle] == 0
        assert not Z[middle].any()
    np.testing.assert_allclose(weight.sum(), 1, rtol=1e-14)
    mean, covariance = moments(Z, weight)
    np.testing.assert_allclose(mean, 0, atol=1e-14)
    np.testing.assert_allclose(covariance, np.eye(d), atol=1e-13)


def test_nothing_to_integrate_is_one_node() -> None:
    Z, weight = normal_nodes(0, 32)
    assert Z.shape == (1, 0)
    assert weight.tolist() == [1]


@pytest.mark.parametrize(
    ("d", "n", "root_mean_square"),
    [(1, 32, 0.0005), (2, 32, 0.013), (3, 32, 0.02), (5, 32, 0.03), (2, 128, 0.003), (3, 128, 0.007)],
)
def test_error_through_curved_logits_is_as_documented(d: int, n: int, root_mean_square: float) -> None:
    """Random quadratics with a logit of standard deviation 3, against 65 536 scrambled Sobol points."""
    rng = np.random.default_rng(d)
    draws = ndtri(Sobol(d, rng=rng).random_base2(16))
    Z, weight = normal_nodes(d, n)
    errors = []
    for _ in range(40):
        b, A, shift = rng.normal(size=d), rng.normal(size=(d, d)) / 2, rng.normal()

        def logit(z: Matrix, b: Vector = b, A: Matrix = A) -> Vector:
            return z @ b + np.einsum("nf,fg,ng->n", z, A, z)

        truth = logit(draws)
        scale, centre = 3 / truth.std(), truth.mean()
        truth = expit(scale * (truth - centre) + shift).mean()
        errors.append(weight @ expit(scale * (logit(Z) - centre) + shift) - truth)
    assert np.sqrt(np.mean(np.square(errors))) < root_mean_square


def error_nodes(X: Matrix, errors: Matrix, n: int) -> tuple[Matrix, Vector]:
    """Return the nodes of complete rows with errors."""
    F = X.shape[1]
    return FeatureMoments(np.zeros(F), np.eye(F)).nodes(X, np.zeros(F, dtype=bool), n, errors=errors)


def test_rows_without_error_do_not_move() -> None:
    X = np.arange(6.0).reshape(2, 3)
    nodes, weight = error_nodes(X, np.zeros((2, 3)), 16)
    np.testing.assert_array_equal(nodes, X[None])
    assert weight.tolist() == [1]
    nodes, _ = error_nodes(X, np.array([[0.0, 0, 0], [0, 1, 0]]), 16)
    np.testing.assert_array_equal(nodes[:, 0], np.broadcast_to(X[0], (16, 3)))
