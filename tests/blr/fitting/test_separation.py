"""Separation, redundant columns and ranks: found where data have them, with proofs that the tests check again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import rankdata

import blr.fitting.newton
from blr.arrays import Matrix, Vector, mid_ranks
from blr.basis.kinds import fit_basis
from blr.fitting.newton import Separation, find_collinearity, find_separation
from blr.fitting.problem import Stream
from blr.shift import auc, quantile
from blr.sums import Rows


def separation(Phi: Matrix, t: np.ndarray, K: int = 2, weight: None = None) -> Separation:
    return find_separation(Rows(np.ascontiguousarray(Phi, dtype=float), t, weight), K, Phi.shape[1])


def one_program(Phi: Matrix, t: Vector) -> str:
    """Return the answer of one linear program over all rows: none, quasi or complete."""
    A = Phi * (2 * t - 1)[:, None]
    some = linprog(-A.sum(axis=0), A_ub=-A, b_ub=np.zeros(len(A)), bounds=(-1, 1))
    if -some.fun < 1e-7:
        return "none"
    cost, widened = np.r_[np.zeros(A.shape[1]), -1], np.c_[-A, np.ones(len(A))]
    all_ = linprog(cost, A_ub=widened, b_ub=np.zeros(len(A)), bounds=(-1, 1))
    return "complete" if all_.x[-1] > 1e-7 else "quasi"


@pytest.fixture
def noise() -> tuple[Matrix, Vector]:
    rng = np.random.default_rng(0)
    Phi = np.column_stack([np.ones(200), rng.standard_normal((200, 3))])
    return Phi, (rng.random(200) < 0.5).astype(float)


def test_complete_names_classes_and_columns(noise: tuple[Matrix, Vector]) -> None:
    Phi, _ = noise
    found = separation(Phi, (Phi[:, 2] > 0.1).astype(float))
    assert found[:2] == ("complete", ((0, 1),))
    assert found[2][0] == 2


def test_quasi_by_a_rare_indicator(noise: tuple[Matrix, Vector]) -> None:
    """Five rows of one class only carry the indicator: none of them is near to being wrong."""
    Phi, t = noise
    rare = (np.arange(200) < 5).astype(float)
    t[:5] = 1
    found = separation(np.column_stack([Phi, rare]), t)
    assert found == ("quasi", ((0, 1),), (4,))
    t[4] = 0
    assert separation(np.column_stack([Phi, rare]), t)[0] == "none"


@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_one_program_over_all_rows(seed: int) -> None:
    """Small sets of integers, where overlap, ties and both separations all happen."""
    rng = np.random.default_rng(seed)
    Phi = np.column_stack([np.ones(12), rng.integers(-2, 3, (12, 3))]).astype(float)
    t = (Phi[:, 1] + 1.5 * rng.standard_normal(12) > 0).astype(float)
    t[:2] = 0, 1
    assert separation(Phi, t)[0] == one_program(Phi, t)


def test_more_columns_than_rows_are_separable() -> None:
    rng = np.random.default_rng(0)
    assert separation(rng.standard_normal((20, 50)), (np.arange(20) < 9).astype(float))[0] == "complete"


def test_scales_collinear_and_empty_columns_do_not_matter(noise: tuple[Matrix, Vector]) -> None:
    Phi, t = noise
    scaled = [Phi * [1.0, scale, 1.0, 1 / scale] for scale in (1.0, 1e-12, 1e12)]
    for X in (*scaled, np.column_stack([Phi, 2 * Phi[:, 1], np.zeros(200)])):
        assert separation(X, t)[0] == "none"
        assert separation(X, (Phi[:, 1] > 0).astype(float))[0] == "complete"


def test_three_classes(noise: tuple[Matrix, Vector]) -> None:
    Phi, _ = noise
    k = np.digitize(Phi[:, 1] + Phi[:, 2], [-0.5, 0.5])
    found = separation(Phi, np.eye(3)[k], 3)
    assert found[:2] == ("complete", ((0, 1), (0, 2), (1, 2)))
    assert set(found[2][:2]) == {1, 2}
    rng = np.random.default_rng(1)
    found = separation(Phi, np.eye(3)[np.where(Phi[:, 1] > 0.5, 2, rng.integers(0, 2, 200))], 3)
    assert found[:2] == ("quasi", ((0, 2), (1, 2)))
    assert separation(Phi, np.eye(3)[rng.integers(0, 3, 200)], 3)[0] == "none"
    found = separation(Phi, np.eye(4)[np.random.default_rng(1).integers(0, 3, 200)], 4)
    assert found[0] == "quasi"  # an absent class is separated


def test_a_row_with_both_classes_overlaps_itself(noise: tuple[Matrix, Vector]) -> None:
    """One row of votes for both sides ends a separation that all other rows allow."""
    Phi, _ = noise
    t = (Phi[:, 1] > 0).astype(float)
    far = int(Phi[:, 1].argmax())
    t[far] = 0.9
    assert separation(Phi, t)[0] == "none"
    assert separation(Phi, np.full(200, 0.5))[0] == "none"


def test_rows_without_weight_do_not_count(noise: tuple[Matrix, Vector]) -> None:
    Phi, _ = noise
    t = (Phi[:, 1] > 0).astype(float)
    t[:7] = 1 - t[:7]
    weight = np.ones(200)
    assert separation(Phi, t, weight=weight)[0] == "none"
    weight[:7] = 0
    assert separation(Phi, t, weight=weight)[0] == "complete"


def test_a_start_and_a_stream_change_nothing(noise: tuple[Matrix, Vector]) -> None:
    Phi, t = noise
    chunks = [(Phi[i : i + 30], t[i : i + 30], None) for i in range(0, 200, 30)]
    assert find_separation(Stream(chunks, 4, threads=2), 2, 4)[0] == "none"
    data = Rows(Phi, (Phi[:, 1] > 0).astype(float))
    theta = np.array([0.0, 3.0, 0.0, 0.0])
    _, *terms = data.accumulate(blr.fitting.newton.likelihood_terms(blr.fitting.newton.Bernoulli(), theta))
    assert find_separation(data, 2, 4, (theta, *terms))[0] == "complete"


def test_a_start_far_off_is_left_by_newton_steps(
    noise: tuple[Matrix, Vector], monkeypatch: pytest.MonkeyPatch
) -> None:
    Phi, t = noise
    monkeypatch.setattr(blr.fitting.newton, "_by_program", None)  # overlap is proven without it
    data, theta = Rows(Phi, t), np.array([0.0, 3.0, 0.0, 0.0])
    _, *terms = data.accumulate(blr.fitting.newton.likelihood_terms(blr.fitting.newton.Bernoulli(), theta))
    assert find_separation(data, 2, 4, (theta, *terms))[0] == "none"


@pytest.mark.parametrize("variance", [1e-12, 1e-20])
def test_a_prior_that_outweighs_the_data_has_a_verdict(noise: tuple[Matrix, Vector], variance: float) -> None:
    """The Hessian, what is left of A less the prior's precision, is then rounding, negative somewhere."""
    Phi, t = noise
    q = blr.fit(Phi, t, blr.GaussianPrior(0.0, np.array([1e4, variance, variance, variance])))
    assert q.trust.verdict == "green"
    assert q.trust.numbers["separation"] == 0


def test_a_program_of_which_the_simplex_method_goes_in_circles_ends() -> None:
    # All margins meet at zero.  On these rows the simplex method of SciPy 1.17 never ends.
    rng = np.random.default_rng(31)
    size = rng.gamma(3, 1, 300)
    lengths = [size * rng.uniform(0.9, 1.1, 300) for _ in range(4)]
    weights = [np.round(size**3 * rng.uniform(0.7, 1.3, 300), 3) for _ in range(3)]
    X = np.round(np.column_stack([*lengths, *weights]), 2)
    age = np.digitize(size + rng.normal(0, 1, 300), [2.2, 3.6])
    basis = fit_basis("rbf", X, rng=rng, centres=66, width=0.7 * np.sqrt(7), linear=True, soften=True)
    # Which of the two it is depends on the last digits of the centres, and so on the processor.
    assert separation(basis(X), np.eye(3)[age], 3)[0] in {"none", "quasi"}


def test_a_program_that_no_method_ends_or_that_is_too_large_is_unknown(
    noise: tuple[Matrix, Vector], monkeypatch: pytest.MonkeyPatch
) -> None:
    Phi, t = noise
    t[:5] = 1
    with_rare = np.column_stack([Phi, np.arange(200) < 5])
    assert separation(with_rare, t)[0] == "quasi"
    with monkeypatch.context() as patch:
        patch.setattr(blr.fitting.newton, "_LARGEST_PROGRAM", 20)
        assert separation(with_rare, t)[0] in {"unknown", "quasi"}
    monkeypatch.setattr(blr.fitting.newton, "_MOST_STEPS", 0)
    assert separation(with_rare, t)[0] == "unknown"


MANY_TIES = np.random.default_rng(3).integers(0, 50, 1000) / 7


@pytest.mark.parametrize(
    "x", [[], [3.0], [2, 2, 2], [0.0, -0.0, 1], [5, 1, 5, -np.inf, 2, np.inf], MANY_TIES]
)
def test_ranks_are_scipys(x: Any) -> None:
    assert np.array_equal(mid_ranks(x), rankdata(x))


def in_parts(x: np.ndarray, n: int) -> Callable[[], list[np.ndarray]]:
    """Return what gives x in n parts, one of them empty."""
    return lambda: [*np.array_split(x, n), x[:0]]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("q", [0.0, 0.3, 0.5, 0.99, 1.0])
def test_a_quantile_has_the_bits_of_numpys(n: int, q: float) -> None:
    x = np.random.default_rng(n).standard_cauchy(n)
    for values in (x, np.round(x), np.full(n, -2.5), 1e-310 * x):
        assert quantile(in_parts(values, 3), q) == np.quantile(values, q)


def test_deviation_of_the_auc_is_delongs_of_all_pairs() -> None:
    rng = np.random.default_rng(1)
    score, positive = np.round(rng.standard_normal(60), 1), rng.random(60) < 0.3
    score[positive] += 0.5
    gap = score[positive][:, None] - score[~positive]
    pairs = np.where(gap == 0, 0.5, gap > 0)
    variance = (
        pairs.mean(axis=1).var(ddof=1) / positive.sum() + pairs.mean(axis=0).var(ddof=1) / (~positive).sum()
    )
    for n in (1, 5):
        found = auc(in_parts(score[~positive], n), score[positive])
        assert found == pytest.approx((pairs.mean(), np.sqrt(variance)), rel=1e-12)


def found(Phi: Matrix, weight: Vector | None = None) -> tuple[Any, Any]:
    return find_collinearity(Rows(np.ascontiguousarray(Phi, dtype=float), np.zeros(len(Phi)), weight))


@pytest.fixture
def columns() -> Matrix:
    rng = np.random.default_rng(0)
    return np.column_stack([np.ones(300), rng.standard_normal((300, 3))])


@pytest.mark.parametrize(
    ("of", "twins"),
    [*(([0, 0, scale, 0], {2}) for scale in (1.0, 1e-12, 1e12)), ([0, 1, 0, 2], {1, 3}), ([7, 0, 0, 0], {0})],
)
def test_a_combination_is_named_with_its_parts(columns: Matrix, of: list[float], twins: set[int]) -> None:
    ((column, others),) = found(np.column_stack([columns, columns @ of]))[1]
    assert {column, *others} == twins | {4}


def test_redundant_columns_are_counted(columns: Matrix) -> None:
    def count(Phi: Matrix, weight: Vector | None = None) -> int:
        return sum(map(len, found(Phi, weight)))

    for scale in (1.0, 1e-12, 1e12):
        assert count(columns * [1, scale, 1, 1 / scale]) == 0
    assert count(columns + np.array([0, 1000, 0, 0])) == 0  # 1,000 plus or minus one is a narrow column
    assert found(np.column_stack([columns, np.zeros(300)]))[0] == (4,)
    assert count(np.random.default_rng(0).standard_normal((5, 20))) == 15
    assert count(columns, (np.arange(300) < 3).astype(float)) == 1
